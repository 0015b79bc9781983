"""Declarations of watches, and file names."""

import tomllib

import pytest

from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import InvalidSettings
from tidemill.imports.import_file_task import ImportFileTask
from tidemill.watches.config import parse_watches
from tidemill.watches.file_names import FilePattern, add_mark_before_extension, find_name_problem, make_printable_path
from tidemill.watches.file_state import (
    FileJobState,
    ListedFile,
    RecordedFile,
    decide_file_state,
    find_new_and_changed_files,
)
from tidemill.watches.watch import FolderAddress, HostAddress, WebAddress, compute_scan_delay, parse_duration_s

FILE_TASKS = {"import": ImportFileTask}
DECLARED = """
[watches.nightly]
source = "sftp://ada@files.example.com:2222//srv/out"
pattern = ["*.csv", "*.ndjson"]
import = { resource = "users", mode = "upsert", mapping = { "E-Mail" = "email" }, key = ["email"] }
owner = "ada"
every = "5m"
marker = ".done"
key_file = "id"
priority = 5
"""


def declared(text: str) -> str:
    with pytest.raises(InvalidSettings) as caught:
        parse_watches(tomllib.loads(text), FILE_TASKS)
    return str(caught.value)


def test_watch_config_reads_all_options() -> None:
    (watch,) = parse_watches(tomllib.loads(DECLARED), FILE_TASKS).values()
    assert watch.source == HostAddress("sftp", "files.example.com", 2222, "ada", "/srv/out")
    assert str(watch.source) == "sftp://ada@files.example.com:2222//srv/out"
    assert isinstance(watch.task, ImportFileTask)
    assert (watch.task.mode, watch.task.mapping) == ("upsert", {"E-Mail": "email"})
    assert (watch.every, watch.marker, watch.owner, watch.priority) == (300, ".done", "ada", 5)


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ('"inbox"', FolderAddress("inbox")),
        ('"inbox/a/b/"', FolderAddress("inbox", "a/b")),
        ('"s3://bucket/in"', BucketLocation("s3", "bucket", "in")),
        ('"ftp://host"', HostAddress("ftp", "host", 21)),
        ('"ftps://u@[::1]/x"', HostAddress("ftps", "::1", 990, "u", "x")),
        ('["https://h/a?b", "https://h/c"]', WebAddress(("https://h/a?b", "https://h/c"))),
    ],
)
def test_watch_source_is_parsed(source: str, address: object) -> None:
    text = f'[watches.a]\nsource = {source}\njob = {{ kind = "x" }}'
    (watch,) = parse_watches(tomllib.loads(text), FILE_TASKS).values()
    assert watch.source == address


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('"/srv/inbox"', "not a path"),
        ('"inbox/../other"', '".." segments'),
        ('"gopher://host"', "must start with one of"),
        ('"ftp://u:geheim@h/x"', "password_env"),
        ('"https://u:geheim@h/x"', "authorization_env"),
        ('"s3://key:geheim@bucket"', "credentials into environment variables"),
        ('"sftp://host/x"', "User is missing"),
        ('["ftp://h/x"]', "http or https"),
        ("[]", "one or more"),
        ("7", "must be a folder in TIDEMILL_SOURCES or a URL"),
    ],
)
def test_invalid_watch_source_is_reported_without_secrets(source: str, reason: str) -> None:
    message = declared(f'[watches.a]\nsource = {source}\njob = {{ kind = "x" }}')
    assert "watches.a.source: " in message
    assert reason in message
    assert "geheim" not in message


def test_invalid_watch_config_reports_all_problems() -> None:
    message = declared(
        """
[watches.Bad]
source = "inbox"
every = "soon"
pattern = "../x"
stable_for = "5s"
marker = ".done"
password_env = "not a name"
failed = "processed"
policy = { mode = "hope" }
colour = "red"
[watches.b]
source = "inbox"
job = { kind = "tidemill.import" }
import = { resource = "users" }
[watches.c]
source = "ftp://h/x"
key_file = "id"
import = { mode = "replace", resource = 7 }
"""
    )
    for path in ("Bad", "Bad.every", "Bad.pattern", "Bad.stable_for", "Bad.password_env", "Bad.failed", "Bad.policy"):
        assert f"  - watches.{path}: " in message, path
    for path in ("Bad.colour", "b", "c.key_file", "c.import.mode", "c.import.resource"):
        assert f"  - watches.{path}: " in message, path


