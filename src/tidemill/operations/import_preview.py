"""A look at a file before it is imported: its first rows, checked by themselves."""

from collections.abc import Mapping
from typing import Any

from tidemill.domain.block import line_of
from tidemill.domain.errors import InvalidInput
from tidemill.domain.importing import Checker, ImportPlan, ImportRequest, columns_of
from tidemill.domain.importing.failures import row_errors
from tidemill.domain.resource import Resource
from tidemill.domain.values.field import Normalizer
from tidemill.operations.imports import Importing, Look
from tidemill.store.json import decode_input, encode

PREVIEW_MAX = 1_000  # rows


async def preview(
    importing: Importing,
    look: Look,
    resource: Resource,
    request: ImportRequest,
    normalizers: Mapping[str, Normalizer] | None = None,
) -> dict[str, Any]:
    """Layout, columns, where they go, all that would be refused, and what is wrong with the rows themselves."""
    found = columns_of(request, resource, look.columns, named_by_rows=look.named_by_rows)
    problems = list(found.problems)
    if not problems:
        try:
            await importing.plan(look, resource, request)
        except InvalidInput as error:
            problems.append(str(error))
    mapping = {column: name for column, name in found.mapping.items() if name in resource.names}
    plan = ImportPlan(
        resource=resource,
        mode=request.mode,
        mapping=mapping,
        columns=look.columns,
        spreadsheet_safe=request.spreadsheet_safe,
        keep_empty=request.keep_empty,
        documents=request.keep_empty and look.named_by_rows,
    )
    checker = Checker(plan, normalizers)
    return {
        "resource_type": resource.name,
        "layout": look.layout,
        "columns": list(look.columns),
        "mapping": {column: name for column, name in mapping.items() if column in look.columns},
        "unknown": found.unknown,
        "missing": found.missing,
        "problems": problems,
        "fields": [{"name": one.name, "type": one.type, "required": one.is_needed} for one in resource.fields],
        "rows": _rows(look, checker, found.unknown),
    }


def _rows(look: Look, checker: Checker, unknown: list[str]) -> list[dict[str, Any]]:
    """Columns that are no field were told once, and not again with every row."""
    known = [
        {k: v for k, v in row.items() if k not in unknown} if isinstance(row, dict) else row for row in look.records
    ]
    flaws = checker.check(known).flaws.told()
    rows = []
    for index, record in enumerate(look.records):
        row = index + 1
        line = line_of(row, None if look.lines is None else look.lines[index], look.first_line)
        told = look.defects.get(index) or flaws.get(index)
        errors = row_errors(told, row, line) if told else []
        rows.append({"row": row, "line": line, "errors": errors, "input": _shown(record)})
    return rows


def _shown(record: Any) -> Any:
    """As inputs are shown everywhere: the check has needed all digits of a fraction."""
    return decode_input(encode(record, exact=True).decode())
