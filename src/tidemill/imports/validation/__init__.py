"""Validation of imported rows."""
