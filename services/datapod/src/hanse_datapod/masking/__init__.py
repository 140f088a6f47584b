"""The site's part of masked sums: masked answers, pairwise masks, one answer for each session."""
