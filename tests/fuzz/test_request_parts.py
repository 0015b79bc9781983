"""Parts of HTTP requests: multipart bodies, JSON bodies, cursors, ranges, keys, filters, and messages of a broker."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

import pydantic
from hypothesis import strategies as st
from starlette.datastructures import Headers

from dispatch.test_envelope import PLAIN
from exports.test_filters import RESOURCE
from fuzz.mutations import any_json, mutated, mutated_text
from fuzz.reading import run_or_reject
from fuzz.targets import fuzz
from support.counted_work import count_calls
from tidemill.core.errors import InvalidInput, InvalidRequest
from tidemill.core.list_pages import ListOrder, parse_cursor_timestamp, parse_cursor_uuid, parse_number
from tidemill.core.row_ranges import is_in_ranges, merge_ranges, select_seqs_between
from tidemill.dispatch.envelope import decode_envelope, encode_envelope, parse_traceparent
from tidemill.exports.table_export_request import (
    build_filter_object,
    parse_filter_condition,
    parse_filter_object,
    parse_query_filters,
    resolve_filters_and_problems,
)
from tidemill.http.middleware import convert_query_to_snake_case
from tidemill.jobs.bulk_operation_schemas import ReprocessIn, RowRange
from tidemill.rest.dependencies import decode_cursor, encode_cursor, parse_idempotency_key
from tidemill.rest.problems import HttpError
from tidemill.rest.request_body import (
    PartData,
    PartEnd,
    PartStart,
    content_length_exceeds,
    has_json_content_type,
    parse_multipart,
    slice_json_array,
)
from tidemill.rest.responses import matches_etag, parse_range_header

FORM_TYPE = 'multipart/form-data; boundary="x-y"'
FORMS = (
    (
        b'--x-y\r\nContent-Disposition: form-data; name="mode"\r\n\r\nupsert\r\n'
        b'--x-y\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n'
        b"id,name\r\n1,--x-\r\n\r\n--x-y--\r\n"
    ),
    b'--x-y\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n--x-y--',
    b"preamble\r\n--x-y\r\n\r\n\r\n--x-y--\r\nepilogue",
)
FORM_FRAGMENTS = (
    *(b"\r\n", b"\n", b"--x-y", b"--x-y--\r\n", b"--", b"\r", b": ", b";", b'"', b"filename*=utf-8''%ff", b"\x00"),
    *(b"Content-Disposition: form-data", b'filename="../\xff\x00"', b"A: b\r\n" * 20, b"Transfer-Encoding: gzip\r\n"),
)
FORM_TYPES = st.sampled_from(
    [FORM_TYPE] * 6 + ["multipart/form-data", "multipart/form-data; boundary=" + "b" * 300, "é;boundary=x-y"]
)
CUTS = st.lists(st.integers(0, 300), max_size=6)


def parse_form(content_type: str, chunks: Sequence[bytes]) -> list[tuple[str, str | None, str, bytes]] | str:
    """Return the complete parts as (name, file name, media type, content), or the detail of the error."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def parse() -> list[tuple[str, str | None, str, bytes]]:
        parts: list[tuple[str, str | None, str, bytes]] = []
        started: PartStart | None = None
        data = b""
        async for event in parse_multipart(content_type, body()):
            match event:
                case PartStart():
                    started, data = event, b""
                case PartData():
                    data += event.data
                case PartEnd():
                    assert started is not None
                    parts.append((started.name, started.filename, started.media_type, data))
        return parts

    try:
        return asyncio.run(parse())
    except HttpError as error:
        assert error.status == 400
        return error.detail[:30]


@fuzz(examples=60, body=mutated(FORMS, fragments=FORM_FRAGMENTS, least=0), content_type=FORM_TYPES, cuts=CUTS)
def test_multipart_parts_do_not_depend_on_chunks(body: bytes, content_type: str, cuts: list[int]) -> None:
    whole = parse_form(content_type, [body])
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert parse_form(content_type, [body[a:b] for a, b in pairwise(places)]) == whole
    assert parse_form(content_type, [body[at : at + 1] for at in range(len(body))]) == whole


@fuzz(
    examples=4,
    count=st.just(200),
    part=st.sampled_from([FORMS[1][:-7], b"--x-y\r\nA: b\r\n\r\n\r\n", b"-", b"\r\n--x-"]),
)
def test_multipart_work_grows_linearly_with_the_body(count: int, part: bytes) -> None:
    small, large = (count_calls(partial(parse_form, FORM_TYPE, [part * n])) for n in (count, 4 * count))
    assert large <= 6 * small + 1_000


