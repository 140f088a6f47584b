"""Attacks as tools: what a coalition learns in spite of the noise, and what an outsider learns from a trained model."""
