"""A feature of another distribution: installed, it adds a kind, a route, a command and a configuration section."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/tidemill_greetings"
RUN_AS_USER = """
import asyncio, json
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import load_settings
from tidemill.core.principal import Role
from tidemill.http.application import create_api
from tidemill.accounts import use_cases as accounts
from tidemill.jobs import queries
from tidemill.store.open_database import open_database
from tidemill.testing import drain
import httpx2

async def main():
    settings, mill = load_settings(), Mill()
    async with open_database(settings) as db:
        await accounts.add_user(db, "ada", Role.USER)
        key = (await accounts.add_key(db, "ada"))[0]
        runtime = make_runtime(db, settings, mill.registry)
        app = create_api(runtime)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://tidemill", headers={"authorization": f"Bearer {key}"}
        ) as client:
            paths = (await client.get("/v1/openapi.json")).json()["paths"]
            answer = await client.get("/v1/greetings/Ada", params={"language": "french"})
            unknown = await client.get("/v1/greetings/Ada", params={"language": "klingon"})
        await drain(mill, db=db)
        (job,) = await queries.list_newest_jobs(db, 10)
        results = [item["result"] async for item in queries.iterate_items(db, job.id, None, limit=10)]
    print(json.dumps([list(paths), answer.json(), unknown.status_code, job.status, results]))

asyncio.run(main())
"""

LOAD_RESOURCES = """
from tidemill.app.runtime_factory import make_runtime
from tidemill.config import load_settings
from tidemill.tables.resource_registry import make_resource_registry
make_runtime(None, load_settings()).get(make_resource_registry)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example is installed into."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(EXAMPLE)], check=True, capture_output=True, timeout=120)
    return folder


class Installation:
    """Runs Python and commands with the example installed."""

    def __init__(self, site: Path, folder: Path, database_url: str) -> None:
        self.folder = folder
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{site}:{':'.join(path for path in sys.path if path.endswith('/src'))}",
            "TIDEMILL_DATABASE_URL": database_url,
            "TIDEMILL_HOME": str(folder),
            "COLUMNS": "200",
        }

    def run(self, *arguments: str, code: int = 0, disabled: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment | {"TIDEMILL_DISABLED_FEATURES": disabled},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def installation(installed: Path, tmp_path: Path, tidemill_database: str) -> Installation:
    (tmp_path / "tidemill.toml").write_text('[greetings.french]\ntext = "Bonjour, {name} !"\n')
    return Installation(installed, tmp_path, tidemill_database)


def test_installed_feature_adds_command_route_kind_and_section(installation: Installation) -> None:
    assert "greet " in installation.run("-m", "tidemill", "--help")
    installation.run("-m", "tidemill", "greet", "Ada", "Grace", "--language", "french")
    paths, answer, unknown_status, job_status, results = json.loads(installation.run("-c", RUN_AS_USER))
    assert "/v1/greetings/{name}" in paths
    assert answer == {"greeting": "Bonjour, Ada !"}
    assert unknown_status == 404
    assert job_status == "completed"
    assert results == [{"greeting": "Bonjour, Ada !"}, {"greeting": "Bonjour, Grace !"}]


def test_disabled_feature_adds_nothing_and_its_section_is_an_error(installation: Installation) -> None:
    assert "greet " not in installation.run("-m", "tidemill", "--help", disabled="greetings")
    message = installation.run("-c", LOAD_RESOURCES, code=1, disabled="greetings")
    assert 'greetings: The feature "greetings" is disabled' in message


def test_section_of_feature_that_is_not_installed_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("[greetings.french]\n")
    message = Installation(tmp_path, tmp_path, "postgresql://nowhere").run("-c", LOAD_RESOURCES, code=1)
    assert "greetings: Unknown section" in message
