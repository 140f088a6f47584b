"""Runs in this coordinator's care: who works on which, and how each stands."""
