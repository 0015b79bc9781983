"""Bulk import of files into tables, with an error for every invalid row."""
