"""What a user's own table says no with."""

import re
from collections.abc import Collection

import psycopg

from tidemill.tables.resource import TableName

_TARGET_GONE_MESSAGES = {
    "42P01": "the table is gone",
    "3F000": "the schema is gone",
    "42703": "a column is gone",
    "42804": "a column has another type now",
    "42501": "permission denied",
    "42883": "a column has another type now",
    "25006": "the database is read-only",
    "0A000": "the table does not take rows",
}
_BAD_DATA_STATE_CLASS = "22"  # the class of values that a type does not take
_REJECTION_CODES = {
    "23505": "exists",
    "23503": "unknown_reference",
    "23502": "required",
    "23514": "check",
    "23P01": "exclusion",
}


class TargetGone(Exception):
    """The target is no target any more: no row will ever get in."""


class ConcurrentRowChange(Exception):
    """Others have deleted or changed rows since we looked: these, by the number that the asker gave them."""

    def __init__(self, rows: Collection[int] = ()) -> None:
        super().__init__("others change these rows faster than they can be updated")
        self.rows = rows


class TableRejection(Exception):
    """The table refused rows. ``place`` is that of the bad one, where the server says so."""

    def __init__(self, error: psycopg.Error, table: str) -> None:
        super().__init__((error.diag.message_primary or str(error)).splitlines()[0])
        self.reason = str(self)
        self.code = _REJECTION_CODES.get(error.sqlstate or "", "refused")
        self.column = error.diag.column_name
        self.is_key_conflict = self.code in ("exists", "unknown_reference")  # by another look at the keys
        self.quotes_value = is_bad_data(error)
        # In any language, it is the first number after the name of the table.
        line = re.search(rf"^COPY {re.escape(table)}\D*?(\d+)", error.diag.context or "", re.MULTILINE)
        self.row_index = None if line is None else int(line[1]) - 1


class AmbiguousRejection(TableRejection):
    """Rows were dropped without a word, and others have other keys now: nobody can tell which, of more than one."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        self.reason, self.code, self.column, self.row_index = reason, "refused", None, None
        self.is_key_conflict = self.quotes_value = False


def is_bad_data(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_BAD_DATA_STATE_CLASS)


def raise_if_target_gone(error: psycopg.Error, table: TableName) -> None:
    state = error.sqlstate or ""
    if state in _TARGET_GONE_MESSAGES and not _is_row_error(error):
        raise TargetGone(f"{table}: {_TARGET_GONE_MESSAGES[state]} ({str(error).splitlines()[0]})") from error


def _is_row_error(error: psycopg.Error) -> bool:
    """Whether it comes from within a trigger, a function or a line of COPY: no word about the table itself.

    Of an UPDATE no line is told; that NaN is no integer has the code of tables that take no rows.
    """
    is_within = re.search(r"\bPL/\w+ |\bSQL function\b|^COPY ", error.diag.context or "", re.MULTILINE)
    return bool(is_within) or error.diag.source_file == "numeric.c"
