"""Names of tables as people write them: ``users``, ``public.users``, ``"Order Lines"``."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from tidemill.domain.errors import InvalidInput
from tidemill.domain.resource import Table

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_SCHEMA_AND_NAME = 2


def parts_of(text: str, most: int = _SCHEMA_AND_NAME) -> list[list[str]]:
    """Schema, if there is one, and name; each as PostgreSQL would fold it and, unless that is the same, as written.

    Unquoted names are folded, so ``Users`` is the table ``users`` first. Where there is none, it can only mean "Users".
    """
    wrong = InvalidInput(f'{text!r} is not the name of a table: write users, public.users or "Order Lines"')
    if "\0" in text or not _is_unicode(text):
        raise wrong
    text, parts, at = text.strip(), [], 0
    while found := _PART.match(text, at):
        quoted, plain = found.groups()
        parts.append([quoted.replace('""', '"')] if quoted else _readings(plain.strip()))
        at = found.end() + 1
        if found.end() == len(text):
            break
        if text[found.end()] != ".":
            raise wrong
    if at != len(text) + 1 or not all(all(part) for part in parts):
        raise wrong
    if len(parts) > most:
        raise InvalidInput(f"{text!r} names a database too; tables are those of DATABASE_URL: schema.table")
    return parts


def unknown(text: str, known: Iterable[Table]) -> InvalidInput:
    """There is no such table; the nearest names."""
    names = {str(table): table for table in known}
    bare = {table.name.lower(): shown for shown, table in names.items()}
    wanted = text.strip().replace('"', "").lower()
    near = get_close_matches(wanted, [name.replace('"', "").lower() for name in names], n=3, cutoff=0.7)
    found = [shown for shown in names if shown.replace('"', "").lower() in near]
    found += [bare[name] for name in get_close_matches(wanted.rpartition(".")[2], bare, n=3, cutoff=0.7)]
    nearest = list(dict.fromkeys(found))[:3]
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    return InvalidInput(f"there is no table {text.strip()!r}{hint}")


def _readings(plain: str) -> list[str]:
    folded = "".join(char.lower() if char.isascii() else char for char in plain)
    return list(dict.fromkeys([folded, plain]))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
