"""The HTTP API: one module per resource; `table` lists every route, and all else is made from that list."""
