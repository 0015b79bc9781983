"""Constants, computed columns and rules to skip rows, from the file to the table."""

from dataclasses import replace
from typing import Any

import pytest

from imports.scenes import Scene, small_batches, with_fields
from tidemill.core.errors import InvalidColumns, InvalidInput
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import ResourceRegistry

MEMBERS = """
    CREATE TABLE members (
        tenant_id integer NOT NULL, email text NOT NULL, name text, status text, credit numeric(10, 2), joined date,
        PRIMARY KEY (tenant_id, email)
    )
"""
KEY = ("tenant_id", "email")


async def forced(scene: Scene, table: str = "members", **rules: Any) -> Resource:
    """Return the resource of a table with rules."""
    return replace(await ResourceRegistry({}).get_resource(scene.db, table, any_table=True), **rules)


async def test_constant_is_written_in_every_row(scene: Scene) -> None:
    await scene.table(MEMBERS)
    job = await scene.run("email,credit\na@x,1\nb@x,2\n", "members", constants={"tenant_id": "42"})
    assert await scene.errors(job) == []
    found = await scene.rows("SELECT tenant_id, email, credit FROM members ORDER BY email")
    assert found == [(42, "a@x", 1), (42, "b@x", 2)]


async def test_constant_takes_part_in_the_key_of_duplicates(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2)
    await scene.table(MEMBERS, "INSERT INTO members VALUES (1, 'a@x'), (2, 'b@x')")
    job = await scene.run("email\na@x\nc@x\nb@x\na@x\nc@x\n", "members", constants={"tenant_id": "2"})
    assert await scene.errors(job) == [
        (3, "tenant_id, email.exists"),
        (4, "tenant_id, email.duplicate"),
        (5, "tenant_id, email.duplicate"),
    ]
    assert await scene.rows("SELECT tenant_id, email FROM members ORDER BY 1, 2") == [
        (1, "a@x"),
        (2, "a@x"),
        (2, "b@x"),
        (2, "c@x"),
    ]


async def test_upsert_updates_only_rows_of_the_constant_in_the_key(scene: Scene) -> None:
    await scene.table(MEMBERS, "INSERT INTO members VALUES (1, 'a@x', 'One'), (2, 'a@x', 'Two')")
    job = await scene.run("email,name\na@x,New\nb@x,B\n", "members", mode="upsert", constants={"tenant_id": "2"})
    assert await scene.effects(job) == (1, 1, 0)
    found = await scene.rows("SELECT tenant_id, email, name FROM members ORDER BY 1, 2")
    assert found == [(1, "a@x", "One"), (2, "a@x", "New"), (2, "b@x", "B")]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_upsert_rejects_row_of_another_tenant_when_the_key_lacks_the_constant(
    scene: Scene, *, dry_run: bool
) -> None:
    await scene.table(
        "CREATE TABLE accounts (id integer PRIMARY KEY, tenant_id integer NOT NULL, name text)",
        "INSERT INTO accounts VALUES (1, 1, 'One'), (2, 2, 'Two')",
    )
    file = "id,name\n1,Stolen\n2,Mine\n3,New\n"
    constants = {"tenant_id": "2"}
    job = await scene.run(file, "accounts", mode="upsert", constants=constants, validate_only=dry_run)
    assert await scene.errors(job) == [(1, "id.exists")]
    assert await scene.effects(job) == (1, 1, 0)
    before = [(1, 1, "One"), (2, 2, "Two")]
    after = [(1, 1, "One"), (2, 2, "Mine"), (3, 2, "New")]
    assert await scene.rows("SELECT * FROM accounts ORDER BY id") == (before if dry_run else after)
    (outcome,) = await scene.outcomes(job)
    assert "with another value of tenant_id than the import sets" in outcome[2]["reason"]


async def test_key_of_the_request_cannot_reach_row_of_another_tenant(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE users (id integer PRIMARY KEY, tenant_id integer, email text, UNIQUE (tenant_id, email))",
        "INSERT INTO users VALUES (1, 1, 'a@x'), (2, 2, 'b@x')",
    )
    resource = await forced(scene, "users", key=("tenant_id", "email"), constants={"tenant_id": "2"})
    file = "id,email\n1,mine@x\n2,c@x\n"
    job = await scene.run(file, "users", resource=resource, mode="upsert", key=("id",))
    assert await scene.errors(job) == [(1, "id.exists")]
    assert await scene.rows("SELECT * FROM users ORDER BY id") == [(1, 1, "a@x"), (2, 2, "c@x")]


