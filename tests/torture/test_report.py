"""The report of a run as text and as JSON."""

import json
from collections import Counter

from tidemill.torture.ledgers import EVIDENCE_MAX, Report, Violation


def test_report_without_violations_has_passed() -> None:
    report = Report(7, faults=Counter({"kill-child": 3}), skipped_faults={"full-disk": "only root may mount"})
    assert report.has_passed
    found = json.loads(json.dumps(report.to_dict()))
    assert (found["passed"], found["lost"], found["faults"]) == (True, 0, {"kill-child": 3})
    lines = report.format_lines()
    assert lines[-1] == "passed"
    assert any("kill-child: 3" in line for line in lines)
    assert any("full-disk: only root may mount" in line for line in lines)


def test_report_counts_all_violations_and_lists_the_first() -> None:
    report = Report(7, violations=[Violation("lost", "job 1", seq, "missing") for seq in range(EVIDENCE_MAX + 5)])
    assert not report.has_passed
    assert report.to_dict()["lost"] == EVIDENCE_MAX + 5
    assert len(report.to_dict()["violations"]) == EVIDENCE_MAX
    assert "  and 5 more" in report.format_lines()
    assert report.format_lines()[-1] == "FAILED"


def test_interrupted_report_has_not_passed() -> None:
    report = Report(7, is_interrupted=True)
    assert not report.has_passed
    assert report.format_lines()[-1] == "interrupted"
