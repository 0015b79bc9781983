"""Imports by a database role that lacks or loses a privilege."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from imports.scenes import Scene
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import InvalidInput
from tidemill.core.status import ItemStatus
from tidemill.imports.undo import start_undo
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection

FILE = "id,name\n" + "".join(f"{n},n{n}\n" for n in range(100))
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text)"


@pytest.fixture
def clerk(tidemill_database: str) -> Iterator[str]:
    """The database, as a role that may use it but owns nothing in it."""
    with psycopg.connect(tidemill_database, autocommit=True) as conn:
        conn.execute("DROP ROLE IF EXISTS import_clerk")
        conn.execute("CREATE ROLE import_clerk LOGIN")
        for schema in ("tidemill", "public"):
            conn.execute(f"GRANT USAGE ON SCHEMA {schema} TO import_clerk".encode())
        conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA tidemill TO import_clerk")
        conn.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA tidemill TO import_clerk")
        conn.execute(TABLE.encode())
        yield psycopg.conninfo.make_conninfo(tidemill_database, user="import_clerk")
        conn.execute("DROP OWNED BY import_clerk")
        conn.execute("DROP ROLE import_clerk")


@pytest.fixture
async def clerks(scene: Scene, clerk: str) -> AsyncIterator[Scene]:
    async with Database(clerk, size=4) as db:
        yield Scene(db, scene.settings, scene.mill)


async def test_missing_table_privilege_is_reported_at_submit(scene: Scene, clerks: Scene) -> None:
    await scene.table("GRANT INSERT ON t TO import_clerk")
    with pytest.raises(InvalidInput, match="lacks SELECT"):
        await clerks.submit(FILE, "t")
    with pytest.raises(InvalidInput, match="lacks SELECT"):
        await clerks.submit(FILE, "t", validate_only=True)
    await scene.table("GRANT SELECT ON t TO import_clerk", "REVOKE INSERT ON t FROM import_clerk")
    with pytest.raises(InvalidInput, match="lacks INSERT"):
        await clerks.submit(FILE, "t")
    job = await clerks.finish(await clerks.submit(FILE, "t", validate_only=True))
    assert (job.status, await scene.count("t")) == ("completed", 0)
    await scene.table("GRANT INSERT ON t TO import_clerk", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(InvalidInput, match="row-level security"):
        await clerks.submit(FILE, "t")


async def test_privilege_revoked_before_start_fails_import_until_granted_again(scene: Scene, clerks: Scene) -> None:
    await scene.table("GRANT ALL ON t TO import_clerk")
    job_id = await clerks.submit(FILE, "t")
    await scene.table("REVOKE INSERT ON t FROM import_clerk")
    job = await clerks.finish(job_id)
    assert job.status == "failed"
    assert "permission denied" in (job.failure_reason or "")
    await scene.table("GRANT INSERT ON t TO import_clerk")
    await reprocess_items(clerks.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED]))
    job = await clerks.finish(job_id)
    assert (job.status, await scene.count("t")) == ("completed", 100)


async def test_dry_run_without_temporary_table_privilege_fails_with_reason(scene: Scene, clerks: Scene) -> None:
    ((name,),) = await scene.rows("SELECT current_database()")
    await scene.table("GRANT SELECT ON t TO import_clerk", f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    job = await clerks.finish(await clerks.submit(FILE, "t", validate_only=True))
    assert job.status == "failed"
    assert "permission denied to create temporary tables" in str(job.failure_reason)


@pytest.mark.parametrize("key", ["bigint GENERATED ALWAYS AS IDENTITY", "serial", "int DEFAULT nextval('u_id_seq')"])
async def test_undo_names_missing_grants_of_generated_keys_at_submit(scene: Scene, clerks: Scene, key: str) -> None:
    if "u_id_seq" in key:
        await scene.table("CREATE SEQUENCE u_id_seq")
    await scene.table(f"CREATE TABLE u (id {key} PRIMARY KEY, name text)")
    await scene.table("GRANT SELECT ON u TO import_clerk", "GRANT INSERT (name) ON u TO import_clerk")
    if "IDENTITY" not in key:  # a plain import needs the sequence as well
        await scene.table("GRANT USAGE ON SEQUENCE u_id_seq TO import_clerk")
    else:
        with pytest.raises(InvalidInput, match=r"GRANT USAGE ON sequence u_id_seq TO import_clerk"):
            await clerks.submit("name\na\n", "u", undo=True)
        await scene.table("GRANT USAGE ON SEQUENCE u_id_seq TO import_clerk")
    with pytest.raises(InvalidInput, match=r"GRANT INSERT \(id\) ON public\.u TO import_clerk"):
        await clerks.submit("name\na\n", "u", undo=True)
    await scene.table("GRANT INSERT (id) ON u TO import_clerk")
    job = await clerks.finish(await clerks.submit("name\na\n", "u", undo=True))
    assert (job.status, await scene.count("u")) == ("completed", 1)


async def test_undo_names_missing_grants_before_it_changes_a_row(scene: Scene, clerks: Scene) -> None:
    await scene.table("CREATE TABLE child (t_id int REFERENCES t ON DELETE CASCADE)")
    await scene.table("GRANT SELECT, INSERT ON t TO import_clerk")
    job = await clerks.finish(await clerks.submit(FILE, "t", undo=True))
    runtime = make_runtime(clerks.db, clerks.settings)
    for grant in ("UPDATE", "DELETE"):
        with pytest.raises(InvalidInput, match=f"lacks {grant}"):
            await start_undo(runtime, job, by=0)
        await scene.table(f"GRANT {grant} ON t TO import_clerk")
    with pytest.raises(InvalidInput, match=r"GRANT SELECT \(t_id\) ON public\.child TO import_clerk"):
        await start_undo(runtime, job, by=0)
    assert await scene.count("t") == 100
    await scene.table("GRANT SELECT ON child TO import_clerk")
    assert (await start_undo(runtime, job, by=0)).items == 100


async def test_undoable_import_needs_select_on_all_columns(scene: Scene, clerks: Scene) -> None:
    await scene.table("ALTER TABLE t ADD secret text", "GRANT INSERT, SELECT (id, name) ON t TO import_clerk")
    with pytest.raises(InvalidInput, match=r"Cannot record rows of public\.t for an undo: .* lacks SELECT \(secret\)"):
        await clerks.submit(FILE, "t", undo=True)
    assert (await clerks.finish(await clerks.submit(FILE, "t"))).status == "completed"
