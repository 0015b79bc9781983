"""From what people write in a ``tidemill.toml`` to watches: every mistake is told, with the path to it."""

import re
from collections.abc import Mapping
from typing import Any, get_args

from tidemill.domain import enriching, matching
from tidemill.domain.declaration import values
from tidemill.domain.declaration.section import Section
from tidemill.domain.errors import InvalidInput
from tidemill.domain.handler import OWN_KINDS
from tidemill.domain.importing import ImportRequest
from tidemill.domain.importing.plan import Duplicates, Mode
from tidemill.domain.place import BucketPlace
from tidemill.domain.policy import FailurePolicy
from tidemill.domain.watching.address import Address, FolderAddress, HostAddress, LinksAddress, parse_address
from tidemill.domain.watching.names import Pattern
from tidemill.domain.watching.times import seconds_of
from tidemill.domain.watching.watch import Access, ImportTask, JobTask, Watch

LEAST_EVERY_S = 1.0
OURS = "TIDEMILL_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_PLACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}").fullmatch


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("a table is wanted")  # noqa: TRY004  as for every other mistake
    return dict(value)


def _mapping(value: Any) -> dict[str, str]:
    found = _table(value)
    if not all(isinstance(one, str) for one in found.values()):
        raise ValueError('a table of columns and fields is wanted: { "E-Mail" = "email" }')
    return found


def _variable(value: Any) -> str:
    name = values.text(value)
    if not _VARIABLE(name):
        raise ValueError("the name of an environment variable is wanted, and not what is in it")
    if name.upper().startswith(OURS):
        raise ValueError(f"names that begin with {OURS} are settings: call it otherwise")
    return name


def _every(value: Any) -> float | None:
    if value == "manual":
        return None
    seconds = seconds_of(values.text(value))
    if seconds < LEAST_EVERY_S:
        raise ValueError(f"at least {LEAST_EVERY_S:g}s, or manual")
    return seconds


def _globs(value: Any) -> Pattern:
    given = values.several(values.text)([value] if isinstance(value, str) else value)
    if any(one.startswith("/") or "//" in one or ".." in one.split("/") for one in given):
        raise ValueError("a pattern is relative to the source, like *.csv or **/*.csv")
    try:
        return Pattern(given)
    except re.error:
        raise ValueError("this is not a pattern, like *.csv") from None


def _marker(value: Any) -> str:
    text = values.text(value)
    if "/" in text or not text.isprintable():
        raise ValueError("an ending is wanted, like .done")
    return text


def _place(value: Any) -> str:
    text = values.text(value)
    if not _PLACE(text):
        raise ValueError("the name of one folder is wanted")
    return text


def _policy(value: Any) -> dict[str, Any]:
    found = _table(value)
    try:
        FailurePolicy.parse(found)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return found


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -100 <= value <= 100:  # noqa: PLR2004
        raise ValueError("a whole number from -100 to 100 is wanted")
    return value


def _kind(value: Any) -> str:
    text = values.text(value)
    if text.startswith(OWN_KINDS) and text not in (matching.KIND, enriching.KIND):
        raise ValueError("jobs of this kind are made by Tidemill itself: for imports there is import")
    return text


def _duration(value: Any) -> float:
    return seconds_of(values.text(value))


