"""Everything from end to end on this machine: files into tables, and a kind of work to try the API with."""

import hashlib
import os
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tidemill.app import Mill, run_in
from tidemill.cli.demo_files import make_files
from tidemill.cli.distributions import read_inputs, run_distribution
from tidemill.cli.exports import run_export
from tidemill.cli.imports import Asked, run_import
from tidemill.cli.load import PLAIN
from tidemill.cli.views import console
from tidemill.config import Settings, load_settings
from tidemill.domain.exporting import TableExport, parse_condition
from tidemill.domain.importing import ImportRequest
from tidemill.domain.item import Item
from tidemill.domain.outcome import NotFound, Retry
from tidemill.operations.distributions import Wanted
from tidemill.store.database import Database
from tidemill.store.demo import create_tables
from tidemill.store.migrate import migrate

commands = typer.Typer()
mill = Mill()

INPUTS = "index_key,effective_date,asofindicator\nABC,2024-02-02,CLS\nDEF,20240201,ADJCLS\nGHI,20240131,CLS\n"
NOT_THERE, FLAKY, BROKEN = 9_973, 5_003, 33_331


@mill.handler("demo.price", max_attempts=3, backoff=0.5, max_attempts_not_found=1)
async def price(item: Item) -> dict[str, object]:
    """Look up a price; some things are not there, some work at the second attempt, some never."""
    number = int(item.input["sku"])
    if number % NOT_THERE == 1:
        raise NotFound(f"no such product: {number}")
    if number % BROKEN == 1 or (number % FLAKY == 1 and item.attempt == 1):
        raise Retry("the shop did not answer")
    digest = hashlib.blake2b(str(number).encode(), digest_size=4).digest()
    return {"sku": number, "price": int.from_bytes(digest) % 10_000 / 100}


@commands.command("demo")
def demo(
    rows: Annotated[int, typer.Option(min=100, help="Of each file")] = 100_000,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64)] = 2,
) -> None:
    """Import three files with some bad rows into tables of the embedded PostgreSQL; export rows, distribute files."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    with resources.as_file(resources.files("tidemill.demo") / "tidemill.toml") as config:
        os.environ["TIDEMILL_CONFIG"] = str(config)
        settings = load_settings()
        folder = settings.home / "demo"
        folder.mkdir(parents=True, exist_ok=True)
        run_in(settings, _prepare, check=False)
        console.print(f"PostgreSQL runs. Three files of {rows:,} rows each, one in a hundred bad, are in {folder}")
        for made in make_files(folder, rows):
            command = f"tidemill import {made.name} --into {made.stem} --mode upsert"
            console.print(f"\n[bold]$ {command}[/]", highlight=False)
            asked = Asked(str(made), made.stem, ImportRequest(mode="upsert"), {}, {})
            run_import(settings, asked, errors_to=folder / f"{made.stem}-errors.csv", processes=processes)
        _export(settings, folder)
        _distribute(settings, folder, processes)
    console.print("\nOnce more, nothing changes: run it again and see. `tidemill jobs` lists what was done.")


def _export(settings: Settings, folder: Path) -> None:
    """Some of what has come in goes out again."""
    output = folder / "editors.csv"
    command = f"tidemill export users --where 'role[in]=admin,editor' --order email -o {output.name}"
    console.print(f"\n[bold]$ {escape(command)}[/]", highlight=False, soft_wrap=True)
    conditions = (parse_condition("role[in]=admin,editor"),)
    request = TableExport(resource="users", filters=conditions, order=("email",))
    run_export(settings, request, str(output))


def _distribute(settings: Settings, folder: Path, processes: int) -> None:
    """A file for each of some inputs."""
    inputs = folder / "inputs.csv"
    inputs.write_text(INPUTS)
    console.print(f"\n[bold]$ tidemill distribute prices {inputs.name}[/]", highlight=False)
    wanted = Wanted("prices", read_inputs(str(inputs)))
    run_distribution(settings, wanted, {}, processes=processes, app=PLAIN, paths_to=None)


async def _prepare(db: Database) -> None:
    await migrate(db)
    await create_tables(db)