ELEMENTS = any_json(tricky=st.sampled_from(["},", '],"', "},{" * 40, "]]]", "\\", '"']))


@fuzz(
    elements=st.lists(ELEMENTS, max_size=12),
    indent=st.sampled_from([None, 1]),
    blanks=st.sampled_from(["", " ", "\n" * 300_000]),
)
def test_slices_of_a_json_array_are_its_elements(elements: list[Any], indent: int | None, blanks: str) -> None:
    text = json.dumps(elements, indent=indent, allow_nan=False, default=str) if _is_finite(elements) else "[]"
    wanted, array = json.loads(text), (text[:-1] + blanks + "]").encode(errors="surrogatepass")
    try:
        found = slice_json_array(array, 100)
    except InvalidInput:
        assert any(0xD800 <= ord(char) <= 0xDFFF for char in json.dumps(wanted, ensure_ascii=False)), "half a pair"
        return
    assert [json.loads(bytes(one)) for one in found] == wanted


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


ORDERS = (
    ListOrder("open", (parse_cursor_timestamp, parse_number, parse_number)),
    ListOrder("jobs", (parse_cursor_uuid,)),
)


@fuzz(
    token=st.text(max_size=40)
    | any_json().map(lambda value: encode_cursor((value,)))
    | mutated_text([encode_cursor(("open", "m", "2026-11-16T12:30:00+00:00", 1, 2))])
)
def test_any_cursor_is_parsed_or_rejected(token: str) -> None:
    def parse() -> None:
        position = decode_cursor(token)
        for order in ORDERS:
            run_or_reject(partial(order.parse_position, position, "m"), InvalidInput)

    run_or_reject(parse, InvalidInput)


@fuzz(position=st.tuples(st.text(max_size=9), st.integers(), st.booleans() | st.none()))
def test_cursor_is_decoded_as_it_was_encoded(position: tuple[Any, ...]) -> None:
    token = encode_cursor(position)
    assert len(token) > 400 or decode_cursor(token) == position


RANGES = ("bytes=0-4", "bytes=-3", "bytes= 7- ", "BYTES=0-0", "bytes=5-2", "bytes=0-1,3-4", f"bytes=0-{10**17}")


@fuzz(
    header=mutated_text(RANGES, fragments=["-", "=", ",", "9" * 19, "٣"]) | st.sampled_from(RANGES),
    size=st.integers(0, 10**12),
)
def test_any_range_header_gives_bytes_of_the_file_or_none(header: str, size: int) -> None:
    part = parse_range_header(header, size)
    if part is not None:
        assert part.start >= 0
        assert part.length <= size
        assert not part.length or part.start < part.end <= size


@fuzz(header=st.text(max_size=30) | mutated_text(['"a\\"b"', "key-1", '"\\\\"', " k ", '"']))
def test_any_idempotency_key_is_short_printable_ascii_or_rejected(header: str) -> None:
    key = run_or_reject(lambda: parse_idempotency_key(header), HttpError)
    assert key is None or (0 < len(key) <= 200 and key.isascii() and key.isprintable())


@fuzz(
    header=st.none() | mutated_text(['"abc", W/"def"', "*", '"abc"']),
    length=st.text(max_size=30),
    kind=st.text(max_size=30),
)
def test_any_header_value_is_evaluated(header: str | None, length: str, kind: str) -> None:
    matches_etag(header, '"abc"')
    content_length_exceeds(length, 1_000)
    has_json_content_type(Headers({"content-type": kind.encode("latin-1", "replace").decode("latin-1")}))
    parse_traceparent(header)


QUERIES = ("pageSize=5&statuses=done", "filter[roleName][in]=a,b&afterCursor=%00", "a%ff=%zz&&=&x")


@fuzz(query=mutated_text(QUERIES, fragments=["%00", "&", "=", "A", "filter[", "%F0%9F", "+", ";"]))
def test_query_conversion_changes_names_only_and_is_stable(query: str) -> None:
    raw = query.encode("utf-8", "surrogatepass")
    converted = convert_query_to_snake_case(raw)
    assert convert_query_to_snake_case(converted) == converted
    before, after = (parse_qsl(one.decode("latin-1"), keep_blank_values=True) for one in (raw, converted))
    assert [value for _, value in after] == [value for _, value in before]


