"""Rows of a table on their way out, as COPY delivers them."""

from tidemill.store.extract.copy import Sink, copy_out
from tidemill.store.extract.query import compiled

__all__ = ["Sink", "compiled", "copy_out"]
