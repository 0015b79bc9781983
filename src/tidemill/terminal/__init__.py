"""What commands are built from: consoles, streams, options."""
