"""Tables and declarations for import tests, and helpers that import files over HTTP."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from support import rows
from support.api import Api
from tidemill import Mill
from tidemill.app.feature_list import DISABLED_FEATURES_VARIABLE
from tidemill.testing import drain

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.people (
    email text PRIMARY KEY, name text NOT NULL, age integer CHECK (age >= 0), at timestamptz NOT NULL DEFAULT now());
CREATE TABLE shop.secrets (id integer PRIMARY KEY, word text NOT NULL);
"""
DECLARED = """
[resources.people]
table = "shop.people"
key = ["email"]
read = ["user", "admin"]
write = ["user", "admin"]
[resources.people.fields.email]
format = "email"
[resources.staff]
table = "shop.people"
read = ["user", "admin"]
write = ["admin"]
[resources.secrets]
table = "shop.secrets"
"""
DECLARED_BY_FEATURE = {
    "distributions": """
[datasets.letters]
query = "SELECT email, name, age FROM shop.people WHERE name = %(first_name)s ORDER BY email"
fields = { first_name = "text", sent_on = "date", edition = { type = "integer", required = false } }
date_field = "sent_on"
read = ["user"]
[datasets.hidden]
query = "SELECT * FROM shop.secrets"
fields = { word = "text" }
""",
    "watches": """
[watches.letters]
source = "http://127.0.0.1:1/letters.csv"
job = { kind = "echo" }
owner = "ada"
every = "manual"
""",
}
CSV_TYPE = {"content-type": "text/csv"}
GOOD = b"email,name,age\nada@x.org,Ada,36\nbob@x.org,Bob,41\n"
MIXED = b"email,name,age\nada@x.org,Ada,36\nbob,Bob,old\ncy@x.org,,7\ndi@x.org,Di,\n"


@dataclass
class Shop:
    """An API with the tables, a client of the user ada, and a worker that runs when ``work`` is called."""

    api: Api
    mill: Mill
    ada: httpx2.AsyncClient

    async def post(self, content: bytes = GOOD, who: httpx2.AsyncClient | None = None, **words: Any) -> Any:
        """POST a file as the request body. Keyword arguments are query parameters, except ``headers``."""
        headers = words.pop("headers", {})
        params = {"resource": "people"} | words
        return await (who or self.ada).post("/v1/imports", params=params, content=content, headers=CSV_TYPE | headers)

    async def imported(self, content: bytes = GOOD, **words: Any) -> dict[str, Any]:
        """Import a file, wait until the job is closed, and return the import."""
        answer = await self.post(content, **words)
        assert answer.status_code == 202, answer.text
        return await self.worked(answer.json()["job_id"])

    async def worked(self, job_id: str) -> dict[str, Any]:
        await self.work()
        answer = await self.ada.get(f"/v1/imports/{job_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def work(self) -> None:
        await drain(self.mill, db=self.api.db)

    async def people(self) -> list[tuple[Any, ...]]:
        return await rows(self.api.db, "SELECT email, name, age FROM shop.people ORDER BY email")

    def stored(self) -> set[str]:
        folder = Path(self.api.settings.blobs)
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def declare(folder: Path) -> Path:
    """Write the configuration file, with sections of enabled features only, and return its path."""
    declared = folder / "shop.toml"
    disabled = os.environ.get(DISABLED_FEATURES_VARIABLE, "").split(",")
    sections = [text for feature, text in DECLARED_BY_FEATURE.items() if feature not in disabled]
    declared.write_text(DECLARED + "".join(sections))
    return declared


async def stocked(make_api: Callable[..., Any], folder: Path, **changes: Any) -> Api:
    """Start an API with the tables and their declarations."""
    api: Api = await make_api(config=declare(folder), **changes)
    await rows(api.db, TABLES)
    return api


async def open_shop(make_api: Callable[..., Any], toy: Mill, folder: Path, **changes: Any) -> Shop:
    api = await stocked(make_api, folder, **changes)
    return Shop(api, toy, await api.user("ada"))
