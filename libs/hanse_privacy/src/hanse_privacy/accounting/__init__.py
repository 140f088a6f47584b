"""What noise is worth: events, and the accountants that compose them over rounds, runs and projects.

`events` and `exact` need nothing but the standard library; `rdp` and `pld` load dp-accounting when they first compute.
"""
