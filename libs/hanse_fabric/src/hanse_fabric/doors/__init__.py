"""Doors: how a site asks a service (`asking`), how services answer (`serving`), and the form of both (`frames`)."""
