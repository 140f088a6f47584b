"""Population structure: LD pruning and principal components over sums of all cohorts. `conduct` needs no numpy."""
