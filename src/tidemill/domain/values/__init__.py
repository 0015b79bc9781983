"""Values on their way into a table: a column at a time, from what a file holds to what COPY takes.

A reader takes the values of one field, row by row, and gives their text form, None for what is missing, and the
flaws it found. Whole columns, because a look at ten thousand values at once costs a fraction of ten thousand looks:
most columns of most files are flawless, and that is seen by one search through their joined text.
"""

from tidemill.domain.values.field import FieldReader
from tidemill.domain.values.flaws import Flaw, Flaws
from tidemill.domain.values.problem import Problem

__all__ = ["FieldReader", "Flaw", "Flaws", "Problem"]
