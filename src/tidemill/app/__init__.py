"""Wiring: builds a Mill, a worker and an API from the settings and the list of features."""
