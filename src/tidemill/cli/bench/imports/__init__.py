"""Measuring imports against COPY."""
