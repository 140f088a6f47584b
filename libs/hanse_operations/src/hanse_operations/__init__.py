"""What runs a hub beside its services: its secrets, its stored state, copies of it, its bus and its store as programs.

No service and no site needs it: the image of tools, the embedded hub and tests have it. `python -m hanse_operations`.
"""
