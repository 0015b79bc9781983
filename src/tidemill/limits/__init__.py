"""Shared limits: rate, concurrency and permits over all workers."""
