"""Prints imports, their errors and previews on a terminal."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tidemill.core.errors import AmbiguousFormats
from tidemill.core.file_format import CERTAIN_CONFIDENCE_MIN
from tidemill.core.job import Job
from tidemill.imports.failed_rows import RowErrorView, RowWithErrors, join_error_reasons
from tidemill.imports.import_plan import ImportParams
from tidemill.imports.import_preview import ImportPreview, PreviewRow
from tidemill.imports.repairs import RepairPreview
from tidemill.terminal.console import console, error_console, escape_text, format_count, print_table

PREVIEW_CELL_CHARS_MAX = 30
USUAL_FINDINGS = ("delimiter", "line_end", "header", "encoding")
_DELIMITER_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space"}
_LINE_END_NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


def print_import_effects(job: Job, effects: Mapping[str, int], created: Mapping[str, int]) -> None:
    would = "would be " if ImportParams.from_json(job.params).plan_or_request.validate_only else ""
    counts = [f"{count:,} {would}{effect}" for effect, count in effects.items() if count]
    counts += [f"{count:,} {would}created in {escape_text(table)}" for table, count in created.items()]
    if counts:
        console.print("  " + " · ".join(counts), highlight=False)


def print_error_samples(samples: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """Print one line for each error code: the number of rows, and one of the errors."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("error", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("row", justify="right")
    table.add_column("example", no_wrap=True, max_width=20 if console.is_terminal else None)
    table.add_column("reason", overflow="fold")
    for count, error in samples:
        shown = [error.get(name, "") for name in ("row", "value", "reason")]
        table.add_row(escape_text(str(error["code"])), f"{count:,}", *[escape_text(str(cell)) for cell in shown])
    console.print(table)


def print_layout(layout: Mapping[str, Any]) -> None:
    """Print the detected layout to standard error, so that a user can override it with options."""
    error_console.print(f"[dim]{escape_text(_format_layout(layout))}[/]", highlight=False, soft_wrap=True)


def _format_layout(layout: Mapping[str, Any]) -> str:
    """Describe the layout in words, such as "Detected: CSV, UTF-8, comma-delimited, with a header"."""
    words = []
    for name, value in layout.items():
        match name:
            case "format" | "encoding":
                words.append(str(value).upper())
            case "delimiter":
                words.append(f"{_DELIMITER_NAMES.get(value, repr(value))}-delimited")
            case "header":
                words.append("with a header" if value else "without a header")
            case "compression":
                words += [] if value == "none" else [f"compressed with {value}"]
            case "quote":
                words += [] if value == '"' else [f"quoted with {value}"]
            case "line_end":
                words.append(f"{_LINE_END_NAMES.get(value, repr(value))} line ends")
            case _:
                words.append(f"{name} {_format_layout_value(value)}")
    return f"Detected: {', '.join(words)}"


