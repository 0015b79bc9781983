"""Matching and enriching rows with external services."""
