"""The handler: check rows by themselves, then against the table, then write the good ones."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from tidemill.domain.errors import InvalidInput
from tidemill.domain.handler import Handler
from tidemill.domain.importing import KIND, Checked, Checker, ImportPlan
from tidemill.domain.item import Item
from tidemill.domain.outcome import Abort, Exceptions, Outcome, Skip
from tidemill.domain.ports import Intake, Source
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.values import Problem
from tidemill.domain.values.field import Normalizer
from tidemill.handlers.importing.judge import Judge
from tidemill.handlers.importing.land import land
from tidemill.handlers.importing.repeats import find_repeats
from tidemill.handlers.importing.waiting import Hope
from tidemill.store import imports, jobs
from tidemill.store.database import Connection
from tidemill.store.target import Target
from tidemill.store.target_refusals import Gone, Refusal

BATCH_SIZE = 10_000  # rows a transaction: COPY, lookups and the fence cost little each
PLANS_MAX = 100


@dataclass(slots=True)
class _Known:
    """A job's plan. Whether values are there already is asked once COPY has met one: two looks less, for most files."""

    plan: ImportPlan
    checker: Checker
    expects_existing: bool = False


class Importer:
    """Remembers the plans of the jobs it works on: a job's plan never changes."""

    def __init__(self, normalizers: Mapping[str, Normalizer]) -> None:
        self._normalizers = normalizers
        self._known: OrderedDict[UUID, _Known] = OrderedDict()

    async def run(self, items: Sequence[Item], conn: Connection) -> Exceptions:
        """What became of rows that were not simply imported, by their place among the items."""
        job_id = items[0].job_id
        known = await self._know(conn, job_id)
        checked = known.checker.check([item.input for item in items])
        skipped = await find_repeats(conn, known.plan, known.checker, checked, items)
        hope = await Hope.ask(conn, job_id) if known.plan.waits else None
        target = Target(conn, known.plan.resource, known.plan.keeps_nothing)
        judge = Judge(target, known.plan, checked, skipped, expects_existing=known.expects_existing)
        try:
            await judge.look()
            effects = await land(known.plan, judge)
        except Gone as gone:
            raise Abort(str(gone)) from gone
        except Refusal as refusal:  # of a question: the row that it cannot be asked about is found by halves
            if len(items) > 1:
                raise
            checked.add(0, judge.problem_of(refusal))
            effects = Counter()
        known.expects_existing |= judge.found_existing
        await imports.note_effects(conn, job_id, effects)
        waiting = {} if hope is None else _waiting(hope, judge, items, progress=effects.total() > 0)
        said = {**waiting, **_skips(skipped)}
        return Exceptions(said, _failures(checked, but=said))

    async def _know(self, conn: Connection, job_id: UUID) -> _Known:
        known = self._known.get(job_id)
        if known is None:
            plan = msgspec.convert((await jobs.params(conn, job_id))["plan"], ImportPlan)
            known = self._known[job_id] = _Known(plan, self._checker(plan))
            while len(self._known) > PLANS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(job_id)
        return known

    def _checker(self, plan: ImportPlan) -> Checker:
        try:
            return Checker(plan, self._normalizers)
        except InvalidInput as error:  # this worker lacks a normalizer: no row is to blame
            raise Abort(str(error)) from error


def import_handler(normalizers: Mapping[str, Normalizer]) -> Handler:
    retry = RetryPolicy(max_attempts=3)
    call = Importer(normalizers).run
    return Handler(
        KIND,
        call,
        "batch",
        concurrency=2,
        timeout=None,
        retry=retry,
        sparse=True,
        in_transaction=True,
        exact=True,
        batch_size=BATCH_SIZE,
        intake=lambda params, source: _intake(params, source, normalizers),
    )


def _intake(params: dict[str, Any], source: Source, normalizers: Mapping[str, Normalizer]) -> Intake:
    from tidemill.handlers.importing.intake import make_intake  # noqa: PLC0415  numpy, only for who reads a file

    return make_intake(params, source, normalizers)


def _skips(skipped: Mapping[int, Problem]) -> dict[int, Outcome]:
    return {index: Skip(problem.reason) for index, problem in skipped.items()}


def _failures(checked: Checked, *, but: Collection[int]) -> dict[int, dict[str, Any]]:
    told = checked.flaws.told()
    return {index: one for index, one in told.items() if index not in but} if but else told


def _waiting(hope: Hope, judge: Judge, items: Sequence[Item], *, progress: bool) -> dict[int, Outcome]:
    """Rows with nothing wrong but that others of their file are not there yet."""
    said = {
        index: hope.outcome(items[index], flaws, progress=progress)
        for index, flaws in judge.checked.flaws.of_rows(sorted(judge.early)).items()
        if all(flaw.code == "unknown_reference" for flaw in flaws)
    }
    return {index: outcome for index, outcome in said.items() if outcome is not None}
