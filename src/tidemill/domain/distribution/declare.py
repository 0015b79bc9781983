"""From what people write, in a ``tidemill.toml`` or in Python, to datasets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.domain.declaration import values
from tidemill.domain.declaration.section import Section
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.distribution.dataset import Dataset, Producer
from tidemill.domain.distribution.fields import FIELD_TYPES, InputField, camel
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Compression, FileFormat

_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}").fullmatch
# What is said of an input beside its fields.
_TAKEN = ("status", "attempts", "path", "download_url", "rows", "size", "sha256", "reused", "error")
_PARAMETER = re.compile(r"%(?:%|\((\w+)\)s|(.?))", re.DOTALL)
_DATASET: dict[str, values.Reader] = {
    "query": values.text,
    "date_field": values.text,
    "columns": values.several(values.text),
    "format": lambda value: FileFormat(values.one_of(list(FileFormat))(value)),
    "compression": lambda value: Compression(values.one_of(list(Compression))(value)),
    "read": values.several(values.role, least=0),
}
_FIELD: dict[str, values.Reader] = {"type": values.one_of(FIELD_TYPES), "required": values.flag}


def datasets(document: Mapping[str, Any], producers: Mapping[str, Producer] | None = None) -> dict[str, Dataset]:
    """The datasets in a document, by name; InvalidSettings with everything that is wrong with them."""
    return _Datasets(producers or {}).declared(document)


class _Datasets(Section[Dataset]):
    section = "datasets"

    def __init__(self, producers: Mapping[str, Producer]) -> None:
        super().__init__()
        self._producers = producers

    def one(self, path: str, name: str, given: Mapping[str, Any]) -> Dataset:
        said = self.read(path, given, _DATASET, others=("fields",))
        fields = tuple(self._fields(f"{path}.fields", given.get("fields", {})))
        producer = self._producers.get(name)
        if not fields:
            self.wrong(f"{path}.fields", "at least one is needed: what an input is made of")
        if producer is None and "query" not in given:
            self.wrong(f"{path}.query", "it is missing: what makes the rows of a file")
        if producer is not None and "query" in given:
            self.wrong(f"{path}.query", "a function makes the rows already")
        if producer is None and "columns" in given:
            self.wrong(f"{path}.columns", "the query names them")
        if "query" in said:
            said["query"] = self._query(f"{path}.query", said["query"], [field.name for field in fields])
        self._check_date(f"{path}.date_field", said.get("date_field"), fields)
        dataset = Dataset(name=name, fields=fields, producer=producer, **said)
        try:
            dataset.form()
        except InvalidInput as error:
            self.wrong(f"{path}.compression", str(error))
        return dataset

    def _fields(self, path: str, given: Any) -> Iterator[InputField]:
        """``{ index_key = "text" }``, or a table with more to say."""
        if not isinstance(given, Mapping):
            self.wrong(path, "a table of fields is wanted")
            return
        spelled: set[str] = set()
        for name, inner in given.items():
            place = f"{path}.{name}"
            if not _FIELD_NAME(name):
                self.wrong(place, "a field is lower-case letters, digits and _, and begins with a letter")
            if name in _TAKEN:
                self.wrong(place, "this name is taken: it is told of every input")
            if camel(name) in spelled:
                self.wrong(place, "another field has the same name in camelCase")
            spelled.add(camel(name))
            said = {"type": inner} if isinstance(inner, str) else inner
            if not isinstance(said, Mapping):
                self.wrong(place, "a type is wanted, or a table")
                continue
            yield InputField(name, **self.read(place, said, _FIELD))

    def _check_date(self, path: str, name: str | None, fields: tuple[InputField, ...]) -> None:
        if name is not None:
            dates = [field.name for field in fields if field.is_date]
            if name not in dates:
                self.wrong(path, f"{name!r} is no field that is a date{did_you_mean(name, dates)}")

    def _query(self, path: str, query: str, fields: list[str]) -> str:
        """Without the semicolon at its end; what it asks for is what the inputs have."""
        for found in _PARAMETER.finditer(query):
            name, other = found.groups()
            if other is not None:
                self.wrong(path, f"%{other} is not a parameter: write %(name)s, and %% for a percent sign")
            elif name is not None and name not in fields:
                self.wrong(path, f"there is no field {name!r}{did_you_mean(name, fields)}")
        return query.strip().rstrip(";").rstrip()
