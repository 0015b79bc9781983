"""The model and the pure decisions of the engine. Standard library only."""
