"""The embedded server: shared by the processes of a machine, stopped by the last of them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tidemill.store import embedded

USE = (
    "import sys; from pathlib import Path; from tidemill.store import embedded; "
    "print(embedded.start(Path(sys.argv[1])))"
)


def use(home: Path, then: str = "") -> "subprocess.Popen[str]":
    code = f"{USE}; {then}" if then else USE
    return subprocess.Popen(
        [sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


def servers(home: Path) -> list[int]:
    found = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [process.pid for process in found if str(home / "postgres") in process.info["cmdline"]]


async def test_processes_that_start_at_once_on_an_empty_home_share_one_server(tmp_path: Path) -> None:
    users = [use(tmp_path, "print(flush=True); sys.stdin.read()") for _ in range(3)]
    for user in users:
        assert user.stdout is not None
        assert (await asyncio.to_thread(user.stdout.readline)).startswith("postgresql://")
    assert len(servers(tmp_path)) == 1
    for user in users:
        assert len(servers(tmp_path)) == 1, "somebody still uses it"
        await asyncio.to_thread(user.communicate, "")
        assert user.returncode == 0
    assert servers(tmp_path) == []


async def test_a_killed_user_does_not_keep_the_server_running(tmp_path: Path) -> None:
    killed = use(tmp_path, "print(flush=True); sys.stdin.read()")
    assert killed.stdout is not None
    await asyncio.to_thread(killed.stdout.readline)
    killed.kill()
    await asyncio.to_thread(killed.communicate)
    assert len(servers(tmp_path)) == 1
    await asyncio.to_thread(use(tmp_path).communicate)
    assert servers(tmp_path) == []


def test_whoever_comes_second_to_a_new_machine_waits_for_the_user_that_the_first_one_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [subprocess.CalledProcessError(code, ["useradd"]) for code in (1, 9)]  # it is locked; it is there

    def get_server(*_: object, **__: object) -> str:
        if refusals:
            raise refusals.pop()
        return "a server"

    monkeypatch.setattr(embedded._postgres_server(), "get_server", get_server)
    monkeypatch.setattr(embedded, "USER_WAIT_S", 0)
    assert embedded._made(tmp_path) == "a server"
    refusals += [subprocess.CalledProcessError(6, ["useradd"])] * (embedded.USER_TRIES + 1)
    with pytest.raises(subprocess.CalledProcessError, match="status 6"):
        embedded._made(tmp_path)
