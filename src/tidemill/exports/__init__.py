"""Exports of tables and of job results."""
