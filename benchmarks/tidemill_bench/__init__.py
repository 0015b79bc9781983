"""Benchmarks of Tidemill. Not part of the wheel."""
