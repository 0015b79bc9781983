"""The watch source for a folder on an FTP server: without TLS, with implicit TLS (ftps) or explicit TLS (ftpes)."""

import ftplib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from tidemill.core.errors import RemoteUnreachable, StorageAccessDenied, StorageUnavailable, TidemillError, UnknownFile
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import (
    SERVER_SILENCE_TIMEOUT_S,
    ByteChunks,
    FolderChild,
    FolderTreeSource,
    join_path,
    parse_reported_file_size,
)
from tidemill.watches.watch import HostAddress

FTP_READ_BYTES = 256 << 10
FTP_TIMESTAMP_CHARS = len("20261115120000")
_LOGIN_FAILED_CODES, _NO_SUCH_FILE_CODES = ("530", "532", "331", "332"), ("450", "550")
_UNKNOWN_COMMAND_CODES = ("500", "501", "502", "504")


class _FtpTls(ftplib.FTP_TLS):
    """Reuses the TLS session of the control connection for data, which many servers require."""

    def ntransfercmd(self, cmd: str, rest: Any = None) -> tuple[Any, int | None]:
        data, size = ftplib.FTP.ntransfercmd(self, cmd, rest)  # noqa: S321  wrapped in TLS below
        if self._prot_p:  # type: ignore[attr-defined]
            session = self.sock.session if isinstance(self.sock, ssl.SSLSocket) else None
            data = self.context.wrap_socket(data, server_hostname=self.host, session=session)
        return data, size


class _ImplicitFtpTls(_FtpTls):
    """Implicit TLS: the connection is encrypted from the first byte."""

    def connect(self, host: str = "", port: int = 0, *_: Any, **__: Any) -> str:
        self.host, self.port = host, port
        plain = socket.create_connection((host, port), SERVER_SILENCE_TIMEOUT_S)
        self.af = plain.family
        try:
            self.sock = self.context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
        self.file = self.sock.makefile("r", encoding=self.encoding)
        self.welcome = self.getresp()
        return self.welcome

    def prot_p(self) -> str:
        """Request encrypted data connections. Encrypt them even if the server rejects the command.

        Some servers reject it with implicit TLS, because they encrypt data connections anyway.
        """
        try:
            return super().prot_p()
        except ftplib.error_perm as error:
            self._prot_p = True
            return str(error)


_FTP_TLS_CLIENTS: dict[str, type[_FtpTls]] = {"ftps": _ImplicitFtpTls, "ftpes": _FtpTls}


