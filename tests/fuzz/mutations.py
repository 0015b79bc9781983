"""Strategies that change valid files: bytes, the members of zip archives, and the footers of Parquet files."""

import io
import struct
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

INTERESTING_BYTES = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80", b"\r", b"\n", b"\xef\xbb\xbf")
PARQUET_TAIL = struct.Struct("<I4s")  # the length of the footer, and PAR1
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ZIP_ENTRY_MARKS = (b"PK\x01\x02", b"PK\x03\x04")


@st.composite
def mutated(
    draw: st.DrawFn, samples: Sequence[bytes], *, fragments: Sequence[bytes] = (), most: int = 5, least: int = 1
) -> bytes:
    """Change a sample: flip, overwrite, insert, delete, duplicate or truncate bytes, or insert one of ``fragments``."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(least, most))):
        data = _change_bytes(draw, data, (*INTERESTING_BYTES, *fragments, *(3 * tuple(fragments))))
    return data


def _change_bytes(draw: st.DrawFn, data: bytes, pieces: Sequence[bytes]) -> bytes:
    at = draw(st.integers(0, len(data)))
    end = min(len(data), at + draw(st.sampled_from([1, 2, 3, 8, 40, 1_000])))
    match draw(st.sampled_from(["flip", "overwrite", "insert", "delete", "duplicate", "truncate", "random"])):
        case "flip" if at < len(data):
            return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        case "overwrite":
            piece = draw(st.sampled_from(pieces))
            return data[:at] + piece + data[at + len(piece) :]
        case "insert":
            return data[:at] + draw(st.sampled_from(pieces)) + data[at:]
        case "delete":
            return data[:at] + data[end:]
        case "duplicate":
            return data[:end] + data[at:end] * draw(st.sampled_from([1, 2, 50])) + data[end:]
        case "truncate":
            return data[:at]
        case _:
            return data[:at] + draw(st.binary(max_size=8)) + data[at:]


@st.composite
def mutated_zip(draw: st.DrawFn, samples: Sequence[bytes], *, fragments: Sequence[bytes] = ()) -> bytes:
    """Change an archive: swap, drop, duplicate, rename, recompress and edit members, then perhaps its bytes."""
    members = list_zip_members(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 3))):
        if not members:
            break
        _change_members(draw, members, fragments)
    data = pack_zip(members, draw(st.sampled_from(ZIP_METHODS)))
    if draw(st.booleans()):
        data = _change_entry_header(draw, data)
    return draw(mutated([data], most=2)) if draw(st.integers(0, 3)) == 0 else data


def list_zip_members(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]


def pack_zip(members: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a duplicate name
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def _change_members(draw: st.DrawFn, members: list[tuple[str, bytes]], fragments: Sequence[bytes]) -> None:
    one, other = (draw(st.integers(0, len(members) - 1)) for _ in range(2))
    (name, data), (other_name, other_data) = members[one], members[other]
    match draw(st.sampled_from(["swap", "drop", "rename", "edit", "edit", "edit", "edit"])):
        case "swap":
            members[one], members[other] = (name, other_data), (other_name, data)
        case "drop":
            del members[one]
        case "rename":
            members[one] = (draw(st.sampled_from([f"../{name}", name.upper(), f"{name}x", "é/\x07", "a/"])), data)
        case _:
            members[one] = (name, draw(mutated([data], fragments=fragments, most=3)))


def _change_entry_header(draw: st.DrawFn, data: bytes) -> bytes:
    """Overwrite two bytes of a header: flags, method, sizes, CRC, lengths or offsets."""
    mark = draw(st.sampled_from(_ZIP_ENTRY_MARKS))
    places = [at for at in range(len(data)) if data.startswith(mark, at)]
    if not places:
        return data
    at = draw(st.sampled_from(places)) + draw(st.integers(4, 46))
    value = draw(st.sampled_from([b"\x00\x00", b"\x01\x00", b"\x00\x08", b"\x0c\x00", b"\x0e\x00", b"\xff\xff"]))
    return data[:at] + value + data[at + 2 :]


@st.composite
def mutated_parquet(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """Change the footer, with a correct length after it, or any bytes."""
    data = draw(st.sampled_from(samples))
    if draw(st.integers(0, 3)) == 0:
        return draw(mutated([data], most=3))
    size = PARQUET_TAIL.unpack(data[-PARQUET_TAIL.size :])[0]
    footer = draw(mutated([data[-PARQUET_TAIL.size - size : -PARQUET_TAIL.size]], most=3))
    return data[: -PARQUET_TAIL.size - size] + footer + PARQUET_TAIL.pack(len(footer), b"PAR1")


@st.composite
def mutated_text(draw: st.DrawFn, samples: Sequence[str], *, fragments: Sequence[str] = (), most: int = 4) -> str:
    """Change a text as ``mutated`` changes bytes."""
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(1, 8)))
        piece = draw(
            st.sampled_from([*fragments, *fragments, "\x00", "\ud800", "é", " ", "9" * 5_000]) | st.text(max_size=4)
        )
        changes = [text[:at] + piece + text[at:], text[:at] + piece + text[end:], text[:at] + text[end:], text[:at]]
        text = draw(
            st.sampled_from([*changes, text[:end] + text[at:end] * draw(st.sampled_from([1, 300])) + text[end:]])
        )
    return text


def any_json(**of: Any) -> st.SearchStrategy[Any]:
    """Return JSON values, also with extreme numbers and texts."""
    scalars = [
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e308, "", "\x00", "\ud800", "9" * 5_000, "x" * 300]),
        *of.values(),
    ]
    return st.recursive(
        st.one_of(scalars),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
        max_leaves=8,
    )
