"""Detects the delimiter, the quote and escape characters, and the line end of a CSV text."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.core.file_format import FileLayout, LayoutFinding
from tidemill.files.formats.csv_dialect import CsvDialect
from tidemill.files.layout import BLANKS_DELIMITER
from tidemill.files.table_rows import SampleRow, split_sample_rows
from tidemill.files.value_shapes import find_column_shapes, is_typed

DIALECT_SAMPLE_CHARS = 32 * 1024
DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space", BLANKS_DELIMITER: "blanks"}
_COMMON_DELIMITERS = (",", ";", "\t", "|")
_RARE_DELIMITERS = ("~", "^", "\x1f", "\x01", "\x1e", "¦", "§")
_LONG_DELIMITERS = ("||", "::", ";;", "|~|", "~|~", "##", "@@", "$$", "^^", "<>", "#|#", "\t\t")
_BLANK_DELIMITERS = (":", " ", BLANKS_DELIMITER)  # they also occur within text
_COMMON_SHARE_MIN = 0.5  # of the rows with equal widths, to test no delimiter that occurs within text
_BLANKS_SHARE_MIN = 0.9
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
    long = [each for each in _LONG_DELIMITERS if text.count(each) > 1]
    present = [
        each
        for each in _COMMON_DELIMITERS + _RARE_DELIMITERS
        if each in text and not _occurs_only_in_longer_delimiter(each, long, text)
    ]
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


def _is_one_column_of_two_words(best: _Candidate, text: str, line_end: str) -> bool:
    """Return whether the fields are more likely one column of two words each."""
    return best.delimiter in (" ", BLANKS_DELIMITER) and best.width == 2 and not _has_typed_column(best, text, line_end)  # noqa: PLR2004


def _has_typed_column(best: _Candidate, text: str, line_end: str) -> bool:
    rows = _split_rows_with_dialect(text, best.delimiter, best.quote, "", line_end)[1:]
    return any(map(is_typed, find_column_shapes((row.fields for row in rows), best.width)))


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
    widths = Counter(row.width for row in rows)
    wide = [(count, width) for width, count in widths.items() if width > 1]
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
    reason = f"With the delimiter {name}, {best.share:.0%} of {best.rows} rows have {best.width} fields"
    confidence = min(0.99, 0.6 + 0.4 * best.share)
    if best.delimiter in _BLANK_DELIMITERS:
        is_proved = best.share >= _BLANKS_SHARE_MIN and best.rows > 2 and _has_typed_column(best, text, line_end)  # noqa: PLR2004
        confidence = 0.8 if is_proved else 0.4
        reason += "" if is_proved else ", but it also occurs within text"
    elif best.share < _COMMON_SHARE_MIN:
        confidence = 0.5
    return _make_finding("delimiter", best.delimiter, round(confidence, 2), reason)
