"""The door of a child process; a worker opens it, people do not."""

import os
import sys
import traceback

import uvloop

from tidemill.app import Mill, make_context, open_database
from tidemill.cli.garbage import collect_less
from tidemill.cli.load import load_mill
from tidemill.domain.errors import Unavailable
from tidemill.engine.child import Child, Loops, limit_memory
from tidemill.engine.logbook import Logbook
from tidemill.engine.slices import Slices
from tidemill.engine.supervise import CANNOT_START
from tidemill.telemetry.events import emit
from tidemill.telemetry.logs import log_events
from tidemill.telemetry.relay import hand_events_to_parent

FAILED = 70  # EX_SOFTWARE: a new child may do better


def command(reference: str, worker: str, *numbers: int) -> list[str]:
    """The argv that comes in here; the numbers are those of ``run``."""
    return [sys.executable, "-m", "tidemill.cli.child", reference, worker, *map(str, numbers)]


async def run(mill: Mill, worker: str, pages: int, on_demand: int, number: int, control: int, book: int) -> None:
    settings = mill.settings
    log_events(settings.log_level, worker=worker, child=number)
    hand_events_to_parent(number)
    for fd in (control, book):
        os.set_inheritable(fd, False)
    logbook = Logbook(book, pages)
    limit_memory(settings.child_memory_mb)
    collect_less()
    async with open_database(settings, size=max(settings.db_max_conns, pages + 1), check=False) as db:
        context = make_context(db, settings, mill.registry, worker=worker, book=logbook)
        work = Slices(context) if on_demand else Loops(context)
        await Child(context, control, work).run()


def main() -> None:
    reference, worker, *numbers = sys.argv[1:]
    code = CANNOT_START
    try:
        mill = load_mill(reference)
        code = FAILED
        uvloop.new_event_loop().run_until_complete(run(mill, worker, *map(int, numbers)))
        code = 0
    except Unavailable as error:  # nothing is wrong here: the next child tries again
        emit("database.retry", verb="open", attempt=1, error=str(error))
    except Exception:  # noqa: BLE001  its parent reads the exit code, people read the traceback
        traceback.print_exc()
    # Not sys.exit: a handler stuck in a thread would keep the process for ever.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
