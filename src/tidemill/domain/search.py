"""Finding jobs: ids and keys are in order of time, so a part of one says where to look."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
LAST_MS = 2**48 - 1
SLACK_MS = 1_000  # between the moment that an id was made of and the time that was stored beside it
LAST_YEAR = 9_998  # with a day after it

_HEX = re.compile("[0-9a-f]{1,32}")
_KEY = re.compile(r"J(\d{8})?\d{0,7}(_\d*)?")


@dataclass(frozen=True, slots=True)
class Ids:
    """Which jobs can match: ids from ``lo`` to ``hi``, keys that begin with ``prefix``."""

    lo: UUID = FIRST_ID
    hi: UUID = LAST_ID
    prefix: str = ""

    @property
    def is_empty(self) -> bool:
        return self.lo > self.hi

    def within(self, lo: UUID = FIRST_ID, hi: UUID = LAST_ID) -> "Ids":
        return Ids(max(self.lo, lo), min(self.hi, hi), self.prefix)

    def created(self, from_: datetime | None, to: datetime | None) -> "Ids":
        """Hardly more than those made in that time; the stored times decide."""
        lo = FIRST_ID if from_ is None else first_id(from_, -SLACK_MS)
        return self.within(lo, LAST_ID if to is None else first_id(to, SLACK_MS))

    def before(self, id_: UUID) -> "Ids":
        return self.within(hi=UUID(int=id_.int - 1)) if id_.int else Ids(LAST_ID, FIRST_ID)


def first_id(moment: datetime, shift_ms: int = 0) -> UUID:
    """The least id that can be made at a moment: 48 bits of milliseconds, then zeros."""
    milliseconds = int(moment.timestamp() * 1000) + shift_ms
    return UUID(int=min(max(milliseconds, 0), LAST_MS) << 80)


def id_range(text: str) -> tuple[UUID, UUID] | None:
    """The ids that begin with these hexadecimal digits, with or without dashes."""
    digits = text.replace("-", "").lower()
    if not _HEX.fullmatch(digits):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def named(job: UUID | str) -> dict[str, UUID | str | None]:
    """What to look a job up by: its id, or else its key."""
    if isinstance(job, UUID):
        return {"id": job, "key": None}
    ids = id_range(job)
    is_id = ids is not None and ids[0] == ids[1]
    return {"id": ids[0], "key": None} if ids is not None and is_id else {"id": None, "key": job.upper()}


def ids_of(text: str) -> Ids | None:
    """Where jobs are whose key or id begins with this; None if there can be none."""
    found = id_range(text)
    if found is not None:
        return Ids(*found)
    key = text.strip().upper()
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    day = None if match[1] is None else _day(match[1])
    ids = Ids(prefix=key)
    return ids if day is None else ids.created(day, day + timedelta(days=1))


def _day(digits: str) -> datetime | None:
    try:
        day = datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if day.year <= LAST_YEAR else None
