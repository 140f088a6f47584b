"""Hanse's web console: it serves a built bundle of pages, and passes their requests on to the hub's HTTP API."""
