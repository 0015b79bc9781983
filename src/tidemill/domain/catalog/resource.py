"""From what the catalog says of a table to a resource."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemill.domain.catalog.checks import is_decided, rules_of
from tidemill.domain.catalog.column import Column, field_of
from tidemill.domain.catalog.narrow import narrowed
from tidemill.domain.resource import Field, Reference, Resource, Table


@dataclass(frozen=True, slots=True)
class UniqueSet:
    columns: Sequence[str]
    is_primary: bool
    is_immediate: bool  # judged row by row; a deferred one cannot tell which row an upsert meets
    nulls_equal: bool


@dataclass(frozen=True, slots=True)
class Check:
    expression: str
    value_of: str | None = None  # of a domain: the column that VALUE stands for


@dataclass(frozen=True, slots=True)
class Facts:
    """A table as the catalog has it."""

    columns: Sequence[Column]
    checks: Sequence[Check] = ()
    unique: Sequence[UniqueSet] = ()
    references: Sequence[Reference] = ()
    is_rewritten: bool = False  # a trigger sees rows before NOT NULL and CHECK do


def resource_of(table: Table, facts: Facts, *, reads: bool = False) -> Resource:
    """Columns that cannot be written are no fields, and what names one of them is left to the server.

    For who only ``reads`` they are fields like the others.
    """
    fields = {
        column.name: field_of(column, judged_after_triggers=facts.is_rewritten)
        for column in facts.columns
        if column.is_writable
    }
    if reads:
        fields = {one.name: fields.get(one.name) or replace(field_of(one), required=False) for one in facts.columns}
    for name, rule in _rules(facts):
        if name in fields:
            fields[name] = _tightened(fields[name], rule)
    unique = [found for found in facts.unique if fields.keys() >= set(found.columns)]
    return Resource(
        name=str(table),
        table=table,
        fields=tuple(fields.values()),
        key=natural_key(unique, fields),
        unique=_sets(unique),
        indexed=_sets(unique),
        nulls_equal=_sets(one for one in unique if one.nulls_equal and _has_nulls(one, fields)),
        references=tuple(one for one in facts.references if fields.keys() >= set(one.fields)),
    )


def natural_key(unique: Sequence[UniqueSet], fields: dict[str, Field]) -> tuple[str, ...]:
    """The primary key; where the table makes that up by itself, the one other set of columns that tells rows apart."""
    primary = [tuple(one.columns) for one in unique if one.is_primary and one.is_immediate]
    others = [tuple(one.columns) for one in unique if not one.is_primary and one.is_immediate]
    made_up = not primary or any(fields[name].filled for name in primary[0])
    distinct = list(dict.fromkeys(others))
    if made_up and len(distinct) == 1:
        return distinct[0]
    return primary[0] if primary else ()


def _rules(facts: Facts) -> list[tuple[str, dict[str, Any]]]:
    columns = {column.name: column for column in facts.columns}
    found = []
    for check in facts.checks:
        if check.value_of is not None:
            value = {"VALUE": columns[check.value_of]}
            found += rules_of(check.expression, value)
            if not is_decided(check.expression, value):
                found.append((check.value_of, {"judged": True}))
        elif not facts.is_rewritten:
            found += rules_of(check.expression, columns)
    return found


def _tightened(field: Field, rule: dict[str, Any]) -> Field:
    tight = narrowed(field, rule)
    if "nullable" in rule:
        return replace(tight, required=tight.default is None and not tight.filled)
    return tight


def _has_nulls(one: UniqueSet, fields: dict[str, Field]) -> bool:
    return any(fields[name].nullable for name in one.columns)


def _sets(unique: Iterable[UniqueSet]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(tuple(one.columns) for one in unique))
