"""The command ``tidemill demo``: imports three files with some invalid rows, exports rows and distributes files."""

import csv
import hashlib
import json
import os
import random
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from tidemill.app.mill import Mill
from tidemill.app.processes import create_demo_tables
from tidemill.config import load_settings
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Item
from tidemill.core.outcome import NotFound, Retry
from tidemill.core.private_files import make_private_folder
from tidemill.core.status import JobStatus
from tidemill.distributions.cli import load_inputs_from_file, run_distribution
from tidemill.distributions.use_cases import DistributionSpec
from tidemill.exports.cli import run_export
from tidemill.exports.table_export_request import TableExportRequest, parse_filter_condition
from tidemill.imports.cli import ImportArguments, run_import
from tidemill.imports.import_plan import ImportRequest
from tidemill.imports.import_submission import ImportOptions
from tidemill.runtime import Runtime
from tidemill.terminal.command_host import BUILTIN_MILL_REFERENCE, run_with_runtime
from tidemill.terminal.console import console, error_console

commands = typer.Typer()
mill = Mill()

DEMO_DISTRIBUTION_CSV = (
    "index_key,effective_date,asofindicator\nABC,2024-02-02,CLS\nDEF,20240201,ADJCLS\nGHI,20240131,CLS\n"
)
NOT_FOUND_EVERY, FLAKY_EVERY, BROKEN_EVERY = 9_973, 5_003, 33_331


@mill.handler("demo.price", max_attempts=3, backoff=0.5, max_attempts_not_found=1)
async def compute_demo_price(item: Item) -> dict[str, object]:
    """Look up a price. Some products are not found, some fail on the first attempt, and some fail on every attempt."""
    number = int(item.input["sku"])
    if number % NOT_FOUND_EVERY == 1:
        raise NotFound(f"Product {number} not found")
    if number % BROKEN_EVERY == 1 or (number % FLAKY_EVERY == 1 and item.attempt == 1):
        raise Retry("The shop did not respond")
    digest = hashlib.blake2b(str(number).encode(), digest_size=4).digest()
    return {"sku": number, "price": int.from_bytes(digest) % 10_000 / 100}


@commands.command("demo")
def demo_command(
    rows: Annotated[int, typer.Option(min=100, help="Rows per file")] = 100_000,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=64, help="Worker processes")] = 2,
) -> None:
    """Import three files with some invalid rows into the embedded PostgreSQL, then export rows and distribute files."""
    os.environ.setdefault("TIDEMILL_LOG_LEVEL", "error")
    with resources.as_file(resources.files("tidemill.demo") / "tidemill.toml") as config:
        os.environ["TIDEMILL_CONFIG"] = str(config)
        settings = load_settings()
        disabled = sorted({"imports", "exports", "distributions"} & set(settings.disabled_features))
        if disabled:
            raise InvalidInput(f"The demo needs disabled features: {', '.join(disabled)}. Enable them to run it.")
        folder = settings.home / "demo"
        make_private_folder(folder)
        run_with_runtime(_create_tables, migrate=True)
        console.print(f"PostgreSQL is running. Created three files with {rows:,} rows each, 1% invalid, in {folder}")
        for file in write_demo_files(folder, rows):
            command = f"tidemill import {file.name} --into {file.stem} --mode upsert"
            console.print(f"\n[bold]$ {command}[/]", highlight=False)
            options = ImportOptions(resource=file.stem, request=ImportRequest(mode="upsert"))
            run_import(
                ImportArguments(str(file), options), errors_to=folder / f"{file.stem}-errors.csv", processes=processes
            )
        _export_editors(folder)
        _distribute_prices(folder, processes)
    console.print("\nUpserts are idempotent: run the demo again and no row changes. `tidemill jobs` lists the jobs.")
    console.print("To see the jobs in the browser, run `tidemill up`.")


def _export_editors(folder: Path) -> None:
    """Export some of the imported users."""
    output = folder / "editors.csv"
    command = f"tidemill export users --where 'role[in]=admin,editor' --order email -o {output.name}"
    console.print(f"\n[bold]$ {escape(command)}[/]", highlight=False, soft_wrap=True)
    conditions = (parse_filter_condition("role[in]=admin,editor"),)
    request = TableExportRequest(resource="users", filters=conditions, order=("email",))
    run_export(request, str(output))