async def test_column_of_a_constant_is_refused_and_can_be_ignored(scene: Scene) -> None:
    await scene.table(MEMBERS)
    resource = await forced(scene, constants={"tenant_id": "7"})
    for header, mapping in (("Tenant ID", {}), ("Tenant ID", {"Tenant ID": "tenant_id"}), ("x", {"x": "tenant_id"})):
        with pytest.raises(InvalidColumns, match='the import sets the field "tenant_id" of every row itself'):
            await scene.submit(f"{header},email\n1,a@x\n", "members", resource=resource, mapping=mapping)
    await scene.run("Tenant ID,email\n1,a@x\n", "members", resource=resource, mapping={"Tenant ID": ""})
    assert await scene.rows("SELECT tenant_id FROM members") == [(7,)]


async def test_json_record_with_the_field_of_a_constant_fails_alone(scene: Scene) -> None:
    await scene.table(MEMBERS)
    first = '{"email": "a@x"}\n'
    with pytest.raises(InvalidColumns, match='Column "tenant_id" cannot be imported'):
        await scene.submit(
            '{"email": "a@x", "tenant_id": 1}\n', "members", name="r.ndjson", constants={"tenant_id": "7"}
        )
    many = first + "".join(f'{{"email": "{n}@x"}}\n' for n in range(2_000)) + '{"email": "z@x", "tenant_id": 1}\n'
    job = await scene.run(many, "members", name="r.ndjson", constants={"tenant_id": "7"})
    assert await scene.errors(job) == [(2_002, "tenant_id.unknown_field")]
    assert await scene.rows("SELECT DISTINCT tenant_id FROM members") == [(7,)]


async def test_computed_columns_read_translated_and_formatted_values(scene: Scene) -> None:
    await scene.table(MEMBERS)
    file = "first;last;E-Mail;Betrag;joined\nAda;Lovelace;ADA@X;1.234,50;31.12.2025\nGrace;;G@X ;;\n"
    job = await scene.run(
        file,
        "members",
        constants={"tenant_id": "1"},
        mapping={"E-Mail": "email", "Betrag": "credit"},
        formats={"credit": "decimal-comma", "joined": "DD.MM.YYYY"},
        computed={
            "name": "trim(concat(first, ' ', last))",
            "email": "lower(trim(email))",
            "credit": "coalesce(credit * 2, 0)",
            "status": "if(joined < '2026-01-01', 'old', 'new')",
        },
    )
    assert await scene.outcomes(job) == []
    found = await scene.rows("SELECT email, name, status, credit::text, joined::text FROM members ORDER BY email")
    assert found == [
        ("ada@x", "Ada Lovelace", "old", "2469.00", "2025-12-31"),
        ("g@x", "Grace", "new", "0.00", None),
    ]


async def test_rules_read_booleans_as_true_and_false(scene: Scene) -> None:
    await scene.table("CREATE TABLE flags (id integer PRIMARY KEY, active boolean, old boolean, note text)")
    file = "id,active\n1,yes\n2,0\n3,\n4,t\n"
    computed = {"old": "active = false", "note": "concat('is ', active)"}
    job = await scene.run(file, "flags", computed=computed, skip=("active = true and id > 3",))
    assert job.counts.skipped == 1
    found = await scene.rows("SELECT * FROM flags ORDER BY id")
    assert found == [(1, True, False, "is true"), (2, False, True, "is false"), (3, None, False, "is ")]


async def test_computed_key_detects_duplicates_of_the_computed_values(scene: Scene) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY, n integer)")
    file = "a,b,n\nx,1,1\nX,1,2\nx,2,3\n"
    job = await scene.run(file, "codes", computed={"code": "upper(concat(a, '-', b))"})
    assert await scene.errors(job) == [(2, "code.duplicate")]
    assert await scene.rows("SELECT * FROM codes ORDER BY n") == [("X-1", 1), ("X-2", 3)]


