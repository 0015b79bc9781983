"""Named events, and the logs and metrics that subscribe to them."""
