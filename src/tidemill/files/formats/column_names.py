"""Derives the names of columns whose header has no name or repeats one."""

from collections.abc import Collection, Sequence

from tidemill.core.errors import InvalidInput

FILE_COLUMNS_MAX = 16_384  # as in a workbook


def check_column_count(count: int) -> None:
    if count > FILE_COLUMNS_MAX:
        raise InvalidInput(f"The file has {count:,} columns. At most {FILE_COLUMNS_MAX:,} are allowed.")


def generate_column_names(count: int) -> list[str]:
    """Return the names of a table without a header: column_1, column_2 and so on."""
    check_column_count(count)
    return [f"column_{n}" for n in range(1, count + 1)]


def derive_column_names(header: Sequence[str]) -> list[str]:
    """Return the trimmed names. The fourth column becomes column_4 if it has no name, a second email email_2."""
    check_column_count(len(header))
    trimmed = [name.strip() for name in header]
    taken, names = set(trimmed), []
    seen: set[str] = set()
    counts: dict[str, int] = {}
    for position, name in enumerate(trimmed, 1):
        unique = name
        if not name or name in seen:
            stem, counts[name] = name or "column", counts.get(name, 1) + 1 if name else position
            unique = f"{stem}_{counts[name]}"
            while unique in taken or unique in seen:
                counts[name] += 1
                unique = f"{stem}_{counts[name]}"
        seen.add(unique)
        names.append(unique)
    return names


def drop_unused_blank_names(names: Sequence[str], widths: Collection[int]) -> list[str]:
    """Return the header without its blank names if each row has exactly as many fields as there are other names."""
    filled = [name for name in names if name.strip()]
    return filled if len(filled) > 1 and set(widths) == {len(filled)} else list(names)


def join_header_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one name per column. In all rows but the last, an empty cell belongs to the name to its left.

    It does not if a name above begins at its column.
    """
    if len(rows) == 1:
        return list(rows[0])
    width = max(map(len, rows))
    filled: list[Sequence[str]] = []
    begins: set[int] = set()
    for row in rows[:-1]:
        filled.append(_fill_gaps(row, width, begins))
        begins |= {at for at, name in enumerate(row) if name.strip()}
    filled.append(rows[-1])
    return [" ".join(part for row in filled if at < len(row) and (part := row[at].strip())) for at in range(width)]


def _fill_gaps(row: Sequence[str], width: int, begins: Collection[int]) -> list[str]:
    cells, last = [], ""
    for at in range(width):
        name = row[at].strip() if at < len(row) else ""
        last = name or ("" if at in begins else last)
        cells.append(last)
    return cells


def describe_derived_names(header: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the derived names, such as ``column_4, email_2``; None if every name is from the header."""
    derived = [name for given, name in zip(header, names, strict=True) if given.strip() != name]
    return ", ".join(derived[:20]) + (", …" if len(derived) > 20 else "") if derived else None  # noqa: PLR2004
