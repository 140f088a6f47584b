"""Keys, API keys and join tokens."""
