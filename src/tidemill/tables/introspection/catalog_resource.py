"""Converts the catalog entries of a table to a resource."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemill.tables.introspection.catalog_columns import CatalogColumn, build_field
from tidemill.tables.introspection.check_constraints import is_fully_translated, parse_check_rules
from tidemill.tables.resource import Field, Reference, Resource, TableName, narrow_field


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    columns: Sequence[str]
    is_primary: bool
    is_immediate: bool  # not deferrable; ON CONFLICT cannot use a deferrable constraint
    nulls_equal: bool


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    expression: str
    value_of: str | None = None  # for a domain: the column of VALUE


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The catalog entries of a table."""

    columns: Sequence[CatalogColumn]
    checks: Sequence[CheckConstraint] = ()
    unique: Sequence[UniqueIndex] = ()
    references: Sequence[Reference] = ()
    has_before_triggers: bool = False  # a trigger can change rows before NOT NULL and CHECK apply


def build_resource(table: TableName, facts: CatalogTable, *, for_reading: bool = False) -> Resource:
    """Return the resource of a table.

    It omits columns that cannot be written and the constraints that use them, which PostgreSQL checks. With
    ``for_reading``, it includes these columns.
    """
    fields = {
        column.name: build_field(column, has_before_triggers=facts.has_before_triggers)
        for column in facts.columns
        if column.is_writable
    }
    if for_reading:
        fields = {one.name: fields.get(one.name) or replace(build_field(one), required=False) for one in facts.columns}
    for name, rule in _list_check_rules(facts):
        if name in fields:
            fields[name] = _narrow_field_by_check_rule(fields[name], rule)
    unique = [index for index in facts.unique if fields.keys() >= set(index.columns)]
    return Resource(
        name=str(table),
        table=table,
        fields=tuple(fields.values()),
        key=choose_natural_key(unique, fields),
        unique=_list_column_sets(unique),
        indexed=_list_column_sets(unique),
        nulls_equal=_list_column_sets(one for one in unique if one.nulls_equal and _has_nullable_column(one, fields)),
        references=tuple(one for one in facts.references if fields.keys() >= set(one.fields)),
    )


def choose_natural_key(unique: Sequence[UniqueIndex], fields: dict[str, Field]) -> tuple[str, ...]:
    """Return the primary key. If the table generates it, return the only other unique set, if there is exactly one."""
    primary = [tuple(one.columns) for one in unique if one.is_primary and one.is_immediate]
    others = [tuple(one.columns) for one in unique if not one.is_primary and one.is_immediate]
    is_generated = not primary or any(fields[name].filled for name in primary[0])
    distinct = list(dict.fromkeys(others))
    if is_generated and len(distinct) == 1:
        return distinct[0]
    return primary[0] if primary else ()


def _list_check_rules(facts: CatalogTable) -> list[tuple[str, dict[str, Any]]]:
    columns = {column.name: column for column in facts.columns}
    rules = []
    for check in facts.checks:
        if check.value_of is not None:
            value = {"VALUE": columns[check.value_of]}
            rules += parse_check_rules(check.expression, value)
            if not is_fully_translated(check.expression, value):
                rules.append((check.value_of, {"judged": True}))
        elif not facts.has_before_triggers:
            rules += parse_check_rules(check.expression, columns)
    return rules


def _narrow_field_by_check_rule(field: Field, rule: dict[str, Any]) -> Field:
    tight = narrow_field(field, rule)
    if "nullable" in rule:
        return replace(tight, required=tight.default is None and not tight.filled)
    return tight


def _has_nullable_column(one: UniqueIndex, fields: dict[str, Field]) -> bool:
    return any(fields[name].nullable for name in one.columns)


def _list_column_sets(unique: Iterable[UniqueIndex]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(tuple(one.columns) for one in unique))
