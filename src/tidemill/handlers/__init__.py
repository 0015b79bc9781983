"""Kinds and their handlers; among them the built-in ones."""

from tidemill.connectors.blobs import Blobs
from tidemill.domain.handler import Handler
from tidemill.handlers.export import export_handler
from tidemill.store.database import Database


def builtins(db: Database, blobs: Blobs) -> list[Handler]:
    """The handlers that every worker has, whatever its mill declares."""
    return [export_handler(db, blobs)]
