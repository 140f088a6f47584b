"""The site's data: where they lie (`settings`), how they are read, and whether they fit the project's schema."""
