"""Masks of a summed update: how they are made from a seed, sealed for the compensator, and summed by it."""
