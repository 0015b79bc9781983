"""Files whose rows go to services."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.app import make_importing, make_services
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.errors import InvalidInput
from tidemill.domain.identity import Role
from tidemill.operations import submit
from tidemill.operations.incoming import Incoming
from tidemill.operations.services import check_columns
from tidemill.store.database import Database
from tidemill.store.submit import Submission


async def submit_file(db: Database, settings: Settings, file: Path, asked: Submission, told: dict[str, Any]) -> UUID:
    """A job of a kind that calls services, of the rows of a file; what it asks for is checked first."""
    spec = make_services(settings).prepare(asked, Role.ADMIN)
    submit.check(spec, built_in=True)
    incoming = Incoming(db, open_blobs(settings.blobs))
    blob = await incoming.put_file(file)
    try:
        look = await make_importing(db, settings).look(blob.id, name=file.name, given=told)
        check_columns(spec, () if look.named_by_rows else look.columns)
        source = {"blob": blob.id, "format": look.layout["format"], "layout": look.layout, "name": file.name}
        return (await submit.submit(db, replace(spec, source=source, file_id=blob.id), built_in=True))[0]
    except InvalidInput:
        await incoming.drop(blob.id)
        raise
