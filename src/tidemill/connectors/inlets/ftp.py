"""A folder of an FTP server: in the clear, with TLS from the first byte (ftps), or once it is asked for (ftpes)."""

import ftplib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from tidemill.connectors.inlets.base import AWAY_S, FolderLike, Found, Pieces, below, size_of
from tidemill.domain.errors import StoreDenied, StoreUnavailable, TidemillError, UnknownFile, Unreachable
from tidemill.domain.watching import Entry, HostAddress

PIECE = 256 << 10
MOMENT = len("20261115120000")
_NOT_LOGGED_IN, _NO_SUCH_FILE = ("530", "532", "331", "332"), ("450", "550")
_UNKNOWN_COMMAND = ("500", "501", "502", "504")


class _Tls(ftplib.FTP_TLS):
    """Data goes through the session of the control connection, which many servers insist on."""

    def ntransfercmd(self, cmd: str, rest: Any = None) -> tuple[Any, int | None]:
        data, size = ftplib.FTP.ntransfercmd(self, cmd, rest)  # noqa: S321  and wrapped below
        if self._prot_p:  # type: ignore[attr-defined]
            session = self.sock.session if isinstance(self.sock, ssl.SSLSocket) else None
            data = self.context.wrap_socket(data, server_hostname=self.host, session=session)
        return data, size


class _ImplicitTls(_Tls):
    """TLS from the first byte on."""

    def connect(self, host: str = "", port: int = 0, *_: Any, **__: Any) -> str:
        self.host, self.port = host, port
        plain = socket.create_connection((host, port), AWAY_S)
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
        """Some servers will not hear of it where all is encrypted anyway: so is the data, or nothing is transferred."""
        try:
            return super().prot_p()
        except ftplib.error_perm as error:
            self._prot_p = True
            return str(error)


_CLIENTS: dict[str, type[_Tls]] = {"ftps": _ImplicitTls, "ftpes": _Tls}


