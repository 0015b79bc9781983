"""The handler of imports: checks rows on their own, then against the table, then writes the good ones."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import InputObserver, InputSource
from tidemill.core.job import Item
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import IMPORT_KIND, Handler
from tidemill.core.outcome import AbortJob, BatchExceptions, ErrorDetails, Outcome, Retry, Skip, Wait
from tidemill.core.policies import RetryPolicy
from tidemill.imports import import_records
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.table_checks import TableChecker, format_row_values
from tidemill.imports.target_table import TableRejection, TargetTable, TargetUnusable
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.field_reader import Normalizer
from tidemill.imports.validation.row_checker import CheckedRows, RowChecker
from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrorGroup
from tidemill.imports.write_rows import write_good_rows
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.store.database import Connection

FIRST_PASS_WAIT_S, REFERENCE_RETRY_S = 2.0, 0.5
REFERENCE_ATTEMPTS_MAX = 3  # of a batch that got no row in, while others go round again


class ReferenceWaitPolicy:
    """What may still bring the rows that others refer to.

    It is asked before the table is: what ends in between is seen there.
    """

    def __init__(self, *, has_untried_rows: bool = False, has_other_retries: bool = False) -> None:
        self._has_untried_rows = has_untried_rows
        self._has_other_retries = has_other_retries

    @classmethod
    async def load(cls, conn: Connection, job_id: UUID) -> "ReferenceWaitPolicy":
        first_pass, others = await import_records.read_remaining_batch_flags(conn, job_id)
        return cls(has_untried_rows=first_pass, has_other_retries=others)

    def decide_outcome(self, item: Item, flaws: Sequence[RowErrorGroup], *, progress: bool) -> Outcome | None:
        """Waiting, for a row with nothing but such references wrong; None when nobody is left who could help it.

        Every round in which a row gets in is free: there are no more of these than rows. Of others there are few.
        """
        reason, code = flaws[0].reason, flaws[0].qualified_code
        if self._has_untried_rows:
            return Wait(reason, code=code, after=FIRST_PASS_WAIT_S)
        if progress:
            return Wait(reason, code=code, after=REFERENCE_RETRY_S)
        if self._has_other_retries and item.attempt < REFERENCE_ATTEMPTS_MAX:
            return Retry(reason, code=code, after=REFERENCE_RETRY_S)
        return None


async def resolve_duplicates(
    conn: Connection, plan: ImportPlan, checker: RowChecker, checked: CheckedRows, items: Sequence[Item]
) -> dict[int, RowErrorDetail]:
    """Rows to pass over because another row of their key is the one; with ``error`` they fail instead."""
    found = await import_records.find_duplicate_candidates(conn, items[0].job_id, [item.seq for item in items])
    if not found:
        return {}
    places = {item.seq: index for index, item in enumerate(items)}
    others = checker.check_rows([repeat.other_input for repeat in found])
    skipped: dict[int, RowErrorDetail] = {}
    for at, repeat in enumerate(found):
        index, fields = places[repeat.seq], plan.unique_field_sets[repeat.key_index]
        mine, theirs = checked.get_tuples(fields, [index])[0], others.get_tuples(fields, [at])[0]
        if not _have_same_key(plan, fields, mine, theirs):
            continue
        if None in mine and (index in checked.errors.bad_rows or at in others.errors.bad_rows):
            continue  # that may be a value which could not be read
        reason = f"row {repeat.other + 1} has the same"
        problem = RowErrorDetail(", ".join(fields), "duplicate", reason, format_row_values(plan.resource, fields, mine))
        if fields == plan.resource.key and plan.duplicates != "error":
            skipped[index] = problem
        else:
            checked.add_error(index, problem)
    return skipped


def _have_same_key(
    plan: ImportPlan, fields: Sequence[str], mine: Sequence[str | None], theirs: Sequence[str | None]
) -> bool:
    pairs = zip(fields, mine, theirs, strict=True)
    for name, ours, other in pairs:
        first, second = canonicalize_texts(plan.resource.get_field(name), [ours, other])
        if first != second or (first is None and not plan.resource.enforces_uniqueness(tuple(fields), [name])):
            return False
    return True


IMPORT_BATCH_ROWS = 10_000  # rows a transaction: COPY, lookups and the fence cost little each
CACHED_PLANS_MAX = 100


@dataclass(slots=True)
class _CachedPlan:
    """A job's plan. Whether values are there already is asked once COPY has met one: two looks less, for most files."""

    plan: ImportPlan
    checker: RowChecker
    expects_existing: bool = False


