"""A datapod whose work is done by a team's own training loop, in the loop's own process: `hanse.join` with a policy
starts it. All else is a datapod's: policy, masks, noise, ledger, journal, and the log of what left."""
