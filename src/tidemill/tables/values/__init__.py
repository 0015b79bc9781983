"""Converts texts to values that PostgreSQL accepts."""
