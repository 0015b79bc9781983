"""Detects the layout of a file from its name, the given options and a bounded sample of its content."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path, PurePath
from typing import BinaryIO

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import DetectedLayout, FileLayout, LayoutFinding
from tidemill.files.compression import list_zip_files, open_zip
from tidemill.files.file_sample import FileSample, SampleRow, find_column_shapes, is_typed, split_sample_rows
from tidemill.files.formats.csv_dialect import CsvDialect
from tidemill.files.json_detection import detect_json_format
from tidemill.files.layout import (
    BLANKS_DELIMITER,
    FORMATS_BY_SUFFIX,
    RECORD_FORMATS,
    normalize_encoding,
    parse_layout_options,
)
from tidemill.files.table_detection import detect_table
from tidemill.files.text_encoding import decode_sample, detect_encoding, has_control_bytes

DIALECT_SAMPLE_CHARS = 32 * 1024
DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space", BLANKS_DELIMITER: "blanks"}
_COMMON_DELIMITERS = (",", ";", "\t", "|")
_RARE_DELIMITERS = ("~", "^", "\x1f", "\x01", "\x1e", "¦", "§")
_LONG_DELIMITERS = ("||", "::", ";;", "|~|", "~|~", "##", "@@", "$$", "^^", "<>", "#|#", "\t\t")
_BLANK_DELIMITERS = (":", " ", BLANKS_DELIMITER)  # they also occur within text
_COMMON_SHARE_MIN = 0.5  # of the rows with equal widths, to test no delimiter that occurs within text
_BLANKS_SHARE_MIN = 0.9
_FIELD_WITH_DOUBLED_APOSTROPHE = re.compile(r"(?:^|[,;\t|])'[^'\n,;\t|]*''[^'\n,;\t|]*'(?=[,;\t|]|\r?$)", re.MULTILINE)
_DECIMAL_COMMA, _DECIMAL_COMMA_SHARE_MIN = re.compile(r"(?<=\d),(?=\d)"), 0.8
_COMMENT_MARKS = ("#", "//")


@dataclass(frozen=True, slots=True)
class _Candidate:
    delimiter: str
    quote: str
    share: float  # of the rows that have ``width`` fields
    width: int
    rows: int
    is_header_equal: bool = False  # the first row is as wide as most rows


def detect_dialect(text: str, kind: str, given: FileLayout) -> tuple[dict[str, str], list[LayoutFinding]]:
    """Return delimiter, quote, escape and line end, and the findings for the ones that are not given."""
    findings: list[LayoutFinding] = []
    line_end = given.line_end or _detect_line_end(text)
    text = _drop_first_lines(text, given.skip_lines or 0)[:DIALECT_SAMPLE_CHARS]
    best = _detect_delimiter_and_quote(text, kind, given, line_end)
    escape = given.escape if given.escape is not None else _detect_escape(text, best)
    if given.line_end is None:
        findings.append(_make_finding("line_end", line_end, 0.95, "The first lines end with it"))
    if given.delimiter is None:
        findings.append(_describe_delimiter(best, text, line_end))
    if given.quote is None and best.quote != '"':
        findings.append(_make_finding("quote", best.quote, 0.9, f"Fields begin and end with {best.quote}"))
    dialect = {"delimiter": best.delimiter, "quote": best.quote, "line_end": line_end}
    if escape:
        dialect["escape"] = escape
        if given.escape is None:
            reason = "With a backslash as the escape character, more rows have the same number of fields"
            findings.append(_make_finding("escape", escape, 0.9, reason))
    return dialect, findings


def _make_finding(option: str, value: str, confidence: float, reason: str) -> LayoutFinding:
    return LayoutFinding(option=option, value=value, confidence=confidence, reason=reason)


def _drop_first_lines(text: str, count: int) -> str:
    return re.split(r"\r\n|\n|\r", text, maxsplit=count)[-1] if count else text


def _detect_line_end(text: str) -> str:
    """Return CRLF or LF; CR if single carriage returns end rows, also if other rows end differently."""
    single = len(re.findall(r"\r(?!\n|$)", text))
    if single and (single > text.count("\n") or _splits_rows(text)):
        return "\r"
    return "\r\n" if "\r\n" in text else "\n"


def _splits_rows(text: str) -> bool:
    """Return whether single carriage returns outside quotes separate rows that are as wide as the others."""
    for delimiter in _COMMON_DELIMITERS:
        lines = [line for line in text.split("\n") if line.strip()]
        torn = [line.removesuffix("\r") for line in lines if "\r" in line.removesuffix("\r") and '"' not in line]
        widths = {part.count(delimiter) for line in torn for part in line.split("\r")}
        if torn and len(widths) == 1 and min(widths) > 0:
            return True
    return False


def _detect_delimiter_and_quote(text: str, kind: str, given: FileLayout, line_end: str) -> _Candidate:
    quotes = _list_possible_quotes(text) if given.quote is None else [given.quote]
    if given.delimiter is not None or kind == "tsv":
        delimiters: Iterable[str] = [given.delimiter or "\t"]
        return max(
            (_score_candidate(text, each, quote, line_end) for each in delimiters for quote in quotes),
            key=_get_candidate_rank,
        )
    spaced = [each + " " for each in _COMMON_DELIMITERS if each + " " in text]  # first, as they win if both fit
    long = [each for each in _LONG_DELIMITERS if text.count(each) > 1 and not _is_delimiter_of_empty_field(each, text)]
    present = [
        each
        for each in _COMMON_DELIMITERS + _RARE_DELIMITERS
        if each in text and not _occurs_only_in_longer_delimiter(each, long, text)
    ]
    if "," in present and _has_decimal_commas_only(text):
        present.remove(",")
    scored = [_score_candidate(text, each, quote, line_end) for each in spaced + long + present for quote in quotes]
    best = max(scored, key=_get_candidate_rank, default=_Candidate(",", quotes[0], 0, 1, 0))
    if best.width < 2 or best.share < _COMMON_SHARE_MIN:  # noqa: PLR2004
        blanks = [_score_candidate(text, each, quote, line_end) for each in _BLANK_DELIMITERS for quote in quotes]
        fitting = [each for each in blanks if each.is_header_equal and each.share > best.share]
        fitting = _prefer_runs_of_blanks(fitting)
        best = max([*fitting, best], key=_get_candidate_rank)
    if best.width < 2 or _is_one_column_of_two_words(best, text, line_end):  # noqa: PLR2004
        return _Candidate(",", best.quote, best.share, 1, best.rows)
    return best


def _has_decimal_commas_only(text: str) -> bool:
    """Return whether commas are within numbers, and nearly all lines have the same other delimiter."""
    if len(_DECIMAL_COMMA.findall(text)) < _DECIMAL_COMMA_SHARE_MIN * text.count(","):
        return False
    lines = [line for line in text.splitlines() if line.strip()]
    return any(
        sum(delimiter in line for line in lines) > _DECIMAL_COMMA_SHARE_MIN * len(lines)
        for delimiter in (";", "\t", "|")
    )


def _is_one_column_of_two_words(best: _Candidate, text: str, line_end: str) -> bool:
    """Return whether the fields are more likely one column of two words each."""
    return best.delimiter in (" ", BLANKS_DELIMITER) and best.width == 2 and not _has_typed_column(best, text, line_end)  # noqa: PLR2004


def _has_typed_column(best: _Candidate, text: str, line_end: str) -> bool:
    rows = _split_rows_with_dialect(text, best.delimiter, best.quote, "", line_end)[1:]
    return any(map(is_typed, find_column_shapes((row.fields for row in rows), best.width)))


def _is_delimiter_of_empty_field(long: str, text: str) -> bool:
    """Return whether two equal characters are two delimiters, as the character also occurs alone."""
    single = long[0]
    return long == 2 * single and single in _COMMON_DELIMITERS and text.count(single) > 2.2 * text.count(long)


def _occurs_only_in_longer_delimiter(delimiter: str, longer: list[str], text: str) -> bool:
    """Return whether a character occurs only as part of a longer delimiter."""
    return any(
        delimiter in each and text.count(delimiter) == each.count(delimiter) * text.count(each) for each in longer
    )


def _prefer_runs_of_blanks(candidates: list[_Candidate]) -> list[_Candidate]:
    """Remove the space as a delimiter if runs of blanks fit as well and give no empty fields."""
    runs = next((each for each in candidates if each.delimiter == BLANKS_DELIMITER), None)
    if runs is None:
        return candidates
    return [each for each in candidates if each.delimiter != " " or each.share > runs.share or each.width <= runs.width]


def _list_possible_quotes(text: str) -> list[str]:
    """Return the quote characters to test: an apostrophe only if fields begin and end with it."""
    begins = len(re.findall(r"(?:^|[,;\t|] ?)'(?=[^'\s])", text, re.MULTILINE))
    ends = len(re.findall(r"'[ ]?(?=[,;\t|]|\r?$)", text, re.MULTILINE))
    is_double = re.search(r"(?:^|[,;\t|] ?)\"", text, re.MULTILINE) is not None
    if not is_double and _FIELD_WITH_DOUBLED_APOSTROPHE.search(text):
        return ["'"]
    return ["'"] if begins > 1 and ends > 1 and not is_double and _have_apostrophes_pairs(text) else ['"']


def _have_apostrophes_pairs(text: str) -> bool:
    """Return whether most fields that begin with an apostrophe also end with one."""
    whole = len(re.findall(r"(?:^|[,;\t|] ?)'(?:[^'\n]|''|'(?![,;\t|\r\n]))*'(?=[,;\t|]|\r?$)", text, re.MULTILINE))
    begun = len(re.findall(r"(?:^|[,;\t|] ?)'", text, re.MULTILINE))
    return whole >= 0.5 * begun


def _score_candidate(text: str, delimiter: str, quote: str, line_end: str) -> _Candidate:
    rows = [
        row
        for row in _split_rows_with_dialect(text, delimiter, quote, "", line_end)
        if not row.fields[0].startswith(_COMMENT_MARKS)
    ]
    widths: Counter[int] = Counter()
    for row in rows:
        widths[row.width] += 1 if row.is_misquoted else 2
    wide = [(count / 2, width) for width, count in widths.items() if width > 1]
    if not wide:
        return _Candidate(delimiter, quote, 0, 1, len(rows))
    count, width = max(wide)
    return _Candidate(delimiter, quote, count / len(rows), width, len(rows), rows[0].width == width)


def _split_rows_with_dialect(text: str, delimiter: str, quote: str, escape: str, line_end: str) -> list[SampleRow]:
    return split_sample_rows(text, CsvDialect(delimiter, quote, escape=escape), line_end)


def _get_candidate_rank(candidate: _Candidate) -> tuple[float, int]:
    return round(candidate.share, 1), candidate.width


def _detect_escape(text: str, best: _Candidate) -> str:
    if not best.quote or "\\" + best.quote not in text:
        return ""
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if "\\" + best.quote in line]
    plain, escaped = (
        sum(len(dialect.read_line(line) or ()) == best.width for line in lines)
        for dialect in (CsvDialect(best.delimiter, best.quote), CsvDialect(best.delimiter, best.quote, escape="\\"))
    )
    return "\\" if escaped > plain else ""


def _describe_delimiter(best: _Candidate, text: str, line_end: str) -> LayoutFinding:
    name = DELIMITER_NAMES.get(best.delimiter, repr(best.delimiter))
    if best.width < 2:  # noqa: PLR2004
        return _make_finding(
            "delimiter", best.delimiter, 0.8, "No delimiter splits the rows into the same number of columns"
        )
    share = "all" if best.share == 1 else f"{best.share:.0%} of the"
    reason = f"With the delimiter {name}, {share} rows of the sample have {best.width} fields"
    confidence = min(0.99, 0.6 + 0.4 * best.share)
    if best.delimiter in _BLANK_DELIMITERS:
        is_proved = best.share >= _BLANKS_SHARE_MIN and best.rows > 2 and _has_typed_column(best, text, line_end)  # noqa: PLR2004
        confidence = 0.8 if is_proved else 0.4
        reason += "" if is_proved else ", but it also occurs within text"
    elif best.share < _COMMON_SHARE_MIN:
        confidence = 0.5
    return _make_finding("delimiter", best.delimiter, round(confidence, 2), reason)


FORMATS_BY_MEDIA_TYPE = {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json": "json",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
_COMPRESSION_BY_SUFFIX = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".zip": "zip"}
_TEXT_CHECK_BYTES = 1000
_COMPRESSION_BY_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_CANDIDATE_DELIMITERS = (",", ";", "\t", "|")
_XLS_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def detect_layout(
    file: Path | BinaryIO, *, name: str = "", content_type: str = "", options: Mapping[str, object] | None = None
) -> FileLayout:
    """Return the layout of a file; InvalidInput if it cannot be detected, or if the file can be read in two ways."""
    return inspect_layout(file, name=name, content_type=content_type, options=options).require_certain()


def inspect_layout(
    file: Path | BinaryIO, *, name: str = "", content_type: str = "", options: Mapping[str, object] | None = None
) -> DetectedLayout:
    """Return the layout of a file with the findings: the given options, and the rest detected.

    Detection reads a bounded sample of the beginning and, if the file is not compressed, of the end.

    Raises:
        InvalidInput: An option is invalid, or the format cannot be detected.
    """
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return inspect_layout(opened, name=name or file.name, content_type=content_type, options=options)
    given = parse_layout_options({key: value for key, value in (options or {}).items() if value is not None})
    about = Message()
    about["content-type"] = content_type or "application/octet-stream"
    kind = given.format
    compression = given.compression or _detect_compression(file)
    if compression == "zip" and kind in (None, "xlsx", "images") and given.compression is None:
        kind = _detect_zip_format(file, kind)
    if kind is None:
        kind = _detect_parquet_or_reject_xls(file) or (
            None if compression == "zip" else _get_format_from_name_or_type(name, about)
        )
    if kind in ("xlsx", "parquet", "images"):
        return DetectedLayout(_make_binary_layout(kind, given))
    sample = FileSample(file, compression)
    if compression == "none" and given.compression is None:
        _refuse_mislabelled_compression(name, sample.head[:_TEXT_CHECK_BYTES])
    return _detect_text_layout(sample, kind or _get_format_from_name_or_type(name, about), given, compression, about)


def _detect_compression(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(4)
    return next((kind for magic, kind in _COMPRESSION_BY_MAGIC.items() if head.startswith(magic)), "none")


def _refuse_mislabelled_compression(name: str, head: bytes) -> None:
    """Raise InvalidInput if the name says compressed but the content is neither compressed nor text.

    Text is accepted: a browser may have decompressed the file during its download.
    """
    ending = PurePath(name.lower()).suffix
    if ending in _COMPRESSION_BY_SUFFIX and has_control_bytes(head):
        raise InvalidInput(
            f'The file name ends with "{ending}", but the file is not {_COMPRESSION_BY_SUFFIX[ending]}-compressed'
        )


def _detect_zip_format(file: BinaryIO, kind: str | None) -> str | None:
    """Return the format of a zip: a workbook, images, or None for a compressed file of rows."""
    with open_zip(file) as archive:
        names = [member.filename for member in list_zip_files(archive)]
    if kind is not None or "xl/workbook.xml" in names or "[Content_Types].xml" in names:
        return kind or "xlsx"
    if names and all(each.lower().endswith(IMAGE_SUFFIXES) for each in names):
        return "images"
    if len(names) != 1:
        raise InvalidInput(
            f"The zip file contains {len(names)} files. It must contain one file of rows, or only images."
        )
    return None


def _detect_parquet_or_reject_xls(file: BinaryIO) -> str | None:
    file.seek(0)
    head = file.read(8)
    if head.startswith(_XLS_MAGIC):
        raise InvalidInput("Legacy .xls workbooks are not supported. Save the file as .xlsx.")
    return "parquet" if head.startswith(b"PAR1") else None


def _get_format_from_name_or_type(name: str, about: Message) -> str | None:
    """Return the format from the file name or the content type; None if neither is known."""
    path = PurePath(name.lower())
    if path.suffix in (*COMPRESSED_SUFFIXES, ".zip"):
        path = PurePath(path.stem)
    suffix = FORMATS_BY_SUFFIX.get(path.suffix)
    return (None if suffix == "images" else suffix) or FORMATS_BY_MEDIA_TYPE.get(about.get_content_type())


def _make_binary_layout(kind: str, options: FileLayout) -> FileLayout:
    return parse_layout_options(replace(options, format=kind, compression=None).to_json())


def _detect_text_layout(
    sample: FileSample, kind: str | None, options: FileLayout, packed: str, about: Message
) -> DetectedLayout:
    charset = normalize_encoding(str(about.get_param("charset") or ""))
    encoding = options.encoding or detect_encoding(sample.head, sample.non_ascii_lines, charset)
    text = decode_sample(sample.head, encoding)
    findings: list[LayoutFinding] = []
    kind = kind or ("json" if options.records else _detect_text_format(text))
    if kind == "json" and options.records is None:
        kind = detect_json_format(text, findings)
    layout: dict[str, object] = {"format": kind, "compression": packed, "encoding": encoding}
    layout |= {each.option: each.value for each in findings}
    if options.encoding is None and encoding != "utf-8":
        findings.append(_describe_encoding(encoding, charset))
    if kind in ("csv", "tsv"):
        header = {"absent": False, "present": True}.get(str(about.get_param("header")))
        if header is not None and options.header is None and options.header_rows is None:
            options = replace(options, header=header)
        csv_options, found = _detect_csv(sample, text.removeprefix("\ufeff"), kind, encoding, options)
        layout |= csv_options
        findings += found
    return DetectedLayout(parse_layout_options(layout | options.to_json()), tuple(findings))


def _describe_encoding(encoding: str, charset: str | None) -> LayoutFinding:
    confidence, reason = 0.7, "The file is not UTF-8, and this encoding is the most likely one"
    if encoding == charset:
        confidence, reason = 0.9, "The content type of the file names this encoding"
    elif encoding.startswith("utf"):
        confidence, reason = 0.99, "The file has a byte order mark, or every other byte is zero"
    return LayoutFinding(option="encoding", value=encoding, confidence=confidence, reason=reason)


def _detect_csv(
    sample: FileSample, text: str, kind: str, encoding: str, options: FileLayout
) -> tuple[dict[str, object], list[LayoutFinding]]:
    """Return the dialect of a CSV text and the place of its table."""
    dialect_options, findings = detect_dialect(text, kind, options)
    dialect = CsvDialect(
        dialect_options["delimiter"], dialect_options["quote"], escape=dialect_options.get("escape", "")
    )
    line_end = dialect_options["line_end"]
    rows = split_sample_rows(text, dialect, line_end, options.skip_lines or 0)
    end, tail = text, rows
    if not sample.is_whole:
        data = sample.read_tail() if not encoding.startswith(("utf-16", "utf-32")) else b""
        end = decode_sample(data, encoding)
        tail = split_sample_rows(end, dialect, line_end)
    table = detect_table(rows, options, tail=tail, tail_lines=_count_lines(end, line_end), is_whole=sample.is_whole)
    return {**dialect_options, **table.options}, _merge_findings(findings, table.findings)


def _merge_findings(dialect: list[LayoutFinding], table: list[LayoutFinding]) -> list[LayoutFinding]:
    """Return all findings. A doubt of the table about the delimiter replaces the finding of the dialect."""
    doubts = {each.option: each for each in table}
    kept = [
        replace(each, confidence=doubts[each.option].confidence, reason=doubts[each.option].reason)
        if each.option in doubts
        else each
        for each in dialect
    ]
    known = {each.option for each in dialect}
    return kept + [each for each in table if each.option not in known]


def _count_lines(text: str, line_end: str) -> int:
    if line_end == "\r":
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.count("\n") + (not text.endswith("\n"))


def _detect_text_format(text: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")
    if "\x00" in text[:_TEXT_CHECK_BYTES]:
        raise InvalidInput(f"Cannot detect the format of the file. Set format to one of {', '.join(RECORD_FORMATS)}.")
    if start.startswith("["):
        first = start.split("\n", 1)[0].rstrip()
        rest = start[len(first) :].strip()
        return "ndjson" if first.endswith("]") and rest.startswith("[") else "json"
    return "json" if start.startswith("{") else "csv"
