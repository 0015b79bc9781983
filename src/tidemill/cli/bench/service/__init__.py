"""How quick the service answers, with a big job, a crowd and a large file."""
