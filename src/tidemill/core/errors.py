"""Everything Tidemill raises on purpose.

TidemillError
├── InvalidInput        an input row or a parameter that cannot be accepted
│   ├── InvalidColumns  columns of a file that do not fit; each with its sentence
│   ├── InvalidRequest  several things that are wrong with a request; each with its sentence
│   └── InvalidRows     rows of a file that do not fit; each with its sentence
├── InvalidSettings     settings that stop the start; the message lists all of them
├── NoRoom              a disk of ours is full, or does not take what is written
├── TooLarge            more than a limit allows; nothing of it is kept
├── StartHookFailed     a start hook of a mill raised; the worker's child cannot start
├── UnknownKind         no handler of that name
├── Forbidden           the user may not do this
├── Unknown             there is no such thing, or not for you
│   ├── UnknownJob
│   ├── UnknownItem
│   ├── UnknownFile
│   ├── UnknownResource
│   └── UnknownUser
├── KeyReused           an idempotency key that stands for another submission
├── Conflict            the job is in a state that does not allow this
├── Busy                everybody is busy; try again soon
├── Unavailable         the database cannot be reached, or its schema is not ours
│   ├── StoreUnavailable  the store of files does not answer; later it may
│   └── StoreDenied     it does not let us: somebody has to look at the keys
├── Unreachable         another machine does not answer, or not in time
├── BrokerLost          the broker does not answer, or not as it should
├── Interrupted         nobody wants it any more; what there is of it stays
└── StaleLease          the lease was lost; nothing was written
"""

from collections.abc import Sequence

PROBLEMS_IN_MESSAGE_MAX = 20  # sentences of one message: a file can have ten thousand columns that are wrong


class TidemillError(Exception):
    """The root of the tree; its message is a sentence for the user."""


class InvalidInput(TidemillError):
    """An input row or a parameter that cannot be accepted."""


class InvalidColumns(InvalidInput):
    """Columns of a file that do not fit what it is imported into; ``problems`` has a sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        first, more = problems[:PROBLEMS_IN_MESSAGE_MAX], len(problems) - PROBLEMS_IN_MESSAGE_MAX
        super().__init__("; ".join(first) + (f"; and {more:,} more" if more > 0 else ""))
        self.problems = list(problems)


class InvalidRequest(InvalidInput):
    """Several things that are wrong with a request; ``problems`` has a sentence for each.

    ``places``: where in the request each of them is, if that is known.
    """

    def __init__(self, problems: Sequence[str], paths: Sequence[tuple[str, ...]] = ()) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.paths = list(paths)


class InvalidRows(InvalidInput):
    """Rows of a file that cannot be taken; ``problems`` has a sentence for each of the first, ``count`` is of all."""

    def __init__(self, problems: Sequence[str], count: int) -> None:
        super().__init__(f"nothing was changed: {problems[0]}" + (f", and {count - 1} more" if count > 1 else ""))
        self.problems = list(problems)
        self.count = count


class InvalidSettings(TidemillError):
    """Settings that stop the start; the message lists all of them."""


class DiskFull(TidemillError):
    """A disk of ours does not take what is written; nothing is wrong with what was given."""


class TooLarge(TidemillError):
    """More than a limit allows; nothing of it is kept."""


class StartHookFailed(TidemillError):
    """A start hook of a mill raised, or took too long."""


class UnknownKind(TidemillError):
    """No handler of that name."""


class Forbidden(TidemillError):
    """The user may not do this, and may know that it exists."""


class UnknownEntity(TidemillError):
    """There is no such thing, or not for whoever asks: the two look alike."""


class UnknownJob(UnknownEntity):
    """No such job."""


class UnknownItem(UnknownEntity):
    """No such item in that job."""


class UnknownFile(UnknownEntity):
    """No stored file of that name."""


class UnknownResource(UnknownEntity):
    """No such resource, or none that this role may use."""


class UnknownUser(UnknownEntity):
    """No such user, or no such key."""


class IdempotencyKeyReused(TidemillError):
    """An idempotency key that stands for another submission."""


class Conflict(TidemillError):
    """The job is in a state that does not allow this."""


class Busy(TidemillError):
    """Everybody is busy; try again soon."""


class Unavailable(TidemillError):
    """The database cannot be reached, or its schema is not ours."""


class StorageUnavailable(Unavailable):
    """The store of files does not answer, not in time, or not as it should; later it may."""


class StorageAccessDenied(Unavailable):
    """The store of files does not let us: the keys are wrong, or may not do this."""


class RemoteUnreachable(TidemillError):
    """Another machine does not answer, or not in time."""


class BrokerUnavailable(TidemillError):
    """The broker does not answer, or not as it should. Work goes on without it."""


class Interrupted(TidemillError):
    """Nobody wants it any more, or not now; what there is of it stays, to go on from."""


class StaleLease(TidemillError):
    """The lease was lost; nothing was written."""
