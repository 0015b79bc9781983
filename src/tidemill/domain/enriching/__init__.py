"""Enriching rows by calls of a service: one request for each row, and what is taken from its answer."""

from tidemill.domain.enriching.request import KIND, SPELLINGS, EnrichRequest

__all__ = ["KIND", "SPELLINGS", "EnrichRequest"]
