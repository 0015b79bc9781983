"""Declarations: the config file, its errors, and the merge with a table."""

from pathlib import Path
from typing import Any

import pytest

from tables.introspect import rules
from tidemill.config_file import load_config_file
from tidemill.core.errors import InvalidSettings
from tidemill.core.principal import Role
from tidemill.tables.config import parse_resource_declarations
from tidemill.tables.resource import (
    ConditionalRequirement,
    Field,
    Reference,
    Resource,
    ResourceDeclaration,
    TableName,
    is_granted,
)
from tidemill.tables.resource_registry import merge_declaration

MISTAKES = r"""
resourcse = 1
[resources.users]
tabel = "public.users"
key = []
read = ["amdin"]
write = "admin"
columns = "some"
unique = [["a", "a"]]
[resources.users.fields.email]
patern = "x"
pattern = "("
required = "yes"
max_length = -1
normalize = ["trim", "lowercase"]
format = "e-mail"
date_formats = ["%Q"]
references = "users"
default = {}
type = "string"
[resources.users.fields.name]
required = true
default = "x"
format = "slug"
pattern = "y"
references = "tidemill.job.id"
[resources.users.fields.zip]
pattern_says = "a code"
minimum = 1
above = 0
[[resources.users.conditions]]
field = "status"
[[resources.users.references]]
fields = ["a", "b"]
table = "teams"
columns = ["id"]
[resources."Bad Name"]
table = "a.b.c"
fields = 5
"""


def load_resources(path: Path | None = None) -> dict[str, ResourceDeclaration]:
    return load_config_file(path, parse_resource_declarations)


