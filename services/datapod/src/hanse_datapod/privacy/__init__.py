"""The site's privacy budget, and its share of the noise."""
