"""Database access and the SQL statements of the engine, one per file in ``queries/``."""
