"""Names of tables as people write them: ``users``, ``public.users``, ``"Order Lines"``."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from tidemill.core.errors import InvalidInput
from tidemill.tables.resource import TableName

_NAME_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_TABLE_NAME_PARTS_MAX = 2


def parse_table_name(text: str, max_parts: int = _TABLE_NAME_PARTS_MAX) -> list[list[str]]:
    """Schema, if there is one, and name; each as PostgreSQL would fold it and, unless that is the same, as written.

    Unquoted names are folded, so ``Users`` is the table ``users`` first. Where there is none, it can only mean "Users".
    """
    wrong = InvalidInput(f'{text!r} is not the name of a table: write users, public.users or "Order Lines"')
    if "\0" in text or not _is_encodable(text):
        raise wrong
    text, parts, at = text.strip(), [], 0
    while found := _NAME_PART.match(text, at):
        quoted, plain = found.groups()
        parts.append([quoted.replace('""', '"')] if quoted else _list_case_variants(plain.strip()))
        at = found.end() + 1
        if found.end() == len(text):
            break
        if text[found.end()] != ".":
            raise wrong
    if at != len(text) + 1 or not all(all(part) for part in parts):
        raise wrong
    if len(parts) > max_parts:
        raise InvalidInput(f"{text!r} names a database too; tables are those of DATABASE_URL: schema.table")
    return parts


def make_unknown_table_error(text: str, tables: Iterable[TableName]) -> InvalidInput:
    """There is no such table; the nearest names."""
    names = {str(table): table for table in tables}
    bare = {table.name.lower(): shown for shown, table in names.items()}
    wanted = text.strip().replace('"', "").lower()
    near = get_close_matches(wanted, [name.replace('"', "").lower() for name in names], n=3, cutoff=0.7)
    found = [shown for shown in names if shown.replace('"', "").lower() in near]
    found += [bare[name] for name in get_close_matches(wanted.rpartition(".")[2], bare, n=3, cutoff=0.7)]
    nearest = list(dict.fromkeys(found))[:3]
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    return InvalidInput(f"there is no table {text.strip()!r}{hint}")


def _list_case_variants(plain: str) -> list[str]:
    folded = "".join(char.lower() if char.isascii() else char for char in plain)
    return list(dict.fromkeys([folded, plain]))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
