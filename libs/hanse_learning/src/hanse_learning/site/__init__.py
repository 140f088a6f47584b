"""Learning at a site, in torch: models, their tensor files, training, evaluation. Importing it loads no torch yet."""
