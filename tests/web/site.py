"""The service under test, and its users."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2

from support import Workers, closed
from tidemill.config import Settings
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.store import users
from tidemill.store.database import Database

UNSERVED_KIND = "price.unserved"  # registered, but no worker of the tests handles it
KINDS = """
@mill.handler("price.lookup", columns=["sku", "cents", "serial"], max_attempts=2, backoff=0.01, not_found_delay=0.01)
async def lookup(item: Item):
    wish = item.input.get("wish")
    if wish == "fail":
        raise ValueError("the shop did not answer")
    if wish == "never":
        raise Fail("this product is not sold", code="not_sold")
    if wish == "missing":
        return NotFound("no such product")
    if wish == "slow":
        await asyncio.sleep(0.3)
    return {"sku": item.input["sku"], "cents": 995, "serial": 12345678901234567890}
"""


@dataclass
class Site:
    """The address of a service, its database and settings, and the keys of its users by name."""

    url: str
    db: Database
    settings: Settings
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers = Workers(self.settings, self.settings.home)

    async def user(self, name: str, role: Role = Role.USER) -> str:
        """Return the API key of a user. Create the user on first use."""
        if name not in self.keys:
            self.ids[name] = (await self.db.run(users.add_user, name, role)).id
            self.keys[name], _ = await self.db.run(users.add_key, self.ids[name])
        return self.keys[name]

    async def link(self, name: str, role: Role = Role.USER) -> str:
        await self.user(name, role)
        return f"{self.url}/sign-in/{await self.db.run(users.create_sign_in_token, self.ids[name], 60)}"

    async def ask(self, name: str, method: str, path: str, **more: Any) -> Any:
        """Send a request as a user and return the JSON response. Fail if the status is not 2xx."""
        headers = {"Authorization": f"Bearer {await self.user(name)}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False) as client:
            response = await client.request(method, path, **more)
        assert response.is_success, response.text
        return response.json() if response.content else None

    async def submit(self, name: str, inputs: list[Any], kind: str = "price.lookup", **more: Any) -> dict[str, Any]:
        """Submit a job as a user over HTTP and return it."""
        return dict(await self.ask(name, "POST", "/v1/jobs", json={"kind": kind, "inputs": inputs, **more}))

    async def cancelled(self, name: str, **more: Any) -> dict[str, Any]:
        """Submit a job and cancel it before it starts."""
        job = await self.submit(name, [{"sku": "A"}], **more)
        await self.ask(name, "POST", f"/v1/jobs/{job['id']}/cancel")
        return job

    async def finished(self, name: str, inputs: list[Any]) -> Job:
        """Submit a job and wait until a worker has closed it."""
        return await closed(self.db, UUID((await self.submit(name, inputs))["id"]))
