"""A folder of an SFTP server. Its host key must be known."""

import asyncio
import stat
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tidemill.connectors.inlets.base import AWAY_S, FolderLike, Found, Pieces, below
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable, TidemillError, UnknownFile, Unreachable
from tidemill.domain.watching import Entry, HostAddress

try:
    import asyncssh
except ImportError as error:  # pragma: no cover  the extra is there in every test
    raise InvalidInput("sftp needs the extra: pip install 'tidemill[sftp]'") from error

T = TypeVar("T")
PIECE = 256 << 10
LISTING_S = 120.0  # a folder may have very many files
_FOLDER, _FILE, _LINK = asyncssh.FILEXFER_TYPE_DIRECTORY, asyncssh.FILEXFER_TYPE_REGULAR, asyncssh.FILEXFER_TYPE_SYMLINK


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """How we prove who we are; ``known_hosts`` is how the server does."""

    known_hosts: Path
    password: str | None = None
    key: str | None = None
    passphrase: str | None = None


class SftpInlet(FolderLike):
    """Blocking, like all inlets: the client runs in an event loop of its own, only while something is asked."""

    def __init__(self, address: HostAddress, keys: Keys) -> None:
        self._address = address
        self._runner = asyncio.Runner()
        try:
            with self._in_our_words(""):
                self._connection, self._sftp = self._run(self._connect(keys))
        except BaseException:
            self._runner.close()
            raise

    def close(self) -> None:
        with suppress(OSError, asyncssh.Error, TimeoutError, RuntimeError):
            self._run(self._disconnect())
        self._runner.close()

    def children(self, folder: str) -> Iterator[Found]:
        with self._in_our_words(folder):
            listed = self._run(self._sftp.readdir(self._full(folder) or "."), LISTING_S)
        for one in listed:
            name, attrs = str(one.filename), one.attrs
            if name in (".", ".."):
                continue
            path = below(folder, name)
            if _kind(attrs) == _LINK:  # where it leads is the server's to say: it keeps to what we may see
                found = self.look(path)
                if found is not None:
                    yield Found(found)
            else:
                yield Found(_entry(path, attrs), is_folder=_kind(attrs) == _FOLDER)

    def look(self, path: str) -> Entry | None:
        try:
            with self._in_our_words(path):
                return _entry(path, self._run(self._sftp.stat(self._full(path))))
        except UnknownFile:
            return None

    def read(self, path: str) -> Pieces:
        with self._in_our_words(path):
            file = self._run(self._open(path))
            try:
                while piece := self._run(file.read(PIECE)):
                    assert isinstance(piece, bytes)  # noqa: S101  it was opened so
                    yield piece
            finally:
                with suppress(OSError, asyncssh.Error):
                    self._run(file.close())

    def rename(self, path: str, to: str) -> None:
        with self._in_our_words(path):
            self._run(self._sftp.makedirs(self._full(to).rpartition("/")[0] or ".", exist_ok=True))
            self._run(self._sftp.rename(self._full(path), self._full(to)))

    async def _open(self, path: str) -> asyncssh.SFTPClientFile:
        return await self._sftp.open(self._full(path), "rb")

    def _full(self, path: str) -> str:
        return below(self._address.path, path) if path else self._address.path

    def _run(self, asked: Coroutine[Any, Any, T], seconds: float = AWAY_S) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(seconds):
                return await asked

        return self._runner.run(in_time())

    async def _connect(self, keys: Keys) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        """Nothing of whoever runs us: not their agent, not their keys, not their settings."""
        if not keys.known_hosts.is_file():
            raise StoreDenied(
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
            connect_timeout=AWAY_S,
            keepalive_interval=AWAY_S,
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
    def _in_our_words(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, asyncssh.Error, asyncssh.KeyImportError, TimeoutError) as error:
            raise self._told(error, path) from None

    def _told(self, error: Exception, path: str) -> TidemillError:
        """In words that no server chose: its own could be anything."""
        match error:
            case asyncssh.HostKeyNotVerifiable():
                kind, why = StoreDenied, "its host key is not among the known hosts"
            case asyncssh.PermissionDenied():
                kind, why = StoreDenied, "the user, the password or the key is wrong"
            case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
                kind, why = StoreDenied, "the private key cannot be read, or needs another passphrase"
            case asyncssh.SFTPNoSuchFile() | asyncssh.SFTPNoSuchPath():
                return UnknownFile(f"{self._address}: there is no {path or 'such folder'}")
            case asyncssh.SFTPPermissionDenied():
                kind, why = StoreDenied, f"{path or 'the folder'} is not for us"
            case asyncssh.SFTPError():
                return StoreUnavailable(f"{self._address}: the server refuses ({type(error).__name__})")
            case TimeoutError():
                return Unreachable(f"{self._address}: it does not answer in time")
            case asyncssh.Error():
                return Unreachable(f"{self._address}: the connection failed ({type(error).__name__})")
            case _:
                words = getattr(error, "strerror", None) or "it was closed"
                return Unreachable(f"{self._address}: the connection failed: {words}")
        return kind(f"{self._address}: {why}")


def _kind(attrs: asyncssh.SFTPAttrs) -> int:
    """Version 3 of the protocol, which nearly all speak, has it in the permissions only."""
    if attrs.type != asyncssh.FILEXFER_TYPE_UNKNOWN or attrs.permissions is None:
        return attrs.type
    kinds = {stat.S_IFDIR: _FOLDER, stat.S_IFREG: _FILE, stat.S_IFLNK: _LINK}
    return kinds.get(stat.S_IFMT(attrs.permissions), asyncssh.FILEXFER_TYPE_SPECIAL)


def _entry(path: str, attrs: asyncssh.SFTPAttrs) -> Entry:
    version = f"{attrs.mtime or 0}" + (f".{attrs.mtime_ns:09}" if attrs.mtime_ns else "")
    refused = None if _kind(attrs) in (_FILE, asyncssh.FILEXFER_TYPE_UNKNOWN) else "it is not a file"
    changed = None if attrs.mtime is None else attrs.mtime + (attrs.mtime_ns or 0) / 1e9
    return Entry(path, attrs.size, version, refused, changed)
