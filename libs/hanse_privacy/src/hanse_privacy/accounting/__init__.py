"""What noise is worth: events, and the accountants that compose them over rounds, runs and projects.

`events` needs nothing but the standard library; `rdp` and `pld` load dp-accounting when they first compute. The exact
curve of a single Gaussian release is `hanse_privacy.noise.gaussian`.
"""
