"""Runs the SQL scripts of users, statement by statement."""

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus

from tidemill.core.errors import InvalidInput, InvalidSql
from tidemill.store.database import Connection, Database

SCRIPT_CANCEL_TIMEOUT_S = 5.0
_COPY_STATUSES = (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH)


@dataclass(slots=True)
class StatementResult:
    """The result of one statement of a script."""

    status: str = ""  # as PostgreSQL reports it, such as "CREATE TABLE" or "SELECT 3"
    columns: list[str] = field(default_factory=list)  # empty if the statement returns no rows
    rows: list[list[Any]] = field(default_factory=list)  # the first rows only
    row_count: int = 0  # all returned rows


async def run_statements(db: Database, text: str, *, row_limit: int, as_text: bool) -> AsyncIterator[StatementResult]:
    """Run the statements of a text in one transaction, and yield the result of each statement.

    Statements such as BEGIN and COMMIT in the text end this transaction. Rows above ``row_limit`` are counted and not
    kept. With ``as_text``, values are texts as PostgreSQL formats them.

    Raises:
        InvalidSql: A statement failed; the message has its line and column.
    """
    async with db.connection() as conn:
        try:
            async for result in _iterate_results(conn, text, row_limit, as_text=as_text):
                yield result
            if conn.pgconn.transaction_status != TransactionStatus.IDLE:
                await conn.rollback()
                raise InvalidSql("The script did not end its transaction, so it was rolled back. Add COMMIT.")
        finally:
            if conn.pgconn.transaction_status == TransactionStatus.ACTIVE:  # interrupted, or COPY waits for data
                await conn.cancel_safe(timeout=SCRIPT_CANCEL_TIMEOUT_S)
                await conn.close()


async def _iterate_results(
    conn: Connection, text: str, row_limit: int, *, as_text: bool
) -> AsyncIterator[StatementResult]:
    """Send the text with the simple query protocol, which accepts several statements, and read one row at a time."""
    pgconn, transformer = conn.pgconn, Transformer(conn)
    pgconn.send_query(text.encode())
    pgconn.set_single_row_mode()
    await conn.wait(generators.send(pgconn))
    current, error = StatementResult(), None
    while (result := await conn.wait(generators.fetch(pgconn))) is not None:
        status = result.status
        if status in (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK):
            if not current.columns:
                names = [result.fname(index) or b"" for index in range(result.nfields)]
                current.columns = [name.decode() for name in names]
            current.row_count += result.ntuples
            if result.ntuples and len(current.rows) < row_limit:
                current.rows.append(_decode_row_values(transformer, result, as_text=as_text))
        elif status == ExecStatus.FATAL_ERROR:
            error = psycopg.errors.error_from_result(result)
        elif status in _COPY_STATUSES:
            raise InvalidSql(
                "COPY with STDIN or STDOUT is not available in a script. Use `tidemill import` or `tidemill export`."
            )
        if status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            current.status = (result.command_status or b"").decode()
            yield current
            current = StatementResult()
    if error is not None:
        raise InvalidSql(_format_sql_error(error, text)) from error


def _decode_row_values(transformer: Any, result: Any, *, as_text: bool) -> list[Any]:
    row: list[Any] = []
    for index in range(result.nfields):
        encoded = result.get_value(0, index)
        text = None if encoded is None else encoded.decode()
        row.append(
            text if encoded is None or as_text else _decode_value(transformer, result.ftype(index), encoded, text)
        )
    return row


def _decode_value(transformer: Any, type_oid: int, encoded: bytes, text: str | None) -> Any:
    """Return the value for JSON: a number, a boolean, a list, …; otherwise its text."""
    try:
        value = transformer.get_loader(type_oid, Format.TEXT).load(encoded)
    except psycopg.DataError:  # Python has no such value, for example the timestamp "infinity"
        return text
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return text
    return value


def _format_sql_error(error: psycopg.Error, text: str) -> str:
    """Return the message of PostgreSQL with the line and the column in the text, and the hint."""
    position = int(error.diag.statement_position or 0)
    before = text[: position - 1]
    where = f" on line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10)) - 1}" if position else ""
    message = error.diag.message_primary or str(error).strip()
    details = [part for part in (error.diag.message_detail, error.diag.message_hint) if part]
    return f"SQL error{where}: " + ". ".join(part.rstrip(".") for part in [message, *details])


def check_sql_script_text(text: str, name: str) -> None:
    """Raise InvalidInput if a text cannot be sent to PostgreSQL."""
    if not text.strip():
        raise InvalidInput(f"{name} contains no SQL statement")
    if "\0" in text:
        raise InvalidInput(f"{name} contains a NUL character, which SQL statements cannot contain")
