"""Use cases, routes and commands shared by all kinds of jobs."""
