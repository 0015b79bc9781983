"""The commands users, keys and serve: output and error messages."""

import re
import socket
from typing import TYPE_CHECKING

import pytest

from tidemill.cli.http_server import open_listen_socket
from tidemill.config import Settings
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill

KEY = re.compile(r"tm_[0-9a-f]{8}_[0-9a-f]{48}\n")


def test_users_add_prints_api_key_once(tidemill: "Tidemill") -> None:
    said = tidemill("users", "add", "ada")
    assert KEY.fullmatch(said.out), "stdout has only the key, so that a script can store it"
    assert "not shown again" in said.err
    listed = tidemill("keys", "list", "ada").out
    assert said.out[:11] in listed
    assert said.out.strip() not in listed
    assert tidemill.refuses("users", "add", "ada") == 'User "ada" already exists'
    assert re.search(r"ada +user +1", tidemill("users", "list").out)


def test_users_and_keys_commands_change_role_revoke_key_and_remove_user(tidemill: "Tidemill") -> None:
    tidemill("users", "add", "ada")
    assert tidemill("users", "role", "ada", "admin").out == "Changed the role of ada to admin\n"
    key = tidemill("keys", "add", "ada", "--name", "spare", "--expires", "90d").out
    assert tidemill("keys", "revoke", key[:11]).out == f"Revoked {key[:11]}\n"
    assert re.search(r"ada +admin +1", tidemill("users", "list").out), "one valid key is left"
    assert tidemill("users", "remove", "ada").out == "Removed ada\n"
    assert 'Unknown user "ada"' in tidemill.refuses("users", "remove", "ada")
    assert "cannot be changed or removed" in tidemill.refuses("users", "remove", "local")


def test_users_link_prints_sign_in_url_of_configured_address(tidemill: "Tidemill") -> None:
    tidemill.extra = {"TIDEMILL_HTTP_PORT": "8123"}
    assert re.fullmatch(r"http://127\.0\.0\.1:8123/sign-in/[\w-]{43}\n", tidemill("users", "link").out)
    said = tidemill("users", "link", "local", "--address", "https://mill.example.org/").out
    assert said.startswith("https://mill.example.org/sign-in/")


def test_serve_reports_port_in_use_on_one_line(tidemill: "Tidemill") -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        place = f"127.0.0.1:{port}"
        said = tidemill.refuses("serve", "--port", port)
    assert said == f"Cannot listen on {place}: Address already in use. Set another --port."
    assert "Set another --host" in tidemill.refuses("serve", "--host", "203.0.113.1", "--port", port)


def test_server_socket_disables_nagle_on_accepted_connections() -> None:
    with open_listen_socket(Settings(http_port=0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("text", "last"),
    [("import nothing_here", "ModuleNotFoundError: No module named 'nothing_here'"), ("def (", "SyntaxError: invalid")],
)
def test_serve_with_broken_app_module_shows_only_user_traceback(tidemill: "Tidemill", text: str, last: str) -> None:
    tidemill.file("broken.py", text)
    said = tidemill("serve", "broken:mill", code=2).err
    assert said.startswith('error: Cannot import "broken":\n')
    assert last in said.splitlines()[-1]
    assert "broken.py" in said
    assert "load.py" not in said
    assert "importlib" not in said


def test_worker_with_invalid_setting_shows_no_traceback_of_the_module(tidemill: "Tidemill") -> None:
    tidemill.extra["TIDEMILL_BROKER"] = "kafka://host"
    said = tidemill("worker", "app:mill", code=2).err
    assert said.startswith("error: Invalid settings: TIDEMILL_BROKER: must start with one of")
    assert "Traceback" not in said


def test_database_display_name_hides_password() -> None:
    assert "secret" not in Database("postgresql://me:secret@host:5433/name").display_url
    assert "host=host" in Database("postgresql://me:secret@host:5433/name").display_url
    assert Database("postgresql://me@host/name").display_url == "postgresql://me@host/name"


def test_users_quota_shows_and_changes_limits(tidemill: "Tidemill") -> None:
    tidemill("users", "add", "ada")
    assert re.search(r"open_jobs +0 +1,000 *\n", tidemill("users", "quota", "ada").out)
    said = tidemill("users", "quota", "ada", "--open-jobs", "7", "--stored-bytes", "unlimited").out
    assert re.search(r"open_jobs +0 +7 *\n", said)
    assert re.search(r"stored_bytes +0 +unlimited *\n", said)
    assert re.search(r"open_jobs +0 +1,000 *\n", tidemill("users", "quota", "ada", "--open-jobs", "default").out)
    assert "unlimited" in tidemill("users", "quota", "local").out
    assert '"many" must be a number' in tidemill.refuses("users", "quota", "ada", "--open-rows", "many")
