"""Bulk import of files into tables, with an error per bad row."""