class FtpWatchSource(FolderTreeSource):
    """A folder on an FTP server. Uses passive mode only, which works through firewalls and NAT."""

    def __init__(self, address: HostAddress, password: str | None, ca_file: str | None = None) -> None:
        self._address = address
        self._tls = ssl.create_default_context(cafile=ca_file) if address.scheme in _FTP_TLS_CLIENTS else None
        with self._translate_errors(""):
            self._ftp = self._connect(password)

    def close(self) -> None:
        with suppress(OSError, EOFError, ftplib.Error):
            self._ftp.quit()
        self._ftp.close()

    def list_children(self, folder: str) -> Iterator[FolderChild]:
        with self._translate_errors(folder):
            listed = self._list_folder_entries(folder)
        for name, facts in listed:
            kind, path = facts.get("type", "file"), join_path(folder, name)
            if kind in ("cdir", "pdir"):
                continue
            if kind == "dir":
                yield FolderChild(ListedFile(path, None, ""), is_folder=True)
            elif kind == "file":
                yield FolderChild(_make_listed_file(path, facts.get("size"), facts.get("modify")))
            else:
                yield FolderChild(ListedFile(path, None, facts.get("modify", ""), "Not a regular file"))

    def find_file(self, path: str) -> ListedFile | None:
        try:
            with self._translate_errors(path):
                self._ftp.voidcmd("TYPE I")
                size = self._query_server_fact("SIZE", path)
                return _make_listed_file(path, size, self._query_server_fact("MDTM", path))
        except UnknownFile:
            return None

    def read(self, path: str) -> ByteChunks:
        with self._translate_errors(path):
            self._ftp.voidcmd("TYPE I")
            is_complete = False
            try:
                with self._ftp.transfercmd(f"RETR {_to_latin1_wire_path(self._build_full_path(path))}") as data:
                    while piece := data.recv(FTP_READ_BYTES):
                        yield piece
                is_complete = True
            finally:
                if not is_complete:  # read the reply to the aborted transfer, so that the next command does not
                    with suppress(OSError, EOFError, ftplib.Error):
                        self._ftp.voidresp()
            self._ftp.voidresp()

    def rename(self, path: str, to: str) -> None:
        with self._translate_errors(path):
            self._make_parent_folders(to)
            self._ftp.rename(
                _to_latin1_wire_path(self._build_full_path(path)), _to_latin1_wire_path(self._build_full_path(to))
            )

    def _connect(self, password: str | None) -> ftplib.FTP:
        # latin-1 preserves all bytes, so a name that is not valid UTF-8 does not fail the listing.
        options: dict[str, Any] = {"timeout": SERVER_SILENCE_TIMEOUT_S, "encoding": "latin-1"}
        tls_class = _FTP_TLS_CLIENTS.get(self._address.scheme)
        # The scheme "ftp" declares a source without TLS.
        ftp = ftplib.FTP(**options) if tls_class is None else tls_class(context=self._tls, **options)  # noqa: S321
        try:
            ftp.connect(self._address.host, self._address.port)
            ftp.login(self._address.user or "anonymous", password or "")
            if isinstance(ftp, _FtpTls):
                ftp.prot_p()
        except BaseException:
            ftp.close()
            raise
        with suppress(ftplib.Error):
            ftp.sendcmd("OPTS UTF8 ON")
        return ftp

    def _list_folder_entries(self, folder: str) -> list[tuple[str, dict[str, str]]]:
        path = _to_latin1_wire_path(self._build_full_path(folder))
        try:
            return [_parse_mlsd_line(line) for line in self._retrieve_listing_lines("MLSD", path)]
        except ftplib.error_perm as error:
            if not str(error).startswith(_UNKNOWN_COMMAND_CODES):
                raise
        # Servers without MLSD list only names. Query each name; entries without a size are not files.
        names = [_from_latin1_wire_name(line.rpartition("/")[2]) for line in self._retrieve_listing_lines("NLST", path)]
        self._ftp.voidcmd("TYPE I")
        return [
            (name, facts) for name in names if (facts := self._query_size_and_time(join_path(folder, name))) is not None
        ]

    def _retrieve_listing_lines(self, command: str, path: str) -> list[str]:
        """Return the lines of a listing. Check for interruption at each line, because servers can be slow."""
        lines: list[str] = []

        def append_line(line: str) -> None:
            self.raise_if_interrupted()
            lines.append(line)

        self._ftp.retrlines(f"{command} {path}" if path else command, append_line)
        return lines

    def _query_size_and_time(self, path: str) -> dict[str, str] | None:
        self.raise_if_interrupted()
        try:
            return {"size": self._query_server_fact("SIZE", path), "modify": self._query_server_fact("MDTM", path)}
        except ftplib.error_perm:
            return None

    def _query_server_fact(self, command: str, path: str) -> str:
        return self._ftp.sendcmd(f"{command} {_to_latin1_wire_path(self._build_full_path(path))}")[4:].strip()

    def _make_parent_folders(self, to: str) -> None:
        parts = to.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            with suppress(ftplib.error_perm):  # the folder probably exists; if not, the rename reports an error
                self._ftp.mkd(_to_latin1_wire_path(self._build_full_path("/".join(parts[:end]))))

    def _build_full_path(self, path: str) -> str:
        return join_path(self._address.path, path) if path else self._address.path

    @contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, ftplib.Error, ValueError) as error:
            raise self._translate_ftp_error(error, path) from None

    def _translate_ftp_error(self, error: Exception, path: str) -> TidemillError:
        """Return the error with Tidemill's own message, because a server's message may contain anything."""
        code = str(error)[:3] if isinstance(error, ftplib.Error) else ""
        make_error: Callable[[str], TidemillError]
        match error:
            case ssl.SSLCertVerificationError():
                make_error, reason = StorageAccessDenied, f"invalid certificate: {error.verify_message}"
            case ssl.SSLError():
                make_error, reason = RemoteUnreachable, "TLS connection failed"
            case ftplib.error_perm() if code in _LOGIN_FAILED_CODES:
                make_error, reason = StorageAccessDenied, "wrong user name or password"
            case ftplib.error_perm() | ftplib.error_temp() if code in _NO_SUCH_FILE_CODES:
                missing = f'"{path}"' if path else "the folder"
                make_error, reason = UnknownFile, f"{missing} does not exist, or permission denied ({code})"
            case ftplib.Error():
                make_error, reason = StorageUnavailable, f"the server returned an error ({code})"
            case TimeoutError():
                make_error, reason = RemoteUnreachable, "the server did not respond in time"
            case _:
                cause = getattr(error, "strerror", None) or "closed by the server"
                make_error, reason = RemoteUnreachable, f"connection failed: {cause}"
        return make_error(f"{self._address}: {reason}")


def _parse_mlsd_line(line: str) -> tuple[str, dict[str, str]]:
    """Return the name and the facts of a line such as ``type=file;size=1;modify=20261115120000; a name`` (RFC 3659)."""
    facts, _, name = line.rstrip("\r\n").partition(" ")
    pairs = (fact.partition("=") for fact in facts.removesuffix(";").split(";"))
    return _from_latin1_wire_name(name), {key.lower(): value for key, _, value in pairs}


def _make_listed_file(path: str, size: str | None, modified: str | None) -> ListedFile:
    """Return the entry. Its version has no fractions of a second, which some servers return only in listings."""
    text = modified or ""
    return ListedFile(
        path, parse_reported_file_size(size), text[:FTP_TIMESTAMP_CHARS], changed_at=_parse_epoch_seconds(text)
    )


def _parse_epoch_seconds(text: str) -> float | None:
    try:
        moment = datetime.strptime(text[:FTP_TIMESTAMP_CHARS], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        return moment.timestamp() + float(f"0{text[FTP_TIMESTAMP_CHARS:]}")
    except (ValueError, OverflowError):
        return None


def _to_latin1_wire_path(path: str) -> str:
    """Return the UTF-8 bytes of the path decoded as latin-1, so that the client sends them unchanged."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")


def _from_latin1_wire_name(wire: str) -> str:
    return wire.encode("latin-1").decode("utf-8", "surrogateescape")
