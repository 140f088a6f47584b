"""Masked sums, differential privacy, and the ledgers that hold a site to its budget."""