async def test_row_that_cannot_be_computed_fails_alone_with_the_reason(scene: Scene) -> None:
    await scene.table("CREATE TABLE sums (id integer PRIMARY KEY, total numeric(8, 2))")
    file = "id,price,pieces\n1,10,4\n2,ten,4\n3,10,0\n4,,3\n5,999999999,0.001\n"
    job = await scene.run(file, "sums", computed={"total": "price / pieces"})
    found = [(row, error["code"], error["reason"]) for row, _, error in await scene.outcomes(job)]
    assert found[:2] == [
        (2, "total.computed", 'cannot be computed: "price" is not a number'),
        (3, "total.computed", "cannot be computed: a number is divided by zero"),
    ]
    assert [row for row, _, _ in found] == [2, 3, 5]
    assert found[2][1] == "total.type"
    assert await scene.rows("SELECT id, total::text FROM sums ORDER BY id") == [(1, "2.50"), (4, None)]


async def test_skip_rule_skips_rows_with_its_reason_and_writes_the_others(scene: Scene) -> None:
    await scene.table(MEMBERS)
    file = "email,status,credit\na@x,active,9\nb@x,deleted,1\n,deleted,bad\nSumme,,100\nd@x,new,10\n"
    skip = ("status = 'deleted'", "email = 'Summe'")
    job = await scene.run(file, "members", constants={"tenant_id": "1"}, skip=skip)
    assert (job.counts.done, job.counts.skipped, job.counts.failed) == (2, 3, 0)
    reasons = [(row, status, error["reason"]) for row, status, error in await scene.outcomes(job)]
    assert reasons == [
        (2, "skipped", "skipped by the rule: status = 'deleted'"),
        (3, "skipped", "skipped by the rule: status = 'deleted'"),
        (4, "skipped", "skipped by the rule: email = 'Summe'"),
    ]
    assert await scene.rows("SELECT email FROM members ORDER BY 1") == [("a@x",), ("d@x",)]


async def test_numbers_and_dates_are_compared_by_value_in_fields_and_as_text_in_other_columns(scene: Scene) -> None:
    await scene.table(MEMBERS)
    file = "email,credit,joined,note,name\na,9,2026-01-02,9,A\nb,10,2025-12-31,10,B\nc,,,,C\n"
    base = {"constants": {"tenant_id": "1"}, "validate_only": True}
    cases = {
        "credit < 10 and note is not empty": [1],
        "joined >= '2026-01-01' or note = ''": [1, 3],
        "note < '10'": [3],
        "note < 10": [1],
        "credit in (9.00, 11)": [1],
        "not (email = 'a' or email contains 'b')": [3],
        "email not in ('a', 'b') and email starts with 'c'": [3],
        "joined is empty and credit is empty": [3],
    }
    for rule, rows in cases.items():
        job = await scene.run(file, "members", skip=(rule, "note = '#'"), **base)
        assert [row for row, status, _ in await scene.outcomes(job) if status == "skipped"] == rows, rule


@pytest.mark.parametrize("duplicates", ["error", "first", "last"])
async def test_skipped_row_is_no_duplicate_of_another_row(scene: Scene, duplicates: str) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY, status text, n integer)")
    file = "code,status,n\na,deleted,1\na,ok,2\na,deleted,3\nb,ok,4\nb,deleted,5\n"
    job = await scene.run(file, "codes", skip=("status = 'deleted'",), duplicates=duplicates)
    assert (job.counts.done, job.counts.skipped, job.counts.failed) == (2, 3, 0)
    assert await scene.rows("SELECT code, n FROM codes ORDER BY n") == [("a", 2), ("b", 4)]


async def test_row_whose_skip_rule_cannot_be_checked_fails(scene: Scene) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY)")
    job = await scene.run("code,size\na,1\nb,big\nc,7\n", "codes", skip=("size > 5",))
    found = [(row, status, error.get("code"), error["reason"]) for row, status, error in await scene.outcomes(job)]
    assert found == [
        (2, "failed", "computed", 'cannot be checked by the rule to skip rows: size > 5: "size" is not a number'),
        (3, "skipped", "skipped", "skipped by the rule: size > 5"),
    ]


