"""Hanse's learning algorithms: `server` (numpy) and the sites' side (torch). Importing this package loads neither."""
