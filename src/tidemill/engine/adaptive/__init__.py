"""Controllers that follow measurements: batch and chunk sizes, concurrency, system load."""
