"""Watches whose files are matched by a service."""

import json

import pytest

from ingestion.scenes import Scene
from support import rows
from tidemill.domain.identity import Role
from tidemill.domain.watching import FileState
from tidemill.store import users

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
async def test_the_rows_of_a_file_are_matched(scene: Scene, kind: str) -> None:
    scene.declare(matching(kind), SERVICES)
    scene.put("a.csv")
    assert (await scene.scan(times=2)).came.submitted == 1
    made = await rows(scene.db, "SELECT kind, params ->> 'query', source FROM tidemill.job")
    assert made[0][:2] == ("tidemill.match", "name")
    assert "a.csv" in json.dumps(made[0][2])


async def test_a_file_without_the_column_that_is_asked_for_fails_and_the_others_go_on(scene: Scene) -> None:
    scene.declare(matching(), SERVICES)
    scene.put("a.csv")
    scene.put("b.csv", "nmae\nAda\n")
    assert (await scene.scan(times=2)).came.submitted == 1
    file = (await scene.files())["b.csv"]
    assert file.state is FileState.REJECTED
    assert "did you mean" in str(file.note)


async def test_a_service_that_its_owner_may_not_use_is_a_problem_of_the_watch(scene: Scene) -> None:
    await scene.db.run(users.add, "ada", Role.USER)
    scene.declare('owner = "ada"', matching(service="secret"), SERVICES)
    scene.put("a.csv")
    assert "there is no service 'secret'" in str((await scene.scan(times=2)).came.problem)
    assert await scene.states() == {"a.csv": FileState.SEEN}
