"""A site's training in several processes at once: started by the worker's process, in its sandbox and its limits."""
