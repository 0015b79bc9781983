"""Who may run jobs of a kind: by the configuration file, the handler, or the setting."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import rows
from support.api import Api
from tidemill import Item, Mill, NotFound
from tidemill.core.errors import InvalidInput, InvalidSettings
from tidemill.core.principal import Role
from tidemill.store import workers
from tidemill.testing import drain


def declare_kinds(mill: Mill) -> Mill:
    @mill.handler("open")
    @mill.handler("admins", roles=["admin"])
    @mill.handler("closed", roles=[])
    @mill.handler("users", roles=["user"])
    def fail(_: Item) -> NotFound:
        return NotFound()

    return mill


async def submit(user: httpx2.AsyncClient, kind: str) -> httpx2.Response:
    return await user.post("/v1/jobs", json={"kind": kind, "inputs": [1]})


async def start(make_api: Callable[..., Any], mill: Mill, **settings: Any) -> tuple[Api, httpx2.AsyncClient]:
    api = await make_api(**settings)
    await api.db.run(workers.register_kinds, declare_kinds(mill).registry.create_all())
    return api, await api.user("ada")


async def list_allowed(user: httpx2.AsyncClient) -> set[str]:
    """Return the kinds that a user can submit. The others answer 403."""
    answers = {kind: await submit(user, kind) for kind in ("open", "admins", "closed", "users")}
    assert {answer.status_code for answer in answers.values()} <= {202, 403}
    return {kind for kind, answer in answers.items() if answer.status_code == 202}


async def test_handler_roles_decide_who_may_submit(make_api: Callable[..., Any], mill: Mill) -> None:
    api, ada = await start(make_api, mill)
    assert await list_allowed(ada) == {"open", "users"}
    assert await list_allowed(await api.user("root", Role.ADMIN)) == {"open", "users", "admins"}
    unknown = await submit(ada, "mistyped")
    assert unknown.status_code == 422
    assert "admins" not in unknown.text, "names of other kinds are not listed"
    assert "users" in unknown.text


async def test_setting_closes_kinds_without_roles(make_api: Callable[..., Any], mill: Mill) -> None:
    api, ada = await start(make_api, mill, kind_roles=[Role.ADMIN])
    assert await list_allowed(ada) == {"users"}
    assert await list_allowed(await api.user("root", Role.ADMIN)) == {"open", "users", "admins"}


async def test_configuration_file_overrides_roles_of_the_handler(
    make_api: Callable[..., Any], mill: Mill, tmp_path: Path
) -> None:
    config = tmp_path / "tidemill.toml"
    config.write_text('[kinds.open]\nroles = ["admin"]\n[kinds.admins]\nroles = ["user"]\n')
    _, ada = await start(make_api, mill, config=config)
    assert await list_allowed(ada) == {"admins", "users"}
    config.write_text('[kinds.open]\nroles = ["guest"]\n')
    with pytest.raises(InvalidSettings, match=r"kinds\.open\.roles"):
        await make_api(config=config)


async def test_reprocess_and_redrive_need_the_grant_of_the_kind(
    make_api: Callable[..., Any], mill: Mill, tmp_path: Path
) -> None:
    api, ada = await start(make_api, mill)
    job = (await submit(ada, "open")).json()["id"]
    await drain(mill, db=api.db)
    await rows(api.db, "UPDATE tidemill.outcome SET status = 'failed' RETURNING 1")
    config = tmp_path / "tidemill.toml"
    config.write_text("[kinds.open]\nroles = []\n")
    closed = await make_api(config=config)
    user = await closed.user("eve")
    await rows(
        api.db, "UPDATE tidemill.job SET owner_id = (SELECT id FROM tidemill.app_user WHERE name = 'eve') RETURNING 1"
    )
    assert (await user.post(f"/v1/jobs/{job}/reprocess", json={})).status_code == 403
    redriven = await user.post("/v1/dead-letters/redrive", json={"all_matching": True})
    assert redriven.json()["items"] == 0, redriven.text
    root = await closed.user("root", Role.ADMIN)
    every = {"all_matching": True, "user_id": "all"}
    assert (await root.post("/v1/dead-letters/redrive", json=every)).json()["items"] == 1


def test_handler_with_unknown_role_is_rejected(mill: Mill) -> None:
    with pytest.raises(InvalidInput, match='"user" and "admin"'):
        mill.handler("test", roles=["guest"])(lambda _: None)  # type: ignore[list-item]
