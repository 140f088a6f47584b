"""Numbers as elements of a ring, in which sums under masks are exact. `plan` needs no numpy; the others do."""
