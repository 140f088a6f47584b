"""Noise for differential privacy: exact samplers, mechanisms, shares of noise in masked sums, what they are worth."""
