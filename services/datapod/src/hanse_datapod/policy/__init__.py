"""The site's policy file: what this datapod may do, section by section."""
