"""Watches that submit match jobs."""

import json

import pytest

from support import rows
from tidemill.core.principal import Role
from tidemill.store import users
from tidemill.watches.file_state import FileState
from watches.scenes import Scene

pytestmark = pytest.mark.needs_feature("enrichment")

SERVICES = """
[services.names]
url = "https://recon.example/api"
use = ["user"]
[services.secret]
url = "https://intern.example/api"
"""


def matching(kind: str = "match", service: str = "names", query: str = "name") -> str:
    return f'job = {{ kind = "{kind}", params = {{ service = "{service}", query = "{query}" }} }}'


@pytest.mark.parametrize("kind", ["match", "tidemill.match"])
async def test_watched_file_rows_are_submitted_as_match_job(scene: Scene, kind: str) -> None:
    scene.declare(matching(kind), SERVICES)
    scene.put("a.csv")
    assert (await scene.scan(times=2)).result.submitted == 1
    jobs = await rows(scene.db, "SELECT kind, params ->> 'query', source FROM tidemill.job")
    assert jobs[0][:2] == ("tidemill.match", "name")
    assert "a.csv" in json.dumps(jobs[0][2])


async def test_file_without_query_column_is_rejected_and_others_continue(scene: Scene) -> None:
    scene.declare(matching(), SERVICES)
    scene.put("a.csv")
    scene.put("b.csv", "nmae\nAda\n")
    assert (await scene.scan(times=2)).result.submitted == 1
    file = (await scene.files())["b.csv"]
    assert file.state is FileState.REJECTED
    assert "did you mean" in str(file.note)


async def test_watch_with_forbidden_service_reports_problem_and_files_wait(scene: Scene) -> None:
    await scene.db.run(users.add_user, "ada", Role.USER)
    scene.declare('owner = "ada"', matching(service="secret"), SERVICES)
    scene.put("a.csv")
    assert 'unknown service "secret"' in str((await scene.scan(times=2)).result.problem)
    assert await scene.states() == {"a.csv": FileState.SEEN}
