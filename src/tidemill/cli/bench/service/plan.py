"""What is asked of the service, of how big a job and how often."""

from dataclasses import dataclass

from tidemill.cli.bench.plan import MILLION


@dataclass(frozen=True, slots=True)
class Plan:
    """A job of ``items``; ``rounds`` over every kind of page; a crowd for ``seconds``; a file of ``upload_mb``."""

    items: int = MILLION
    rounds: int = 120  # of which one in a hundred may be the machine's own doing
    pollers: int = 200
    submitters: int = 20
    seconds: float = 20.0
    upload_mb: int = 400

    @property
    def clients(self) -> int:
        return self.pollers + self.submitters


FULL = Plan(items=5 * MILLION, rounds=240, seconds=60.0, upload_mb=1024)
