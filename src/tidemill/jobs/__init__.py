"""Use cases, routes and commands that every kind of job shares."""
