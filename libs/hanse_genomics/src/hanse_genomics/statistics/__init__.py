"""Statistics of whole arrays of SNPs: numpy and scipy.special, nothing of cohorts, files or rings."""
