"""Tables of the user: resource declarations, introspection and value types."""
