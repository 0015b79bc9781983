"""From text to values that PostgreSQL accepts."""