_WATCH: dict[str, values.Reader] = {
    "pattern": _globs,
    "owner": values.text,
    "every": _every,
    "marker": _marker,
    "stable_for": _duration,
    "moves": values.flag,
    "processed": _place,
    "failed": _place,
    "layout": _table,
    "policy": _policy,
    "priority": _priority,
}
_ACCESS: dict[str, values.Reader] = {
    **dict.fromkeys(("password_env", "key_env", "passphrase_env", "authorization_env"), _variable),
    **dict.fromkeys(("access_key_env", "secret_key_env"), _variable),
    **dict.fromkeys(("key_file", "known_hosts", "ca_file", "endpoint", "region"), values.text),
}
_FITS: dict[str, tuple[str, ...]] = {
    "ftp": ("password_env",),
    "ftps": ("password_env", "ca_file"),
    "ftpes": ("password_env", "ca_file"),
    "sftp": ("password_env", "key_env", "key_file", "passphrase_env", "known_hosts"),
    "http": ("authorization_env",),
    "s3": ("access_key_env", "secret_key_env", "endpoint", "region"),
}
_JOB: dict[str, values.Reader] = {"kind": _kind, "params": _table}
_IMPORT: dict[str, values.Reader] = {
    "resource": values.text,
    "mode": values.one_of(get_args(Mode)),
    "duplicates": values.one_of(get_args(Duplicates)),
    "mapping": _mapping,
    "key": values.several(values.text),
    "validate_only": values.flag,
    "spreadsheet_safe": values.flag,
    "keep_empty": values.flag,
}


def watches(document: Mapping[str, Any]) -> dict[str, Watch]:
    """The watches in a document, by name; InvalidSettings with everything that is wrong with them."""
    return _Watches().declared(document)


class _Watches(Section[Watch]):
    section = "watches"

    def one(self, path: str, name: str, given: Mapping[str, Any]) -> Watch:
        others = ("source", "index", "job", "import", *_ACCESS)
        said = self.read(path, given, _WATCH, others=others)
        source = self._source(path, given)
        access = self._access(path, given, source)
        if "marker" in given and "stable_for" in given:
            self.wrong(f"{path}.stable_for", "a file with a marker is whole: nothing is waited for")
        if said.get("processed", "processed") == said.get("failed", "failed"):
            self.wrong(f"{path}.failed", "it must be another folder than processed")
        return Watch(name=name, source=source, task=self._task(path, given), access=access, **said)

    def _source(self, path: str, given: Mapping[str, Any]) -> Address:
        is_index = given.get("index", False)
        if not isinstance(is_index, bool):
            self.wrong(f"{path}.index", "true or false is wanted")
        if "source" not in given:
            self.wrong(f"{path}.source", "it is missing: where files come from")
            return FolderAddress("")
        try:
            return parse_address(given["source"], is_index=is_index is True)
        except InvalidInput as error:
            self.wrong(f"{path}.source", str(error))
            return FolderAddress("")

    def _access(self, path: str, given: Mapping[str, Any], source: Address) -> Access:
        said = {key: value for key, value in given.items() if key in _ACCESS}
        kind = _kind_of(source)
        for key in said:
            if key not in _FITS.get(kind, ()) and source != FolderAddress(""):
                self.wrong(f"{path}.{key}", f"a source of the kind {kind} has no use for it")
        found = self.read(path, said, _ACCESS)
        if ("access_key_env" in said) != ("secret_key_env" in said):
            self.wrong(f"{path}.access_key_env", "access_key_env and secret_key_env go together")
        if isinstance(source, HostAddress) and not source.user and source.scheme == "sftp":
            self.wrong(f"{path}.source", "who are you there? sftp://user@host/folder")
        return Access(**found)

    def _task(self, path: str, given: Mapping[str, Any]) -> JobTask | ImportTask:
        if ("job" in given) == ("import" in given):
            self.wrong(path, "say either job or import: what becomes of a file")
            return JobTask(kind="")
        word, readers, needed = ("job", _JOB, "kind") if "job" in given else ("import", _IMPORT, "resource")
        inner = given[word]
        if not isinstance(inner, Mapping):
            self.wrong(f"{path}.{word}", f"a table is wanted: [{path}.{word}]")
            return JobTask(kind="")
        said = self.read(f"{path}.{word}", inner, readers)
        if needed not in inner:
            self.wrong(f"{path}.{word}.{needed}", "it is missing")
        if word == "job":
            return JobTask(**{"kind": ""} | said)
        return ImportTask(resource=said.pop("resource", ""), request=ImportRequest(**said))


def _kind_of(source: Address) -> str:
    match source:
        case HostAddress() | BucketPlace():
            return source.scheme
        case LinksAddress():
            return "http"
        case FolderAddress():
            return "folder"
