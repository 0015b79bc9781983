"""tidemill export: writes the rows of a table to a complete file, or no file."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from support import rows
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill

TABLE = "CREATE TABLE public.people (id int PRIMARY KEY, name text, role text)"
ROWS = "INSERT INTO people VALUES (1, 'Ann', 'admin'), (2, 'Bob', 'author'), (3, '=Cy', 'editor')"


async def test_export_command_writes_selected_rows_in_format_of_file_name(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    await rows(db, ROWS)
    words = ("--where", "role[in]=admin,editor", "--fields", "name,id", "--order", "-id")
    said = tidemill("export", "public.people", *words, "-o", "people.csv")
    assert said.out == ""
    assert "2 rows" in said.err
    assert (tidemill.folder / "people.csv").read_text() == "name,id\n=Cy,3\nAnn,1\n"
    tidemill("export", "people", "--where", "id=2", "-o", "people.jsonl")
    assert (tidemill.folder / "people.jsonl").read_text() == '{"id":2,"name":"Bob","role":"author"}\n'
    said = tidemill("export", "people", "--fields", "name", "--spreadsheet-safe", "-o", "-")
    assert said.out == "name\nAnn\nBob\n'=Cy\n"
    assert list(tidemill.folder.glob(".*.tmp")) == []


async def test_invalid_export_command_is_rejected_and_keeps_existing_file(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    (tidemill.folder / "people.csv").write_text("before")
    assert "Use --format." in tidemill.refuses("export", "people", "-o", "people")
    assert 'did you mean "role"?' in tidemill.refuses("export", "people", "--where", "rloe=x", "-o", "people.csv")
    assert "must be a whole number" in tidemill.refuses("export", "people", "--where", "id[gt]=x", "-o", "people.csv")
    assert "Unknown table" in tidemill.refuses("export", "persons", "-o", "people.csv")
    assert "Cannot export from schema" in tidemill.refuses("export", "tidemill.job", "-o", "people.csv")
    assert "Cannot write" in tidemill.refuses("export", "people", "-o", "no/such/folder/people.csv")
    assert (tidemill.folder / "people.csv").read_text() == "before"


async def test_export_command_writes_through_symlink_and_named_pipe(tidemill: "Tidemill", db: Database) -> None:
    await rows(db, TABLE)
    await rows(db, ROWS)
    folder = tidemill.folder
    (folder / "real.csv").write_text("old")
    (folder / "link.csv").symlink_to("real.csv")
    tidemill("export", "people", "--fields", "id", "-o", "link.csv")
    assert (folder / "link.csv").is_symlink()
    assert (folder / "real.csv").read_text() == "id\n1\n2\n3\n"
    os.mkfifo(folder / "pipe.csv")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit((folder / "pipe.csv").read_text)
        tidemill("export", "people", "--fields", "id", "-o", "pipe.csv")
        assert read.result(30) == "id\n1\n2\n3\n"
    assert (folder / "pipe.csv").is_fifo()
    (folder / "sub").mkdir()
    assert 'sub": Is a directory' in tidemill("export", "people", "--format", "csv", "-o", "sub", code=2).err


def test_export_help_shows_where_condition_example(tidemill: "Tidemill") -> None:
    tidemill.anew = True
    assert "role[in]=admin,editor" in tidemill("export", "--help").out
