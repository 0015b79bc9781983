"""How much of a Parquet file is taken into memory at once: little, whatever the file makes of a few bytes.

A dictionary says a value once for a million rows, and a run says a number of times that it comes. What the file
declares as its size counts neither, so rows are counted by the longest value that they could hold.
"""

from collections.abc import Iterator
from typing import Any

from tidemill.connectors.unpack import RATIO_FROM, RATIO_MAX
from tidemill.domain.errors import InvalidInput

ROWS_MAX = 4_096
BYTES_MAX = 16 << 20  # of rows that Arrow holds at once, where one alone does not have more
PORTION = 4 << 20  # bytes of rows that become objects of Python at once
CELL = 64  # bytes of any value, as an object
SPREAD = 1 << 35  # rows times bytes of their whole group: 2,048 rows at a time of one that has 16 MB
SHRINK = 8  # times as long as its text that a value is at most: decimals of 256 bits
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_RUNS_ON = "DELTA_BYTE_ARRAY"  # a value is the one before it and some more: it has no dictionary


class Bounds:
    """Of one file. ``listed``: columns whose values stay in their dictionary, as lists of them may be of any length."""

    def __init__(self, about: Any) -> None:
        self._about = about
        places = range(about.num_columns)
        words = [at for at in places if about.num_row_groups and self._has_words(at)]
        self.listed = [self._path(at) for at in words if self._is_listed(at)]
        self.worded = [self._path(at) for at in words if not self._is_listed(at)]

    def check(self, packed: int, max_row_bytes: int) -> None:
        """Lists of which some row must have too many, or that no honest file of this size has."""
        for group in self._groups():
            for at in filter(self._is_listed, range(self._about.num_columns)):
                values = group.column(at).num_values
                size = values * self._width(at)
                if values > group.num_rows * max_row_bytes:
                    raise InvalidInput(f"the rows of {self._path(at)} are longer than {max_row_bytes} bytes")
                if size > RATIO_FROM and size > RATIO_MAX * packed:
                    raise InvalidInput(f"the file unpacks to more than {RATIO_MAX} times its size")

    def rows(self, number: int, longest: int) -> int:
        """Rows of a group that are read at once. ``longest``: the sum of the longest values in its dictionaries."""
        group = self._about.row_group(number)
        row, spread = longest, 1
        for at in range(self._about.num_columns):
            column, width = group.column(at), self._width(at)
            row += CELL + width
            if self._is_listed(at):
                spread += column.num_values * width
            if column.physical_type == "BYTE_ARRAY":
                spread += column.total_uncompressed_size
                row += column.total_uncompressed_size if _RUNS_ON in column.encodings else 0
        return max(1, min(ROWS_MAX, BYTES_MAX // row, SPREAD // spread))

    def _groups(self) -> Iterator[Any]:
        return (self._about.row_group(number) for number in range(self._about.num_row_groups))

    def _has_words(self, at: int) -> bool:
        columns = [group.column(at) for group in self._groups()]
        return columns[0].physical_type == "BYTE_ARRAY" and not any(_RUNS_ON in one.encodings for one in columns)

    def _is_listed(self, at: int) -> bool:
        return bool(self._about.schema.column(at).max_repetition_level)

    def _path(self, at: int) -> str:
        return str(self._about.schema.column(at).path)

    def _width(self, at: int) -> int:
        column = self._about.schema.column(at)
        return _WIDTHS.get(column.physical_type) or max(1, column.length)


def longest(batch: Any) -> int:
    """The sum of the longest values in the dictionaries of a batch: all that its group has, however few its rows."""
    from pyarrow import compute  # noqa: PLC0415

    lengths = (compute.max(compute.binary_length(one.dictionary)).as_py() for one in _dictionaries(batch.columns))
    return sum(length or 0 for length in lengths)


def weight(array: Any) -> int:
    """Bytes of these values, each written out."""
    from pyarrow import compute, types  # noqa: PLC0415

    kind = array.type
    if types.is_dictionary(kind) and (types.is_string(kind.value_type) or types.is_binary(kind.value_type)):
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(lengths).as_py() or 0) + len(array)
    if types.is_struct(kind):
        return sum(map(weight, array.flatten()))
    if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        lo, hi = array.offsets[0].as_py(), array.offsets[-1].as_py()
        children = (array.keys, array.items) if types.is_map(kind) else (array.values,)
        return sum(weight(child.slice(lo, hi - lo)) for child in children)
    return int(array.nbytes)


def weight_of(batch: Any) -> int:
    return sum(map(weight, batch.columns)) + int(batch.num_rows * batch.num_columns) * CELL


def portions(batch: Any) -> Iterator[Any]:
    """The same rows, in parts that are not too much at once; a row may be that by itself."""
    half = batch.num_rows // 2
    if half and weight_of(batch) > PORTION:
        yield from portions(batch.slice(0, half))
        yield from portions(batch.slice(half))
    else:
        yield batch


def _dictionaries(arrays: list[Any]) -> Iterator[Any]:
    from pyarrow import types  # noqa: PLC0415

    for array in arrays:
        if types.is_dictionary(array.type):
            yield array
        elif types.is_struct(array.type):
            yield from _dictionaries(array.flatten())