CONDITIONS = (
    "role[in]=admin,editor",
    'name[in]="a,b",c',
    "id[between]=1,2",
    "filter[ok]=true",
    "born[gte]=2026-01-01",
    "more[is_null]=",
)
FILTER_FRAGMENTS = [
    "[",
    "]",
    "=",
    ",",
    '"',
    "in",
    "like",
    "\\",
    "\n",
    "1e99999999999999999999",
    "infinity",
    "NaN",
    "[]",
    "{}",
]
FIELDS = st.sampled_from(["id", "role", "name", "born", "seen", "ok", "more", "pin", "", "nothing", "\x00"])
OPERATORS = st.sampled_from(["eq", "in", "between", "like", "is_null", "gte", "near", ""])


@fuzz(examples=60, text=mutated_text(CONDITIONS, fragments=FILTER_FRAGMENTS))
def test_any_filter_condition_is_resolved_or_rejected(text: str) -> None:
    name, _, value = text.partition("=")
    for parse in (
        lambda: [parse_filter_condition(text)],
        lambda: parse_query_filters([(f"filter[{name}]", value), (name, value)]),
    ):
        found = run_or_reject(parse, InvalidInput)
        if found is not None:
            resolve_filters_and_problems(found, RESOURCE)
            assert sorted(map(str, parse_filter_object(build_filter_object(found)))) == sorted(
                map(str, parse_filter_object(build_filter_object(parse_filter_object(build_filter_object(found)))))
            )


@fuzz(
    examples=60,
    filters=st.dictionaries(FIELDS, any_json() | st.dictionaries(OPERATORS, any_json(), max_size=2), max_size=3),
)
def test_any_filter_object_is_resolved_or_rejected(filters: dict[str, Any]) -> None:
    found = run_or_reject(lambda: parse_filter_object(filters), InvalidInput)
    if found is not None:
        _, problems = resolve_filters_and_problems(found, RESOURCE)
        assert all(len(text) < 1_000 for _, text in problems)


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=6)


@fuzz(spans=SPANS, seqs=st.sets(st.integers(0, 60), max_size=6), lo=st.integers(0, 60), hi=st.integers(0, 60))
def test_merged_ranges_select_the_same_rows(spans: list[list[int]], seqs: set[int], lo: int, hi: int) -> None:
    merged = merge_ranges(spans)
    rows = {seq for first, last in spans for seq in range(first, last + 1)}
    assert {seq for seq in range(70) if is_in_ranges(seq, merged)} == rows
    assert all(after > last + 1 for (_, last), (after, _) in pairwise(merged))
    assert select_seqs_between(lo, hi, seqs, merged) == sorted(seq for seq in rows | seqs if lo <= seq < hi)


@fuzz(
    given_ranges=st.lists(any_json(small=st.integers(0, 9)) | st.lists(st.integers(-1, 2**63), max_size=3), max_size=3)
)
def test_any_row_ranges_are_validated(given_ranges: list[Any]) -> None:
    body = {"scope": "items", "ranges": given_ranges}
    found = run_or_reject(lambda: ReprocessIn.model_validate(body), pydantic.ValidationError)
    assert found is None or all(first <= last for first, last in found.ranges or ())
    assert RowRange is not None


ENVELOPE = encode_envelope(PLAIN)
ENVELOPE_FRAGMENTS = (
    b"null",
    b"1e999",
    b"-1",
    b'"',
    b"{}",
    b"[]",
    b"true",
    b"\\ud800",
    b"9" * 400,
    b"[" * 900,
    b"\xff\xfe",
)


@fuzz(examples=60, message=mutated([ENVELOPE], fragments=ENVELOPE_FRAGMENTS) | st.binary(max_size=40))
def test_any_broker_message_is_decoded_or_rejected(message: bytes) -> None:
    found = run_or_reject(lambda: decode_envelope(message), InvalidRequest)
    assert found is None or decode_envelope(encode_envelope(found)) == found


@fuzz(
    part=st.sampled_from(["header", "body", "tracing"]),
    name=st.sampled_from(["job_id", "type", "version", "created_at", "attempt", "batch_ids", "trace_id", "x"]),
    value=any_json(),
)
def test_any_field_of_a_broker_message_is_decoded_or_rejected(part: str, name: str, value: Any) -> None:
    document = json.loads(ENVELOPE)
    document[part][name] = value
    run_or_reject(lambda: decode_envelope(json.dumps(document).encode()), InvalidRequest)
