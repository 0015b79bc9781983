"""The section ``[datasets]`` of ``tidemill.toml``, which declares the datasets of distributions."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationInfo, field_validator

from tidemill.config_sections import ConfigTable, Names, NonEmpty, Roles, Text, parse_section
from tidemill.core.errors import InvalidInput, format_suggestion
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.distributions.dataset import Dataset, FieldType, InputField, RowProducer, to_camel_case

_FIELD_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,62}")
_QUERY_PARAMETER_PATTERN = re.compile(r"%(?:%|\((\w+)\)s|(.?))", re.DOTALL)
# The API returns these keys next to the fields of an input.
_RESERVED_FIELD_NAMES = ("status", "attempts", "path", "download_url", "rows", "size", "sha256", "reused", "error")


def _check_field_name(name: str) -> str:
    if not _FIELD_NAME_PATTERN.fullmatch(name):
        raise ValueError(f"The name does not match {_FIELD_NAME_PATTERN.pattern}")
    if name in _RESERVED_FIELD_NAMES:
        raise ValueError("The name is reserved: the API returns a field with this name for every input")
    return name


class DatasetFieldTable(ConfigTable):
    type: FieldType = "text"
    required: StrictBool = True

    @classmethod
    def expand_short_form(cls, value: Any) -> Any:
        """Expand the short form ``index_key = "text"`` to a table with that type."""
        return {"type": value} if isinstance(value, str) else value

    @property
    def is_date(self) -> bool:
        return InputField("", self.type).is_date


class DatasetTable(ConfigTable):
    fields: Annotated[
        dict[
            Annotated[str, AfterValidator(_check_field_name)],
            Annotated[DatasetFieldTable, BeforeValidator(DatasetFieldTable.expand_short_form)],
        ],
        NonEmpty,
    ]
    query: Text | None = Field(None, validate_default=True)
    date_field: Text | None = None
    columns: Names = ()
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    read: Roles = ()
    version: Text = ""

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        fields = given.get("fields")
        if isinstance(fields, Mapping):
            yield from _find_camel_case_conflicts(list(fields))
            if isinstance(given.get("query"), str):
                yield from _find_query_problems(given["query"], list(fields))

    @field_validator("query", mode="before")
    @classmethod
    def _check_query_or_function(cls, query: Any, info: ValidationInfo) -> Any:
        if query is None and not _has_producer(info):
            raise ValueError("Field required, unless the mill declares a function that produces the rows")
        if query is not None and _has_producer(info):
            raise ValueError("Conflicts with the function that the mill declares for this dataset")
        return query

    @field_validator("columns", mode="before")
    @classmethod
    def _reject_columns_without_function(cls, columns: Any, info: ValidationInfo) -> Any:
        if not _has_producer(info):
            raise ValueError("Only allowed for a dataset with a function. A query already names its columns")
        return columns

    @field_validator("date_field")
    @classmethod
    def _check_date_field(cls, name: str, info: ValidationInfo) -> str:
        dates = [field for field, table in info.data.get("fields", {}).items() if table.is_date]
        if "fields" in info.data and name not in dates:
            raise ValueError(f'"{name}" is not a field of type date or yyyymmdd{format_suggestion(name, dates)}')
        return name

    @field_validator("compression")
    @classmethod
    def _check_compression(cls, compression: Compression, info: ValidationInfo) -> Compression:
        try:
            OutputFileSpec(info.data.get("format", FileFormat.CSV), (), compression)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return compression

    def build_dataset(self, name: str, producer: RowProducer | None) -> Dataset:
        given = self.get_explicit_values(exclude=("fields",))
        if self.query is not None:
            given["query"] = self.query.strip().rstrip(";").rstrip()
        fields = tuple(InputField(field, table.type, table.required) for field, table in self.fields.items())
        return Dataset(name=name, fields=fields, producer=producer, **given)


def _has_producer(info: ValidationInfo) -> bool:
    return info.context is not None and info.context["name"] in info.context["producers"]


def _find_camel_case_conflicts(fields: list[str]) -> Iterator[tuple[str, str]]:
    first: dict[str, str] = {}
    for name in fields:
        camel = to_camel_case(name)
        other = first.setdefault(camel, name)
        if other != name:
            yield f"fields.{name}", f'The camelCase name "{camel}" is already used by field "{other}"'


def _find_query_problems(query: str, fields: list[str]) -> Iterator[tuple[str, str]]:
    for match in _QUERY_PARAMETER_PATTERN.finditer(query):
        name, other = match.groups()
        if other is not None:
            yield "query", f"%{other} is not a parameter. Use %(name)s for a parameter and %% for a percent sign."
        elif name is not None and name not in fields:
            yield "query", f'Unknown field "{name}"{format_suggestion(name, fields)}'


def parse_datasets(
    document: Mapping[str, Any], producers: Mapping[str, RowProducer] | None = None
) -> dict[str, Dataset]:
    """Return the datasets in a document, by name; raise InvalidSettings with every problem."""
    known = producers or {}
    return parse_section(
        document,
        "datasets",
        DatasetTable,
        lambda name, table: table.build_dataset(name, known.get(name)),
        context={"producers": known},
    )
