"""The plan of an import, which is made once per job and stored with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import msgspec

from tidemill.core.errors import InvalidColumns, InvalidInput, escape_unprintable, format_suggestion
from tidemill.core.file_format import FileLayout
from tidemill.imports.column_mapping import (
    ColumnMapping,
    format_missing_column,
    has_error_file_columns,
    map_columns,
    quote_names,
)
from tidemill.imports.format_detection import UNDECIDED_FORMAT, FormatFinding, detect_formats, resolve_formats
from tidemill.imports.validation.rule_evaluation import Evaluate, compile_rule
from tidemill.store.database import Database
from tidemill.tables.introspection.table_introspection import describe_access_problems, find_access_problems
from tidemill.tables.resource import Field, Lookup, Reference, Resource, may_lack_equality, normalize_column_name
from tidemill.tables.row_rules import (
    RowRule,
    parse_computed_rule,
    parse_skip_rule,
    raise_rule_error,
)
from tidemill.tables.values.column_texts import is_storable_text
from tidemill.tables.values.value_formats import check_format_fits_field

ImportWriteMode = Literal["insert", "upsert"]
DuplicateRule = Literal["first", "last", "error"]
"""Which of several rows with the same key is imported. ``error`` imports the first and fails the others."""

Translations = dict[str, dict[str, str]]
"""Field -> text in the file -> text to import instead, such as ``{"country": {"Germany": "DE"}}``."""
TRANSLATED_VALUES_MAX, TRANSLATION_MAX_CHARS = 1_000, 1_000  # values of one field
TRANSLATION_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """The options of an import, as the caller sends them. ``key`` overrides the key of the resource."""

    mode: ImportWriteMode = "insert"
    validate_only: bool = False
    duplicates: DuplicateRule = "error"
    mapping: dict[str, str] = field(default_factory=dict)
    translations: Translations = field(default_factory=dict)
    key: tuple[str, ...] = ()
    spreadsheet_safe: bool = False  # remove the apostrophes that an export put before formulas
    keep_empty: bool = False  # empty text is a value; missing is null, or in CSV an unquoted empty field
    formats: dict[str, str] = field(default_factory=dict)  # field, or column of the file -> name of a value format
    assume: bool = False  # take the likelier format of columns that can be read in two ways
    constants: dict[str, str] = field(default_factory=dict)  # field -> value of every row
    computed: dict[str, str] = field(default_factory=dict)  # field -> expression
    skip: tuple[str, ...] = ()  # conditions of rows to skip
    undo: bool | None = None  # record what undo needs; None is the default of the resource
    lookups: dict[str, list[str]] = field(default_factory=dict)  # field -> searched columns of the referenced table
    create_missing: list[str] = field(default_factory=list)  # fields whose lookups create the rows they do not find


class RuleSource(NamedTuple):
    """Where a rule finds the values of a name: in a column, maybe of a field, or in a constant. Else it has none."""

    column: str | None = None
    field: Field | None = None
    constant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The target resource, the options and the column mapping of one import."""

    resource: Resource
    mode: ImportWriteMode = "insert"
    validate_only: bool = False
    duplicates: DuplicateRule = "error"
    mapping: dict[str, str] = field(default_factory=dict)  # column of the file -> field
    columns: tuple[str, ...] = ()  # the columns of the file, in its order
    translations: Translations = field(default_factory=dict)
    spreadsheet_safe: bool = False
    keep_empty: bool = False
    documents: bool = False  # text in a JSON field is a JSON string, not serialized JSON
    formats: dict[str, str] = field(default_factory=dict)  # field -> name of the format of its texts
    assumed: tuple[str, ...] = ()  # the fields whose format is the likelier of two
    undo: bool = False  # record what undo needs
    rejects_ambiguous_numbers: bool = False  # a text such as 12.000 is invalid if nothing shows its format
    constants: dict[str, str] = field(default_factory=dict)  # field -> value of every row
    computed: dict[str, str] = field(default_factory=dict)  # field -> expression
    skip: tuple[str, ...] = ()  # conditions of rows to skip

    @property
    def guard_fields(self) -> tuple[str, ...]:
        """The fields in which a row that an upsert updates must already have the value of the constant."""
        return tuple(name for name in self.resource.field_names if name in self.constants.keys() - {*self.resource.key})

    def find_rule_source(self, name: str) -> RuleSource | None:
        """Return where a rule finds a name: a field with a value, a column, or a field without a column.

        None if there is no such field or column. Exact names win over names without case and punctuation.
        """
        columns = {field: column for column, field in self.mapping.items()}
        found = self._find_value_source(name, columns)
        if found is None:
            normalized, known = normalize_column_name(name), set(self.resource.field_names)
            names = dict.fromkeys([*self.constants, *(columns.keys() & known), *self.columns, *self.mapping])
            same = [one for one in names if normalize_column_name(one) == normalized]
            sources = {self._find_value_source(one, columns) for one in same}
            if len(sources) == 1:
                return sources.pop()
            return RuleSource(field=self.resource.get_field(name)) if name in known else None
        return found

    def _find_value_source(self, name: str, columns: Mapping[str, str]) -> RuleSource | None:
        fields = self.resource.input_fields
        if name in self.constants:
            return RuleSource(field=self.resource.get_field(name), constant=self.constants[name])
        if name in columns and name in fields:
            return RuleSource(columns[name], fields[name])
        if name in self.columns or name in self.mapping:
            return RuleSource(name, fields.get(self.mapping.get(name, "")))
        return None

    @property
    def ordered_mapping(self) -> dict[str, str]:
        """The mapping in the column order of the file, which is the order of a row's errors. JSONB does not keep it."""
        return {column: self.mapping[column] for column in self.columns if column in self.mapping} | self.mapping

    @property
    def is_undoable(self) -> bool:
        """Whether the import records what undo needs. A dry run writes nothing."""
        return self.undo and not self.validate_only

    def get_fields_by_column(self) -> dict[str, Field]:
        """Return the field of each mapped column, in the order of the file."""
        fields = self.resource.input_fields
        return {column: fields[name] for column, name in self.ordered_mapping.items() if name in fields}

    def rejects_ambiguous_texts(self, field: Field) -> bool:
        """Whether texts such as 12.000 are invalid in the field, because neither the caller nor the file decides."""
        return self.rejects_ambiguous_numbers and self.formats.get(field.name, UNDECIDED_FORMAT) == UNDECIDED_FORMAT

    @property
    def mapped_fields(self) -> tuple[str, ...]:
        """The fields that the import sets, from columns or by rules, in the order of the resource."""
        mapped = {*self.mapping.values(), *self.constants, *self.computed}
        return tuple(name for name in self.resource.field_names if name in mapped)

    @property
    def unique_field_sets(self) -> tuple[tuple[str, ...], ...]:
        """Return the unique sets of fields that the import sets, the key first."""
        given, key = set(self.mapped_fields), self.resource.key
        sets = [key, *(fields for fields in self.resource.unique if fields != key)]
        return tuple(fields for fields in sets if fields and given.issuperset(fields))

    @property
    def lookups(self) -> list[Lookup]:
        """The lookups of fields that the file has columns for."""
        mapped = set(self.mapped_fields)
        return [lookup for lookup in self.resource.lookups if lookup.field in mapped]

    def list_input_names(self, fields: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the texts that decide whether rows have the same values in these fields."""
        by_lookup = {lookup.field: [field.name for field in lookup.by] for lookup in self.lookups}
        return tuple(dict.fromkeys(name for field in fields for name in by_lookup.get(field, [field])))

    def is_self_reference(self, reference: Reference) -> bool:
        """Whether the reference points to the imported table, so that another row of the file may satisfy it."""
        return reference.table == self.resource.table and set(self.mapped_fields).issuperset(reference.fields)

    def keeps_null(self, field: Field) -> bool:
        """Whether a missing value of the field is stored as NULL instead of the default."""
        return self.keep_empty and field.nullable

    def get_default_if_omitted(self, field: Field) -> str | None:
        """Return the default for rows without the field, if rows with a null in the field keep NULL; else None."""
        return field.default if self.keeps_null(field) else None

    @property
    def may_wait_for_rows(self) -> bool:
        """Whether a row may have to wait for another row of the file. In a dry run it would wait forever."""
        return not self.validate_only and any(map(self.is_self_reference, self.resource.references))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportParams:
    """The parameters of an import job.

    A job whose file a worker downloads starts with a request and a resource. The worker adds the plan when it knows the
    columns.
    """

    plan: ImportPlan | None = None
    request: ImportRequest | None = None
    resource: Resource | None = None
    layout: FileLayout | None = None  # of a downloaded file

    @classmethod
    def from_json(cls, params: Mapping[str, Any]) -> Self:
        layout = params.get("layout")
        return cls(
            plan=_convert_if_given(params.get("plan"), ImportPlan),
            request=_convert_if_given(params.get("request"), ImportRequest),
            resource=_convert_if_given(params.get("resource"), Resource),
            layout=FileLayout.from_json(layout) if layout else None,
        )

    @property
    def plan_or_request(self) -> ImportPlan | ImportRequest:
        """The plan, or the request if the file was not read yet."""
        return self.plan or self.request or ImportRequest()

    @property
    def target(self) -> Resource | None:
        return self.resource if self.plan is None else self.plan.resource


T = TypeVar("T")


def _convert_if_given(value: Any, type_: type[T]) -> T | None:
    return msgspec.convert(value, type_) if value else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """What the plan of an import depends on: the columns, a sample of the rows, and the delimiter.

    ``named_by_rows``: each record names its own fields, so later records may have other columns.
    """

    columns: Sequence[str]
    named_by_rows: bool = False
    sample: Sequence[Any] = ()
    delimiter: str | None = None


def make_import_plan(request: ImportRequest, resource: Resource, content: FileContent) -> ImportPlan:
    """Return the plan of an import of a file.

    Raises:
        InvalidColumns: The columns do not match the resource. It lists all problems.
        AmbiguousFormats: The values of a column can be read in two ways. It lists the formats.
        InvalidInput: The options do not match the resource.
    """
    resource = replace(resource, key=request.key) if request.key else resource
    columns, named_by_rows = content.columns, content.named_by_rows
    mapped = map_file_columns(request, resource, columns, named_by_rows=named_by_rows)
    if not mapped.is_valid:
        raise InvalidColumns(mapped.problems)
    plan = ImportPlan(
        resource=resource,
        mode=request.mode,
        validate_only=request.validate_only,
        duplicates=request.duplicates,
        mapping=mapped.mapping,
        columns=tuple(columns),
        translations=normalize_translations(request.translations, resource),
        spreadsheet_safe=is_spreadsheet_safe(request, columns, named_by_rows=named_by_rows),
        keep_empty=request.keep_empty,
        documents=request.keep_empty and named_by_rows,
        undo=resource.undo if request.undo is None else request.undo,
        rejects_ambiguous_numbers=not request.keep_empty,
    )
    plan = add_rules_to_plan(plan, request)
    validate_plan(plan)
    given = choose_given_formats(request, resource, mapped.mapping)
    findings = detect_formats_of_plan(plan, content, given)
    formats, assumed = resolve_formats(findings, given, assume=request.assume or resource.assume)
    return replace(plan, formats=formats, assumed=assumed)


def detect_formats_of_plan(plan: ImportPlan, content: FileContent, given: Mapping[str, str]) -> list[FormatFinding]:
    """Return the formats of columns, except ``given``. An export wrote files with ``keep_empty``, in plain notation."""
    if plan.keep_empty:
        return []
    return detect_formats(
        plan.get_fields_by_column(),
        content.sample,
        delimiter=content.delimiter,
        given=given,
        translations=plan.translations,
        unescape_formulas=plan.spreadsheet_safe,
    )


def parse_lookups(lookups: Mapping[str, str | Sequence[str]]) -> dict[str, list[str]]:
    """Return the searched columns of each field. A text lists columns, separated by commas."""
    return {
        name: [part.strip() for part in columns.split(",") if part.strip()]
        if isinstance(columns, str)
        else list(columns)
        for name, columns in lookups.items()
    }


def normalize_translations(translations: Translations, resource: Resource) -> Translations:
    """Return the translations with trimmed texts.

    Raises:
        InvalidInput: A field does not exist, it has too many translations, or a text is too long or has two of them.
    """
    return {name: _normalize_translations_of_field(name, texts, resource) for name, texts in translations.items()}


def _normalize_translations_of_field(name: str, texts: Mapping[str, str], resource: Resource) -> dict[str, str]:
    where = f'Invalid translations of field "{name}"'
    if name not in resource.input_fields:
        raise InvalidInput(f"{where}: {resource.name} has no such field{format_suggestion(name, resource.field_names)}")
    if len(texts) > TRANSLATED_VALUES_MAX:
        raise InvalidInput(f"{where}: {len(texts):,} values; at most {TRANSLATED_VALUES_MAX:,} are allowed")
    trimmed: dict[str, str] = {}
    for text, new in texts.items():
        shown = escape_unprintable(text[:TRANSLATION_SHOWN_CHARS])
        if not text.strip():
            raise InvalidInput(f"{where}: a value to translate is empty")
        if max(len(text), len(new)) > TRANSLATION_MAX_CHARS:
            raise InvalidInput(f'{where}: "{shown}…" is longer than {TRANSLATION_MAX_CHARS:,} characters')
        if not is_storable_text(text + new):
            raise InvalidInput(f'{where}: "{shown}" contains a character that PostgreSQL cannot store')
        if trimmed.setdefault(text.strip(), new) != new:
            raise InvalidInput(f'{where}: "{shown}" has two translations')
    return trimmed


def choose_given_formats(request: ImportRequest, resource: Resource, mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the formats by field that the request and the resource set; the request can name a column of the file.

    Raises:
        InvalidInput: A name is neither a field nor a column, or a format does not fit the type of its field.
    """
    known, formats = resource.input_fields, dict(resource.formats)
    for name, format_name in request.formats.items():
        target = name if name in known else mapping.get(name)
        if target is None:
            hint = format_suggestion(name, known)
            raise InvalidInput(f'Cannot set the format of "{name}": it is not a field of {resource.name}{hint}')
        formats[target] = format_name
    for name, format_name in formats.items():
        check_format_fits_field(format_name, known[name])
    return formats


def is_spreadsheet_safe(request: ImportRequest, columns: Sequence[str], *, named_by_rows: bool = False) -> bool:
    """Whether formulas in the file have apostrophes in front: the request says so, or it is an error file."""
    return request.spreadsheet_safe or (not named_by_rows and has_error_file_columns(columns))


def map_file_columns(
    request: ImportRequest, resource: Resource, columns: Sequence[str], *, named_by_rows: bool = False
) -> ColumnMapping:
    closed = list_fields_closed_to_columns(request, resource)
    read = list_names_in_rules(request, resource)
    mapped = map_columns(columns, resource, request.mapping, set_by_rules=closed, read_by_rules=read)
    if not named_by_rows:
        return mapped
    ignored = {name for name, field in request.mapping.items() if not field}
    optional = {format_missing_column(name) for name in mapped.missing if name not in ignored}
    others = closed.union(mapped.mapping.values(), ignored)
    mapping = {name: name for name in resource.field_names if name not in others} | mapped.mapping
    problems = [problem for problem in mapped.problems if problem not in optional]
    return replace(mapped, mapping=mapping, missing=[*ignored.intersection(mapped.missing)], problems=problems)


def list_fields_closed_to_columns(request: ImportRequest, resource: Resource) -> set[str]:
    """Return the fields that no column may fill: constants, and computed fields that do not read their own column."""
    computed = {**request.computed, **resource.computed}
    rewritten = {name for name, text in computed.items() if name in parse_computed_rule(text).names}
    return {*request.constants, *resource.constants, *(computed.keys() - rewritten)}


def list_names_in_rules(request: ImportRequest, resource: Resource) -> set[str]:
    rules = [parse_computed_rule(text) for text in request.computed.values()]
    rules += [parse_skip_rule(text) for text in request.skip]
    return _list_names_in_forced_rules(resource).union(*(rule.names for rule in rules))


def _list_names_in_forced_rules(resource: Resource) -> set[str]:
    rules = [parse_computed_rule(text) for text in resource.computed.values()]
    rules += [parse_skip_rule(text) for text in resource.skip]
    return set[str]().union(*(rule.names for rule in rules))


def find_fields_read_by_forced_rules(fields: Iterable[str], resource: Resource) -> list[str]:
    """Return those of these fields that a rule of the resource reads, under any spelling of the name."""
    read = set(map(normalize_column_name, _list_names_in_forced_rules(resource)))
    return [name for name in fields if normalize_column_name(name) in read]


def compile_rule_of_plan(plan: ImportPlan, rule: RowRule, own_field: str | None = None) -> Evaluate:
    """Return the function that evaluates a rule; ``own_field`` is the computed field.

    Raises:
        InvalidInput: A name is neither a field nor a column, or is another computed field.
    """
    subject, fields = "condition" if own_field is None else "expression", {}
    for name, at in rule.names.items():
        source = plan.find_rule_source(name)
        if source is None:
            names = [*plan.resource.field_names, *plan.columns]
            hint = format_suggestion(name, names)
            raise_rule_error(subject, rule.text, at, f'"{name}" is neither a field nor a column of the file{hint}')
        if source.column is None and source.constant is None and name in plan.computed:
            raise_rule_error(subject, rule.text, at, f'"{name}" is computed itself. Rules read columns and constants')
        fields[name] = source.field
    return compile_rule(rule, fields, owner=plan.resource.owner_name)


def add_rules_to_plan(plan: ImportPlan, request: ImportRequest) -> ImportPlan:
    """Return the plan with the rules of the resource and of the request.

    Raises:
        InvalidInput: A rule reads a name that is neither a field nor a column, or values of the wrong type; or a rule
            of the resource reads a field that the request computes.
    """
    resource = plan.resource
    for name in find_fields_read_by_forced_rules(request.computed, resource):
        raise InvalidInput(
            f'Cannot compute the field "{name}": a rule of resource "{resource.name}" reads it, and rules do not read '
            "computed values"
        )
    plan = replace(
        plan,
        constants={**request.constants, **resource.constants},
        computed={**request.computed, **resource.computed},
        skip=tuple(dict.fromkeys([*resource.skip, *request.skip])),
    )
    set_by_rules = {*plan.constants, *plan.computed}  # they are keys, and no names to look up
    lookups = tuple(one for one in resource.lookups if one.field not in set_by_rules)
    plan = replace(plan, resource=replace(resource, lookups=lookups))
    _check_rules(plan)
    return plan


def _check_rules(plan: ImportPlan) -> None:
    for name, text in plan.computed.items():
        compile_rule_of_plan(plan, parse_computed_rule(text), name)
    for text in plan.skip:
        compile_rule_of_plan(plan, parse_skip_rule(text))
    for name in plan.guard_fields if plan.mode == "upsert" else ():
        if may_lack_equality(plan.resource.get_field(name)):
            raise InvalidInput(
                f'An upsert cannot use a constant for the field "{name}": values of its type cannot be compared'
            )


def validate_plan(plan: ImportPlan) -> None:
    """Raise InvalidInput if the plan cannot work, before any row is read."""
    resource = plan.resource
    unknown = [name for name in resource.key if name not in resource.field_names]
    if unknown:
        raise InvalidInput(f"Unknown key fields for {resource.name}: {quote_names(unknown)}")
    if plan.mode == "upsert":
        if not resource.key:
            raise InvalidInput(f"An upsert needs a key. Set the fields that identify a row of {resource.name}.")
        if resource.key not in resource.unique:
            named = ", ".join(resource.key)
            raise InvalidInput(
                f"An upsert needs a unique index on ({named}). Table {resource.table} has no such index."
            )
        lacking = [name for name in resource.key if name not in plan.mapped_fields]
        if lacking:
            raise InvalidInput(
                f"An upsert needs a column for every key field. Key fields without a column: {quote_names(lacking)}."
            )
    if not {*plan.mapping.values(), *plan.computed}.intersection(resource.field_names):
        raise InvalidInput(f"No column of the file matches a field of {resource.name}")
    given = {*plan.mapping.values(), *plan.constants, *plan.computed}
    for lookup in plan.lookups:
        for searched in lookup.by:
            if searched.name not in given:
                shown = f"{lookup.table} by {', '.join(lookup.columns)}"
                hint = f'Map a column of the file to "{searched.name}".'
                raise InvalidInput(
                    f'The lookup of field "{lookup.field}" in {shown} needs a column for {searched.column}. {hint}'
                )


async def check_table_privileges(db: Database, plan: ImportPlan) -> None:
    """Raise InvalidInput if the database user may not write the table, or not read its keys and references."""
    resource, given, lacking = plan.resource, set(plan.mapped_fields), []
    columns = [resource.get_field(name).column for name in plan.mapped_fields]
    if not plan.validate_only:
        lacking += await db.run(find_access_problems, resource.table, columns, plan.mode)
    keys = [resource.get_field(name).column for fields in plan.unique_field_sets for name in fields]
    if keys and (plan.validate_only or plan.mode == "insert"):
        lacking += await db.run(find_access_problems, resource.table, list(dict.fromkeys(keys)), "read")
    for lookup in plan.lookups:
        lacking += await db.run(find_access_problems, lookup.table, [*lookup.columns, lookup.key], "read")
        if lookup.create:
            lacking += await db.run(find_access_problems, lookup.table, lookup.columns, "insert")
    for one in resource.references:
        if given.issuperset(one.fields):
            lacking += await db.run(find_access_problems, one.table, one.columns, "read")
    if lacking:
        action = "read" if plan.validate_only else "write to"
        raise InvalidInput(f"Cannot {action} {resource.table}: {describe_access_problems(lacking)}")
