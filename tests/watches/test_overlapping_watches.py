"""Watches that would take a file twice cannot be declared; those that only lie close together can."""

from pathlib import Path

import pytest

from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.watches.scanner import load_watches

DEEP = 'pattern = "**/*.csv"'


def declare(tmp_path: Path, first: tuple[str, str], second: tuple[str, str]) -> str:
    """What is wrong with two watches, each a source and a line."""
    inbox = tmp_path / "inbox"
    (inbox / "daily").mkdir(parents=True)
    (tmp_path / "link").symlink_to(inbox)
    config = tmp_path / "tidemill.toml"
    said = ((name, *one) for name, one in (("first", first), ("second", second)))
    config.write_text(
        "".join(f'[watches.{name}]\nsource = "{source}"\n{line}\njob.kind = "x"\n' for name, source, line in said)
    )
    sources = {"inbox": inbox, "same": inbox, "link": tmp_path / "link", "daily": inbox / "daily"}
    try:
        load_watches(make_runtime(None, Settings(home=tmp_path, config=config, sources=sources)))
    except InvalidSettings as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (("inbox", DEEP), ("inbox/daily", ""), "takes files of daily in it, too"),
        (("inbox/daily", ""), ("inbox", DEEP), "takes files of daily in it, too"),
        (("inbox", 'pattern = ["*.txt", "dai*/*"]'), ("inbox/daily", ""), "takes files of daily in it, too"),
        (("inbox", DEEP), ("daily", ""), "takes files of daily in it, too"),
        (("inbox", ""), ("same", ""), "same and inbox are one folder"),
        (("inbox", ""), ("link", ""), "link and inbox are one folder"),
        (("link/daily", ""), ("inbox", DEEP), "takes files of daily in it, too"),
        (("inbox", ""), ("inbox/processed", ""), "first puts files there"),
        (("inbox", DEEP), ("inbox", 'processed = "done"'), "takes files of done in it, too"),
        (("s3://bucket", DEEP), ("s3://bucket/in", ""), "takes files of in in it, too"),
        (("sftp://a@h/x", DEEP), ("sftp://a@h/x/y", ""), "takes files of y in it, too"),
    ],
)
def test_overlapping_watches_are_rejected_at_startup(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], reason: str
) -> None:
    said = declare(tmp_path, first, second)
    assert reason in said
    assert len(said.splitlines()) == 2  # one for both of them


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("inbox", ""), ("inbox/daily", "")),
        (("inbox", ""), ("inbox", 'pattern = "*.csv"')),
        (("inbox", 'pattern = "**/*.json"'), ("inbox/daily", 'pattern = "*.csv"')),
        (("inbox", 'pattern = "week*/*.csv"'), ("inbox/daily", "")),
        (("inbox", 'pattern = "*/*.csv"'), ("inbox/daily/deeper", "")),
        (("inbox/daily", DEEP), ("inbox/dailyish", "")),
        (("s3://bucket", DEEP), ("s3://other/in", "")),
        (("s3://bucket", DEEP), ("s3://bucket/in", 'endpoint = "http://other"')),
        (("sftp://a@h/x", DEEP), ("sftp://a@h//x/y", "")),
        (("https://h/a.csv", ""), ("https://h/a.csv", "")),
    ],
)
def test_nested_watches_with_different_files_are_accepted(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    assert declare(tmp_path, first, second) == ""