def print_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the detected options that a user may want to check: all except the usual ones of a clean file."""
    for each in findings:
        if each["confidence"] < CERTAIN_CONFIDENCE_MIN or each["option"] not in USUAL_FINDINGS:
            value = _format_layout_value(each["value"])
            text = f"{each['option']} {value} ({each['confidence']:.0%}): {each['reason']}"
            console.print(f"  {escape_text(text)}", highlight=False, soft_wrap=True)


def print_remembered(remembered: Mapping[str, Any]) -> None:
    """Print which mapping completed the options, and the differences between the columns, to standard error."""
    used_at = remembered["used_at"]
    whose = f"import {remembered['job_key']} of {used_at.day} {used_at:%B %Y}"
    whose += f", shared by {remembered['owner']}" if remembered["shared"] else ""
    subject = "Columns" if remembered["exact"] else "Known columns"
    lines = [f"{subject} as in {whose}. Use --no-memory to ignore it."]
    lines += [f'  New since then: "{name}"' for name in remembered["new"]]
    lines += [f'  Missing since then: "{name}"' for name in remembered["missing"]]
    for one in remembered["renamed"]:
        option = shlex.quote(f"{one['column']}={one['field']}")
        lines.append(f'  "{one["column"]}" may be the new name of "{one["before"]}" ({one["reason"]}): --map {option}')
    lines += [f"  {line}" for line in _format_rules(remembered["request"])]
    for line in lines:
        error_console.print(escape_text(line), highlight=False, soft_wrap=True)


def format_choices(error: AmbiguousFormats) -> str:
    """Return the columns that can be read in two ways, with the option to type for each choice."""
    lines = []
    for problem, choice in zip(error.problems, error.choices, strict=True):
        options = [
            f"  --format {shlex.quote(choice['field'] + '=' + each['format'])}    {_format_examples(each['examples'])}"
            for each in (choice, *choice["alternatives"])
        ]
        lines += [f"{problem}. Add one of these options:", *options]
    likelier = ", ".join(f"{each['field']}={each['format']}" for each in error.choices)
    return "\n".join([*lines, f"To use the more likely format ({likelier}), add --assume"])


def print_formats(formats: Sequence[Mapping[str, Any]]) -> None:
    """Print the formats of columns that are not in plain notation, each with an example."""
    for each in formats:
        if each["ambiguous"] or any(one["before"] != one["after"] for one in each["examples"]):
            note = "" if not each["ambiguous"] else f", or {' or '.join(one['format'] for one in each['alternatives'])}"
            text = f"{each['column']}: {each['format']}{note} ({each['confidence']:.0%})"
            examples = _format_examples(each["examples"])
            console.print(f"  {escape_text(f'{text}: {examples}')}", highlight=False, soft_wrap=True)


def print_lookups(preview: ImportPreview) -> None:
    """Print the lookups with the numbers of found and missing values, and proposals for unknown columns."""
    for each in preview["lookups"]:
        if each["by"] and each["column"] is not None:
            counts = [f"{count:,} {name}" for name, count in (each["values"] or {}).items() if count or name == "found"]
            values = f": {', '.join(counts)} in these rows" if counts else ""
            missing = ", creates missing rows" if each["create"] else ""
            found_by = f"{each['field']} in {each['table']} by {', '.join(each['by'])}"
            text = f"{each['column']}: finds {found_by}{missing}{values}"
            console.print(f"  {escape_text(text)}", highlight=False, soft_wrap=True)
    for one in preview["lookup_proposals"]:
        option = shlex.quote(f"{one['field']}={one['by']}")
        text = f"{one['column']} may name the rows of {one['table']} for {one['field']}: --lookup {option}"
        console.print(f"  {escape_text(text)}", highlight=False, soft_wrap=True)


def _format_examples(examples: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['before']} → {'NULL' if one['after'] is None else one['after']}" for one in examples)


def print_preview(preview: ImportPreview) -> None:
    if preview["remembered"] is not None:
        print_remembered(preview["remembered"])
    console.print(f"[bold]{escape_text(_format_layout(preview['layout']))}[/]", highlight=False, soft_wrap=True)
    print_findings(preview["findings"])
    for column in preview["columns"]:
        target = preview["mapping"].get(column)
        no_target = "not mapped" if column in preview["unknown"] else "ignored"
        shown = f"[green]{escape_text(target)}[/]" if target else f"[yellow]{no_target}[/]"
        console.print(f"  {escape_text(column)} → {shown}", highlight=False)
    print_formats(preview["formats"])
    print_rules(preview)
    print_lookups(preview)
    for problem in preview["problems"]:
        console.print(f"  [red]{escape_text(problem)}[/]", highlight=False, soft_wrap=True)
    _print_preview_table(preview["columns"], preview["rows"])
    _print_computed_values(preview["rows"])
    _print_row_errors(preview["rows"])


def print_rules(rules: Mapping[str, Any]) -> None:
    """Print the constants, the computed columns and the rules to skip rows, one per line."""
    for line in _format_rules(rules):
        console.print(f"  {escape_text(line)}", highlight=False, soft_wrap=True)


def _format_rules(rules: Mapping[str, Any]) -> list[str]:
    lines = [f'{name} is "{value}" in every row' for name, value in rules.get("constants", {}).items()]
    lines += [f"{name} = {expression}" for name, expression in rules.get("computed", {}).items()]
    return lines + [f"Skips rows where {condition}" for condition in rules.get("skip", ())]


def _print_computed_values(rows: Sequence[PreviewRow]) -> None:
    for row in rows:
        values = ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row["computed"].items())
        text = row["skipped"] or (f"computed: {values}" if values else "")
        if text:
            console.print(f"  Row {row['row']}  {escape_text(text)}", highlight=False, soft_wrap=True)


def print_repair_preview(preview: RepairPreview) -> None:
    """Print how many rows a repair would change, how many would be valid, and examples."""
    if preview.column is None:
        console.print(f"{format_count(preview.rows, 'row')} would be dismissed", highlight=False)
        return
    first = "" if preview.checked >= preview.rows else f"the first {preview.checked:,} of "
    counts = f"changes {preview.changed:,} of {first}{format_count(preview.rows, 'row')}"
    valid = f"{preview.valid:,} {'is' if preview.valid == 1 else 'are'} valid"
    console.print(f"The rule {counts}. After the change, {valid}.", highlight=False)
    if preview.too_large:
        stay = "would be too large and stays" if preview.too_large == 1 else "would be too large and stay"
        console.print(f"  {format_count(preview.too_large, 'row')} {stay} unchanged", highlight=False)
    cells = [
        [
            str(one.row),
            name,
            _format_preview_cell(one.before[name]),
            _format_preview_cell(value),
            _format_error_reasons(one.errors),
        ]
        for one in preview.examples
        for name, value in one.after.items()
    ]
    if cells:
        print_table(["row", "column", "before", "after", "remaining errors"], cells, numbers=["row"])


def _format_error_reasons(errors: Sequence[RowErrorView]) -> str:
    return escape_text(join_error_reasons(errors))


def _print_preview_table(columns: Sequence[str], rows: Sequence[RowWithErrors]) -> None:
    names = [escape_text(column) for column in columns]
    cells = []
    for row in rows:
        record = row["input"]
        values = [record.get(column) for column in columns] if isinstance(record, dict) else [record]
        values += [None] * (len(columns) - len(values))
        cells.append([str(row["row"]), *(_format_preview_cell(value) for value in values[: len(columns)])])
    print_table(
        ["row", *names],
        cells,
        numbers=["row"],
        hide_first=names[:0:-1],
        hint="Use a wider terminal to see them.",
    )


def _print_row_errors(rows: Sequence[RowWithErrors]) -> None:
    for row in rows:
        for error in row["errors"]:
            console.print(f"  [red]Row {row['row']}[/]  {escape_text(join_error_reasons([error]))}", highlight=False)
    if not any(row["errors"] for row in rows):
        console.print("  No errors in these rows", highlight=False)


def _format_layout_value(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def _format_preview_cell(value: Any) -> str:
    text = "" if value is None else str(value)
    if console.is_terminal and len(text) > PREVIEW_CELL_CHARS_MAX:
        text = text[: PREVIEW_CELL_CHARS_MAX - 1] + "…"
    return escape_text(text)
