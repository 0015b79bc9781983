"""The main module of a child process, which a worker starts."""

import os
import signal
import sys
import traceback

if __name__ == "__main__":  # the parent handles Ctrl-C; the imports below take a second
    signal.signal(signal.SIGINT, signal.SIG_IGN)

import uvloop

from tidemill.app.bootstrap import load_mill, relax_garbage_collector
from tidemill.app.mill import Mill
from tidemill.app.runtime_factory import make_engine_context
from tidemill.core.errors import StartHookFailed, Unavailable
from tidemill.engine.children.child_runtime import ChildRuntime, ContinuousWork, limit_process_memory
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.children.supervisor import EXIT_CANNOT_START
from tidemill.engine.children.time_slices import TimeSliceWork
from tidemill.files.reader_process import make_isolated_source_opener
from tidemill.store.open_database import open_database
from tidemill.telemetry.child_events import relay_events_to_parent
from tidemill.telemetry.events import emit
from tidemill.telemetry.logs import configure_event_logging

CHILD_EXIT_FAILED = 70  # EX_SOFTWARE: the parent starts a new child


async def run_child(mill: Mill, worker: str, pages: int, on_demand: int, number: int, control: int, book: int) -> None:
    settings = mill.settings
    configure_event_logging(settings.log_level, worker=worker, child=number)
    relay_events_to_parent(number)
    for fd in (control, book):
        os.set_inheritable(fd, False)
    logbook = SharedState(book, pages)
    limit_process_memory(settings.child_memory_mb)
    relax_garbage_collector()
    async with open_database(settings, size=max(settings.db_max_conns, settings.worker_lanes + 2), check=False) as db:
        context = make_engine_context(
            db,
            settings,
            mill.registry,
            worker=worker,
            shared_state=logbook,
            open_source=make_isolated_source_opener(settings),
        )
        work = TimeSliceWork(context) if on_demand else ContinuousWork(context)
        await ChildRuntime(context, control, work, mill.registry.run_start_and_stop_hooks()).run()


def main() -> None:
    reference, worker, *numbers = sys.argv[1:]
    code = EXIT_CANNOT_START
    try:
        mill = load_mill(reference)
        code = CHILD_EXIT_FAILED
        uvloop.new_event_loop().run_until_complete(run_child(mill, worker, *map(int, numbers)))
        code = 0
    except Unavailable as error:  # not an error of this child: the next one connects again
        emit("database.retry", verb="open", attempt=1, error=str(error))
    except StartHookFailed:
        traceback.print_exc()
        code = EXIT_CANNOT_START
    except Exception:  # noqa: BLE001  the parent uses the exit code, operators read the traceback
        traceback.print_exc()
    # Not sys.exit: a handler that hangs in a thread would keep the process alive.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
