"""Kinds and their handlers; among them the built-in ones."""

from collections.abc import Mapping

from tidemill.connectors.blobs import Blobs
from tidemill.domain.distribution import Dataset
from tidemill.domain.handler import Handler
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.values.field import Normalizer
from tidemill.handlers.distribution import DistributionOptions, distribution_handler
from tidemill.handlers.enriching import enrich_handler
from tidemill.handlers.export import TTL_HOURS, export_handler
from tidemill.handlers.importing import import_handler
from tidemill.handlers.matching import match_handler
from tidemill.handlers.services import Directory
from tidemill.store.database import Database


def builtins(
    db: Database,
    blobs: Blobs,
    normalizers: Mapping[str, Normalizer] | None = None,
    datasets: Mapping[str, Dataset] | None = None,
    options: DistributionOptions | None = None,
    *,
    export_ttl_hours: int = TTL_HOURS,
    directory: Directory | None = None,
    retry: RetryPolicy | None = None,
) -> list[Handler]:
    """The handlers that every worker has, whatever its mill declares; ``retry`` is of those that call services."""
    directory, retry = directory or Directory({}), retry or RetryPolicy()
    return [
        export_handler(db, blobs, ttl_hours=export_ttl_hours),
        import_handler(normalizers or {}),
        distribution_handler(db, blobs, datasets or {}, options or DistributionOptions()),
        match_handler(db, directory, retry),
        enrich_handler(db, directory, retry),
    ]
