"""What a worker does with a task: by a built-in trainer or by site code, and what stays at the site."""
