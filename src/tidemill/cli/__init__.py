"""The command line: translates, never decides."""
