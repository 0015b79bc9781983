"""The handler of imports, which checks rows, first alone and then against the table, and writes the good ones."""

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
from tidemill.failpoints import failpoint
from tidemill.imports import import_records
from tidemill.imports.import_plan import ImportPlan
from tidemill.imports.remembered_mappings import MappingToRemember, save_mapping
from tidemill.imports.table_checks import TableChecker, format_row_values
from tidemill.imports.target_table import TableRejection, TargetTable, TargetUnusable
from tidemill.imports.undo_log import UndoRecorder, UndoTarget, read_undo_target
from tidemill.imports.validation.canonical_values import canonicalize_texts
from tidemill.imports.validation.field_reader import Normalizer
from tidemill.imports.validation.row_checker import CheckedRows, RowChecker
from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrorGroup
from tidemill.imports.write_rows import write_good_rows
from tidemill.runtime import Runtime
from tidemill.store import job_records
from tidemill.store.database import Connection

FIRST_PASS_WAIT_S, REFERENCE_RETRY_S = 2.0, 0.5
REFERENCE_PROGRESS_S = 5.0  # an import that wrote rows in this period may still write the rows that others refer to
REFERENCE_ATTEMPTS_MAX = 3  # attempts of a batch that writes no row, while other batches are retrying


class ReferenceWaitPolicy:
    """Decides whether rows wait for rows of the file that they refer to.

    It is loaded before the table is checked, so that the check sees the rows of batches that end in between.
    """

    def __init__(self, *, has_untried_rows: bool, has_other_retries: bool, wrote_recently: bool) -> None:
        self._has_untried_rows = has_untried_rows
        self._has_other_retries = has_other_retries
        self._wrote_recently = wrote_recently

    @classmethod
    async def read_for_job(cls, conn: Connection, job_id: UUID) -> "ReferenceWaitPolicy":
        flags = await import_records.read_remaining_work_flags(conn, job_id, REFERENCE_PROGRESS_S)
        return cls(has_untried_rows=flags[0], has_other_retries=flags[1], wrote_recently=flags[2])

    def decide_outcome(self, item: Item, flaws: Sequence[RowErrorGroup], *, progress: bool) -> Outcome | None:
        """Return Wait or Retry for a row whose only errors are missing references; None if it must fail.

        While batches write rows, waiting does not count as an attempt: there are at most as many such rounds as rows.
        Rounds without progress count as attempts.
        """
        reason, code = flaws[0].reason, flaws[0].qualified_code
        if self._has_untried_rows:
            return Wait(reason, code=code, after=FIRST_PASS_WAIT_S)
        if progress or (self._has_other_retries and self._wrote_recently):
            return Wait(reason, code=code, after=REFERENCE_RETRY_S)
        if self._has_other_retries and item.attempt < REFERENCE_ATTEMPTS_MAX:
            return Retry(reason, code=code, after=REFERENCE_RETRY_S)
        return None


async def find_duplicates_to_skip_or_fail(
    conn: Connection, plan: ImportPlan, checker: RowChecker, checked: CheckedRows, items: Sequence[Item]
) -> dict[int, RowErrorDetail]:
    """Return the rows to skip, by a rule or because another row with their key is imported.

    With ``duplicates`` = ``error``, rows with the key of another row fail.
    """
    skipped = {index: RowErrorDetail(None, "skipped", reason) for index, reason in checked.skipped.items()}
    candidates = await import_records.find_duplicate_candidates(conn, items[0].job_id, [item.seq for item in items])
    if not candidates:
        return skipped
    indexes = {item.seq: index for index, item in enumerate(items)}
    others = checker.check_rows([repeat.other_input for repeat in candidates])
    for at, repeat in enumerate(candidates):
        index, fields = indexes[repeat.seq], plan.unique_field_sets[repeat.key_index]
        if index in skipped or at in others.skipped:
            continue
        names = plan.list_input_names(fields)
        mine, theirs = checked.get_values_of_rows(names, [index])[0], others.get_values_of_rows(names, [at])[0]
        if not _have_same_key(plan, fields, mine, theirs):
            continue
        if None in mine and (index in checked.errors.bad_rows or at in others.errors.bad_rows):
            continue  # the NULL may be an invalid value
        reason = f"row {repeat.other + 1} has the same {'key' if fields == plan.resource.key else 'value'}"
        problem = RowErrorDetail(", ".join(fields), "duplicate", reason, format_row_values(plan.resource, names, mine))
        if fields == plan.resource.key and plan.duplicates != "error":
            skipped[index] = problem
        else:
            checked.add_error(index, problem)
    return skipped


def _have_same_key(
    plan: ImportPlan, fields: Sequence[str], mine: Sequence[str | None], theirs: Sequence[str | None]
) -> bool:
    pairs = zip(plan.list_input_names(fields), mine, theirs, strict=True)
    for name, ours, other in pairs:
        first, second = canonicalize_texts(plan.resource.get_input_field(name), [ours, other])
        if first != second:
            return False
        if first is None and (name not in fields or not plan.resource.enforces_uniqueness(tuple(fields), [name])):
            return False
    return True


CACHED_PLANS_MAX = 100
MAPPING_SAVES_MAX = 3  # batches of a job, in each process, that save its mapping