class ImportHandler:
    """Remembers the plans of the jobs it works on: a job's plan never changes."""

    def __init__(self, normalizers: Mapping[str, Normalizer]) -> None:
        self._normalizers = normalizers
        self._plans: OrderedDict[UUID, _CachedPlan] = OrderedDict()

    async def process_batch(self, items: Sequence[Item], conn: Connection) -> BatchExceptions:
        """What became of rows that were not simply imported, by their place among the items."""
        job_id = items[0].job_id
        known = await self._load_plan(conn, job_id)
        checked = known.checker.check_rows([item.input for item in items])
        skipped = await resolve_duplicates(conn, known.plan, known.checker, checked, items)
        hope = await ReferenceWaitPolicy.load(conn, job_id) if known.plan.may_wait_for_rows else None
        target = TargetTable(conn, known.plan.resource, known.plan.keeps_null)
        judge = TableChecker(target, known.plan, checked, skipped, expects_existing=known.expects_existing)
        try:
            await judge.check_rows()
            effects = await write_good_rows(known.plan, judge)
        except TargetUnusable as gone:
            raise AbortJob(str(gone)) from gone
        except TableRejection as refusal:  # of a question: the row that it cannot be asked about is found by halves
            if len(items) > 1:
                raise
            checked.add_error(0, judge.build_row_error(refusal))
            effects = Counter()
        known.expects_existing |= judge.has_found_existing
        await import_records.add_import_effects(conn, job_id, effects)
        waiting = {} if hope is None else _build_wait_outcomes(hope, judge, items, progress=effects.total() > 0)
        said = {**waiting, **_build_skips(skipped)}
        return BatchExceptions(said, _build_failures(checked, except_rows=said))

    async def _load_plan(self, conn: Connection, job_id: UUID) -> _CachedPlan:
        known = self._plans.get(job_id)
        if known is None:
            plan = msgspec.convert((await job_records.read_job_params(conn, job_id))["plan"], ImportPlan)
            known = self._plans[job_id] = _CachedPlan(plan, self._make_checker(plan))
            while len(self._plans) > CACHED_PLANS_MAX:
                self._plans.popitem(last=False)
        self._plans.move_to_end(job_id)
        return known

    def _make_checker(self, plan: ImportPlan) -> RowChecker:
        try:
            return RowChecker(plan, self._normalizers)
        except InvalidInput as error:  # this worker lacks a normalizer: no row is to blame
            raise AbortJob(str(error)) from error


def make_import_handler(runtime: Runtime) -> Handler:
    normalizers = runtime.declarations.normalizers
    retry = RetryPolicy(max_attempts=3)
    call = ImportHandler(normalizers).process_batch
    return Handler(
        IMPORT_KIND,
        call,
        "batch",
        concurrency=2,
        timeout=None,
        retry=retry,
        sparse=True,
        in_transaction=True,
        exact=True,
        batch_size=IMPORT_BATCH_ROWS,
        make_input_observer=lambda params, source: _make_detector_lazily(params, source, normalizers),
    )


def _make_detector_lazily(
    params: JsonObject, source: InputSource, normalizers: Mapping[str, Normalizer]
) -> InputObserver:
    from tidemill.imports.duplicate_detector import make_duplicate_detector  # noqa: PLC0415  numpy, only for who reads a file

    return make_duplicate_detector(params, source, normalizers)


def _build_skips(skipped: Mapping[int, RowErrorDetail]) -> dict[int, Outcome]:
    return {index: Skip(problem.reason) for index, problem in skipped.items()}


def _build_failures(checked: CheckedRows, *, except_rows: Collection[int]) -> dict[int, ErrorDetails]:
    errors = checked.errors.build_details()
    return {index: one for index, one in errors.items() if index not in except_rows} if except_rows else errors


def _build_wait_outcomes(
    hope: ReferenceWaitPolicy, judge: TableChecker, items: Sequence[Item], *, progress: bool
) -> dict[int, Outcome]:
    """Rows with nothing wrong but that others of their file are not there yet."""
    said = {
        index: hope.decide_outcome(items[index], flaws, progress=progress)
        for index, flaws in judge.checked.errors.group_by_row(sorted(judge.unresolved_self_references)).items()
        if all(flaw.code == "unknown_reference" for flaw in flaws)
    }
    return {index: outcome for index, outcome in said.items() if outcome is not None}
