"""Building blocks of commands: consoles, streams, options."""
