"""Errors that only the table can report: bad rows fail with its reason, and the others are written."""

import pytest

from imports.scenes import Scene, small_batches

PICKY = """CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.n %% {every} = 0 THEN RAISE EXCEPTION 'never %%', NEW.n; END IF; RETURN NEW; END $$"""
TRIGGER = "CREATE TRIGGER picky {when} INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION picky()"


def numbers(count: int) -> str:
    return "n\n" + "".join(f"{n}\n" for n in range(1, count + 1))


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
@pytest.mark.parametrize(("every", "count"), [(100, 10_000), (2, 500), (1, 500)])
async def test_trigger_rejecting_rows_fails_only_those_rows(scene: Scene, when: str, every: int, count: int) -> None:
    await scene.table("CREATE TABLE t (n int)", PICKY.format(every=every), TRIGGER.format(when=when))
    job = await scene.run(numbers(count), "t")
    assert await scene.count("t") == count - count // every
    errors = await scene.outcomes(job)
    assert [row for row, _, _ in errors] == list(range(every, count + 1, every))
    assert {(error["code"], error["reason"]) for _, _, error in errors[:1]} == {("refused", f"never {every}")}


async def test_trigger_rejecting_updates_fails_only_those_rows(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT i, 1 FROM generate_series(1, 300) i"
    )
    await scene.table(PICKY.format(every=100), TRIGGER.format(when="BEFORE"))
    text = "id,n\n" + "".join(f"{n},{n}\n" for n in range(1, 401))
    job = await scene.run(text, "t", mode="upsert")
    assert await scene.errors(job) == [(100, "refused"), (200, "refused"), (300, "refused"), (400, "refused")]
    assert await scene.effects(job) == (99, 296, 1)
    assert await scene.rows("SELECT count(*) FROM t WHERE n = id") == [(396,)]


async def test_check_exclusion_and_partial_index_violations_fail_only_their_rows(scene: Scene) -> None:
    await scene.table(
        "CREATE FUNCTION is_fine(int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 <> 13'",
        """CREATE TABLE t (n int CHECK (is_fine(n)), during int4range, kind text,
             EXCLUDE USING gist (during WITH &&))""",
        "CREATE UNIQUE INDEX ON t (n) WHERE kind = 'one'",
        "INSERT INTO t VALUES (100, '[100,110)', 'one')",
    )
    job = await scene.run(
        'n,during,kind\n1,"[0,5)",a\n13,"[5,6)",a\n2,"[4,8)",a\n3,"[10,20)",one\n'
        '3,"[20,30)",one\n3,"[30,31)",b\n100,,one\n',
        "t",
    )
    assert await scene.errors(job) == [(2, "check"), (3, "exclusion"), (5, "exists"), (7, "exists")]
    assert [n for (n,) in await scene.rows("SELECT n FROM t ORDER BY n")] == [1, 3, 3, 100]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
async def test_deferred_constraint_violation_fails_its_row(scene: Scene, mode: str) -> None:
    await scene.table(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "INSERT INTO parent VALUES (1)",
        """CREATE TABLE t (id int PRIMARY KEY, code text UNIQUE DEFERRABLE INITIALLY DEFERRED,
             parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)""",
        "INSERT INTO t VALUES (1, 'a', 1)",
        "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.parent = NEW.id; RETURN NEW; END $$",
        "CREATE TRIGGER other BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 4) EXECUTE FUNCTION other()",
    )
    job = await scene.run("id,code,parent\n2,b,1\n3,a,1\n4,d,1\n5,e,7\n6,f,\n", "t", mode=mode)
    assert await scene.errors(job) == [
        (2, "code.exists"),
        (3, "unknown_reference"),
        (4, "parent.unknown_reference"),
    ]
    assert [n for (n,) in await scene.rows("SELECT id FROM t ORDER BY 1")] == [1, 2, 6]


async def test_value_resembling_copy_error_context_does_not_blame_another_row(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (n int CHECK (n <> length(note)), note text)")
    job = await scene.run('n,note\n1,a\n2,"COPY t, line 5"\n14,"COPY t, line 1"\n4,x\n', "t")
    assert await scene.errors(job) == [(1, "check"), (3, "check")]


async def test_privilege_error_raised_by_trigger_fails_only_its_row(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (n int)",
        """CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.n = 2 THEN RAISE insufficient_privilege; END IF; RETURN NEW; END $$""",
        "CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION guard()",
    )
    job = await scene.run("n\n1\n2\n3\n", "t")
    assert (job.status, await scene.errors(job)) == ("completed_with_errors", [(2, "refused")])


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
async def test_rows_dropped_silently_by_trigger_are_reported_as_failed(scene: Scene, event: str) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, n int)")
    if event == "UPDATE":
        await scene.table("INSERT INTO t SELECT i, 0 FROM generate_series(1, 40) i")
    await scene.table(
        "CREATE FUNCTION pass_over() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.id > 30 THEN RETURN NULL; END IF; RETURN NEW; END'",
        f"CREATE TRIGGER pass_over BEFORE {event} ON t FOR EACH ROW EXECUTE FUNCTION pass_over()",
    )
    job = await scene.run("id,n\n" + "".join(f"{i},5\n" for i in range(1, 41)), "t", mode="upsert")
    assert await scene.errors(job) == [(row, "refused") for row in range(31, 41)]
    assert await scene.effects(job) == ((30, 0, 0) if event == "INSERT" else (0, 30, 0))
    assert await scene.rows("SELECT count(*) FROM t WHERE n = 5") == [(30,)]


