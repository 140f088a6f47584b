"""The compensator: sums the masks of one set of participants of a session, once."""
