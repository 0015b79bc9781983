"""The watch source for a folder on an SFTP server, whose host key must be known."""

import asyncio
import stat
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidemill.core.errors import (
    InvalidInput,
    RemoteUnreachable,
    StorageAccessDenied,
    StorageUnavailable,
    TidemillError,
    UnknownFile,
)
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import (
    SERVER_SILENCE_TIMEOUT_S,
    ByteChunks,
    FolderChild,
    FolderTreeSource,
    join_path,
)
from tidemill.watches.watch import HostAddress

try:
    import asyncssh
except ImportError as error:  # pragma: no cover  every test environment has the extra
    raise InvalidInput("SFTP requires an extra: pip install 'tidemill[sftp]'") from error

T = TypeVar("T")
SFTP_READ_BYTES = 256 << 10
SFTP_LISTING_TIMEOUT_S = 120.0  # listing a folder with many files takes long
_FOLDER_TYPE, _FILE_TYPE, _LINK_TYPE = (
    asyncssh.FILEXFER_TYPE_DIRECTORY,
    asyncssh.FILEXFER_TYPE_REGULAR,
    asyncssh.FILEXFER_TYPE_SYMLINK,
)


@dataclass(frozen=True, slots=True, repr=False)
class SftpCredentials:
    """Credentials of the user, and the file ``known_hosts`` that authenticates the server."""

    known_hosts: Path
    password: str | None = None
    key: str | None = None
    passphrase: str | None = None


