"""Built-in: rows matched against a reconciliation service."""

from tidemill.handlers.matching.handler import match_handler

__all__ = ["match_handler"]
