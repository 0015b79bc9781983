"""Watch sources: folders, buckets, FTP and SFTP servers, and web servers."""

import os
from pathlib import Path

from tidemill.config import Settings
from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import InvalidInput, StorageAccessDenied
from tidemill.files.blobs import open_blob_store
from tidemill.watches.sources.watch_source import WatchSource
from tidemill.watches.watch import FolderAddress, HostAddress, SourceAccess, Watch, WebAddress

DEFAULT_KNOWN_HOSTS_PATH = "~/.ssh/known_hosts"


def open_watch_source(watch: Watch, settings: Settings) -> WatchSource:
    """Connect to the source of a watch and return it. The caller must close it. This call blocks; run it in a thread.

    Only this function reads the secrets of watches, from the environment. It imports a client only when it is needed.
    """
    source, access = watch.source, watch.access
    match source:
        case FolderAddress():
            return _open_folder_source(source, settings)
        case BucketLocation():
            return _open_bucket_source(source, access)
        case HostAddress(scheme="sftp"):
            return _open_sftp_source(source, access, settings)
        case HostAddress():
            from tidemill.watches.sources.ftp_source import FtpWatchSource  # noqa: PLC0415

            return FtpWatchSource(source, _get_secret_from_environment(access.password_env), access.ca_file)
        case WebAddress():
            from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415
            from tidemill.watches.sources.http_source import HttpWatchSource  # noqa: PLC0415

            limits = DownloadLimits.from_settings(settings)
            return HttpWatchSource(
                source, open_blob_store(settings.blobs), limits, _get_secret_from_environment(access.authorization_env)
            )


def _open_folder_source(source: FolderAddress, settings: Settings) -> WatchSource:
    from tidemill.watches.sources.folder_source import FolderWatchSource  # noqa: PLC0415

    top = settings.sources.get(source.root)
    if top is None or isinstance(top.path, BucketLocation):
        raise InvalidInput(f'Folder "{source.root}" is not in TIDEMILL_SOURCES')
    return FolderWatchSource(top.path, source.path)


def _open_bucket_source(location: BucketLocation, access: SourceAccess) -> WatchSource:
    from tidemill.watches.sources.bucket_source import BucketWatchSource, make_store_config  # noqa: PLC0415

    keys = {
        "access_key_id": _get_secret_from_environment(access.access_key_env),
        "secret_access_key": _get_secret_from_environment(access.secret_key_env),
    }
    return BucketWatchSource(location, make_store_config(keys | {"endpoint": access.endpoint, "region": access.region}))


def _open_sftp_source(source: HostAddress, access: SourceAccess, settings: Settings) -> WatchSource:
    from tidemill.watches.sources.sftp_source import SftpCredentials, SftpWatchSource  # noqa: PLC0415

    hosts = Path(access.known_hosts or settings.known_hosts or DEFAULT_KNOWN_HOSTS_PATH).expanduser()
    key = _get_secret_from_environment(access.key_env) or _load_key_file(access.key_file)
    password, passphrase = (
        _get_secret_from_environment(access.password_env),
        _get_secret_from_environment(access.passphrase_env),
    )
    return SftpWatchSource(source, SftpCredentials(hosts, password, key, passphrase))


def _get_secret_from_environment(name: str | None) -> str | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise StorageAccessDenied(f"Environment variable {name} is not set")
    return value


def _load_key_file(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "the file is not text"
        raise StorageAccessDenied(f"Cannot read the private key: {reason}") from None
