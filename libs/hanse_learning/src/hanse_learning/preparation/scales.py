"""At which scale sums of numbers and of their squares are whole, and in how many limbs (`hanse_privacy.ring.limbs`).

Numbers below 1e20 have squares that 10^12 rows do not overflow; sums and squares of those above 1e-17 are not rounded
at all.
"""

SUM_LIMBS, SUM_FRACTION = 6, 120
SQUARE_LIMBS, SQUARE_FRACTION = 10, 220
"""Limbs, and bits below 1."""
