"""The process of a datapod: its settings into participants that take part, each from its own home folder."""
