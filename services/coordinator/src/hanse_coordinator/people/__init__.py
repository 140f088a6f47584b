"""People who sign in with a browser: who they are, their passwords and codes, their sessions and cookies."""