async def test_rows_redirected_to_child_table_by_trigger_count_as_inserted(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (t)",
        "CREATE FUNCTION bequeath() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO heir VALUES (NEW.*); RETURN NULL; END'",
        "CREATE TRIGGER bequeath BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION bequeath()",
    )
    job = await scene.run("id\n1\n2\n", "t")
    assert (job.status, await scene.effects(job), await scene.count("heir")) == ("completed", (2, 0, 0), 2)


async def test_existing_key_error_is_unchanged_when_another_row_is_rejected(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int, on_day date, PRIMARY KEY (id, on_day)) PARTITION BY RANGE (on_day)",
        "CREATE TABLE t_2020 PARTITION OF t FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')",
        "INSERT INTO t VALUES (1, '2020-02-02')",
    )
    job = await scene.run("id,on_day\n1,2020-02-02\n2,2020-02-02\n3,2023-03-03\n", "t")
    assert await scene.errors(job) == [(1, "id, on_day.exists"), (3, "check")]


async def test_domain_check_violation_fails_only_its_row(scene: Scene) -> None:
    await scene.table(
        "CREATE FUNCTION is_plain(text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 !~ ''x'''",
        "CREATE DOMAIN plain AS text CHECK (is_plain(VALUE))",
        "CREATE TABLE t (id plain PRIMARY KEY, n int)",
        "INSERT INTO t VALUES ('a', 0)",
    )
    job = await scene.run("id,n\na,1\nxx,1\nb,1\n", "t", mode="upsert")
    ((row, status, error),) = await scene.outcomes(job)
    assert (row, status, error["code"], error["attempt"], error["retryable"]) == (2, "failed", "id.check", 1, False)
    assert await scene.rows("SELECT id, n FROM t ORDER BY id") == [("a", 1), ("b", 1)]


async def test_key_whose_domain_check_raises_fails_only_its_row(scene: Scene) -> None:
    await scene.table(
        "CREATE FUNCTION is_plain(text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN IF $1 ~ ''x'' THEN RAISE ''not plain''; END IF; RETURN true; END'",
        "CREATE DOMAIN plain AS text CHECK (is_plain(VALUE))",
        "CREATE TABLE t (id plain PRIMARY KEY)",
    )
    job = await scene.run("id\na\nxx\nb\nc\n", "t", mode="upsert")
    ((row, status, error),) = await scene.outcomes(job)
    assert (row, status, error["code"], error["reason"]) == (2, "failed", "refused", "not plain")
    assert (error["attempt"], await scene.count("t")) == (1, 3)


@pytest.mark.parametrize("batch", [1, 10_000])
async def test_rows_dropped_by_trigger_fail_but_rows_with_changed_key_do_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    small_batches(monkeypatch, batch)
    await scene.table(
        "CREATE TABLE t (email text PRIMARY KEY, n int)",
        """CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.n = 0 THEN RETURN NULL; END IF; NEW.email := lower(NEW.email); RETURN NEW; END $$""",
        "CREATE TRIGGER tidy BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tidy()",
    )
    text = "email,n\n" + "".join(f"Name{row}@x.org,{row % 7}\n" for row in range(1, 31))
    job = await scene.run(text, "t")
    assert await scene.errors(job) == [(row, "refused") for row in (7, 14, 21, 28)]
    assert (await scene.effects(job), await scene.count("t")) == ((26, 0, 0), 26)


CONVERTS = ["CHECK (v::int > 1)", ", g int GENERATED ALWAYS AS ((v * 100)::int) STORED"]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("more", CONVERTS)
async def test_value_that_table_expression_cannot_convert_fails_only_its_row(
    scene: Scene, more: str, validate_only: bool
) -> None:
    """The server reports the same code as for tables that accept no rows."""
    await scene.table(f"CREATE TABLE t (id int PRIMARY KEY, v numeric {more})")
    job = await scene.run("id,v\n1,5\n2,NaN\n3,7\n", "t", validate_only=validate_only)
    assert await scene.errors(job) == [(2, "refused")]
    assert (await scene.effects(job))[0] == 2


@pytest.mark.parametrize("more", CONVERTS)
async def test_updated_value_that_expression_cannot_convert_fails_only_its_row(scene: Scene, more: str) -> None:
    await scene.table(f"CREATE TABLE t (id int PRIMARY KEY, v numeric {more})")
    await scene.table("INSERT INTO t (id, v) SELECT n, 9 FROM generate_series(1, 3) n")
    job = await scene.run("id,v\n1,5\n2,NaN\n3,7\n", "t", mode="upsert")
    assert (await scene.errors(job), await scene.effects(job)) == ([(2, "refused")], (0, 2, 0))
