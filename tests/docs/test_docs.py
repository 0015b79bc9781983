"""The docs match the code: settings, statuses, commands, events, links and examples."""

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.main import get_command

import tidemill
from tidemill.cli.main import app
from tidemill.config import ENV_PREFIX, Settings, list_variable_names
from tidemill.core import status as words
from tidemill.core.decide import HANDLER_FAILURE_CODES
from tidemill.core.status import ITEM_STATUS_TRANSITIONS, Intent, ItemStatus, JobStatus
from tidemill.telemetry import events, logs
from tidemill.telemetry.metrics import MetricFamilies

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = Path(tidemill.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
EVENT = re.compile(r"[a-z]+\.[a-z]+")


def rows(page: str, heading: str = "") -> list[list[str]]:
    """Return the rows of all tables below a heading, without backticks."""
    text = (DOCS / page).read_text()
    _, found, section = text.partition(heading) if heading else ("", "", text)
    assert found or not heading, f"{page} has no {heading!r}"
    if heading:
        level = heading.split(" ", 1)[0]
        section = re.split(rf"^#{{1,{len(level)}}} ", section, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip(" |").replace("`", "") for cell in line] for line in lines]


def code(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def test_settings_page_lists_every_setting_with_its_default() -> None:
    ours = {ENV_PREFIX + name.upper(): shown(field.get_default()) for name, field in Settings.model_fields.items()}
    ours[f"{ENV_PREFIX}HOME"] = "the user's data directory"
    ours[f"{ENV_PREFIX}BLOBS"] = "blobs under TIDEMILL_HOME"
    table = {name: default for name, default, *_ in rows("reference/settings.md") if name.startswith(ENV_PREFIX)}
    assert table == ours


def test_settings_page_alias_table_matches_existing_settings() -> None:
    ours = {name.removeprefix(ENV_PREFIX) for name in list_variable_names()}
    known = rows("reference/settings.md", "## Names from other systems")[1:]
    assert len(known) > 20
    for name, here, *_ in known:
        assert (here != "no") == (name in ours), name
        assert here in ("no", ENV_PREFIX + name) or name == "DATABASE_URL"


def test_statuses_page_lists_every_status_and_synonym() -> None:
    items, jobs = rows("reference/statuses.md", "## Items"), rows("reference/statuses.md", "## Jobs")
    assert [row[0] for row in jobs[1 : len(JobStatus) + 1]] == list(JobStatus)
    also = jobs.index(["Synonym", "Status"])
    assert {word: JobStatus(status) for word, status in jobs[also + 1 :]} == words._JOB_STATUS_SYNONYMS
    assert [row[0] for row in items[1 : len(ItemStatus) + 1]] == list(ItemStatus)
    terminal = {row[0] for row in items[1 : len(ItemStatus) + 1] if row[2] == "yes"}
    assert terminal == words.TERMINAL_ITEM_STATUSES
    start = items.index(["Synonym", "Status"])
    stop = items.index(["Code", "Meaning", "Retryable"])
    assert {word: ItemStatus(status) for word, status in items[start + 1 : stop]} == words._ITEM_STATUS_SYNONYMS


def test_lifecycle_diagram_matches_item_status_transitions() -> None:
    assert "](lifecycle.svg)" in (DOCS / "explanation/lifecycle.md").read_text()
    diagram = ET.fromstring((DOCS / "explanation/lifecycle.svg").read_text())
    drawn = [(arrow.attrib["data-from"], arrow.attrib["data-to"]) for arrow in diagram.iterfind(".//*[@data-from]")]
    assert sorted(drawn) == sorted(
        (source, target) for source, targets in ITEM_STATUS_TRANSITIONS.items() for target in targets
    )


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda picture: picture.name)
def test_svg_picture_loads_no_external_resource(picture: Path) -> None:
    text = picture.read_text()
    ET.fromstring(text)
    assert re.findall(r"""(?:href|src)=["'](?!#)[^"']*|url\((?!#)[^)]*|@import""", text) == []


def test_glossary_lists_every_intent() -> None:
    (meaning,) = [row[1] for row in rows("reference/glossary.md") if row[0] == "**intent**"]
    assert all(intent in meaning for intent in Intent)


