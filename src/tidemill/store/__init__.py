"""Database access and the SQL of the engine: one statement per file in queries/."""
