"""Training in a process of its own: `port` is what the agent asks, `client` the agent's side, `server` and
`work` the worker's, `pool` workers in other pods."""
