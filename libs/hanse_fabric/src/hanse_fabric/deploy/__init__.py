"""What a deployment needs beside the services: its secrets, its stored state, copies of it. `python -m ...deploy`."""
