"""The two servers that a hub needs, as programs on this machine: for the embedded hub and for tests."""