class SftpWatchSource(FolderTreeSource):
    """A folder on an SFTP server. Calls block: each runs the client in this object's own event loop."""

    def __init__(self, address: HostAddress, keys: SftpCredentials) -> None:
        self._address = address
        self._runner = asyncio.Runner()
        try:
            with self._translate_errors(""):
                self._connection, self._sftp = self._run_with_timeout(self._connect(keys))
        except BaseException:
            self._runner.close()
            raise

    def close(self) -> None:
        with suppress(OSError, asyncssh.Error, TimeoutError, RuntimeError):
            self._run_with_timeout(self._disconnect())
        self._runner.close()

    def list_children(self, folder: str) -> Iterator[FolderChild]:
        with self._translate_errors(folder):
            listed = self._run_with_timeout(
                self._sftp.readdir(self._build_full_path(folder) or "."), SFTP_LISTING_TIMEOUT_S
            )
        for one in listed:
            name, attrs = str(one.filename), one.attrs
            if name in (".", ".."):
                continue
            path = join_path(folder, name)
            if _get_file_type(attrs) == _LINK_TYPE:  # the server resolves links and enforces permissions
                entry = self.find_file(path)
                if entry is not None:
                    yield FolderChild(entry)
            else:
                yield FolderChild(_make_listed_file(path, attrs), is_folder=_get_file_type(attrs) == _FOLDER_TYPE)

    def find_file(self, path: str) -> ListedFile | None:
        try:
            with self._translate_errors(path):
                return _make_listed_file(path, self._run_with_timeout(self._sftp.stat(self._build_full_path(path))))
        except UnknownFile:
            return None

    def read(self, path: str) -> ByteChunks:
        with self._translate_errors(path):
            file = self._run_with_timeout(self._open_file(path))
            try:
                while piece := self._run_with_timeout(file.read(SFTP_READ_BYTES)):
                    assert isinstance(piece, bytes)  # noqa: S101  the file is opened in binary mode
                    yield piece
            finally:
                with suppress(OSError, asyncssh.Error):
                    self._run_with_timeout(file.close())

    def rename(self, path: str, to: str) -> None:
        with self._translate_errors(path):
            self._run_with_timeout(
                self._sftp.makedirs(self._build_full_path(to).rpartition("/")[0] or ".", exist_ok=True)
            )
            self._run_with_timeout(self._sftp.rename(self._build_full_path(path), self._build_full_path(to)))

    async def _open_file(self, path: str) -> asyncssh.SFTPClientFile:
        return await self._sftp.open(self._build_full_path(path), "rb")

    def _build_full_path(self, path: str) -> str:
        return join_path(self._address.path, path) if path else self._address.path

    def _run_with_timeout(self, operation: Coroutine[Any, Any, T], seconds: float = SERVER_SILENCE_TIMEOUT_S) -> T:
        async def await_operation() -> T:
            async with asyncio.timeout(seconds):
                return await operation

        return self._runner.run(await_operation())

    async def _connect(self, keys: SftpCredentials) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        """Connect with the given credentials only, without the SSH agent, keys and configuration of the local user."""
        if not keys.known_hosts.is_file():
            raise StorageAccessDenied(
                f'{self._address}: cannot verify the host key: known_hosts file "{keys.known_hosts}" does not exist'
            )
        client_keys = [] if keys.key is None else [asyncssh.import_private_key(keys.key, keys.passphrase)]
        connection = await asyncssh.connect(
            self._address.host,
            self._address.port,
            username=self._address.user,
            password=keys.password,
            client_keys=client_keys or None,
            known_hosts=str(keys.known_hosts),
            agent_path=None,
            config=None,
            connect_timeout=SERVER_SILENCE_TIMEOUT_S,
            keepalive_interval=SERVER_SILENCE_TIMEOUT_S,
        )
        try:
            return connection, await connection.start_sftp_client(path_errors="surrogateescape")
        except BaseException:
            connection.abort()
            raise

    async def _disconnect(self) -> None:
        self._sftp.exit()
        self._connection.close()
        await self._connection.wait_closed()

    @contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncssh.Error, asyncssh.KeyImportError, TimeoutError) as error:
            raise self._translate_sftp_error(error, path) from None

    def _translate_sftp_error(self, error: Exception, path: str) -> TidemillError:
        """Return the error with Tidemill's own message, because a server's message may contain anything."""
        target = f'"{path}"' if path else "the folder"
        match error:
            case asyncssh.HostKeyNotVerifiable():
                kind, reason = StorageAccessDenied, "the host key is not in known_hosts"
            case asyncssh.PermissionDenied():
                kind, reason = StorageAccessDenied, "wrong user name, password or key"
            case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
                kind, reason = StorageAccessDenied, "cannot read the private key; check its format and passphrase"
            case asyncssh.SFTPNoSuchFile() | asyncssh.SFTPNoSuchPath():
                return UnknownFile(f"{self._address}: {target} does not exist")
            case asyncssh.SFTPPermissionDenied():
                kind, reason = StorageAccessDenied, f"permission denied for {target}"
            case asyncssh.SFTPError():
                return StorageUnavailable(f"{self._address}: the server returned an error ({type(error).__name__})")
            case TimeoutError():
                return RemoteUnreachable(f"{self._address}: the server did not respond in time")
            case asyncssh.Error():
                return RemoteUnreachable(f"{self._address}: connection failed ({type(error).__name__})")
            case _:
                cause = getattr(error, "strerror", None) or "closed by the server"
                return RemoteUnreachable(f"{self._address}: connection failed: {cause}")
        return kind(f"{self._address}: {reason}")


def _get_file_type(attrs: asyncssh.SFTPAttrs) -> int:
    """Return the file type. Version 3 of the protocol, the most common, has it in the permissions only."""
    if attrs.type != asyncssh.FILEXFER_TYPE_UNKNOWN or attrs.permissions is None:
        return attrs.type
    kinds = {stat.S_IFDIR: _FOLDER_TYPE, stat.S_IFREG: _FILE_TYPE, stat.S_IFLNK: _LINK_TYPE}
    return kinds.get(stat.S_IFMT(attrs.permissions), asyncssh.FILEXFER_TYPE_SPECIAL)


def _make_listed_file(path: str, attrs: asyncssh.SFTPAttrs) -> ListedFile:
    version = f"{attrs.mtime or 0}" + (f".{attrs.mtime_ns:09}" if attrs.mtime_ns else "")
    is_file = _get_file_type(attrs) in (_FILE_TYPE, asyncssh.FILEXFER_TYPE_UNKNOWN)
    refusal = None if is_file else "Not a regular file"
    changed = None if attrs.mtime is None else attrs.mtime + (attrs.mtime_ns or 0) / 1e9
    return ListedFile(path, attrs.size, version, refusal, changed)
