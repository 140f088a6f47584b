"""The demonstration: what it plays, and how it reports."""