def _distribute_prices(folder: Path, processes: int) -> None:
    """Produce one file per input."""
    inputs = folder / "inputs.csv"
    inputs.write_text(DEMO_DISTRIBUTION_CSV)
    console.print(f"\n[bold]$ tidemill distribute prices {inputs.name}[/]", highlight=False)
    distribution = DistributionSpec("prices", load_inputs_from_file(str(inputs)))
    job = run_distribution(distribution, processes=processes, app=BUILTIN_MILL_REFERENCE, paths_to=None)
    if job.status is not JobStatus.COMPLETED:
        error_console.print(
            "A running worker took the job but does not have the demo's dataset. "
            "Stop the worker or `tidemill up`, then run the demo again.",
            highlight=False,
        )
        raise typer.Exit(1)


async def _create_tables(runtime: Runtime) -> None:
    await create_demo_tables(runtime.db)


DEMO_BAD_ROW_EVERY = 100
DEMO_USER_ROLES, DEMO_ARTICLE_STATUSES = ("admin", "editor", "author", "reader"), ("draft", "published", "archived")
DEMO_VOCABULARY = (
    "pond",
    "fills",
    "with",
    "the",
    "tide",
    "and",
    "wheel",
    "turns",
    "from",
    "stored",
    "water",
    "at",
    "its",
    "pace",
)
BAD_USER_FIELDS = ({"email": "ann at example.com"}, {"role": "king"}, {"name": ""}, {"created_at": "yesterday"})
BAD_ARTICLE_FIELDS = (
    {"slug": "Not A Slug"},
    {"status": "published", "published_at": None},
    {"author_id": str(UUID(int=1))},
    {"title": "t" * 300},
)
BAD_COMMENT_FIELDS = ({"body": "word " * 501}, {"article_id": "?"}, {"user_id": str(UUID(int=1))}, {"body": " "})


def write_demo_files(folder: Path, row_count: int) -> list[Path]:
    """Write the three files and return them in import order. Their content is the same in every run."""
    users, articles, comments = folder / "users.csv", folder / "articles.ndjson", folder / "comments.ndjson"
    with users.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "email", "name", "role", "active", "created_at"])
        writer.writeheader()
        writer.writerows(_generate_users(row_count))
    for path, rows in ((articles, _generate_articles(row_count)), (comments, _generate_comments(row_count))):
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return [users, articles, comments]


def _generate_users(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        row = {
            "id": _make_row_id(1, i),
            "email": f"user{i}@example.com",
            "name": f"User {i}",
            "role": DEMO_USER_ROLES[i % 4],
        }
        row |= {"active": str(i % 3 > 0).lower(), "created_at": f"2026-01-{i % 28 + 1:02}T10:00:00Z"}
        yield row | (BAD_USER_FIELDS[i // DEMO_BAD_ROW_EVERY % 4] if _is_bad_row(i) else {})


def _generate_articles(n: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)  # noqa: S311  the same rows every time
    for i in range(n):
        row: dict[str, Any] = {
            "id": _make_row_id(2, i),
            "slug": f"article-{i}",
            "title": f"Article {i}",
            "body": _make_random_text(rng, 40),
        }
        row |= {
            "author_id": _pick_user_id(rng, n),
            "tags": ["tide", f"no-{i % 9}"],
            "status": DEMO_ARTICLE_STATUSES[i % 3],
        }
        row["published_at"] = f"2026-02-{i % 28 + 1:02}T09:30:00Z"
        yield row | (BAD_ARTICLE_FIELDS[i // DEMO_BAD_ROW_EVERY % 4] if _is_bad_row(i) else {})


def _generate_comments(n: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(2)  # noqa: S311
    for i in range(n):
        article = _make_row_id(2, _find_valid_row_number(rng.randrange(n)))
        row = {
            "id": _make_row_id(3, i),
            "body": _make_random_text(rng, 12),
            "article_id": article,
            "user_id": _pick_user_id(rng, n),
        }
        yield row | (BAD_COMMENT_FIELDS[i // DEMO_BAD_ROW_EVERY % 4] if _is_bad_row(i) else {})


def _is_bad_row(i: int) -> bool:
    return i % DEMO_BAD_ROW_EVERY == 7  # noqa: PLR2004


def _pick_user_id(rng: random.Random, n: int) -> str:
    return _make_row_id(1, _find_valid_row_number(rng.randrange(n)))


def _find_valid_row_number(i: int) -> int:
    """Return a nearby valid row, because an invalid row is not imported and cannot be referenced."""
    return i - 1 if _is_bad_row(i) else i


def _make_row_id(table: int, number: int) -> str:
    return str(UUID(int=(table << 96) + (number << 32) + 7))


def _make_random_text(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(DEMO_VOCABULARY, k=count))
