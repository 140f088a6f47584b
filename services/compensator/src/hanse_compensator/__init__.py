"""Hanse's compensator: sums the masks of one set of a session's participants, once. It never sees an update."""
