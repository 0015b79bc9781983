"""Built-in: rows of a file into a table of the user's. One batch is one transaction."""

from tidemill.handlers.importing.handler import import_handler

__all__ = ["import_handler"]
