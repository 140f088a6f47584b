"""Pairwise secure aggregation (Bonawitz et al. 2017): the sites' masks cancel each other, and nobody else is needed.

Every pair of sites agrees on a key once a run; every session (one attempt at one sum) derives fresh masks from it. The
lower name adds the pair's mask, the higher subtracts it, and each adds a mask of its own besides. What dropped sites
leave in the sum is recovered from secrets that were shared among all; a threshold of the shares is enough. Unlike the
paper, a long-lived key is never shared: what is recovered of a dropped site are its keys of that session alone.

`site` is a site's part, `coordination` the coordinator's (without numpy), `recovery` the aggregator's.
"""