async def test_upsert_of_records_without_the_column_of_a_computed_field_keeps_its_value(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE codes (code text PRIMARY KEY, name text, n integer)", "INSERT INTO codes VALUES ('a', 'Old', 1)"
    )
    file = '{"code": "a", "n": 2}\n{"code": "b", "n": 3, "name": " New "}\n'
    await scene.run(file, "codes", name="r.ndjson", mode="upsert", computed={"name": "trim(name)"})
    assert await scene.rows("SELECT * FROM codes ORDER BY code") == [("a", "Old", 2), ("b", "New", 3)]


async def test_errors_hide_values_computed_from_sensitive_fields(scene: Scene) -> None:
    await scene.table("CREATE TABLE secrets (id integer PRIMARY KEY, pin text, short varchar(3))")
    resource = await forced(scene, "secrets", computed={"short": "concat(pin, 'x')"})
    fields = tuple(replace(one, sensitive=one.name == "pin") for one in resource.fields)
    job = await scene.run("id,pin\n1,12345\n", "secrets", resource=replace(resource, fields=fields))
    (outcome,) = await scene.outcomes(job)
    assert outcome[2]["code"] == "short.too_long"
    assert "12345" not in str(outcome)


async def test_invalid_rules_are_refused_before_the_job_exists(scene: Scene) -> None:
    await scene.table(MEMBERS)
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"computed": {"name": "lower(nam)"}},
            '"nam" is neither a field nor a column of the file; did you mean "name"',
        ),
        ({"computed": {"name": "upper(email)", "status": "lower(name)"}}, '"name" is computed itself'),
        ({"skip": ("joined + 1 = 2",)}, 'at character 1: expected a number, and "joined" is a date'),
        ({"skip": ("joined < 'tomorrow'",)}, "at character 10: expected a date, such as '2026-11-15'"),
        ({"skip": ("credit = joined",)}, "cannot compare a number with a date"),
    ]
    for options, reason in cases:
        with pytest.raises(InvalidInput) as caught:
            await scene.submit("email\na\n", "members", constants={"tenant_id": "1"}, **options)
        assert reason in str(caught.value)


async def test_constant_is_checked_against_type_rules_and_references_once(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE tenants (id integer PRIMARY KEY)",
        "INSERT INTO tenants VALUES (1)",
        "CREATE TABLE notes (id integer PRIMARY KEY, tenant_id integer NOT NULL REFERENCES tenants,"
        " mood text CHECK (mood IN ('good', 'bad')), ip inet)",
    )
    cases = [
        ({"tenant_id": "one"}, 'constant "tenant_id" must be a whole number'),
        ({"tenant_id": "2"}, 'Invalid constant "tenant_id": no matching row in public.tenants for "2"'),
        ({"tenant_id": "1", "mood": "so so"}, 'constant "mood" must be one of "good", "bad"'),
        ({"tenant_id": "1", "ip": "here"}, 'Invalid constant "ip": invalid input syntax for type inet'),
    ]
    for constants, reason in cases:
        with pytest.raises(InvalidInput) as caught:
            await scene.submit("id\n1\n", "notes", constants=constants)
        assert reason in str(caught.value)
    await scene.run("id\n1\n", "notes", constants={"tenant_id": "1", "mood": "good", "ip": "10.0.0.1"})
    assert await scene.rows("SELECT id, tenant_id, mood, host(ip) FROM notes") == [(1, 1, "good", "10.0.0.1")]


async def test_record_that_is_no_object_fails_and_is_not_skipped_by_a_rule(scene: Scene) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY, n integer)")
    file = '{"code": "a"}\n[1, 2]\n{"n": 3}\n"x"\n'
    job = await scene.run(file, "codes", name="r.ndjson", skip=("code is empty",))
    found = [(row, status, error.get("code")) for row, status, error in await scene.outcomes(job)]
    assert found == [(2, "failed", "shape"), (3, "skipped", "skipped"), (4, "failed", "shape")]


