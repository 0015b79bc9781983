"""JSON arrays: elements are stored unchanged, and syntax errors have their position."""

import gzip
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import MB, opened, told, walk
from support.counted_work import measure_peak_bytes
from tidemill.core.errors import InvalidInput
from tidemill.files.formats import json_reader

JSON = {"format": "json"}


def test_json_array_elements_become_records() -> None:
    data = b'\xef\xbb\xbf [ {"a": "x,]}\\"["}, [1, [2]], "t,]", 4 ,null, {} ]\n'
    assert told(data, JSON) == ([{"a": 'x,]}"['}, [1, [2]], "t,]", 4, None, {}], None)


def test_json_empty_array_has_no_records() -> None:
    assert told(b"[]", JSON) == told(b" [ \n ] \n", JSON) == ([], None)


def test_json_element_text_is_kept_exactly() -> None:
    (first, second) = walk(opened(b'[{"n": 1.50,  "m": 12345678901234567890},\n {\n"b": 2}\n]', JSON))
    assert first.input == b'{"n": 1.50,  "m": 12345678901234567890}'
    assert (first.line, second.line) == (1, 2)


@pytest.mark.parametrize(
    ("data", "good", "message"),
    [
        (b"", 0, "The file is empty"),
        (b'{"data": []}', 0, "an array"),
        (b"[1, 2", 1, "byte 4, line 1: unclosed element"),
        (b'[{"a": 1}, {"a": 2', 1, "byte 11, line 1: unclosed element"),
        (b"[1,\n2,\n]", 2, "byte 7, line 3: missing element"),
        (b"[1,,2]", 1, "missing element"),
        (b'[{"a":1} {"b":2}]', 1, "byte 9, line 1: missing comma"),
        (b"[1] 2", 1, "byte 4, line 1: unexpected data after the array"),
        (b"[1}", 1, "missing comma"),
        (b'["a', 0, "unclosed element"),
        (b"[", 0, "unclosed array"),
    ],
)
def test_json_syntax_error_reports_position_after_good_elements(data: bytes, good: int, message: str) -> None:
    for rows in (1, 100):
        found, error = told(data, JSON, rows=rows)
        assert len(found) == good
        assert message in (error or "")


def test_json_invalid_element_fails_alone() -> None:
    found, error = told(b'[{"a": NaN}, {"a": "\xff"}, {"a": "\\u0000"}, {"a": 1}]', JSON)
    assert error is None
    assert [str(each)[:16] for each in found[:3]] == ["Row is not valid", "Row is not valid", "Row contains a N"]
    assert found[3] == {"a": 1}


def test_json_oversized_element_fails_alone_without_being_loaded() -> None:
    long = b"[" + b",".join(b'"%d"' % n for n in range(100_000)) + b"]"
    data = b"[1, " + long + b", 2]"
    tracemalloc.start()
    try:
        found, error = told(data, JSON, limit=10_000)
        peak = tracemalloc.get_traced_memory()[1] - len(data)
    finally:
        tracemalloc.stop()
    assert (found, error) == ([1, "Row is longer than 10000 bytes", 2], None)
    assert peak < 3 << 20


def test_json_unterminated_string_is_not_loaded() -> None:
    data = b'[1, "' + b"x" * 10_000_000
    found: list[Any] = []
    peak = measure_peak_bytes(lambda: found.extend(told(data, JSON, limit=100_000)))
    assert found == [[1], "Invalid JSON at byte 4, line 1: unclosed element"]
    assert peak < 3 * MB + len(data)  # the stream of the test copies the data once


@pytest.mark.parametrize("number", [b"1.5", b"2e5", b"-3", b"1.5E+3"])
def test_json_number_at_the_end_of_the_buffer_is_complete(number: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "STREAM_READ_BYTES", 100)
    count = 100 // len(number)
    for blanks in range(len(number) + 1):
        data = b"[" + b" " * blanks + b",".join([number] * count) + b"]"
        assert told(data, JSON, rows=count) == ([json.loads(number)] * count, None)


@pytest.mark.parametrize(
    "element", [b'"' + b"x" * 250 + b'"', b"[" + b" " * 250 + b"1]", b"1" + b" " * 250, b"1.2.3", b"nul"]
)
def test_json_element_is_the_same_wherever_the_buffer_ends(element: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"[" + element + b", 2]"
    expected = told(data, JSON, limit=200)
    for size in (1, 7, 100, 201, 300):
        monkeypatch.setattr(json_reader, "STREAM_READ_BYTES", size)
        assert told(data, JSON, limit=200) == expected, f"chunks of {size} bytes"


def test_json_checkpoint_at_end_resumes_with_no_records() -> None:
    block = opened(b"[1, 2]", JSON).read(10, 1_000)
    assert opened(b"[1, 2]", JSON, block.checkpoint).read(10, 1_000).inputs == []


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-100, 100), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def storable(value: Any) -> bool:
    return "\\u0000" not in json.dumps(value).replace("\\\\", "") and "\\ud" not in json.dumps(value)


