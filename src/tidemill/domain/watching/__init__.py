"""Watches: where files come from by themselves, which of them are taken, and what is made of them."""

from tidemill.domain.watching.address import Address, FolderAddress, HostAddress, LinksAddress
from tidemill.domain.watching.declare import watches
from tidemill.domain.watching.file import Entry, FileState, WatchFile
from tidemill.domain.watching.watch import Access, ImportTask, JobTask, Watch

__all__ = [
    "Access",
    "Address",
    "Entry",
    "FileState",
    "FolderAddress",
    "HostAddress",
    "ImportTask",
    "JobTask",
    "LinksAddress",
    "Watch",
    "WatchFile",
    "watches",
]