def commands(command: Any, path: tuple[str, ...] = ("tidemill",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command with its path, such as ("tidemill", "bench", "items")."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, sub in inner.items():
        yield from commands(sub, (*path, name))


COMMANDS = dict(commands(get_command(app)))
GROUPS = {path[1] for path in COMMANDS if len(path) > 2}


def test_command_page_lists_every_command() -> None:
    table = [line for line in (DOCS / "reference/cli.md").read_text().splitlines() if line.startswith("| `tidemill")]
    assert ("tidemill", "bench", "items") in COMMANDS
    for path in COMMANDS:
        alone = rf"`(tidemill )?{' '.join(path[1:])}\b"
        assert any(re.search(alone, line) for line in table), " ".join(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_docs_page_shows_only_existing_commands_and_options(page: Path) -> None:
    for line in re.findall(r"\btidemill ([a-z]+\b[^`\n#;]*)", "\n".join(quoted(page))):
        said = line.split()
        path = ("tidemill", *said[:2]) if said[0] in GROUPS else ("tidemill", said[0])
        assert path in COMMANDS, line
        known = {option for parameter in COMMANDS[path].params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= known, line


def test_threat_table_names_existing_tests() -> None:
    table = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    named = [re.findall(r"`(tests/[^`]+)`", line) for line in table if not line.startswith("| Threat |")]
    assert len(named) > 50
    assert all(named), "each threat has a test"
    for path, _, name in (test.partition("::") for tests in named for test in tests):
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path}::{name}"


def quoted(page: Path) -> list[str]:
    """Return the shell blocks and the inline code of a page."""
    text = page.read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_docs_page_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text().replace("\n", " ")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_handler_examples_in_docs_run_and_register_handlers() -> None:
    names: dict[str, Any] = {}
    for number, block in enumerate(code("reference/handlers.md", "python")):
        exec(compile(block, f"handlers.md, block {number}", "exec"), names)
    assert len(names["mill"].registry.kinds()) >= 6


def test_python_examples_in_docs_compile() -> None:
    blocks = code("../README.md", "python")
    assert len(blocks) == 1
    for block in blocks:
        compile(block, "an example", "exec")


def emitted() -> dict[str, set[str]]:
    """Return the fields of each event that the source emits, by its name."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in calls_of_emit(function):
                    for name in names_of_event(call.args[0], function):
                        found.setdefault(name, set()).update(str(field.arg) for field in call.keywords)
    return found


def calls_of_emit(tree: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "emit"]


def names_of_event(said: ast.expr, function: ast.AST) -> list[str]:
    """Return the name of an event; for a variable, all names that the function assigns to it."""
    if isinstance(said, ast.Name):
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        trees: list[ast.AST] = [node.value for node in assigned if ast.unparse(node.targets[0]) == said.id]
    else:
        trees = [said]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [value for value in constants if isinstance(value, str) and EVENT.fullmatch(value)]


def test_event_table_in_docstring_matches_emitted_events() -> None:
    assert events.__doc__ is not None
    lines = re.findall(r"^([a-z]+\.[a-z]+) +(\w+(?:,\s+\w+)*) {2,}\S", events.__doc__, re.MULTILINE)
    assert {name: set(re.split(r",\s+", fields)) for name, fields in lines} == emitted()


def test_telemetry_page_lists_every_event_with_its_level() -> None:
    level = {name: logging.getLevelName(logs._EVENT_LEVELS.get(name, logging.INFO)).lower() for name in emitted()}
    assert {name: said for name, said, _ in rows("reference/telemetry.md", "## Events")[1:]} == level


def test_telemetry_page_lists_every_metric_with_its_type() -> None:
    table = {name: kind for name, kind, *_ in rows("reference/telemetry.md", "## Metrics")[1:]}
    families = MetricFamilies()._registry.collect()
    assert table == {f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families}


def list_error_codes() -> set[str]:
    """Return the codes with which the code of Tidemill fails items, and those that the engine sets."""
    found = {*HANDLER_FAILURE_CODES, "permanent"}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                if node.func.id == "ServiceCallError":
                    given = node.args[:1]
                elif node.func.id not in ("Fail", "Retry"):
                    continue
                found |= {one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


def test_statuses_page_lists_every_error_code() -> None:
    """The code of a retry that never fails an item is in the text below the tables."""
    items = rows("reference/statuses.md", "## Items")
    tables = items[items.index(["Code", "Meaning", "Retryable"]) + 1 :]
    listed = {code for row in tables for code in row[0].split(", ") if code != "Code"}
    assert listed == list_error_codes() - {"exit"}


def test_contributing_map_names_paths_that_exist() -> None:
    table = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("| ")]
    paths = [path for line in table for path in re.findall(r"`([^`]+)`", line)]
    assert len(paths) > 50
    assert [path for path in paths if not ((ROOT if path.startswith("docs/") else SOURCE) / path).exists()] == []


def test_guarantees_page_names_test_files_that_exist() -> None:
    page = (DOCS / "explanation/guarantees.md").read_text()
    _, _, promises = page.partition("## The promises")
    sections = re.split(r"^### ", promises.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    assert len(sections) >= 8
    for section in sections:
        named = re.findall(r"`(tests/[^`]+)`", section)
        assert named, section
        assert [path for path in named if not (ROOT / path).is_file()] == []