@given(st.lists(values.filter(storable), max_size=8), st.sampled_from([None, 1]), st.integers(1, 9))
def test_json_round_trip_resumes_from_every_checkpoint(written: list[Any], indent: int | None, rows: int) -> None:
    data = json.dumps(written, indent=indent, ensure_ascii=False).encode()
    assert told(data, JSON, rows=rows) == (written, None)
    records = list(walk(opened(data, JSON)))
    for n, record in enumerate(records, 1):
        assert list(walk(opened(data, JSON, record.checkpoint))) == records[n:]


@given(st.binary(max_size=60))
def test_json_reading_of_garbage_terminates(data: bytes) -> None:
    _, error = told(b"[" + data, JSON, rows=5)
    assert error != ""


def test_json_byte_order_mark_in_several_chunks_is_ignored() -> None:
    data = b"".join(gzip.compress(part) for part in (b"\xef", b"\xbb", b"\xbf[1,", b"2]"))
    assert told(data, JSON | {"compression": "gzip"}) == ([1, 2], None)


def test_json_element_of_escapes_is_scanned_without_more_memory() -> None:
    data = b'[{"a": NaN, "b": "' + b"\\n" * MB + b'"}, 1]'  # invalid JSON, so that the slow scan finds its end
    found: list[Any] = []
    peak = measure_peak_bytes(lambda: found.extend(told(data, JSON, limit=4 * MB)[0]))
    assert found[1:] == [1]
    assert peak < 8 * len(data)


ITEMS = b'{"count": 2, "next": {"items": [0]}, "items": [{"id": 1.50},\n{"id": 2}], "more": [[1, "]"]]}\n'


def test_json_list_within_object_becomes_records() -> None:
    (first, second) = walk(opened(ITEMS, JSON | {"records": "items"}))
    assert [(first.input, first.line), (second.input, second.line)] == [(b'{"id": 1.50}', 1), (b'{"id": 2}', 2)]
    rest = opened(ITEMS, JSON | {"records": "items"}, first.checkpoint)
    assert [read.input for read in walk(rest)] == [second.input]


def test_json_list_within_nested_object_becomes_records() -> None:
    large = b'{"skip": "' + b"x" * MB * 2 + b'", "data": {"a\\u0062": [3, 4], "x": "' + b"y" * MB * 2 + b'"}}'
    assert told(large, JSON | {"records": "data.ab"}) == ([3, 4], None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": [1]}', 'records: the JSON file has no list "items"'),
        (b'{"items": {"a": 1}}', 'records: "items" is not a list in the JSON file'),
        (b'{"items" [1]}', "missing colon"),
        (b'{"items": [1], "a": 1', "unclosed"),
        (b'{"items": [1]}\n{"items": [2]}', "unexpected data after the object"),
        (b'{"items": [1] "a": 1}', "missing comma"),
    ],
)
def test_json_object_without_readable_list_is_rejected(data: bytes, message: str) -> None:
    try:
        _, problem = told(data, JSON | {"records": "items"})
    except InvalidInput as error:
        problem = str(error)
    assert message in (problem or "")


@pytest.mark.parametrize("format_", ["json", "ndjson"])
def test_json_nested_objects_are_flattened_if_requested(format_: str) -> None:
    row = b'{"id":1.50,"name":{"first":"Ann","of":{"n":12345678901234567890}},"tags":[{"a":1}],"none":{}}'
    data = b"[" + row + b"]" if format_ == "json" else row
    (found,) = walk(opened(data, {"format": format_, "flatten": True}))
    assert found.input == b'{"id":1.50,"name.first":"Ann","name.of.n":12345678901234567890,"tags":[{"a":1}],"none":{}}'


def test_json_object_with_name_that_occurs_twice_if_flattened_is_reported() -> None:
    data = b'[{"a.b": 1, "a": {"b": 2}}, {"a": {"b": 3}}, 4]'
    found = list(walk(opened(data, JSON | {"flatten": True})))
    assert [read.defect and read.defect["reason"] for read in found] == [
        'Row has two values for "a.b" if nested objects are flattened',
        None,
        None,
    ]
    assert [read.value for read in found[1:]] == [{"a.b": 3}, 4]
