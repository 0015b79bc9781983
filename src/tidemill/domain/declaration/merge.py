"""A declaration and what the catalog says of its table, together one resource. A declaration only makes stricter."""

from dataclasses import replace

from tidemill.domain.declaration.model import Declaration
from tidemill.domain.declaration.stricter import Stricter
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.resource import Field, Reference, Resource, check

Names = tuple[str, ...]


def merge(declared: Declaration, introspected: Resource) -> Resource:
    """The resource; InvalidSettings with everything in which the declaration does not fit the table."""
    merging = _Merging(declared, introspected)
    resource = merging.resource()
    problems = merging.problems or [f"{declared.path}: {problem}" for problem in check(resource)]
    if problems:
        listed = "\n".join(f"  - {line}" for line in problems)
        raise InvalidSettings(f"resource {declared.name} does not fit {introspected.table}:\n{listed}")
    return resource


class _Merging:
    def __init__(self, declared: Declaration, found: Resource) -> None:
        self.problems: list[str] = []
        self._declared, self._found = declared, found
        self._columns = {field.column: field for field in found.fields}
        self._names = {one.column: one.name for one in declared.fields}

    def resource(self) -> Resource:
        declared, found = self._declared, self._found
        fields = self._fields()
        written = {field.column for field in fields}
        return Resource(
            name=declared.name,
            table=found.table,
            fields=fields,
            key=self._key(written),
            unique=self._unique(written),
            indexed=tuple(self._indexed(written)),
            nulls_equal=tuple(self._renamed(one) for one in found.nulls_equal if written.issuperset(one)),
            references=self._references(written),
            conditions=declared.conditions,
            read=declared.read,
            write=declared.write,
        )

    def _fields(self) -> tuple[Field, ...]:
        declared = {one.column: one for one in self._declared.fields}
        if len(declared) < len(self._declared.fields):
            self._wrong("fields", "two of them are the same column")
        for one in self._declared.fields:
            if one.column not in self._columns:
                self._no_column(f"fields.{one.name}", one.column)
        for column in self._declared.columns or ():
            if column not in self._columns:
                self._no_column("columns", column)
        fields = []
        for column, field in self._columns.items():
            if column in declared:
                stricter = Stricter(field, f"{self._declared.path}.fields.{declared[column].name}")
                fields.append(replace(stricter.field(declared[column].rules), name=declared[column].name))
                self.problems += stricter.problems
            elif self._declared.columns is None or column in self._declared.columns:
                fields.append(field)
            elif field.required and self._declared.write:  # what nobody writes may show as little as it likes
                self._wrong("columns", f"{column} is left out, but a row cannot be without it")
        return tuple(fields)

    def _no_column(self, place: str, column: str) -> None:
        hint = did_you_mean(column, self._columns)
        self._wrong(place, f"{self._found.table} has no column {column!r} that can be written{hint}")

    def _unique(self, written: set[str]) -> tuple[Names, ...]:
        """What the table holds unique, and what is declared so: that is looked up, though nobody enforces it."""
        by_field = [(one.name,) for one in self._declared.fields if one.unique]
        return tuple(dict.fromkeys([*self._indexed(written), *by_field, *self._declared.unique]))

    def _indexed(self, written: set[str]) -> list[Names]:
        return [self._renamed(one) for one in self._found.unique if written.issuperset(one)]

    def _key(self, written: set[str]) -> Names:
        """An upsert needs an index on it; in which order it is declared does not matter."""
        wanted = self._declared.key
        if wanted is None:
            return self._renamed(self._found.key) if written.issuperset(self._found.key) else ()
        same = [one for one in self._indexed(written) if set(one) == set(wanted)]
        if not same:
            self._wrong("key", f"{self._found.table} has no unique index on ({', '.join(wanted)})")
        return same[0] if same else wanted

    def _references(self, written: set[str]) -> tuple[Reference, ...]:
        by_table = [
            replace(one, fields=self._renamed(one.fields))
            for one in self._found.references
            if written.issuperset(one.fields)
        ]
        return tuple(dict.fromkeys([*by_table, *self._declared.references]))

    def _renamed(self, columns: Names) -> Names:
        return tuple(self._names.get(column, column) for column in columns)

    def _wrong(self, place: str, said: str) -> None:
        self.problems.append(f"{self._declared.path}.{place}: {said}")
