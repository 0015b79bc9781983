"""Watches as they are declared, and names of files."""

import tomllib

import pytest

from tidemill.domain.errors import InvalidSettings
from tidemill.domain.place import BucketPlace
from tidemill.domain.watching import Entry, FolderAddress, HostAddress, ImportTask, LinksAddress, watches
from tidemill.domain.watching.decide import JobFacts, Known, news_of, settled
from tidemill.domain.watching.names import Pattern, name_problem, shown, with_suffix
from tidemill.domain.watching.times import next_look, seconds_of

SAID = """
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
    with pytest.raises(InvalidSettings) as told:
        watches(tomllib.loads(text))
    return str(told.value)


def test_all_that_is_said_is_read() -> None:
    (watch,) = watches(tomllib.loads(SAID)).values()
    assert watch.source == HostAddress("sftp", "files.example.com", 2222, "ada", "/srv/out")
    assert str(watch.source) == "sftp://ada@files.example.com:2222//srv/out"
    assert isinstance(watch.task, ImportTask)
    assert (watch.task.request.mode, watch.task.request.mapping) == ("upsert", {"E-Mail": "email"})
    assert (watch.every, watch.marker, watch.owner, watch.priority) == (300, ".done", "ada", 5)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('"inbox"', FolderAddress("inbox")),
        ('"inbox/a/b/"', FolderAddress("inbox", "a/b")),
        ('"s3://bucket/in"', BucketPlace("s3", "bucket", "in")),
        ('"ftp://host"', HostAddress("ftp", "host", 21)),
        ('"ftps://u@[::1]/x"', HostAddress("ftps", "::1", 990, "u", "x")),
        ('["https://h/a?b", "https://h/c"]', LinksAddress(("https://h/a?b", "https://h/c"))),
    ],
)
def test_a_source_may_be(said: str, meant: object) -> None:
    (watch,) = watches(tomllib.loads(f'[watches.a]\nsource = {said}\njob = {{ kind = "x" }}')).values()
    assert watch.source == meant


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('"/srv/inbox"', "it is no path"),
        ('"inbox/../other"', "lead out of it"),
        ('"gopher://host"', "begins with one of"),
        ('"ftp://u:geheim@h/x"', "password_env"),
        ('"https://u:geheim@h/x"', "authorization_env"),
        ('"s3://key:geheim@bucket"', "keys belong into the environment"),
        ('"sftp://host/x"', "who are you there"),
        ('["ftp://h/x"]', "http or https"),
        ("[]", "one or more"),
        ("7", "is wanted"),
    ],
)
def test_a_source_that_cannot_be_is_told_without_its_secrets(said: str, reason: str) -> None:
    told = declared(f'[watches.a]\nsource = {said}\njob = {{ kind = "x" }}')
    assert "watches.a.source: " in told
    assert reason in told
    assert "geheim" not in told


def test_every_mistake_is_told_at_once() -> None:
    told = declared(
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
        assert f"  - watches.{path}: " in told, path
    for path in ("Bad.colour", "b", "c.key_file", "c.import.mode", "c.import.resource"):
        assert f"  - watches.{path}: " in told, path


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
def test_a_pattern_matches_as_in_a_shell(glob: str, good: list[str], bad: list[str]) -> None:
    pattern = Pattern((glob,))
    assert [name for name in good + bad if pattern.matches(name)] == good


def test_a_suffix_keeps_what_the_file_is() -> None:
    assert with_suffix("processed/x/a.csv.gz", 42) == "processed/x/a.42.csv.gz"
    assert with_suffix("processed/README", 7) == "processed/README.7"


def test_names_that_cannot_be_shown_are_shown_all_the_same_and_told_apart() -> None:
    odd = ["a\n.csv", "a\udce9.csv", "a\udcea.csv", "x" * 2_000, "x" * 2_001]
    assert all(name_problem(name) for name in odd)
    assert len({shown(name) for name in odd}) == len(odd)
    assert all(shown(name).isprintable() and shown(name).isascii() and len(shown(name)) < 400 for name in odd)
    assert shown("größe.csv") == "größe.csv"


def test_news_are_what_is_new_what_has_changed_and_what_is_back() -> None:
    known = [
        Known(1, "waits", 1, "v1", "seen", "nightly"),
        Known(2, "changes", 1, "v1", "seen", "nightly"),
        Known(3, "back", 1, "v1", "gone", "nightly"),
        Known(4, "done", 1, "v1", "processed", "nightly"),
        Known(5, "again", 1, "v1", "processed", "nightly"),
    ]
    listed = [Entry(name, 1, "v1") for name in ("waits", "back", "done", "new")]
    listed += [Entry("changes", 2, "v2"), Entry("again", 2, "v2")]
    news = news_of(listed, known)
    assert [one.path for one in news.added] == ["new", "again"]
    assert [(one.id, entry.version) for one, entry in news.changed] == [(3, "v1"), (2, "v2")]


def test_a_file_is_settled_by_whether_its_rows_are_stored() -> None:
    assert settled(JobFacts(exists=True)) is None
    assert settled(JobFacts(exists=True, ingest_done=True, closed_as="failed")) == ("persisted", None)
    assert settled(JobFacts(exists=True, closed_as="failed", failure_reason="bad")) == ("rejected", "bad")
    gone = settled(JobFacts(exists=False))
    assert gone is not None
    assert gone[0] == "rejected"


def test_a_source_that_is_away_is_asked_less_and_less_often() -> None:
    assert [next_look(60, failures) for failures in (0, 1, 2, 10)] == [60, 120, 240, 900]
    assert next_look(86_400, 50) == 86_400
    assert (seconds_of("1.5h"), seconds_of("30s")) == (5_400, 30)
