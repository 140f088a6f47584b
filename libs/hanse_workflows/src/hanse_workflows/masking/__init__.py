"""Masked steps: one protocol for each mode, and what they have in common."""
