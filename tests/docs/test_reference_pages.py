"""The README and the reference pages: every command runs, and prints the output that its page shows.

The reference pages need the tables, files and declarations below, in the place of those that a reader has.
"""

import json
import zipfile
from pathlib import Path

import psycopg
import pytest

from docs.snippets import DOCS, Session, read_blocks
from support import require

README = DOCS.parent / "README.md"
TABLES = """
CREATE TABLE public.users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL UNIQUE CHECK (email ~ '@example\\.com$'),
    name text, role text NOT NULL DEFAULT 'user', created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE public.customers (name text PRIMARY KEY, credit_limit numeric(10, 2), born date);
CREATE TABLE public.teams (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE public.players (number int PRIMARY KEY, team_id int REFERENCES public.teams);
CREATE SCHEMA demo;
CREATE TABLE demo.prices (index_key text, effective_date int, asofindicator text, member text, price numeric);
INSERT INTO demo.prices VALUES ('ABC', 20240202, 'CLS', 'M1', 10.5);
"""
CONFIGURATION = """
[resources.users]
table = "public.users"
key = ["email"]
read = ["user", "admin"]
write = ["user", "admin"]

[watches.nightly]
source = "inbox"
pattern = "*.csv"
job = { kind = "greet" }
owner = "ada"
"""
USERS = "E-Mail,Name,Role\nada@example.com,Ada,admin\ngrace@exampel.com,Grace,editor\n"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
)
PREPARED = {
    "imports": """
export KEY=$(tidemill users add ada)
api() { curl -sS -H "Authorization: Bearer $KEY" "$@"; }
echo 'alan@example.net,Alan,user' >> users.csv
IMPORT=$(api "$TIDEMILL/v1/imports?resource=users" -H 'Content-Type: text/csv' --data-binary @users.csv | jq -r .key)
until api $TIDEMILL/v1/imports/$IMPORT | jq -e .completed_at; do sleep 0.1; done
printf 'email,name\\nlin@example.com,Lin\\n' > users.csv
""",
}
MATCH_REQUEST = """api $TIDEMILL/v1/jobs --json '{"kind": "match", "inputs": [{"who": "Ada Lovelace", "born": 1815}],"""
ENRICH_REQUEST = """api $TIDEMILL/v1/jobs --json '{"kind": "http.enrich", "inputs": [{"sku": "A-1"}],"""
NOT_RUN = {  # page -> the first line of a block -> the reason
    "api": {"api $TIDEMILL/v1/imports \\": "downloads a file from another server"},
    "matching": {
        "pip install csv-reconcile": "downloads a package",
        "printf 'who\\nAda Lovelace\\nAlan Turin\\nNobody\\n' > people.csv": "needs that package's server",
        "TIDEMILL_SECRET_SHOP=… tidemill worker": "needs the secret of a service",
        MATCH_REQUEST: "calls a public service",
        ENRICH_REQUEST: "calls a public service",
    },
}


def test_readme_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    not_run = {
        "pip install tidemill": "the tests run in an installation",
        "make demo    # import three files of 100,000 rows, 1% invalid, into an embedded PostgreSQL": "other tests",
    }
    with Session(tmp_path, tidemill_database, not_run=not_run) as session:
        session.run_page(README)


@pytest.fixture
def session(tidemill_database: str, tmp_path: Path) -> Session:
    """A reader with the files and tables of the reference pages."""
    require("jq")
    (example,) = [block.text for block in read_blocks(README) if block.language == "python"]
    (dataset,) = [block.text for block in read_blocks(DOCS / "reference/distribution.md") if block.language == "toml"]
    (limiters,) = [block.text for block in read_blocks(DOCS / "reference/limits.md") if block.language == "toml"]
    (tmp_path / "app.py").write_text(example)
    (tmp_path / "tidemill.toml").write_text(CONFIGURATION + dataset + limiters)
    (tmp_path / "users.csv").write_text(USERS)
    (tmp_path / "kunden.csv").write_text("name;credit_limit;born\nAda;1.234,50;10.12.1815\n")
    (tmp_path / "inputs.csv").write_text("index_key,effective_date,asofindicator\nABC,20240202,CLS\n")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "people.csv").write_text("name\nann\nbob\n")
    for name in ("cat.png", "dog.png"):
        (tmp_path / name).write_bytes(PNG)
    for archive, member in (("pets.zip", "cat.png"), ("users.zip", "users.csv")):
        with zipfile.ZipFile(tmp_path / archive, "w") as opened:
            opened.write(tmp_path / member, member)
    with psycopg.connect(tidemill_database) as conn:
        conn.execute(TABLES)
    inbox = {"path": str(tmp_path / "inbox"), "read": ["user"]}
    return Session(tmp_path, tidemill_database, {"TIDEMILL_SOURCES": json.dumps({"inbox": inbox})})


@pytest.mark.parametrize(
    "names",
    [["api"], ["identity"], ["imports", "exports"], ["distribution", "limits", "matching"]],
    ids="-".join,
)
def test_reference_page_commands_print_shown_output(session: Session, names: list[str]) -> None:
    with session:
        session.run("tidemill up app:mill")
        session.run("export TIDEMILL=http://127.0.0.1:8484")
        for name in names:
            session.not_run = NOT_RUN.get(name, {})
            if name in PREPARED:
                session.run(PREPARED[name])
            session.run_page(DOCS / f"reference/{name}.md", languages=("sh",))
