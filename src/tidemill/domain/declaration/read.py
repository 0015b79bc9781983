"""From what people write to declarations: every mistake is told, with the path to it."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidemill.domain.declaration import values
from tidemill.domain.declaration.formats import FORMATS
from tidemill.domain.declaration.model import Declaration, DeclaredField
from tidemill.domain.declaration.reading import SECTIONS, Reading
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.resource import NORMALIZERS, Condition, Reference

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}").fullmatch
_NAMES = values.several(values.text)
_RESOURCE: dict[str, values.Reader] = {
    "table": values.table_name,
    "key": _NAMES,
    "unique": values.several(_NAMES),
    "columns": values.columns,
    "read": values.several(values.role, least=0),
    "write": values.several(values.role, least=0),
}
_FIELD: dict[str, values.Reader] = {
    "column": values.text,
    "type": values.type_,
    "required": values.flag,
    "default": values.plain,
    "enum": values.several(values.plain),
    "pattern": values.pattern,
    "pattern_says": values.text,
    "format": values.one_of(FORMATS),
    "min_length": values.count,
    "max_length": values.count,
    "max_words": values.count,
    "minimum": values.plain,
    "maximum": values.plain,
    "above": values.plain,
    "below": values.plain,
    "date_formats": values.several(values.date_format),
    "sensitive": values.flag,
    "unique": values.flag,
    "references": values.column_of_table,
}
_REFERENCE: dict[str, values.Reader] = {"fields": _NAMES, "table": values.table, "columns": _NAMES}
_CONDITION: dict[str, values.Reader] = {"field": values.text, "values": values.several(values.plain), "needs": _NAMES}
_PAIRS = [("required", "default"), ("pattern", "format"), ("minimum", "above"), ("maximum", "below")]


def declarations(document: Mapping[str, Any], normalizers: Collection[str] = NORMALIZERS) -> dict[str, Declaration]:
    """The resources in a document, by name; InvalidSettings with everything that is wrong with them."""
    reader = _Reader(normalizers)
    found = list(reader.document(document))
    if reader.problems:
        raise InvalidSettings("these resources cannot be:\n" + "\n".join(f"  - {line}" for line in reader.problems))
    return {one.name: one for one in found}


class _Reader(Reading):
    def __init__(self, normalizers: Collection[str]) -> None:
        super().__init__()
        self._field = _FIELD | {"normalize": values.several(values.one_of(list(normalizers)))}

    def document(self, given: Mapping[str, Any]) -> Iterator[Declaration]:
        self.refuse_unknown("", given, SECTIONS)
        for name, inner in self.tables("resources", given.get("resources", {})):
            if not _NAME(name):
                self.wrong(
                    f"resources.{name}", "a name is lower-case letters, digits, - and _, and begins with a letter"
                )
            yield self._resource(name, inner)

    def _resource(self, name: str, given: Mapping[str, Any]) -> Declaration:
        path = f"resources.{name}"
        said = self.read(path, given, _RESOURCE, others=("fields", "references", "conditions"))
        if "table" not in given:
            self.wrong(f"{path}.table", "it is missing: the table that rows are written into")
        fields, references = [], []
        for field, inner in self.tables(f"{path}.fields", given.get("fields", {})):
            rules = self._rules(f"{path}.fields.{field}", inner)
            if "references" in rules:
                table, column = rules.pop("references")
                references.append(Reference((field,), table, (column,)))
            column, unique = rules.pop("column", field), rules.pop("unique", False)
            fields.append(DeclaredField(name=field, column=column, unique=unique, rules=rules))
        return Declaration(
            **{"name": name, "table": ""} | said,
            fields=tuple(fields),
            references=(*references, *self._references(f"{path}.references", given.get("references", []))),
            conditions=tuple(self._conditions(f"{path}.conditions", given.get("conditions", []))),
        )

    def _rules(self, path: str, given: Mapping[str, Any]) -> dict[str, Any]:
        rules = self.read(path, given, self._field)
        for one, other in _PAIRS:
            if rules.get(one) and other in rules:
                self.wrong(f"{path}.{other}", f"there is {one} already")
        if "pattern_says" in rules and "pattern" not in rules:
            self.wrong(f"{path}.pattern_says", "there is no pattern")
        if "format" in rules:
            rules["pattern"], rules["pattern_says"] = FORMATS[rules.pop("format")]
        if "date_formats" in rules:
            rules["formats"] = rules.pop("date_formats")
        return rules

    def _references(self, path: str, given: Any) -> Iterator[Reference]:
        for place, said in self.listed(path, given, _REFERENCE):
            if len(said["fields"]) != len(said["columns"]):
                self.wrong(place, "as many columns as fields are wanted")
            yield Reference(said["fields"], said["table"], said["columns"])

    def _conditions(self, path: str, given: Any) -> Iterator[Condition]:
        for _, said in self.listed(path, given, _CONDITION):
            yield Condition(said["field"], said["values"], said["needs"])
