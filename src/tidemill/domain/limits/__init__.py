"""Limiters: how often, and how many at a time, everybody together may call somebody."""

from tidemill.domain.limits.declare import check_named, limiters
from tidemill.domain.limits.desk import LimitDesk
from tidemill.domain.limits.limiter import Limiter

__all__ = ["LimitDesk", "Limiter", "check_named", "limiters"]
