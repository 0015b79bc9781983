"""Files whose columns differ from those of earlier files are held until a user accepts or rejects them."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import rows
from support.api import Api, share_with_users
from support.import_requests import DECLARED, TABLES
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import Conflict
from tidemill.store.database import Database
from tidemill.watches import use_cases
from tidemill.watches.file_state import FileState, describe_column_drift
from watches.scenes import IMPORT, ROWS, Scene

if TYPE_CHECKING:
    from support.command import Tidemill

pytestmark = pytest.mark.needs_feature("imports")
TABLE = "CREATE TABLE public.people (email text PRIMARY KEY, name text, age integer)"
WITH_AGE = "E-Mail,Name,Age\neve@x.org,Eve,40\n"
HELD, PROCESSED, FAILED, SEEN = FileState.HELD, FileState.PROCESSED, FileState.FAILED, FileState.SEEN


@pytest.fixture
async def people(scene: Scene) -> Scene:
    """A watch that has imported a file."""
    await rows(scene.db, TABLE)
    scene.declare(IMPORT)
    scene.put("first.csv")
    await scene.whole_way()
    return scene


async def decide(scene: Scene, path: str, *, accept: bool) -> None:
    runtime = make_runtime(scene.db, scene.settings)
    await use_cases.decide_held_file(runtime, None, "nightly", path=path, accept=accept)


def test_column_drift_ignores_order_and_spelling_and_allowed_changes() -> None:
    before = ["E-Mail", "name"]
    assert describe_column_drift(before, ["NAME", "email"], ()) is None
    assert describe_column_drift(before, ["email", "age"], ()) == 'new: "age"; missing: "name"'
    assert describe_column_drift(before, ["email", "age"], ("missing",)) == 'new: "age"; missing: "name"'
    assert describe_column_drift(before, ["email", "name", "age"], ("new",)) is None
    many = [f"c{n}" for n in range(12)]
    assert str(describe_column_drift([], many, ())).endswith('"c9" and 2 more')


async def test_file_with_changed_columns_is_held_before_a_row_is_written(people: Scene) -> None:
    people.put("second.csv", WITH_AGE)
    people.put(
        "third.csv", ROWS.replace("@x", "@y").replace("email,name", "NAME,E-Mail").replace("ada@y.org,Ada", "A,a@y")
    )
    report = await people.scan(times=2)
    assert report.problem is not None
    assert 'Held "second.csv": The columns changed (new: "Age")' in report.problem
    await people.work()
    await people.scan()
    assert await people.states() == {"first.csv": PROCESSED, "second.csv": HELD, "third.csv": PROCESSED}
    assert "second.csv" in people.there()
    assert await people.jobs() == 2
    await people.scan(times=2)
    assert (await people.states())["second.csv"] is HELD
    assert (await people.scan()).problem is None, "a held file is reported once"


async def test_accepted_file_is_imported_and_its_columns_are_the_new_standard(people: Scene) -> None:
    people.put("second.csv", WITH_AGE)
    await people.scan(times=2)
    await decide(people, "second.csv", accept=True)
    await people.whole_way()
    assert (await people.states())["second.csv"] is PROCESSED
    assert await rows(people.db, "SELECT age FROM people WHERE name = 'Eve'") == [(40,)]
    people.put("third.csv", WITH_AGE.replace("eve", "ida"))
    await people.whole_way()
    assert (await people.states())["third.csv"] is PROCESSED
    people.put("fourth.csv", ROWS.replace("@x", "@y"))
    await people.scan(times=2)
    assert 'missing: "Age"' in str((await people.files())["fourth.csv"].note)


async def test_rejected_file_moves_to_failed_folder(people: Scene) -> None:
    people.put("second.csv", WITH_AGE)
    await people.scan(times=2)
    await decide(people, "second.csv", accept=False)
    await people.scan()
    assert (await people.states())["second.csv"] is FAILED
    assert "failed/second.csv" in people.there()
    assert await people.jobs() == 1
    with pytest.raises(Conflict, match="is not held"):
        await decide(people, "second.csv", accept=True)


async def test_held_file_cannot_be_accepted_while_a_newer_version_waits(people: Scene) -> None:
    people.put("second.csv", WITH_AGE)
    await people.scan(times=2)
    people.put("second.csv", WITH_AGE + "ida@x.org,Ida,1\n")
    await people.scan()
    assert (await people.states())["second.csv"] is SEEN
    with pytest.raises(Conflict, match="newer version"):
        await decide(people, "second.csv", accept=True)


async def test_allowed_drift_imports_files_with_new_or_missing_columns(scene: Scene) -> None:
    await rows(scene.db, TABLE)
    scene.declare(IMPORT, 'allowed_drift = ["new", "missing"]')
    scene.put("first.csv")
    await scene.whole_way()
    scene.put("second.csv", "email,age\neve@x.org,40\n")
    await scene.whole_way()
    assert set((await scene.states()).values()) == {PROCESSED}


async def test_api_accepts_and_rejects_held_files_of_own_watches(
    make_api: Callable[..., Awaitable[Api]], tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    declared = tmp_path / "watches.toml"
    watch = '[watches.nightly]\nsource = "inbox"\nowner = "ada"\nstable_for = "0s"\nmoves = false\n'
    declared.write_text(DECLARED + watch + 'import = { resource = "people" }\n')
    api = await make_api(config=declared, sources={"inbox": share_with_users(inbox)})
    await rows(api.db, TABLES)
    ada, bob = await api.user("ada"), await api.user("bob")

    async def scan() -> dict[str, Any]:
        for _ in range(2):
            await ada.post("/v1/ingestion/scan", json={"name": "nightly"})
        return {file["path"]: file for file in (await ada.get("/v1/sources/nightly/files")).json()["files"]}

    (inbox / "a.csv").write_text("email,name\na@x.org,A\n")
    await scan()
    for name in ("b.csv", "c.csv"):
        (inbox / name).write_text(f"email,name,age\n{name}@x.org,B,1\n")
    held = await scan()
    assert (held["b.csv"]["state"], held["c.csv"]["state"]) == ("held", "held")
    path = "/v1/sources/nightly/files"
    assert (await bob.post(f"{path}/{held['b.csv']['id']}/accept")).status_code == 404
    assert (await ada.post(f"{path}/{held['b.csv']['id']}/accept")).json()["state"] == "seen"
    assert (await ada.post(f"{path}/{held['c.csv']['id']}/reject")).json()["state"] == "rejected"
    assert (await ada.post(f"{path}/{held['c.csv']['id']}/accept")).status_code == 409
    files = await scan()
    assert (files["b.csv"]["state"], files["c.csv"]["state"]) == ("submitted", "failed")


async def test_scan_command_accepts_and_rejects_held_files(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    inbox = tidemill.folder / "inbox"
    inbox.mkdir()
    options = 'moves = false\nstable_for = "0s"\nimport = { resource = "public.people" }\n'
    tidemill.file("tidemill.toml", f'[watches.nightly]\nsource = "inbox"\n{options}')
    tidemill.extra["TIDEMILL_SOURCES"] = json.dumps({"inbox": str(inbox)})
    (inbox / "a.csv").write_text("email,name\na@x.org,A\n")
    for _ in range(2):
        tidemill("scan", "nightly")
    (inbox / "b.csv").write_text(WITH_AGE)
    (inbox / "c.csv").write_text(WITH_AGE)
    tidemill("scan", "nightly")
    assert 'Held "b.csv": The columns changed (new: "Age")' in tidemill("scan", "nightly", code=1).out
    said = tidemill("scan", "nightly", "--accept", "b.csv", "--reject", "c.csv").out
    assert "1 submitted" in said
    states = await rows(db, "SELECT path, state FROM tidemill.watch_file ORDER BY path")
    assert states == [("a.csv", "submitted"), ("b.csv", "submitted"), ("c.csv", "failed")]
    assert "need the name of a watch" in tidemill.refuses("scan", "--accept", "b.csv")
    assert 'File "b.csv" of watch "nightly" is not held' in tidemill.refuses("scan", "nightly", "--accept", "b.csv")
