"""The result of a run: faults, counts and violations."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

VIOLATION_CLASSES = ("lost", "doubled", "stuck", "inconsistent")
EVIDENCE_MAX = 50  # violations that the report lists; the counts include all of them


@dataclass(frozen=True, slots=True)
class Violation:
    """A difference between the ledgers, or a job that does not end."""

    what: str  # one of VIOLATION_CLASSES
    job: str
    seq: int | None
    evidence: str

    def __str__(self) -> str:
        item = "" if self.seq is None else f" item {self.seq}"
        return f"{self.what}: {self.job}{item}: {self.evidence}"


@dataclass
class Report:
    """The counts of a run, and the evidence of its violations."""

    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    skipped_faults: dict[str, str] = field(default_factory=dict)  # class -> why it cannot be applied here
    skipped_jobs: dict[str, str] = field(default_factory=dict)
    jobs: int = 0
    items: int = 0
    operations: int = 0
    process_starts: int = 0
    failed_by_faults: Counter[str] = field(default_factory=Counter)  # error code -> items, which were run again
    violations: list[Violation] = field(default_factory=list)
    longest_recovery_s: float = 0.0
    longest_recovery_after: str = ""
    folder: str = ""
    is_interrupted: bool = False

    def count(self, what: str) -> int:
        return sum(violation.what == what for violation in self.violations)

    @property
    def has_passed(self) -> bool:
        return not self.violations and not self.is_interrupted

    def to_dict(self) -> dict[str, Any]:
        counts = {what: self.count(what) for what in VIOLATION_CLASSES}
        shown = [str(violation) for violation in self.violations[:EVIDENCE_MAX]]
        times = {"seconds": round(self.seconds, 1), "longest_recovery_s": round(self.longest_recovery_s, 2)}
        return vars(self) | times | counts | {"violations": shown, "passed": self.has_passed}

    def format_lines(self) -> list[str]:
        """Return the report as lines of text."""
        found = self.to_dict()
        names = ("seed", "seconds", "jobs", "items", "operations", "process_starts", *VIOLATION_CLASSES)
        lines = [f"{name.replace('_', ' '):<18} {found[name]:,}" for name in names]
        lines.append(f"{'longest recovery':<18} {self.longest_recovery_s:.1f} s after: {self.longest_recovery_after}")
        lines += [f"{'fault':<18} {name}: {count:,}" for name, count in sorted(self.faults.items())]
        lines += [f"{'fault not applied':<18} {name}: {why}" for name, why in sorted(self.skipped_faults.items())]
        lines += [f"{'job not submitted':<18} {what}: {why}" for what, why in sorted(self.skipped_jobs.items())]
        lines += [
            f"{'failed by faults':<18} {code}: {n:,} items, run again" for code, n in self.failed_by_faults.items()
        ]
        lines += [f"  {violation}" for violation in found["violations"]]
        more = len(self.violations) - EVIDENCE_MAX
        lines += [f"  and {more:,} more"] if more > 0 else []
        lines += [f"{'logs':<18} {self.folder}"] if self.folder else []
        return [*lines, "passed" if self.has_passed else "interrupted" if self.is_interrupted else "FAILED"]
