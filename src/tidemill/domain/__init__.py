"""Words and pure decisions. Standard library only: no I/O, no clock, no randomness of its own."""
