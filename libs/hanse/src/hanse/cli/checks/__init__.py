"""The checks of `hanse doctor`, each a finding with what to do about it."""
