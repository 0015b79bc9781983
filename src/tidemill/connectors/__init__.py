"""Bytes and records: places and formats. They know nothing of jobs."""