def told(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "tidemill.toml"
    file.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load_resources(file)
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


def test_invalid_config_reports_all_problems_with_their_paths(tmp_path: Path) -> None:
    lines = told(MISTAKES, tmp_path)
    users, email = "resources.users", "resources.users.fields.email"
    wanted = [
        f'{users}.tabel: Unknown key; did you mean "table"?',
        f"{users}.table: Field required",
        f"{users}.key: Input should not be empty",
        f'{users}.read[0]: must be one of "user", "admin", not "amdin"; did you mean "admin"?',
        f"{users}.write: Input should be a list",
        f'{users}.columns: Input should be "all", "declared" or a list',
        f'{users}.unique[0]: The list contains "a" more than once',
        f'{email}.patern: Unknown key; did you mean "pattern"?',
        f"{email}.pattern: Invalid regular expression: missing ), unterminated subpattern",
        f"{email}.required: Input should be a valid boolean",
        f"{email}.max_length: Input should be greater than or equal to 0",
        f'{email}.normalize[1]: must be one of "trim", "collapse", "lower", "upper", not "lowercase"',
        f'{email}.format: must be one of "email", "slug", "url", not "e-mail"; did you mean "email"?',
        f'{email}.format: Conflicts with "pattern"',
        f'{email}.date_formats[0]: Invalid date format "%Q"',
        f"{email}.references: Input should be a column with its schema and table, such as public.users.id",
        f"{email}.default: Input should be a single value",
        f'{email}.default: Conflicts with "required"',
        f"{email}.type: must be one of",
        f'{users}.fields.name.default: Conflicts with "required"',
        f'{users}.fields.name.format: Conflicts with "pattern"',
        f'{users}.fields.name.references: Schema "tidemill" is protected',
        f'{users}.fields.zip.pattern_says: Requires "pattern"',
        f'{users}.fields.zip.above: Conflicts with "minimum"',
        f"{users}.conditions[0].values: Field required",
        f"{users}.conditions[0].needs: Field required",
        f"{users}.references[0].table: Input should be a table with its schema, such as public.users",
        f"{users}.references[0].columns: 1 columns for 2 fields",
        "resources.Bad Name: The name does not match",
        'resources.Bad Name.table: Table name "a.b.c" includes a database',
        "resources.Bad Name.fields: Input should be a table",
    ]
    for beginning in wanted:
        assert [line for line in lines if line.startswith(beginning)], (beginning, lines)
    assert len(lines) == len(wanted)


def test_config_file_missing_or_not_toml_raises_invalid_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_resources() == {}
    with pytest.raises(InvalidSettings, match=r'TIDEMILL_CONFIG: cannot read "nowhere\.toml": No such file'):
        load_resources(Path("nowhere.toml"))
    Path("tidemill.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidSettings, match=r"tidemill\.toml is not valid TOML"):
        load_resources()
    Path("tidemill.toml").write_text("[resources.a]\ntable = \n")
    with pytest.raises(InvalidSettings, match=r"tidemill\.toml is not valid TOML: Invalid value \(at line 2"):
        load_resources()
    Path("tidemill.toml").write_text("[resources.a]\ntable = 'b'\n")
    assert load_resources()["a"].table == "b"


TABLE = Resource(
    name="public.people",
    table=TableName("public", "people"),
    fields=(
        Field(name="id", column="id", type="integer", bits=32, filled=True, nullable=False),
        Field(name="mail", column="mail", type="text", required=True, nullable=False, max_length=50),
        Field(name="mood", column="mood", type="text", enum=("sad", "ok", "happy"), default="ok"),
        Field(name="age", column="age", type="integer", minimum="0", bits=16),
        Field(name="born", column="born", type="date"),
        Field(name="team", column="team", type="uuid"),
        Field(name="tags", column="tags", type="array", element="text"),
    ),
    key=("mail",),
    unique=(("id",), ("mail",), ("born", "team")),
    nulls_equal=(("mail",),),
    references=(Reference(("team",), TableName("public", "teams"), ("id",)),),
)


def merged(**given: Any) -> Resource:
    return merge_declaration(
        parse_resource_declarations({"resources": {"people": {"table": "people"} | given}})["people"], TABLE
    )


def misfits(**given: Any) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        merged(**given)
    return [line.removeprefix("  - resources.people.") for line in str(caught.value).splitlines()[1:]]


def test_declaration_refines_fields_of_introspected_table() -> None:
    fields = {
        "email": {"column": "mail", "format": "email", "normalize": ["trim", "lower"], "max_length": 40},
        "mood": {"enum": ["ok", "happy"], "required": True},
        "age": {"minimum": 18, "below": 150, "default": 20},
        "born": {"date_formats": ["%d.%m.%Y"], "sensitive": True},
    }
    people = merged(fields=fields, read=["user"], key=["email"])
    assert people.field_names == ["id", "email", "mood", "age", "born", "team", "tags"]
    email, mood, age, born = people.fields[1:5]
    assert rules(email, "pattern") == {
        "required": True,
        "nullable": False,
        "max_length": 40,
        "normalize": ("trim", "lower"),
        "pattern_says": "an e-mail address",
    }
    assert email.column == "mail"
    assert (mood.enum, mood.required, mood.default) == (("ok", "happy"), True, None)
    assert (age.minimum, age.below, age.default) == ("18", "150", "20")
    assert (born.formats, born.sensitive) == (("%d.%m.%Y",), True)
    assert (people.key, people.unique, people.nulls_equal) == (
        ("email",),
        (("id",), ("email",), ("born", "team")),
        (("email",),),
    )
    assert people.references == TABLE.references
    assert people.unique_sets == (("email",), ("id",), ("born", "team"))
    assert merged(key=["team", "born"]).key == ("born", "team"), "in the order of its index"


def test_declaration_columns_option_limits_resource_fields() -> None:
    assert merged(columns="declared", fields={"email": {"column": "mail"}}).field_names == ["email"]
    people = merged(columns=["mail", "team"], fields={"age": {}})
    assert (people.field_names, people.unique, people.references) == (
        ["mail", "age", "team"],
        (("mail",),),
        TABLE.references,
    )
    without_team = merged(columns=["mail"])
    assert (without_team.references, without_team.key) == ((), ("mail",))
    assert misfits(columns=["age"]) == ['columns: the table requires column "mail". Include it']


def test_declaration_adds_unique_sets_references_and_conditions() -> None:
    reference = {"fields": ["age", "born"], "table": "public.ages", "columns": ["a", "b"]}
    people = merged(
        unique=[["age", "born"]],
        references=[reference],
        conditions=[{"field": "mood", "values": ["sad"], "needs": ["team"]}],
        fields={"team": {"unique": True}, "age": {"references": '"My"."Ages".N'}},
    )
    assert people.unique == (("id",), ("mail",), ("born", "team"), ("team",), ("age", "born"))
    assert misfits(key=["born"], unique=[["born"]]) == ["key: table public.people has no unique index on (born)"]
    assert people.references[1:] == (
        Reference(("age",), TableName("My", "Ages"), ("n",)),
        Reference(("age", "born"), TableName("public", "ages"), ("a", "b")),
    )
    assert people.conditions == (ConditionalRequirement("mood", ("sad",), ("team",)),)


def test_declaration_that_contradicts_table_reports_all_problems() -> None:
    fields = {
        "maill": {},
        "mail": {"max_length": 60, "required": False},
        "mood": {"enum": ["ok", "angry"]},
        "age": {"minimum": -1, "maximum": "old", "pattern": "x", "type": "date"},
        "tags": {"max_words": 3},
    }
    assert misfits(fields=fields, key=["age"], columns=["id", "gone"]) == [
        'fields.maill: table public.people has no writable column "maill"; did you mean "mail"?',
        'columns: table public.people has no writable column "gone"',
        "fields.mail.max_length: 60 is less strict than the table's limit, 50",
        "fields.mail.required: the column is NOT NULL and has no default",
        "fields.mood.enum: the table does not allow angry; allowed values are sad, ok, happy",
        "fields.age.type: a column of type text cannot have the type date",
        "fields.age.pattern: not allowed for a field of type integer",
        "fields.age.minimum: -1 is less strict than the table's limit, 0",
        'fields.age.maximum: "old" is not a valid integer',
        "fields.tags.max_words: not allowed for a field of type array",
        "key: table public.people has no unique index on (age)",
    ]
    assert misfits(fields={"age": {"column": "mail"}, "mail": {}}) == ["fields: two fields have the same column"]


def test_declaration_with_inconsistent_condition_is_rejected() -> None:
    condition = {"field": "mood", "values": ["angry"], "needs": ["x"]}
    with pytest.raises(InvalidSettings) as caught:
        merged(conditions=[condition], fields={"mood": {"enum": ["sad"]}})
    assert str(caught.value).splitlines()[1:] == [
        '  - resources.people: unknown field "x" in conditions',
        '  - resources.people: unknown value "angry" for field "mood" in conditions',
        '  - resources.people: field "mood": default "ok" is not one of sad',
    ]


def test_declared_alias_of_two_fields_is_rejected() -> None:
    fields = {"mail": {"aliases": ["E-Mail", "Address"]}, "team": {"aliases": ["group"]}}
    people = merged(fields=fields)
    assert [one.aliases for one in people.fields if one.aliases] == [("E-Mail", "Address"), ("group",)]
    fields["team"]["aliases"] = ["address", "AGE"]
    with pytest.raises(InvalidSettings) as caught:
        merged(fields=fields)
    assert str(caught.value).splitlines()[1:] == [
        '  - resources.people: field "team": the alias "address" also denotes the field "mail"',
        '  - resources.people: field "team": the alias "AGE" also denotes the field "age"',
    ]


def test_grants_allow_declared_roles_and_deny_others() -> None:
    assert not is_granted(Role.USER, TABLE, "read")
    assert is_granted(Role.ADMIN, TABLE, "write")
    people = merged(read=["user"], write=[])
    assert is_granted(Role.USER, people, "read")
    assert is_granted(Role.ADMIN, people, "read"), "an admin is a user too"
    assert not is_granted(Role.ADMIN, people, "write"), "no role may write"
