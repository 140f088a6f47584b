"""Noise that is correlated from round to round (DP-FTRL): matrices, what they hide, and streams of such noise.

Of n rounds the sums X (n, d) are released as X + inv(C) Z with independent normal Z. That tells no more than C X + Z
(Denisov et al. 2022, theorem 2.1, also where a round's sum depends on the releases before it). C is lower triangular
and Toeplitz, so that a round's noise takes off a part of what earlier rounds have added (Kairouz et al. 2021 made such
noise by trees). The sum of all rounds so far, which is the model, then has less of it. `matrix`, `sensitivity` and
`optimum` need the standard library only.
"""
