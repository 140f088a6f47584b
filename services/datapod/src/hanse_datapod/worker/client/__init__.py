"""The agent's side of its workers: processes, pools, and which of them a task is done in."""