class FtpInlet(FolderLike):
    """Passive mode only: it passes through what stands between."""

    def __init__(self, address: HostAddress, password: str | None, ca_file: str | None = None) -> None:
        self._address = address
        self._tls = ssl.create_default_context(cafile=ca_file) if address.scheme in _CLIENTS else None
        with self._in_our_words(""):
            self._ftp = self._connected(password)

    def close(self) -> None:
        with suppress(OSError, EOFError, ftplib.Error):
            self._ftp.quit()
        self._ftp.close()

    def children(self, folder: str) -> Iterator[Found]:
        with self._in_our_words(folder):
            listed = self._listed(folder)
        for name, facts in listed:
            kind, path = facts.get("type", "file"), below(folder, name)
            if kind in ("cdir", "pdir"):
                continue
            if kind == "dir":
                yield Found(Entry(path, None, ""), is_folder=True)
            elif kind == "file":
                yield Found(_entry(path, facts.get("size"), facts.get("modify")))
            else:
                yield Found(Entry(path, None, facts.get("modify", ""), "it is not a file"))

    def look(self, path: str) -> Entry | None:
        try:
            with self._in_our_words(path):
                self._ftp.voidcmd("TYPE I")
                size = self._said("SIZE", path)
                return _entry(path, size, self._said("MDTM", path))
        except UnknownFile:
            return None

    def read(self, path: str) -> Pieces:
        with self._in_our_words(path):
            self._ftp.voidcmd("TYPE I")
            is_whole = False
            try:
                with self._ftp.transfercmd(f"RETR {_wire(self._full(path))}") as data:
                    while piece := data.recv(PIECE):
                        yield piece
                is_whole = True
            finally:
                if not is_whole:  # what the server says of that must not be taken for its next answer
                    with suppress(OSError, EOFError, ftplib.Error):
                        self._ftp.voidresp()
            self._ftp.voidresp()

    def rename(self, path: str, to: str) -> None:
        with self._in_our_words(path):
            self._make_folders(to)
            self._ftp.rename(_wire(self._full(path)), _wire(self._full(to)))

    def _connected(self, password: str | None) -> ftplib.FTP:
        # Bytes as they are: names that are no UTF-8 must not end the listing of the others.
        options: dict[str, Any] = {"timeout": AWAY_S, "encoding": "latin-1"}
        made = _CLIENTS.get(self._address.scheme)
        ftp = ftplib.FTP(**options) if made is None else made(context=self._tls, **options)  # noqa: S321  as declared
        try:
            ftp.connect(self._address.host, self._address.port)
            ftp.login(self._address.user or "anonymous", password or "")
            if isinstance(ftp, _Tls):
                ftp.prot_p()
        except BaseException:
            ftp.close()
            raise
        with suppress(ftplib.Error):
            ftp.sendcmd("OPTS UTF8 ON")
        return ftp

    def _listed(self, folder: str) -> list[tuple[str, dict[str, str]]]:
        path = _wire(self._full(folder))
        try:
            return [_listing_line(line) for line in self._lines("MLSD", path)]
        except ftplib.error_perm as error:
            if not str(error).startswith(_UNKNOWN_COMMAND):
                raise
        # An old server: names alone, and a question for each. What has no size is no file.
        names = [_name(line.rpartition("/")[2]) for line in self._lines("NLST", path)]
        self._ftp.voidcmd("TYPE I")
        return [(name, facts) for name in names if (facts := self._facts(below(folder, name))) is not None]

    def _lines(self, command: str, path: str) -> list[str]:
        """A server may take its time with each of them."""
        lines: list[str] = []

        def keep(line: str) -> None:
            self.insist()
            lines.append(line)

        self._ftp.retrlines(f"{command} {path}" if path else command, keep)
        return lines

    def _facts(self, path: str) -> dict[str, str] | None:
        self.insist()
        try:
            return {"size": self._said("SIZE", path), "modify": self._said("MDTM", path)}
        except ftplib.error_perm:
            return None

    def _said(self, command: str, path: str) -> str:
        return self._ftp.sendcmd(f"{command} {_wire(self._full(path))}")[4:].strip()

    def _make_folders(self, to: str) -> None:
        parts = to.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            with suppress(ftplib.error_perm):  # it is there; if it is not, the rename says so
                self._ftp.mkd(_wire(self._full("/".join(parts[:end]))))

    def _full(self, path: str) -> str:
        return below(self._address.path, path) if path else self._address.path

    @contextmanager
    def _in_our_words(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, ftplib.Error, ValueError) as error:
            raise self._told(error, path) from None

    def _told(self, error: Exception, path: str) -> TidemillError:
        """In words that no server chose: its own could be anything."""
        code = str(error)[:3] if isinstance(error, ftplib.Error) else ""
        what: Callable[[str], TidemillError]
        match error:
            case ssl.SSLCertVerificationError():
                what, why = StoreDenied, f"its certificate is not valid: {error.verify_message}"
            case ssl.SSLError():
                what, why = Unreachable, "it does not speak TLS as it should"
            case ftplib.error_perm() if code in _NOT_LOGGED_IN:
                what, why = StoreDenied, "the user or the password is wrong"
            case ftplib.error_perm() | ftplib.error_temp() if code in _NO_SUCH_FILE:
                what, why = UnknownFile, f"there is no {path or 'such folder'}, or not for us ({code})"
            case ftplib.Error():
                what, why = StoreUnavailable, f"the server refuses ({code})"
            case TimeoutError():
                what, why = Unreachable, "it does not answer in time"
            case _:
                what, why = Unreachable, f"the connection failed: {getattr(error, 'strerror', None) or 'it was closed'}"
        return what(f"{self._address}: {why}")


def _listing_line(line: str) -> tuple[str, dict[str, str]]:
    """``type=file;size=1;modify=20261115120000; a name``, as RFC 3659 has it."""
    facts, _, name = line.rstrip("\r\n").partition(" ")
    pairs = (fact.partition("=") for fact in facts.removesuffix(";").split(";"))
    return _name(name), {key.lower(): value for key, _, value in pairs}


def _entry(path: str, size: str | None, modified: str | None) -> Entry:
    """Parts of a second, which some servers have in a listing and not in an answer, are left out of the version."""
    text = modified or ""
    return Entry(path, size_of(size), text[:MOMENT], changed=_changed(text))


def _changed(text: str) -> float | None:
    try:
        moment = datetime.strptime(text[:MOMENT], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        return moment.timestamp() + float(f"0{text[MOMENT:]}")
    except (ValueError, OverflowError):
        return None


def _wire(path: str) -> str:
    """UTF-8, in the disguise in which bytes go through the client as they are."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")


def _name(wire: str) -> str:
    return wire.encode("latin-1").decode("utf-8", "surrogateescape")
