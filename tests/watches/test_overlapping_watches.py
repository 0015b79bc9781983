"""Watches that would submit a file twice are rejected. Nested watches with different files are accepted."""

from pathlib import Path

import pytest

from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.watches.scanner import load_watches

DEEP = 'pattern = "**/*.csv"'


def declare(tmp_path: Path, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Declare two watches, each with a source and a line. Return the error message, or an empty string."""
    inbox = tmp_path / "inbox"
    (inbox / "daily").mkdir(parents=True)
    (tmp_path / "link").symlink_to(inbox)
    config = tmp_path / "tidemill.toml"
    watches = ((name, *watch) for name, watch in (("first", first), ("second", second)))
    config.write_text(
        "".join(f'[watches.{name}]\nsource = "{source}"\n{line}\njob.kind = "x"\n' for name, source, line in watches)
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
        (("inbox", DEEP), ("inbox/daily", ""), 'also matches files in its subfolder "daily"'),
        (("inbox/daily", ""), ("inbox", DEEP), 'also matches files in its subfolder "daily"'),
        (
            ("inbox", 'pattern = ["*.txt", "dai*/*"]'),
            ("inbox/daily", ""),
            'also matches files in its subfolder "daily"',
        ),
        (("inbox", DEEP), ("daily", ""), 'also matches files in its subfolder "daily"'),
        (("inbox", ""), ("same", ""), '"same" and "inbox" are the same folder'),
        (("inbox", ""), ("link", ""), '"link" and "inbox" are the same folder'),
        (("link/daily", ""), ("inbox", DEEP), 'also matches files in its subfolder "daily"'),
        (("inbox", ""), ("inbox/processed", ""), 'watch "first" archives its files in this folder'),
        (("inbox", DEEP), ("inbox", 'processed = "done"'), 'also matches files in its subfolder "done"'),
        (("s3://bucket", DEEP), ("s3://bucket/in", ""), 'also matches files in its subfolder "in"'),
        (("sftp://a@h/x", DEEP), ("sftp://a@h/x/y", ""), 'also matches files in its subfolder "y"'),
    ],
)
def test_overlapping_watches_are_rejected_at_startup(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], reason: str
) -> None:
    message = declare(tmp_path, first, second)
    assert reason in message
    assert len(message.splitlines()) == 2  # the heading and one line for the pair


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
