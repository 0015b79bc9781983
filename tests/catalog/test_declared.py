"""What people declare: the file, its mistakes, and how it refines a table."""

from pathlib import Path
from typing import Any

import pytest

from catalog.looks import rules
from tidemill.declared import load
from tidemill.domain.declaration import declarations, merge
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.identity import Role
from tidemill.domain.resource import Condition, Field, Reference, Resource, Table, may

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


def told(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "tidemill.toml"
    file.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load(file)
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


def test_every_mistake_is_told_at_once_with_its_path(tmp_path: Path) -> None:
    lines = told(MISTAKES, tmp_path)
    users, email = "resources.users", "resources.users.fields.email"
    wanted = [
        "resourcse: unknown key; did you mean resources?",
        f"{users}.tabel: unknown key; did you mean table?",
        f"{users}.table: it is missing",
        f"{users}.key: a list is wanted, with something in it",
        f"{users}.read: 'amdin' is none of user, admin; did you mean admin?",
        f"{users}.write: a list is wanted",
        f'{users}.columns: "all", "declared" or a list',
        f"{users}.unique: the same is in the list twice",
        f"{email}.patern: unknown key; did you mean pattern?",
        f"{email}.pattern: not a regular expression: missing ), unterminated subpattern",
        f"{email}.required: true or false is wanted",
        f"{email}.max_length: a whole number is wanted, 0 or more",
        f"{email}.normalize: 'lowercase' is none of trim, collapse, lower, upper; did you mean lower?",
        f"{email}.format: 'e-mail' is none of email, slug, url; did you mean email?",
        f"{email}.date_formats: '%Q' is not a format of dates",
        f"{email}.references: a column with its table and schema is wanted: public.users.id",
        f"{email}.default: a single value is wanted",
        f"{email}.type: 'string' is none of",
        f"{users}.fields.name.default: there is required already",
        f"{users}.fields.name.format: there is pattern already",
        f"{users}.fields.name.references: schema tidemill is not to be looked into",
        f"{users}.fields.zip.pattern_says: there is no pattern",
        f"{users}.fields.zip.above: there is minimum already",
        f"{users}.conditions[0].values: it is missing",
        f"{users}.conditions[0].needs: it is missing",
        f"{users}.references[0].table: name the schema too: public.teams",
        "resources.Bad Name: a name is lower-case letters",
        "resources.Bad Name.table: 'a.b.c' names a database too",
        "resources.Bad Name.fields: a table of tables is wanted",
    ]
    for beginning in wanted:
        assert [line for line in lines if line.startswith(beginning)], (beginning, lines)
    assert len(lines) == len(wanted)


def test_a_file_that_is_not_there_or_not_toml_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load() == {}
    with pytest.raises(InvalidSettings, match=r"TIDEMILL_CONFIG: cannot read nowhere\.toml: No such file"):
        load(Path("nowhere.toml"))
    Path("tidemill.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidSettings, match=r"tidemill\.toml is not TOML"):
        load()
    Path("tidemill.toml").write_text("[resources.a]\ntable = \n")
    with pytest.raises(InvalidSettings, match=r"tidemill\.toml is not TOML: Invalid value \(at line 2"):
        load()
    Path("tidemill.toml").write_text("[resources.a]\ntable = 'b'\n")
    assert load()["a"].table == "b"


TABLE = Resource(
    name="public.people",
    table=Table("public", "people"),
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
    references=(Reference(("team",), Table("public", "teams"), ("id",)),),
)


def merged(**given: Any) -> Resource:
    return merge(declarations({"resources": {"people": {"table": "people"} | given}})["people"], TABLE)


def misfits(**given: Any) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        merged(**given)
    return [line.removeprefix("  - resources.people.") for line in str(caught.value).splitlines()[1:]]


def test_a_declaration_refines_the_table() -> None:
    fields = {
        "email": {"column": "mail", "format": "email", "normalize": ["trim", "lower"], "max_length": 40},
        "mood": {"enum": ["ok", "happy"], "required": True},
        "age": {"minimum": 18, "below": 150, "default": 20},
        "born": {"date_formats": ["%d.%m.%Y"], "sensitive": True},
    }
    people = merged(fields=fields, read=["user"], key=["email"])
    assert people.names == ["id", "email", "mood", "age", "born", "team", "tags"]
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


def test_only_what_is_declared_or_listed_becomes_a_field() -> None:
    assert merged(columns="declared", fields={"email": {"column": "mail"}}).names == ["email"]
    people = merged(columns=["mail", "team"], fields={"age": {}})
    assert (people.names, people.unique, people.references) == (["mail", "age", "team"], (("mail",),), TABLE.references)
    without_team = merged(columns=["mail"])
    assert (without_team.references, without_team.key) == ((), ("mail",))
    assert misfits(columns=["age"]) == ["columns: mail is left out, but a row cannot be without it"]


def test_unique_sets_references_and_conditions_are_added() -> None:
    reference = {"fields": ["age", "born"], "table": "public.ages", "columns": ["a", "b"]}
    people = merged(
        unique=[["age", "born"]],
        references=[reference],
        conditions=[{"field": "mood", "values": ["sad"], "needs": ["team"]}],
        fields={"team": {"unique": True}, "age": {"references": '"My"."Ages".N'}},
    )
    assert people.unique == (("id",), ("mail",), ("born", "team"), ("team",), ("age", "born"))
    assert misfits(key=["born"], unique=[["born"]]) == ["key: public.people has no unique index on (born)"]
    assert people.references[1:] == (
        Reference(("age",), Table("My", "Ages"), ("n",)),
        Reference(("age", "born"), Table("public", "ages"), ("a", "b")),
    )
    assert people.conditions == (Condition("mood", ("sad",), ("team",)),)


def test_what_does_not_fit_the_table_is_told_at_once() -> None:
    fields = {
        "maill": {},
        "mail": {"max_length": 60, "required": False},
        "mood": {"enum": ["ok", "angry"]},
        "age": {"minimum": -1, "maximum": "old", "pattern": "x", "type": "date"},
        "tags": {"max_words": 3},
    }
    assert misfits(fields=fields, key=["age"], columns=["id", "gone"]) == [
        "fields.maill: public.people has no column 'maill' that can be written; did you mean mail?",
        "columns: public.people has no column 'gone' that can be written",
        "fields.mail.max_length: 60 is looser than the table's own 50",
        "fields.mail.required: the column is NOT NULL and has no default",
        "fields.mood.enum: the table does not take angry; it takes sad, ok, happy",
        "fields.age.type: the column is text, which does not hold every date",
        "fields.age.minimum: -1 is looser than the table's own 0",
        "fields.age.maximum: 'old' is not of type integer",
        "fields.age.pattern: this is no rule for integer",
        "fields.tags.max_words: this is no rule for array",
        "key: public.people has no unique index on (age)",
    ]
    assert misfits(fields={"age": {"column": "mail"}, "mail": {}}) == ["fields: two of them are the same column"]


def test_a_resource_that_does_not_hold_together_is_refused() -> None:
    condition = {"field": "mood", "values": ["angry"], "needs": ["x"]}
    with pytest.raises(InvalidSettings) as caught:
        merged(conditions=[condition], fields={"mood": {"enum": ["sad"]}})
    assert str(caught.value).splitlines()[1:] == [
        "  - resources.people: a condition names 'x', which is no field",
        "  - resources.people: a condition waits for mood = 'angry', which cannot be",
        "  - resources.people: field 'mood': its default 'ok' is none of sad",
    ]


def test_grants() -> None:
    assert not may(Role.USER, TABLE, "read")
    assert may(Role.ADMIN, TABLE, "write")
    people = merged(read=["user"], write=[])
    assert may(Role.USER, people, "read")
    assert may(Role.ADMIN, people, "read"), "an admin is a user too"
    assert not may(Role.ADMIN, people, "write"), "nobody may"
