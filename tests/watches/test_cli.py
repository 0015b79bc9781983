"""The commands tidemill sources and tidemill scan."""

import json

import pytest

from support.command import Tidemill

DECLARED = """
[watches.nightly]
source = "inbox"
pattern = "*.csv"
import = { resource = "public.people" }
stable_for = "0s"
"""


@pytest.mark.needs_feature("imports")
def test_scan_command_reports_files_and_sources_command_lists_watches(tidemill: Tidemill) -> None:
    (tidemill.folder / "inbox").mkdir()
    tidemill.extra["TIDEMILL_SOURCES"] = json.dumps({"inbox": str(tidemill.folder / "inbox")})
    tidemill.file("tidemill.toml", DECLARED)
    tidemill.file("inbox/people.csv", "email,name\nada@x.org,Ada\n")
    assert "never scanned" in tidemill("sources").out
    assert "1 found · 0 submitted" in tidemill("scan").out
    output = tidemill("scan", "nightly", code=1).out
    assert "public.people" in output
    assert "1 seen" in tidemill("sources").out
    assert 'Unknown watch "daily". Declared watches: nightly.' in tidemill.refuses("scan", "daily")


@pytest.mark.needs_feature("imports")
def test_invalid_watch_declarations_are_all_reported_without_secrets(tidemill: Tidemill) -> None:
    tidemill.file("tidemill.toml", DECLARED + '[watches.b]\nsource = "ftp://a:geheim@h/x"\njob = {}\n')
    output = tidemill("sources", code=2).err
    assert "watches.b.source: remove the password from the URL" in output
    assert "watches.b.job.kind: Field required" in output
    assert "geheim" not in output
    tidemill.file("tidemill.toml", DECLARED + 'layout = { format = "docx" }\n')
    output = tidemill("sources", code=2).err
    assert 'folder "inbox" is not in TIDEMILL_SOURCES' in output
    assert "docx" in output
