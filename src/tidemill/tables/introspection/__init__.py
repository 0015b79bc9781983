"""What PostgreSQL knows about a table, as a resource with fields and rules."""
