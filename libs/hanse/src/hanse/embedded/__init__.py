"""The embedded hub: real servers and all services as supervised processes on loopback, state in one folder."""
