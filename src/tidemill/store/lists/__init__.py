"""Lists, page by page: keyset only, and bounded however few rows match."""
