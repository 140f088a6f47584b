"""What jax-privacy 2.0.0 finds for the same questions (Google, https://github.com/google-deepmind/jax_privacy).

Made once on a processor with 64-bit floats, for n rounds and separation s:

    c = toeplitz.optimize_banded_toeplitz(n, bands)              # banded
    c = buffered_toeplitz.optimize(n=n, min_sep=s, max_participations=-(-n // s), min_buffers=d, max_buffers=d,
                                   error="mean").toeplitz_coefs(n)   # buffered
    sqrt(toeplitz.per_query_error(strategy_coef=c, n=n).mean() * toeplitz.minsep_sensitivity_squared(c, min_sep=s, n=n))
"""

BANDED = {
    (100, 10, 10): 9.317657376495053,
    (1000, 10, 10): 75.9065714371779,
    (1000, 50, 20): 25.816564334884568,
}
"""By rounds, separation and bands: prefix error times sensitivity."""
BUFFERED = {
    (100, 10, 2): 9.893516915641973,
    (100, 100, 2): 2.3207829629130425,
}
"""By rounds, separation and buffers."""
