"""One file per input, delivered to a blob store."""
