"""What a site answers to a task, and how that is handed in."""
