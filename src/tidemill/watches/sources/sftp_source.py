"""A folder of an SFTP server. Its host key must be known."""

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
from tidemill.watches.source_address import HostAddress
from tidemill.watches.sources.watch_source import (
    SERVER_SILENCE_TIMEOUT_S,
    ByteChunks,
    FolderChild,
    FolderTreeSource,
    join_path,
)

try:
    import asyncssh
except ImportError as error:  # pragma: no cover  the extra is there in every test
    raise InvalidInput("sftp needs the extra: pip install 'tidemill[sftp]'") from error

T = TypeVar("T")
SFTP_READ_BYTES = 256 << 10
SFTP_LISTING_TIMEOUT_S = 120.0  # a folder may have very many files
_FOLDER_TYPE, _FILE_TYPE, _LINK_TYPE = (
    asyncssh.FILEXFER_TYPE_DIRECTORY,
    asyncssh.FILEXFER_TYPE_REGULAR,
    asyncssh.FILEXFER_TYPE_SYMLINK,
)


@dataclass(frozen=True, slots=True, repr=False)
class SftpCredentials:
    """How we prove who we are; ``known_hosts`` is how the server does."""

    known_hosts: Path
    password: str | None = None
    key: str | None = None
    passphrase: str | None = None


class SftpWatchSource(FolderTreeSource):
    """Blocking, like all inlets: the client runs in an event loop of its own, only while something is asked."""

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
            listed = self._run_with_timeout(self._sftp.readdir(self._full_path(folder) or "."), SFTP_LISTING_TIMEOUT_S)
        for one in listed:
            name, attrs = str(one.filename), one.attrs
            if name in (".", ".."):
                continue
            path = join_path(folder, name)
            if (
                _read_file_type(attrs) == _LINK_TYPE
            ):  # where it leads is the server's to say: it keeps to what we may see
                found = self.find_entry(path)
                if found is not None:
                    yield FolderChild(found)
            else:
                yield FolderChild(_make_entry(path, attrs), is_folder=_read_file_type(attrs) == _FOLDER_TYPE)

    def find_entry(self, path: str) -> ListedFile | None:
        try:
            with self._translate_errors(path):
                return _make_entry(path, self._run_with_timeout(self._sftp.stat(self._full_path(path))))
        except UnknownFile:
            return None

    def read(self, path: str) -> ByteChunks:
        with self._translate_errors(path):
            file = self._run_with_timeout(self._open_file(path))
            try:
                while piece := self._run_with_timeout(file.read(SFTP_READ_BYTES)):
                    assert isinstance(piece, bytes)  # noqa: S101  it was opened so
                    yield piece
            finally:
                with suppress(OSError, asyncssh.Error):
                    self._run_with_timeout(file.close())

    def rename(self, path: str, to: str) -> None:
        with self._translate_errors(path):
            self._run_with_timeout(self._sftp.makedirs(self._full_path(to).rpartition("/")[0] or ".", exist_ok=True))
            self._run_with_timeout(self._sftp.rename(self._full_path(path), self._full_path(to)))

    async def _open_file(self, path: str) -> asyncssh.SFTPClientFile:
        return await self._sftp.open(self._full_path(path), "rb")

    def _full_path(self, path: str) -> str:
        return join_path(self._address.path, path) if path else self._address.path

    def _run_with_timeout(self, operation: Coroutine[Any, Any, T], seconds: float = SERVER_SILENCE_TIMEOUT_S) -> T:
        async def await_operation() -> T:
            async with asyncio.timeout(seconds):
                return await operation

        return self._runner.run(await_operation())

    async def _connect(self, keys: SftpCredentials) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        """Nothing of whoever runs us: not their agent, not their keys, not their settings."""
        if not keys.known_hosts.is_file():
            raise StorageAccessDenied(
                f"{self._address}: the host key cannot be checked: there is no file {keys.known_hosts} of known hosts"
            )
        mine = [] if keys.key is None else [asyncssh.import_private_key(keys.key, keys.passphrase)]
        connection = await asyncssh.connect(
            self._address.host,
            self._address.port,
            username=self._address.user,
            password=keys.password,
            client_keys=mine or None,
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
        """In words that no server chose: its own could be anything."""
        match error:
            case asyncssh.HostKeyNotVerifiable():
                kind, why = StorageAccessDenied, "its host key is not among the known hosts"
            case asyncssh.PermissionDenied():
                kind, why = StorageAccessDenied, "the user, the password or the key is wrong"
            case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
                kind, why = StorageAccessDenied, "the private key cannot be read, or needs another passphrase"
            case asyncssh.SFTPNoSuchFile() | asyncssh.SFTPNoSuchPath():
                return UnknownFile(f"{self._address}: there is no {path or 'such folder'}")
            case asyncssh.SFTPPermissionDenied():
                kind, why = StorageAccessDenied, f"{path or 'the folder'} is not for us"
            case asyncssh.SFTPError():
                return StorageUnavailable(f"{self._address}: the server refuses ({type(error).__name__})")
            case TimeoutError():
                return RemoteUnreachable(f"{self._address}: it does not answer in time")
            case asyncssh.Error():
                return RemoteUnreachable(f"{self._address}: the connection failed ({type(error).__name__})")
            case _:
                words = getattr(error, "strerror", None) or "it was closed"
                return RemoteUnreachable(f"{self._address}: the connection failed: {words}")
        return kind(f"{self._address}: {why}")


def _read_file_type(attrs: asyncssh.SFTPAttrs) -> int:
    """Version 3 of the protocol, which nearly all speak, has it in the permissions only."""
    if attrs.type != asyncssh.FILEXFER_TYPE_UNKNOWN or attrs.permissions is None:
        return attrs.type
    kinds = {stat.S_IFDIR: _FOLDER_TYPE, stat.S_IFREG: _FILE_TYPE, stat.S_IFLNK: _LINK_TYPE}
    return kinds.get(stat.S_IFMT(attrs.permissions), asyncssh.FILEXFER_TYPE_SPECIAL)


def _make_entry(path: str, attrs: asyncssh.SFTPAttrs) -> ListedFile:
    version = f"{attrs.mtime or 0}" + (f".{attrs.mtime_ns:09}" if attrs.mtime_ns else "")
    refused = None if _read_file_type(attrs) in (_FILE_TYPE, asyncssh.FILEXFER_TYPE_UNKNOWN) else "it is not a file"
    changed = None if attrs.mtime is None else attrs.mtime + (attrs.mtime_ns or 0) / 1e9
    return ListedFile(path, attrs.size, version, refused, changed)
