"""Hanse's aggregator: reductions over updates in bounded memory. Stateless; any number of replicas share one queue."""
