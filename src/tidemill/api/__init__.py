"""The HTTP API: translates requests into operations, and what they answer into JSON. It decides nothing."""
