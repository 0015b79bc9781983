"""Matching rows against a reconciliation service: what is asked, in which words, and what its candidates mean."""

from tidemill.domain.matching.candidates import Candidate, judge
from tidemill.domain.matching.request import KIND, SPELLINGS, MatchRequest
from tidemill.domain.matching.strategies import Query, queries_of

COLUMNS = ("id", "name", "score", "match", "type", "query", "strategy", "candidates")

__all__ = ["COLUMNS", "KIND", "SPELLINGS", "Candidate", "MatchRequest", "Query", "judge", "queries_of"]
