"""The three ledgers of a run, and their comparison: what the client submitted, what handlers did, what is stored."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.doctor import check_invariants
from tidemill.torture.client import ClientJob
from tidemill.torture.plan import ENRICHMENT, IMPORT_INSERT, IMPORT_UPSERT
from tidemill.torture.processes import fetch_statement_rows
from tidemill.torture.workload import DENSE_KIND, ITEM_KIND, OWN_KINDS, SPARSE_KIND, read_ledger_lines

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


STATUS_OF_FATE = {"done": "done", "retry": "done", "fail": "failed", "skip": "skipped", "missing": "not_found"}


@dataclass
class StoredJob:
    """A job as the database has it."""

    total: int = 0
    statuses: dict[int, str | None] = field(default_factory=dict)
    codes: dict[int, str] = field(default_factory=dict)  # of failed items
    results: dict[int, Any] = field(default_factory=dict)
    effects: Counter[int] = field(default_factory=Counter)  # in the effect table
    rows: set[int] = field(default_factory=set)  # in the target table of imports
    inserted: int = 0  # rows that the batches of an import counted as inserted
    updated: int = 0


class OutsideLedger:
    """The effects that handlers appended to the file, read from where the last read ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._seqs: dict[UUID, set[int]] = defaultdict(set)

    def read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for job_id, seq in read_ledger_lines(iter(complete.splitlines())):
            self._seqs[job_id].add(seq)

    def get(self, job_id: UUID) -> set[int]:
        return self._seqs.get(job_id, set())

    def forget(self, job_id: UUID) -> None:
        self._seqs.pop(job_id, None)


async def read_stored_job(conn: Connection, job: ClientJob) -> StoredJob:
    """Return the items, the effects and the imported rows of a job."""
    stored = StoredJob()
    for row in await fetch_statement_rows(conn, "list_items", {"job_id": job.id}):
        seq = row["seq"]
        stored.total += 1
        stored.statuses[seq] = row["status"]
        if row["code"] is not None:
            stored.codes[seq] = row["code"]
        if row["result"] is not None:
            stored.results[seq] = row["result"]
    for row in await fetch_statement_rows(conn, "count_effects", {"job_id": job.id}):
        stored.effects[row["seq"]] = row["effects"]
    if job.what in (IMPORT_INSERT, IMPORT_UPSERT):
        prefix = job.idempotency_key + "-"
        rows = await fetch_statement_rows(conn, "list_imported", {"prefix": prefix})
        stored.rows = {
            int(row["id"].removeprefix(prefix)) for row in rows if row["n"] == int(row["id"].removeprefix(prefix))
        }
        [counted] = await fetch_statement_rows(conn, "sum_import_effects", {"job_id": job.id})
        stored.inserted, stored.updated = counted["inserted"], counted["updated"]
    return stored


def compare_ledgers(job: ClientJob, stored: StoredJob | None, outside: set[int]) -> Iterator[Violation]:
    """Compare the ledgers of a closed job. ``stored`` is None if the database has no such job."""
    name = f"{job.what} job {job.id}"
    if stored is None:
        yield Violation("lost", name, None, "the API accepted the job, but the database does not have it")
        return
    is_cut = job.may_be_cancelled and stored.total < job.rows  # cancelled before all rows were read
    if (stored.total != job.rows and not is_cut) or sorted(stored.statuses) != list(range(stored.total)):
        what = "doubled" if stored.total > job.rows else "lost"
        yield Violation(what, name, None, f"submitted {job.rows:,} rows, stored {stored.total:,}")
        return
    if (stored.inserted, stored.updated) != (len(stored.rows), 0):
        counted = f"{stored.inserted:,} inserted and {stored.updated:,} updated rows"
        yield Violation(
            "doubled", name, None, f"the batches counted {counted} instead of {len(stored.rows):,} inserted"
        )
    for seq, fate in enumerate(job.fates[: stored.total]):
        yield from (
            Violation(what, name, seq, f"{evidence} (input: {fate}, status: {stored.statuses[seq]})")
            for what, evidence in _compare_item(job, stored, outside, seq, fate)
        )


def _compare_item(
    job: ClientJob, stored: StoredJob, outside: set[int], seq: int, fate: str
) -> Iterator[tuple[str, str]]:
    status = stored.statuses[seq]
    expected = {STATUS_OF_FATE[fate]} | ({"cancelled"} if job.may_be_cancelled else set())
    expected |= {"done"} if seq in job.fixed else set()
    if status not in expected:
        yield "lost", f"expected {' or '.join(sorted(expected))}, code: {stored.codes.get(seq)}"
    is_done = status == "done"
    if job.what in (DENSE_KIND, SPARSE_KIND):
        effects = stored.effects[seq]
        if is_done and not effects:
            yield "lost", "done without an effect in the flush transaction"
        elif effects > int(is_done):
            yield "doubled", f"{effects} effects in the flush transaction"
    if job.what in OWN_KINDS and is_done and seq not in outside:
        yield "lost", "done, but its handler recorded no effect outside the database"
    if job.what in (ITEM_KIND, DENSE_KIND, ENRICHMENT) and is_done and stored.results.get(seq) != {"n": seq}:
        yield "lost", f"the result belongs to another item: {stored.results.get(seq)}"
    if job.what in (IMPORT_INSERT, IMPORT_UPSERT) and is_done != (seq in stored.rows):
        yield ("lost", "done, but not in the target table") if is_done else ("doubled", "in the target table")


def compare_file(job: ClientJob, seq: int, found: Sequence[str], wanted: Sequence[str]) -> Iterator[Violation]:
    """Compare the lines of an export or of a distributed file with the rows that it must have."""
    name = f"{job.what} job {job.id}"
    lost, doubled = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if lost:
        yield Violation(
            "lost", name, seq, f"{lost.total():,} lines are missing in the file, such as {next(iter(lost))!r}"
        )
    if doubled:
        yield Violation(
            "doubled", name, seq, f"{doubled.total():,} lines too many in the file, such as {next(iter(doubled))!r}"
        )


async def check_stored_jobs(conn: Connection, owner_id: int, jobs: Sequence[ClientJob]) -> list[Violation]:
    """Check that the owner has only the accepted jobs, and that all invariants of the engine hold for these."""
    accepted = {job.id: job for job in jobs}
    violations = [
        Violation("doubled", f"{row['kind']} job {row['id']}", None, "the client submitted no such job")
        for row in await fetch_statement_rows(conn, "list_jobs", {"owner_id": owner_id})
        if row["id"] not in accepted
    ]
    for job in jobs:
        violations += [
            Violation("inconsistent", f"{job.what} job {job.id}", None, f"{finding.name}: {detail}")
            for finding in await check_invariants(conn, job.id)
            for detail in finding.details
        ]
    return violations


def select_failed_by_faults(job: ClientJob, stored: StoredJob) -> Mapping[str, list[int]]:
    """Return code -> items that failed although their input is valid, such as items that ran during several kills."""
    found: dict[str, list[int]] = defaultdict(list)
    for seq, code in stored.codes.items():
        if stored.statuses[seq] == "failed" and STATUS_OF_FATE[job.fates[seq]] != "failed":
            found[code].append(seq)
    return found


def build_export_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return ["id,word", *(f"{row['id']},{row['word']}" for row in rows)]
