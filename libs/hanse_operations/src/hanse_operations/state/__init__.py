"""The stored state, brought to the form that this release reads and writes."""
