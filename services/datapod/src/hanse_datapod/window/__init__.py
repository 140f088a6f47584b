"""The site's window: a small page that the datapod serves to its administrator, on loopback unless told otherwise."""
