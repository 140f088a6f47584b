"""One participant at work: open tasks come in, are checked, worked off, written down and answered."""
