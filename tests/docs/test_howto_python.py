"""The how-to pages for Python developers: every command and snippet runs, and prints the output that its page shows."""

import importlib.util
import os
import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from docs.snippets import DOCS, Session, iterate_words, matches

STATIC = Path(__file__).parents[2] / "src/tidemill/web/static"
PAGES = (
    *("import-a-csv", "upload-in-fastapi", "django", "sqlalchemy"),
    *("call-a-slow-api", "rate-limits", "test-handlers", "migrate-from-celery"),
)


@pytest.mark.parametrize("name", PAGES)
def test_howto_page_has_promise_prerequisites_and_problems(name: str) -> None:
    page = DOCS / f"how-to/{name}.md"
    text = page.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert re.match(r"# [^\n]+\n\nAfter this page you can ", text)
    assert headings[0] == "Before you start"
    assert headings[-2:] == ["What can go wrong", "See also"]
    numbers = [int(heading.split(".")[0]) for heading in headings if heading[0].isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
    assert 250 <= sum(1 for _ in iterate_words(page)) <= 900


def run_page(name: str, folder: Path, url: str, **options: object) -> None:
    with Session(folder, url, **options) as session:  # type: ignore[arg-type]
        session.run_page(DOCS / f"how-to/{name}.md")


def test_import_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    run_page("import-a-csv", tmp_path, tidemill_database)


def test_import_page_names_labels_of_web_ui() -> None:
    _, _, section = (DOCS / "how-to/import-a-csv.md").read_text().partition("## In the browser")
    labels = re.findall(r"\*\*([^*]+)\*\*", section)
    texts = "\n".join(path.read_text() for path in STATIC.rglob("*.js"))
    assert len(labels) >= 6
    assert [label for label in labels if f'"{" ".join(label.split())}"' not in texts] == []


def test_slow_api_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    run_page("call-a-slow-api", tmp_path, tidemill_database)


def test_rate_limit_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    """The counts of permits and throttled calls, and the current rate, depend on the speed of the machine."""
    numbers = r"(?<=^too_fast 50 )[\d. -]+(?=\w+$)", r"(?<=^shop 2 2 2 4 )[\d ]+(?=changed$)"
    parts = tuple(f"(?m){pattern}" for pattern in numbers)
    run_page("rate-limits", tmp_path, tidemill_database, variable_parts=parts)


def test_fastapi_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    run_page("upload-in-fastapi", tmp_path, tidemill_database)


def require_module(name: str) -> None:
    """Skip the test if a package is missing; fail under CI, which installs the development dependencies."""
    if importlib.util.find_spec(name) is None:
        reason = f"NOT RUN: {name} is missing. Run `make .venv/.ready`."
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def test_django_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    """Only Django's settings know the database."""
    require_module("django")
    parts = conninfo_to_dict(tidemill_database)
    environment = {"DB_NAME": str(parts["dbname"]), "DB_USER": str(parts["user"]), "DB_HOST": str(parts["host"])}
    run_page("django", tmp_path, tidemill_database, environment=environment | {"DATABASE_URL": None})


def test_sqlalchemy_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    require_module("sqlalchemy")
    run_page("sqlalchemy", tmp_path, tidemill_database)


def test_test_handlers_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    run_page("test-handlers", tmp_path, tidemill_database)


def test_celery_page_commands_print_shown_output(tidemill_database: str, tmp_path: Path) -> None:
    """Celery is not installed, so that the code to replace is compiled only."""
    run_page("migrate-from-celery", tmp_path, tidemill_database, compiled_only=("from celery import Celery, group",))


@pytest.mark.parametrize(
    ("shown", "printed", "is_equal"),
    [
        ("J20261118_000001  completed in 3.1 s", "J20270101_000042 completed in 0.2 s\n", True),
        ("first\n...\nlast", "first\nsecond\nthird\nlast\n", True),
        ("2 done", "3 done\n", False),
        ("first", "first\nsecond\n", False),
    ],
)
def test_snippet_output_is_compared_without_ids_and_durations(shown: str, printed: str, is_equal: bool) -> None:
    assert matches(shown, printed) is is_equal
