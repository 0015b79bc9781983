"""Where files come from by themselves: folders, buckets, FTP and SFTP servers, the web."""

import os
from pathlib import Path

from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.connectors.inlets.base import Bounds, Inlet
from tidemill.domain.errors import InvalidInput, StoreDenied
from tidemill.domain.place import BucketPlace
from tidemill.domain.watching import Access, FolderAddress, HostAddress, LinksAddress, Watch

__all__ = ["Bounds", "Inlet", "open_inlet"]
KNOWN_HOSTS = "~/.ssh/known_hosts"


def open_inlet(watch: Watch, settings: Settings) -> Inlet:
    """Connected, to be closed by whoever asked. Blocking: for threads.

    Secrets are read here, from the environment, and nowhere else. Clients are imported where they are needed.
    """
    source, access = watch.source, watch.access
    match source:
        case FolderAddress():
            return _folder(source, settings)
        case BucketPlace():
            return _bucket(source, access)
        case HostAddress(scheme="sftp"):
            return _sftp(source, access, settings)
        case HostAddress():
            from tidemill.connectors.inlets.ftp import FtpInlet  # noqa: PLC0415

            return FtpInlet(source, _secret(access.password_env), access.ca_file)
        case LinksAddress():
            from tidemill.connectors.inlets.http import WebInlet  # noqa: PLC0415
            from tidemill.connectors.remote.limits import RemoteLimits  # noqa: PLC0415

            limits = RemoteLimits.of(settings)
            return WebInlet(source, open_blobs(settings.blobs), limits, _secret(access.authorization_env))


def _folder(source: FolderAddress, settings: Settings) -> Inlet:
    from tidemill.connectors.inlets.folder import FolderInlet  # noqa: PLC0415

    top = settings.sources.get(source.root)
    if top is None:
        raise InvalidInput(f"there is no folder {source.root!r} in TIDEMILL_SOURCES")
    return FolderInlet(top, source.path)


def _bucket(place: BucketPlace, access: Access) -> Inlet:
    from tidemill.connectors.inlets.bucket import BucketInlet, config_of  # noqa: PLC0415

    keys = {"access_key_id": _secret(access.access_key_env), "secret_access_key": _secret(access.secret_key_env)}
    return BucketInlet(place, config_of(keys | {"endpoint": access.endpoint, "region": access.region}))


def _sftp(source: HostAddress, access: Access, settings: Settings) -> Inlet:
    from tidemill.connectors.inlets.sftp import Keys, SftpInlet  # noqa: PLC0415

    hosts = Path(access.known_hosts or settings.known_hosts or KNOWN_HOSTS).expanduser()
    key = _secret(access.key_env) or _file(access.key_file)
    password, passphrase = _secret(access.password_env), _secret(access.passphrase_env)
    return SftpInlet(source, Keys(hosts, password, key, passphrase))


def _secret(name: str | None) -> str | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise StoreDenied(f"the environment variable {name} is not set")
    return value


def _file(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreDenied(f"the private key cannot be read: {getattr(error, 'strerror', None) or 'no text'}") from None