async def test_record_that_is_no_object_has_no_computed_key(scene: Scene) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY, n integer)")
    file = '[1, 2]\n{"n": 3}\n'
    job = await scene.run(file, "codes", name="r.ndjson", computed={"code": "coalesce(code, 'none')"})
    assert await scene.errors(job) == [(1, "shape")]
    assert await scene.rows("SELECT * FROM codes") == [("none", 3)]


async def test_upsert_of_record_without_required_computed_field_keeps_its_value(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE codes (code text PRIMARY KEY, name text NOT NULL, n integer, kind text DEFAULT 'new')",
        "INSERT INTO codes VALUES ('a', 'old', 1, 'own'), ('c', 'old', 1, 'own')",
    )
    file = '{"code": "a", "n": 2}\n{"code": "b", "n": 3}\n{"code": "c", "n": 4, "name": null}\n'
    file += '{"code": "d", "n": 5, "name": "NEW"}\n'
    job = await scene.run(
        file, "codes", name="r.ndjson", mode="upsert", computed={"name": "lower(name)", "kind": "lower(kind)"}
    )
    assert await scene.errors(job) == [(2, "name.required"), (3, "name.required")]
    assert await scene.rows("SELECT * FROM codes ORDER BY code") == [
        ("a", "old", 2, "own"),
        ("c", "old", 1, "own"),
        ("d", "new", 5, "new"),
    ]


async def test_computed_values_of_a_row_are_limited_together(scene: Scene) -> None:
    names = [f"c{number}" for number in range(10)]
    columns = "".join(f", {name} text" for name in names)
    await scene.table(f"CREATE TABLE wide (id integer PRIMARY KEY, body text{columns})")
    computed = dict.fromkeys(names, "replace(body, 'a', 'bbbbbbbbbb')")
    file = f"id,body\n1,{'a' * 900}\n2,{'a' * 100}\n3,{'c' * 900}\n"
    job = await scene.run(file, "wide", computed=computed)
    assert await scene.errors(job) == [(1, "c2.computed")]
    (outcome,) = await scene.outcomes(job)
    assert "the computed values of the row have more than 20,000 characters" in outcome[2]["reason"]
    long = f"id,body\n4,{'x' * 90_000}\n"
    assert await scene.errors(await scene.run(long, "wide", computed={"body": "trim(body)"})) == []
    assert await scene.rows("SELECT id, length(body), length(c9) FROM wide ORDER BY id") == [
        (2, 100, 1_000),
        (3, 900, 900),
        (4, 90_000, None),
    ]


async def test_constants_of_an_import_are_limited_together(scene: Scene) -> None:
    await scene.table("CREATE TABLE wide (id integer PRIMARY KEY, a text, b text)")
    constants = {"a": "x" * 6_000, "b": "y" * 6_000}
    with pytest.raises(InvalidInput, match="The constants have 12,000 characters together; at most 10,000 are allowed"):
        await scene.submit("id\n1\n", "wide", constants=constants)


async def test_json_column_that_the_mapping_ignores_is_not_imported(scene: Scene) -> None:
    await scene.table("CREATE TABLE codes (code text PRIMARY KEY, status text)")
    file = '{"code": "a", "status": "x"}\n{"code": "b", "status": "y"}\n'
    job = await scene.run(file, "codes", name="r.ndjson", mapping={"status": ""})
    assert await scene.errors(job) == []
    assert await scene.rows("SELECT * FROM codes ORDER BY code") == [("a", None), ("b", None)]
    with pytest.raises(InvalidColumns, match='No column for the required field "code"'):
        await scene.submit(file, "codes", name="r.ndjson", mapping={"code": ""})


async def test_references_and_types_of_constants_are_checked_after_normalizers(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE countries (code text PRIMARY KEY)",
        "INSERT INTO countries VALUES ('DE')",
        "CREATE TABLE towns (id integer PRIMARY KEY, country text REFERENCES countries)",
    )
    found = await forced(scene, "towns")
    job = await scene.run(
        "id\n1\n", "towns", resource=with_fields(found, country={"normalize": ("upper",)}), constants={"country": "de"}
    )
    assert await scene.errors(job) == []
    assert await scene.rows("SELECT * FROM towns") == [(1, "DE")]
