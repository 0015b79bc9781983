"""Measuring exports against psql's COPY."""
