"""The kill matrix: the scenarios that reach each failpoint, and the actions that each failpoint is tested with."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from engine.kill_matrix import feature_scenarios, job_scenarios
from engine.kill_matrix.stage import Stage
from tidemill.failpoints import FAILPOINTS, Action

Scenario = Callable[[Stage], Awaitable[None]]

BATCH = ("claim.before", "claim.leased", "claim.after", "read.items", "item.started", "item.finished")
FLUSH = ("flush.before", "flush.after_fence", "flush.after_outcomes", "flush.after_effects", "flush.before_commit")
END = ("flush.after_commit", "close.before_commit", "close.after_commit")
INGEST = ("ingest.leased", "ingest.before_chunk", "ingest.after_fence", "ingest.after_chunk", "ingest.finished")
POINTS: dict[Scenario, tuple[str, ...]] = {  # scenario -> failpoints that it reaches
    job_scenarios.items: (*BATCH, *FLUSH, *END, "heartbeat.extended", "maintenance.on_duty"),
    job_scenarios.ledger: ("batch.handler_returned", "flush.after_fence", "flush.before_commit", "flush.after_commit"),
    job_scenarios.dead_child: ("salvage.before", "salvage.flushed"),
    job_scenarios.maintenance: ("sweep.reclaimed", "fold.folded"),
    job_scenarios.submit: (
        "submit.file_staged",
        "submit.before_transaction",
        "submit.before_commit",
        "submit.after_commit",
    ),
    job_scenarios.pause: ("intent.changed", "release.before", "release.released"),
    job_scenarios.resume: ("intent.changed",),
    job_scenarios.cancel: ("cancel.intent_committed", "cancel.batches_cancelled"),
    job_scenarios.cancel_items: ("cancel.items_cancelled",),
    job_scenarios.delete: (
        "delete.job_stopped",
        "delete.job_removed",
        "delete.chunk_removed",
        "cleanup.files_removed",
    ),
    job_scenarios.reprocess: (
        "operation.added",
        "operation.locked",
        "operation.step_recorded",
        "reprocess.job_locked",
        "reprocess.items_taken",
    ),
    job_scenarios.redrive: ("redrive.job_found",),
    job_scenarios.purge: ("purge.rows_deleted", "purge.partition_detached"),
    job_scenarios.migrate: ("migrate.executed", "migrate.recorded", "migrate.before_commit"),
    feature_scenarios.import_: (*INGEST, "import.rows_written", "flush.after_outcomes", "flush.before_commit"),
    feature_scenarios.import_with_lookup: ("import.references_created",),
    feature_scenarios.repair: ("repair.rows_read", "repair.rows_fixed"),
    feature_scenarios.undo: ("undo.rows_locked", "undo.rows_recorded", "undo.rows_reversed"),
    feature_scenarios.fetch: ("fetch.leased", "fetch.stored"),
    feature_scenarios.relay: ("relay.before_publish", "relay.published"),
    feature_scenarios.export: ("export.rows_written", "export.file_finished"),
    feature_scenarios.result_export: ("result_export.file_finished",),
    feature_scenarios.distribution: (
        "distribution.rows_written",
        "distribution.file_finished",
        "distribution.artifacts_recorded",
        "flush.after_effects",
    ),
    feature_scenarios.watch: (
        "watch.leased",
        "watch.file_claimed",
        "watch.file_fetched",
        "watch.job_created",
        "watch.path_reserved",
        "watch.file_archived",
    ),
}
# Without lose-commit: no COMMIT of the same task follows in the step that the failpoint belongs to.
NO_COMMIT_FOLLOWS = {
    "submit.after_commit": "the request only reads the job",
    "item.started": "the flusher, another task, commits",
    "item.finished": "the flusher, another task, commits",
    "flush.after_commit": "the flush is over",
    "close.after_commit": "the job is closed",
    "import.references_created": "the handler runs in a task of its own",
    "import.rows_written": "the handler runs in a task of its own",
    "distribution.rows_written": "the flusher, another task, commits",
    "distribution.file_finished": "the flusher, another task, commits",
    "purge.partition_detached": "a partition is dropped without a transaction of the pool",
}


@dataclass(frozen=True)
class Case:
    """A scenario, a failpoint and an action. ``is_full``: only the whole matrix has it."""

    scenario: Scenario
    point: str
    action: Action
    is_full: bool

    def __str__(self) -> str:
        return f"{self.scenario.__name__}-{self.point}-{self.action}"


def list_actions(point: str) -> list[Action]:
    """Return the actions that can exist at a failpoint."""
    return [action for action in Action if action is not Action.LOSE_COMMIT or point not in NO_COMMIT_FOLLOWS]


def list_cases() -> Iterator[Case]:
    """Yield all cases. One of each failpoint belongs to `make test`; the actions alternate."""
    turns = itertools.cycle(Action)
    selected: dict[str, Action] = {}
    for point in FAILPOINTS:
        selected[point] = next(action for action in turns if action in list_actions(point))
    for scenario, points in POINTS.items():
        for point in points:
            chosen = selected.pop(point, None)
            for action in list_actions(point):
                yield Case(scenario, point, action, is_full=action is not chosen)