def test_watch_without_a_task_value_is_reported() -> None:
    table = {"source": "https://files.example.com/a.csv", "job": None}
    with pytest.raises(InvalidSettings, match="Set either"):
        parse_watches({"watches": {"a": table}}, FILE_TASKS)


@pytest.mark.parametrize(
    ("glob", "good", "bad"),
    [
        ("*.csv", ["a.csv", "a b.csv"], ["x/a.csv", "a.csv.gz", ".a.csv", "a.csv.part", "A.CSV"]),
        ("**/*.csv", ["a.csv", "x/a.csv", "x/y/a.csv"], ["x/.git/a.csv", "a.tmp"]),
        ("in/**", ["in/a", "in/b/c"], ["a", "inn/a"]),
        ("[!a-c]?.[ct]sv", ["d1.csv", "e2.tsv"], ["a1.csv", "d.csv", "d1.xsv"]),
        ("a+(b).csv", ["a+(b).csv"], ["aab.csv"]),
    ],
)
def test_file_pattern_matches_like_shell_glob(glob: str, good: list[str], bad: list[str]) -> None:
    pattern = FilePattern((glob,))
    assert [name for name in good + bad if pattern.matches(name)] == good


def test_name_suffix_is_added_before_file_extensions() -> None:
    assert add_mark_before_extension("processed/x/a.csv.gz", 42) == "processed/x/a.42.csv.gz"
    assert add_mark_before_extension("processed/README", 7) == "processed/README.7"


def test_unprintable_file_names_get_distinct_printable_paths() -> None:
    odd = ["a\n.csv", "a\udce9.csv", "a\udcea.csv", "x" * 2_000, "x" * 2_001]
    assert all(find_name_problem(name) for name in odd)
    assert len({make_printable_path(name) for name in odd}) == len(odd)
    assert all(
        make_printable_path(name).isprintable()
        and make_printable_path(name).isascii()
        and len(make_printable_path(name)) < 400
        for name in odd
    )
    assert make_printable_path("größe.csv") == "größe.csv"


def test_listing_comparison_finds_new_changed_and_returned_files() -> None:
    known = [
        RecordedFile(1, "waits", 1, "v1", "seen", "nightly"),
        RecordedFile(2, "changes", 1, "v1", "seen", "nightly"),
        RecordedFile(3, "back", 1, "v1", "gone", "nightly"),
        RecordedFile(4, "done", 1, "v1", "processed", "nightly"),
        RecordedFile(5, "again", 1, "v1", "processed", "nightly"),
    ]
    listed = [ListedFile(name, 1, "v1") for name in ("waits", "back", "done", "new")]
    listed += [ListedFile("changes", 2, "v2"), ListedFile("again", 2, "v2")]
    changes = find_new_and_changed_files(listed, known)
    assert [entry.path for entry in changes.added] == ["new", "again"]
    assert [(stored.id, entry.version) for stored, entry in changes.changed] == [(3, "v1"), (2, "v2")]


def test_watched_file_state_depends_on_stored_rows_of_its_job() -> None:
    assert decide_file_state(FileJobState(exists=True)) is None
    assert decide_file_state(FileJobState(exists=True, ingest_done=True, closed_as="failed")) == ("persisted", None)
    assert decide_file_state(FileJobState(exists=True, closed_as="failed", failure_reason="bad")) == ("rejected", "bad")
    gone = decide_file_state(FileJobState(exists=False))
    assert gone is not None
    assert gone[0] == "rejected"


def test_scan_delay_backs_off_for_unreachable_source() -> None:
    assert [compute_scan_delay(60, failures) for failures in (0, 1, 2, 10)] == [60, 120, 240, 900]
    assert compute_scan_delay(86_400, 50) == 86_400
    assert (parse_duration_s("1.5h"), parse_duration_s("30s")) == (5_400, 30)


def test_import_key_is_unknown_when_imports_feature_is_disabled() -> None:
    text = '[watches.a]\nsource = "inbox"\nimport = { resource = "users" }'
    with pytest.raises(InvalidSettings) as raised:
        parse_watches(tomllib.loads(text), {})
    assert "watches.a.import: Unknown key" in str(raised.value)
    assert 'watches.a: Set "job"' in str(raised.value)


def test_watch_with_both_tasks_is_rejected() -> None:
    text = '[watches.a]\nsource = "inbox"\njob = { kind = "x" }\nimport = { resource = "users" }'
    assert 'watches.a: Set either "job" or "import"' in declared(text)
