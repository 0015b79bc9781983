"""References by natural key: a file names rows by other columns than their keys."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from imports.scenes import Scene, look_at, meanwhile, small_batches
from tidemill.core.errors import InvalidColumns, InvalidInput
from tidemill.imports import import_records

TEAMS = (
    "CREATE TABLE teams (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, city text)",
    "INSERT INTO teams (name, city) VALUES ('Red', 'Rome'), ('Blue', 'Bern'), ('Green', 'Rome')",
    "CREATE TABLE players (nick text PRIMARY KEY, team_id int REFERENCES teams, age int CHECK (age > 0))",
)
PLAYERS = "SELECT p.nick, t.name FROM players p LEFT JOIN teams t ON t.id = p.team_id ORDER BY p.nick"


async def reasons(scene: Scene, job: Any) -> list[tuple[int, str, str, Any]]:
    found = await scene.outcomes(job)
    return [
        (row, one["code"], one["reason"], one.get("value"))
        for row, status, error in found
        if status == "failed"
        for one in error.get("errors") or [error]
    ]


async def test_lookup_stores_key_of_row_with_name(scene: Scene) -> None:
    await scene.table(*TEAMS)
    job = await scene.run(
        "nick,team,age\nann,Red,1\nbob,Blue,2\ncat,,3\ndan, Red ,4\neva,red,5\n",
        "players",
        lookups={"team_id": ["name"]},
    )
    assert await scene.rows(PLAYERS) == [("ann", "Red"), ("bob", "Blue"), ("cat", None), ("dan", "Red")]
    assert await reasons(scene, job) == [
        (5, "team_id.unknown_reference", "no row in public.teams has this name", "red")
    ]
    assert await scene.effects(job) == (4, 0, 0)


@pytest.mark.parametrize("name", ["team", "Team", "teams", "team_name", "team_id"])
async def test_column_named_like_reference_is_mapped_to_its_field(scene: Scene, name: str) -> None:
    await scene.table(*TEAMS)
    await scene.run(f"nick,{name}\nann,Red\n", "players", lookups={"team_id": ["name"]})
    assert await scene.rows(PLAYERS) == [("ann", "Red")]


async def test_lookup_accepts_column_of_file_as_name_of_field(scene: Scene) -> None:
    await scene.table(*TEAMS)
    await scene.run("nick,Crew\nann,Red\n", "players", mapping={"Crew": "team_id"}, lookups={"Crew": ["name"]})
    await scene.run("nick,team\nbob,Red\n", "players", lookups={"team": ["name"]})
    assert await scene.rows(PLAYERS) == [("ann", "Red"), ("bob", "Red")]


async def test_several_matches_fail_row_with_their_number(scene: Scene) -> None:
    await scene.table(*TEAMS)
    job = await scene.run("nick,team\nann,Rome\nbob,Bern\n", "players", lookups={"team_id": ["city"]})
    assert await reasons(scene, job) == [
        (1, "team_id.ambiguous_reference", "2 rows in public.teams have this city", "Rome")
    ]
    assert await scene.rows(PLAYERS) == [("bob", "Blue")]


async def test_row_with_other_errors_reports_all_of_them(scene: Scene) -> None:
    await scene.table(*TEAMS, "INSERT INTO players VALUES ('bob')", "ALTER TABLE players ADD UNIQUE (age)")
    job = await scene.run("nick,team,age\nbob,Rad,7\nann,Rad,0\n", "players", lookups={"team_id": ["name"]})
    codes = [(row, code) for row, code, _, _ in await reasons(scene, job)]
    assert codes == [(1, "team_id.unknown_reference"), (1, "nick.exists"), (2, "age.too_small")]


async def test_composite_lookup_reads_second_column_of_file(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE teams (id int PRIMARY KEY, name text, country text, UNIQUE (name, country))",
        "INSERT INTO teams VALUES (1, 'Red', 'IT'), (2, 'Red', 'CH'), (3, 'Blue', NULL)",
        "CREATE TABLE players (nick text PRIMARY KEY, team_id int REFERENCES teams)",
    )
    job = await scene.run(
        "nick,team,Country\nann,Red,IT\nbob,Red,CH\ncat,Red,DE\ndan,Blue,\neva,,IT\n",
        "players",
        lookups={"team_id": ["name", "country"]},
    )
    assert await scene.rows("SELECT nick, team_id FROM players ORDER BY 1") == [("ann", 1), ("bob", 2), ("eva", None)]
    assert await reasons(scene, job) == [
        (3, "team_id.unknown_reference", "no row in public.teams has this name and country", "Red, DE"),
        (4, "team_id.unknown_reference", "no row in public.teams has this name and country", "Blue, "),
    ]
    await scene.run(
        "nick,Verein,Land\nfred,Red,CH\n",
        "players",
        mapping={"Verein": "team_id", "Land": "team_id.country"},
        lookups={"team_id": ["name", "country"]},
    )
    assert await scene.rows("SELECT team_id FROM players WHERE nick = 'fred'") == [(2,)]


async def test_composite_lookup_uses_field_of_row_with_same_name(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE products (id int PRIMARY KEY, tenant int, sku text, UNIQUE (tenant, sku))",
        "INSERT INTO products VALUES (1, 1, 'A'), (2, 2, 'A')",
        "CREATE TABLE sales (n int PRIMARY KEY, tenant int, product_id int REFERENCES products)",
    )
    job = await scene.run("n,tenant,product\n1,1,A\n2,2,A\n3,3,A\n", "sales", lookups={"product_id": ["sku", "tenant"]})
    assert await scene.rows("SELECT n, product_id FROM sales ORDER BY 1") == [(1, 1), (2, 2)]
    assert await scene.errors(job) == [(3, "product_id.unknown_reference")]
    with pytest.raises(InvalidInput, match="needs a column for tenant"):
        await scene.submit("n,product\n1,A\n", "sales", lookups={"product_id": ["sku", "tenant"]})


async def test_lookup_searches_by_key_that_another_lookup_found(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE tenants (id int PRIMARY KEY, name text UNIQUE)",
        "CREATE TABLE products"
        " (id int PRIMARY KEY, tenant_id int REFERENCES tenants, sku text, UNIQUE (tenant_id, sku))",
        "CREATE TABLE sales (n int PRIMARY KEY, product_id int REFERENCES products, tenant_id int REFERENCES tenants)",
        "INSERT INTO tenants VALUES (1, 'Ann'), (2, 'Bob')",
        "INSERT INTO products VALUES (1, 1, 'A'), (2, 2, 'A')",
    )
    lookups = {"product_id": ["sku", "tenant_id"], "tenant_id": ["name"]}
    job = await scene.run("n,product,tenant\n1,A,Ann\n2,A,Bob\n3,A,Cat\n", "sales", lookups=lookups)
    assert await scene.rows("SELECT n, product_id, tenant_id FROM sales ORDER BY 1") == [(1, 1, 1), (2, 2, 2)]
    assert (await scene.errors(job))[0] == (3, "tenant_id.unknown_reference")


@pytest.mark.parametrize(
    ("sql_type", "stored", "found", "missing"),
    [
        ("uuid", "a0000000-0000-0000-0000-000000000001", "{A0000000000000000000000000000001}", "b" + "0" * 31),
        ("int", "7", "007", "8"),
        ("numeric(6,2)", "1.50", "1.5", "1.504"),
        ("varchar(3)", "Red", "Red", "Reds"),
        ("char(5)", "Red", "Red", "Redstart"),
        ("date", "2024-12-31", "31.12.2024", "30.12.2024"),
        ("timestamptz", "2024-12-31T10:00:00Z", "2024-12-31T11:00:00+01:00", "2024-12-31T11:00:00Z"),
        ("inet", "10.0.0.1", "10.0.0.1/32", "10.0.0.2"),
        ("boolean", "true", "yes", "no"),
        ("bit(3)", "101", "101", "1011"),
    ],
)
async def test_lookup_compares_values_by_type_of_searched_column(
    scene: Scene, sql_type: str, stored: str, found: str, missing: str
) -> None:
    await scene.table(
        f"CREATE TABLE teams (id bigint PRIMARY KEY, code {sql_type} UNIQUE)",
        f"INSERT INTO teams VALUES (9000000000, '{stored}')",
        "CREATE TABLE players (n int PRIMARY KEY, team_id bigint REFERENCES teams)",
    )
    job = await scene.run(f"n,team\n1,{found}\n2,{missing}\n", "players", lookups={"team_id": ["code"]})
    assert await scene.rows("SELECT n, team_id FROM players") == [(1, 9_000_000_000)]
    assert [row for row, _ in await scene.errors(job)] == [2]


async def created(scene: Scene, job: Any) -> dict[str, int]:
    return await scene.db.read(import_records.count_created_references, job.id)


CREATING: dict[str, Any] = {"lookups": {"team_id": ["name"]}, "create_missing": ["team_id"]}


async def test_missing_rows_are_created_once_and_counted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2)
    await scene.table(*TEAMS)
    text = "nick,team,age\na,Red,1\nb,Pink,1\nc, Pink ,1\nd,Gold,1\ne,Pink,1\nf,,1\ng,Never,0\n"
    job = await scene.run(text, "players", **CREATING)
    found = await scene.rows(PLAYERS)
    assert found == [("a", "Red"), ("b", "Pink"), ("c", "Pink"), ("d", "Gold"), ("e", "Pink"), ("f", None)]
    assert await scene.rows("SELECT name FROM teams WHERE id > 3 ORDER BY id") == [("Pink",), ("Gold",)]
    assert await created(scene, job) == {"public.teams": 2}
    assert await scene.errors(job) == [(7, "age.too_small")]


async def test_no_row_is_created_for_rows_that_fail_or_exist(scene: Scene) -> None:
    await scene.table(*TEAMS, "INSERT INTO players VALUES ('ann')")
    text = "nick,team,age\nann,A,1\nbob,B,0\ncat,C,1\ncat,D,1\n"
    job = await scene.run(text, "players", mode="insert", **CREATING)
    # The first batch of an insert leaves the search for existing keys to COPY, after its references are created.
    assert [row for row, _ in await scene.errors(job)] == [1, 2, 4]
    assert await scene.rows("SELECT name FROM teams WHERE id > 3 AND name <> 'A'") == [("C",)]


async def test_two_references_to_one_table_create_a_common_row(scene: Scene) -> None:
    await scene.table(
        *TEAMS,
        "CREATE TABLE games (n int PRIMARY KEY, home_id int REFERENCES teams, guest_id int NOT NULL REFERENCES teams)",
    )
    lookups = {"home_id": ["name"], "guest_id": ["name"]}
    job = await scene.run(
        "n,home,guest\n1,Pink,Gold\n2,Gold,Pink\n3,Red,Pink\n",
        "games",
        lookups=lookups,
        create_missing=["home", "guest_id"],
    )
    query = "SELECT h.name, g.name FROM games JOIN teams h ON h.id = home_id JOIN teams g ON g.id = guest_id ORDER BY n"
    assert await scene.rows(query) == [("Pink", "Gold"), ("Gold", "Pink"), ("Red", "Pink")]
    assert await created(scene, job) == {"public.teams": 2}


async def test_dry_run_creates_no_row_and_counts_distinct_missing_ones(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    await scene.table(*TEAMS, "ALTER TABLE players ALTER team_id SET NOT NULL")
    text = "nick,team,age\na,Red,1\nb,Pink,1\nc,Pink,1\nd,Gold,1\ne,,1\nf,Pink,0\n"
    job = await scene.run(text, "players", validate_only=True, **CREATING)
    assert (await scene.count("teams"), await scene.count("players")) == (3, 0)
    assert await created(scene, job) == {"public.teams": 2}
    assert await scene.effects(job) == (4, 0, 0)
    assert await scene.errors(job) == [(5, "team_id.required"), (6, "age.too_small")]
    assert await scene.rows("SELECT nextval('teams_id_seq')") == [(4,)]


async def test_concurrent_imports_create_each_row_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 50)
    await scene.table(*TEAMS)
    names = [f"Team {n}" for n in range(40)]
    texts = [
        "nick,team\n" + "".join(f"{job}-{n},{names[(n * step) % 40]}\n" for n in range(400))
        for job, step in enumerate((1, 39, 7))
    ]
    ids = [await scene.submit(text, "players", **CREATING) for text in texts]
    jobs = [await scene.finish(ids[0], drains=3), *[await scene.finish(one) for one in ids[1:]]]
    assert [job.status for job in jobs] == ["completed"] * 3
    assert await scene.rows("SELECT count(*), count(DISTINCT name) FROM teams WHERE name LIKE 'Team%%'") == [(40, 40)]
    assert sum([sum((await created(scene, job)).values()) for job in jobs]) == 40
    wrong = "SELECT count(*) FROM players p LEFT JOIN teams t ON t.id = p.team_id WHERE t.name IS NULL"
    assert await scene.rows(wrong) == [(0,)]


async def test_row_that_another_session_creates_meanwhile_is_used(scene: Scene) -> None:
    await scene.table(*TEAMS)
    async with scene.db.transaction() as conn:
        await conn.execute("INSERT INTO teams (name) VALUES ('Pink')")
        job_id = await scene.submit("nick,team\nann,Pink\n", "players", **CREATING)
        running = asyncio.create_task(scene.finish(job_id))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%ON CONFLICT%%'"
        )
        while (await scene.rows(waiting))[0][0] == 0:
            assert not running.done()
            await asyncio.sleep(0.02)
    job = await running
    assert (await scene.rows(PLAYERS), await created(scene, job)) == ([("ann", "Pink")], {})


async def test_row_deleted_after_lookup_fails_rows_with_their_text(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(*TEAMS)
    async with meanwhile(monkeypatch, scene, "DELETE FROM teams WHERE name = 'Red'"):
        job = await scene.run("nick,team\nann,Red\nbob,Blue\n", "players", lookups={"team_id": ["name"]})
    assert await reasons(scene, job) == [(1, "team_id.unknown_reference", "no matching row in public.teams", "Red")]
    assert await scene.rows(PLAYERS) == [("bob", "Blue")]


async def test_referenced_table_that_rejects_new_row_fails_only_its_rows(scene: Scene) -> None:
    await scene.table(
        *TEAMS,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.name = 'Bad' THEN RAISE 'not this name'; ELSIF NEW.name = 'Lost' THEN RETURN NULL; END IF;"
        " RETURN NEW; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON teams FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    job = await scene.run("nick,team\na,Pink\nb,Bad\nc,Gold\nd,Lost\n", "players", **CREATING)
    assert await scene.rows(PLAYERS) == [("a", "Pink"), ("c", "Gold")]
    assert [one[:3] for one in await reasons(scene, job)] == [
        (2, "team_id.refused", "not this name"),
        (4, "team_id.unknown_reference", "no row in public.teams has this name"),
    ]
    assert await created(scene, job) == {"public.teams": 2}


@pytest.mark.parametrize(
    ("ddl", "lookups", "reason"),
    [
        ("", {"team_id": ["city"]}, r"no unique index on \(city\)"),
        ("ALTER TABLE teams ALTER city SET NOT NULL", {"team_id": ["name"]}, 'requires a value for "city", too'),
        (
            "ALTER TABLE teams DROP CONSTRAINT teams_name_key, ADD UNIQUE (name) DEFERRABLE",
            {"team_id": ["name"]},
            r"no unique index on \(name\)",
        ),
        ("", {}, 'Cannot create missing rows for "team_id": set a lookup'),
    ],
)
async def test_creating_rows_is_refused_at_submission_when_it_cannot_work(
    scene: Scene, ddl: str, lookups: dict[str, list[str]], reason: str
) -> None:
    await scene.table(*TEAMS, *([ddl] if ddl else []))
    with pytest.raises(InvalidInput, match=reason):
        await scene.submit("nick,team\nann,Red\n", "players", lookups=lookups, create_missing=["team_id"])


@pytest.mark.parametrize(
    ("lookups", "reason"),
    [
        ({"team_id": ["nam"]}, 'it has no column "nam"; did you mean "name"'),
        ({"age": ["name"]}, "players has no foreign key of this column alone"),
        ({"teem": ["name"]}, "it is not a field of public.players"),
        ({"team_id": ["name", "name"]}, "different columns"),
        ({"team_id": ["point"]}, "operator does not exist"),
    ],
)
async def test_invalid_lookup_is_refused_at_submission(
    scene: Scene, lookups: dict[str, list[str]], reason: str
) -> None:
    await scene.table(*TEAMS, "ALTER TABLE teams ADD point json")
    with pytest.raises(InvalidInput, match=reason):
        await scene.submit("nick,team\nann,Red\n", "players", lookups=lookups)


async def test_column_named_like_reference_without_lookup_is_refused_with_proposal(scene: Scene) -> None:
    await scene.table(*TEAMS)
    with pytest.raises(InvalidColumns) as refused:
        await scene.submit("nick,team\nann,Red\n", "players")
    assert refused.value.problems[-1] == (
        'Column "team" may name the rows of public.teams that "team_id" refers to. To find them by "name", '
        "set the lookup team_id=name."
    )
    await scene.table("ALTER TABLE teams ADD UNIQUE (city, name), ADD code text UNIQUE")
    with pytest.raises(InvalidColumns) as refused:
        await scene.submit("nick,team\nann,Red\n", "players")
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("order", ["bosses first", "bosses last"])
async def test_lookup_in_own_table_waits_for_rows_of_the_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    small_batches(monkeypatch, 3)
    await scene.table(
        "CREATE TABLE people (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE, boss_id int"
        " REFERENCES people)"
    )
    lines = [f"p{n},{f'p{n // 2}' if n > 1 else ''}\n" for n in range(1, 16)]
    lines += ["lost,nobody\n", "self,self\n"]
    text = "name,boss\n" + "".join(lines if order == "bosses first" else reversed(lines))
    job = await scene.finish(await scene.submit(text, "people", lookups={"boss_id": ["name"]}), drains=2)
    query = "SELECT p.name, b.name FROM people p LEFT JOIN people b ON b.id = p.boss_id"
    assert set(await scene.rows(query)) == {(f"p{n}", f"p{n // 2}" if n > 1 else None) for n in range(1, 16)}
    assert sorted(code for _, code in await scene.errors(job)) == ["boss_id.unknown_reference"] * 2


async def test_dry_run_finds_rows_of_own_table_in_the_same_batch(scene: Scene) -> None:
    await scene.table("CREATE TABLE people (id serial PRIMARY KEY, name text UNIQUE, boss_id int REFERENCES people)")
    text = "name,boss\nann,\nbob,ann\ncat,dan\n"
    job = await scene.run(text, "people", lookups={"boss_id": ["name"]}, validate_only=True)
    assert await scene.errors(job) == [(3, "boss_id.unknown_reference")]
    assert (await scene.effects(job), await scene.count("people")) == ((2, 0, 0), 0)


async def test_lookup_in_own_table_requires_unique_index(scene: Scene) -> None:
    await scene.table("CREATE TABLE people (id serial PRIMARY KEY, name text, boss_id int REFERENCES people)")
    with pytest.raises(InvalidInput, match=r"need a unique index on \(name\)"):
        await scene.submit("name,boss\nann,\n", "people", lookups={"boss_id": ["name"]})


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize(("duplicates", "kept"), [("first", 1), ("last", 3), ("error", 1)])
async def test_duplicate_keys_with_lookup_are_compared_by_text(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str, duplicates: str, kept: int
) -> None:
    small_batches(monkeypatch, 2)
    await scene.table(
        "CREATE TABLE teams (id int PRIMARY KEY, name text, country text, UNIQUE (name, country))",
        "INSERT INTO teams VALUES (1, 'Red', 'IT'), (2, 'Red', 'CH')",
        "CREATE TABLE shirts (team_id int REFERENCES teams, number int, n int, PRIMARY KEY (team_id, number))",
    )
    text = "team,country,number,n\nRed,IT,07,1\nRed,CH,7,2\n Red,IT,7,3\n"
    job = await scene.run(text, "shirts", mode=mode, duplicates=duplicates, lookups={"team_id": ["name", "country"]})
    assert await scene.rows("SELECT team_id, n FROM shirts ORDER BY 1") == [(1, kept), (2, 2)]
    found = await reasons(scene, job)
    assert [one[1:] for one in found] == (
        [("team_id, number.duplicate", "row 1 has the same key", "Red, IT, 7")] if duplicates == "error" else []
    )


async def test_upsert_updates_looked_up_reference_and_key_with_lookup(scene: Scene) -> None:
    await scene.table(
        *TEAMS,
        "CREATE TABLE shirts (team_id int REFERENCES teams, number int, owner_team int REFERENCES teams,"
        " PRIMARY KEY (team_id, number))",
        "INSERT INTO shirts VALUES (1, 7, 1), (1, 8, 1)",
    )
    lookups = {"team_id": ["name"], "owner_team": ["name"]}
    text = "team,number,owner_team\nRed,7,Blue\nRed,8,Red\nBlue,7,\n"
    job = await scene.run(text, "shirts", mode="upsert", lookups=lookups)
    assert await scene.effects(job) == (1, 1, 1)
    assert await scene.rows("SELECT * FROM shirts ORDER BY 1, 2") == [(1, 7, 2), (1, 8, 1), (2, 7, None)]
    job = await scene.run(text, "shirts", lookups=lookups)
    assert (await reasons(scene, job))[0] == (
        1,
        "team_id, number.exists",
        "a row with this value already exists",
        "Red, 7",
    )


async def test_default_of_reference_is_a_key_and_no_name(scene: Scene) -> None:
    await scene.table(*TEAMS, "ALTER TABLE players ALTER team_id SET DEFAULT 2")
    await scene.run("nick,team\nann,\nbob,Red\n", "players", lookups={"team_id": ["name"]})
    await scene.run('{"nick": "cat"}\n', "players", name="a.ndjson", lookups={"team_id": ["name"]}, keep_empty=True)
    await scene.run(
        '{"nick": "dan", "team": null}\n', "players", name="a.ndjson", lookups={"team_id": ["name"]}, keep_empty=True
    )
    assert await scene.rows(PLAYERS) == [("ann", "Blue"), ("bob", "Red"), ("cat", "Blue"), ("dan", None)]


async def test_translations_and_formats_apply_to_searched_text(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE periods (id int PRIMARY KEY, start date UNIQUE)",
        "INSERT INTO periods VALUES (1, '2024-02-01'), (2, '2024-12-31')",
        "CREATE TABLE sales (n int PRIMARY KEY, period_id int REFERENCES periods)",
    )
    job = await scene.run(
        "n,period\n1,01.02.2024\n2,end\n3,31.12.2024\n",
        "sales",
        lookups={"period_id": ["start"]},
        formats={"period": "DD.MM.YYYY"},
        mapping={"period": "period_id"},
        translations={"period_id": {"end": "31.12.2024"}},
    )
    assert job.status == "completed"
    assert await scene.rows("SELECT n, period_id FROM sales ORDER BY 1") == [(1, 1), (2, 2), (3, 2)]


async def test_case_insensitive_type_finds_and_creates_one_row(scene: Scene) -> None:
    try:
        await scene.table("CREATE EXTENSION citext")
    except Exception:  # noqa: BLE001
        pytest.skip("the server has no citext")
    await scene.table(*TEAMS, "ALTER TABLE teams ALTER name TYPE citext")
    job = await scene.run("nick,team\na,RED\nb,Pink\nc,PINK\nd,pink\n", "players", **CREATING)
    assert await scene.rows(PLAYERS) == [("a", "Red"), ("b", "Pink"), ("c", "Pink"), ("d", "Pink")]
    assert await created(scene, job) == {"public.teams": 1}


@pytest.mark.parametrize(
    "name",
    [
        "'; DROP TABLE teams; --",
        "%s %(x)s %",
        'a"b',
        "a\\b",
        "a\x1e\x1fb",
        "a\tb",
        "ﬁ\u200b",
        "\N{PILE OF POO}",
        "N" * 5_000,
    ],
)
async def test_hostile_texts_are_found_and_created_unchanged(scene: Scene, name: str) -> None:
    await scene.table(*TEAMS)
    quoted = '"' + name.replace('"', '""') + '"'
    job = await scene.run(f"nick,team\nann,{quoted}\n", "players", **CREATING)
    assert await scene.rows(PLAYERS) == [("ann", name)]
    await scene.run(f"nick,team\nbob,{quoted}\n", "players", lookups={"team_id": ["name"]})
    assert [team for _, team in await scene.rows(PLAYERS)] == [name, name]
    assert await created(scene, job) == {"public.teams": 1}


async def test_odd_names_of_tables_and_columns_are_quoted(scene: Scene) -> None:
    await scene.table(
        'CREATE TABLE "Te""am %%s" ("Id %%" int PRIMARY KEY DEFAULT 5, "Na""me %%(x)s" text UNIQUE)',
        'CREATE TABLE players ("n" int PRIMARY KEY, "Team %%" int REFERENCES "Te""am %%s")',
    )
    lookup = {"Team %": ['Na"me %(x)s']}
    job = await scene.run("n,Team %\n1,Red\n", "players", lookups=lookup, create_missing=["Team %"])
    assert (job.status, await scene.rows('SELECT "Team %%" FROM players')) == ("completed", [(5,)])


async def test_import_fails_when_searched_column_was_removed_after_submission(scene: Scene) -> None:
    await scene.table(*TEAMS)
    job_id = await scene.submit("nick,team\nann,Red\n", "players", lookups={"team_id": ["name"]})
    await scene.table("ALTER TABLE teams RENAME name TO title")
    job = await scene.finish(job_id)
    assert job.status == "failed"
    assert "public.teams: a column does not exist" in str(job.failure_reason)


async def test_sensitive_values_are_redacted_in_errors(scene: Scene) -> None:
    await scene.table(*TEAMS)
    found = await look_at(scene.db, "players")
    fields = tuple(replace(one, sensitive=one.name == "team_id") for one in found.fields)
    resource = replace(found, fields=fields)
    job = await scene.run("nick,team\nann,Secret\n", "players", resource=resource, lookups={"team_id": ["name"]})
    assert "Secret" not in str(await scene.outcomes(job))


async def test_lookup_searches_by_constant_of_the_row(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE products (id int PRIMARY KEY, tenant int, sku text, UNIQUE (tenant, sku))",
        "INSERT INTO products VALUES (1, 1, 'A'), (2, 2, 'A'), (3, 1, 'B')",
        "CREATE TABLE sales (n int PRIMARY KEY, tenant int, product_id int REFERENCES products)",
    )
    job = await scene.run(
        "n,product\n1,A\n2,B\n", "sales", lookups={"product_id": ["sku", "tenant"]}, constants={"tenant": "2"}
    )
    assert await scene.rows("SELECT * FROM sales") == [(1, 2, 2)]
    assert await reasons(scene, job) == [
        (2, "product_id.unknown_reference", "no row in public.products has this sku and tenant", "B, 2")
    ]


async def test_lookup_without_column_that_constant_sets_is_refused(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE products (id int PRIMARY KEY, tenant int, sku text UNIQUE)",
        "INSERT INTO products VALUES (1, 1, 'A')",
        "CREATE TABLE sales (n int PRIMARY KEY, tenant int, product_id int REFERENCES products)",
    )
    message = 'the import sets "tenant" in every row, so search by these columns, too: sku,tenant'
    with pytest.raises(InvalidInput, match=message):
        await scene.submit("n,product\n1,A\n", "sales", lookups={"product_id": ["sku"]}, constants={"tenant": "2"})


async def test_rules_read_text_of_looked_up_column_and_skipped_rows_create_nothing(scene: Scene) -> None:
    await scene.table(*TEAMS)
    job = await scene.run(
        "nick,team\nann,Red\nbob,Pink\ncat,Gold\n",
        "players",
        **CREATING,
        skip=("team = 'Pink'",),
        computed={"nick": "concat(nick, ' of ', team)"},
    )
    assert await scene.rows(PLAYERS) == [("ann of Red", "Red"), ("cat of Gold", "Gold")]
    assert (job.counts.skipped, await created(scene, job)) == (1, {"public.teams": 1})


async def test_field_that_a_rule_sets_is_not_looked_up(scene: Scene) -> None:
    await scene.table(*TEAMS)
    await scene.run("nick\nann\n", "players", constants={"team_id": "2"}, lookups={"team_id": ["name"]})
    assert await scene.rows(PLAYERS) == [("ann", "Blue")]
