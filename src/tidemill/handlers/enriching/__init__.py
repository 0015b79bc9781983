"""Built-in: rows enriched by calls of a service."""

from tidemill.handlers.enriching.handler import enrich_handler

__all__ = ["enrich_handler"]