@dataclass(slots=True)
class _CachedPlan:
    """A job's plan. ``expects_existing`` is set when COPY meets an existing value; until then two lookups are saved.

    ``to_remember`` is saved with several batches, because the transaction of a batch can roll back.
    """

    plan: ImportPlan
    checker: RowChecker
    to_remember: MappingToRemember | None
    undo_target: UndoTarget | None = None
    saves_left: int = MAPPING_SAVES_MAX
    expects_existing: bool = False


class ImportHandler:
    """Imports batches of rows. It caches the plans of jobs, which never change."""

    def __init__(self, normalizers: Mapping[str, Normalizer]) -> None:
        self._normalizers = normalizers
        self._plans: OrderedDict[UUID, _CachedPlan] = OrderedDict()

    async def process_batch(self, items: Sequence[Item], conn: Connection) -> BatchExceptions:
        """Import a batch, and return the outcomes of the rows that were not imported, by index."""
        job_id = items[0].job_id
        known = await self._get_or_read_plan(conn, job_id)
        checked = known.checker.check_rows([item.input for item in items])
        skipped = await find_duplicates_to_skip_or_fail(conn, known.plan, known.checker, checked, items)
        wait_policy = await ReferenceWaitPolicy.read_for_job(conn, job_id) if known.plan.may_wait_for_rows else None
        target = TargetTable(conn, known.plan.resource, known.plan.keeps_null, known.plan.guard_fields)
        checks = TableChecker(
            target,
            known.plan,
            checked,
            skipped,
            expects_existing=known.expects_existing,
            undo_recorder=None if known.undo_target is None else UndoRecorder(conn, job_id, known.undo_target),
        )
        try:
            await checks.check_rows()
            await checks.create_missing_references()
            effects = await write_good_rows(known.plan, checks)
            effects.update(checks.count_untested_rows())
        except TargetUnusable as gone:
            raise AbortJob(str(gone)) from gone
        except TableRejection as refusal:  # of a check: the engine halves the batch to find the row
            if len(items) > 1:
                raise
            checked.add_error(0, checks.build_row_error(refusal))
            effects = Counter()
        failpoint("import.rows_written")
        known.expects_existing |= checks.has_found_existing
        await import_records.add_import_effects(conn, job_id, effects, checks.lookups.created_by_table)
        if known.to_remember is not None and known.saves_left and effects.total():
            known.saves_left -= 1
            await save_mapping(conn, job_id, known.to_remember)
        waiting = (
            {}
            if wait_policy is None
            else _build_wait_outcomes(wait_policy, checks, items, progress=effects.total() > 0)
        )
        outcomes = {**waiting, **_build_skip_outcomes(skipped)}
        return BatchExceptions(outcomes, _build_failure_details(checked, except_rows=outcomes))

    async def _get_or_read_plan(self, conn: Connection, job_id: UUID) -> _CachedPlan:
        known = self._plans.get(job_id)
        if known is None:
            params = await job_records.read_job_params(conn, job_id)
            plan = msgspec.convert(params["plan"], ImportPlan)
            to_remember = MappingToRemember.from_job_params(params, plan)
            undo_target = await _read_undo_target_or_abort(conn, plan) if plan.is_undoable else None
            known = self._plans[job_id] = _CachedPlan(plan, self._make_checker(plan), to_remember, undo_target)
            while len(self._plans) > CACHED_PLANS_MAX:
                self._plans.popitem(last=False)
        self._plans.move_to_end(job_id)
        return known

    def _make_checker(self, plan: ImportPlan) -> RowChecker:
        try:
            return RowChecker(plan, self._normalizers)
        except InvalidInput as error:  # a job of an earlier version: it does not name its normalizers
            raise AbortJob(str(error)) from error


async def _read_undo_target_or_abort(conn: Connection, plan: ImportPlan) -> UndoTarget:
    try:
        return await read_undo_target(conn, plan)
    except InvalidInput as error:
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
        statement_timeout=runtime.settings.import_statement_timeout_s,
        retry=retry,
        sparse=True,
        in_transaction=True,
        exact=True,
        batch_size=runtime.settings.import_batch_rows,
        provides=frozenset(f"normalizer:{name}" for name in normalizers),
        make_input_observer=lambda params, source: _make_duplicate_detector_lazily(params, source, normalizers),
    )


def _make_duplicate_detector_lazily(
    params: JsonObject, source: InputSource, normalizers: Mapping[str, Normalizer]
) -> InputObserver:
    from tidemill.imports.duplicate_detector import make_duplicate_detector  # noqa: PLC0415  it imports numpy

    return make_duplicate_detector(params, source, normalizers)


def _build_skip_outcomes(skipped: Mapping[int, RowErrorDetail]) -> dict[int, Outcome]:
    return {index: Skip(problem.reason) for index, problem in skipped.items()}


def _build_failure_details(checked: CheckedRows, *, except_rows: Collection[int]) -> dict[int, ErrorDetails]:
    errors = checked.errors.build_details_by_row()
    return {index: one for index, one in errors.items() if index not in except_rows} if except_rows else errors


def _build_wait_outcomes(
    wait_policy: ReferenceWaitPolicy, checker: TableChecker, items: Sequence[Item], *, progress: bool
) -> dict[int, Outcome]:
    """Return outcomes for the rows whose only errors are references to missing rows of their own table."""
    outcomes = {
        index: wait_policy.decide_outcome(items[index], flaws, progress=progress)
        for index, flaws in checker.checked.errors.group_by_row(sorted(checker.unresolved_self_references)).items()
        if all(flaw.code == "unknown_reference" for flaw in flaws)
    }
    return {index: outcome for index, outcome in outcomes.items() if outcome is not None}
