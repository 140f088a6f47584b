"""A job played at this site alone, without a hub."""
