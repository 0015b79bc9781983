"""PgBouncer for tests: a pooler that gives each transaction any session of the server."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support import EXIT_TIMEOUT_S, require

PROTOCOL_PREPARE_VERSION = (1, 21)  # the first version with max_prepared_statements


def read_pgbouncer_version() -> tuple[int, int]:
    text = subprocess.run(
        [require("pgbouncer", find_pgbouncer()), "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"PgBouncer (\d+)\.(\d+)", text.stdout)
    assert found is not None, text.stdout
    return int(found[1]), int(found[2])


def find_pgbouncer() -> str | None:
    path = Path("/usr/sbin/pgbouncer")  # not in the PATH of ordinary users
    return str(path) if path.exists() else None


@contextmanager
def run_pgbouncer(url: str, *, sessions: int = 2, max_prepared_statements: int | None = None) -> Iterator[str]:
    """Run PgBouncer in transaction mode before the database of ``url``, and yield the URL to use instead."""
    program, server = require("pgbouncer", find_pgbouncer()), conninfo_to_dict(url)
    prepared = "" if max_prepared_statements is None else f"max_prepared_statements = {max_prepared_statements}\n"
    user, name, host = server["user"], server["dbname"], server["host"]
    # PgBouncer does not run as root: it runs as the user that runs PostgreSQL, who can open both sockets. The folders
    # above the data folder may belong to root, so the path leads through the current folder of the server.
    postmaster = _read_postmaster_pid(url)
    owner = psutil.Process(postmaster).username()
    if os.getuid() == 0:
        host = f"/proc/{postmaster}/cwd"
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as folder:
        shutil.chown(folder, owner)
        ini = Path(folder) / "pgbouncer.ini"
        ini.write_text(
            f"[databases]\n{name} = host={host} port={server.get('port', 5432)} user={user}\n"
            f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\n"
            f"default_pool_size = {sessions}\nmax_client_conn = 200\n{prepared}"
        )
        account = ["-u", owner] if os.getuid() == 0 else []
        process = subprocess.Popen([program, "-q", *account, str(ini)], stderr=subprocess.DEVNULL)
        try:
            _wait_for_socket(Path(folder) / ".s.PGSQL.6432")
            yield make_conninfo("", dbname=name, host=folder, port=6432, user=user)
        finally:
            process.terminate()
            process.wait(EXIT_TIMEOUT_S)


def _read_postmaster_pid(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        return int(psutil.Process(row[0]).ppid())


def _wait_for_socket(path: Path) -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline, "PgBouncer did not start"
        time.sleep(0.02)
