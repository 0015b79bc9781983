"""User tables: resource declarations, introspection and value types."""
