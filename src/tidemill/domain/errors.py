"""Everything Tidemill raises on purpose.

TidemillError
├── InvalidInput        an input row or a parameter that cannot be accepted
├── InvalidSettings     settings that stop the start; the message lists all of them
├── TooLarge            more than a limit allows; nothing of it is kept
├── UnknownKind         no handler of that name
├── Unknown             there is no such thing, or not for you
│   ├── UnknownJob
│   ├── UnknownItem
│   └── UnknownUser
├── KeyReused           an idempotency key that stands for another submission
├── Conflict            the job is in a state that does not allow this
├── Busy                everybody is busy; try again soon
├── Unavailable         the database cannot be reached, or its schema is not ours
├── Unreachable         another machine does not answer, or not in time
├── Interrupted         nobody wants it any more; what there is of it stays
└── StaleLease          the lease was lost; nothing was written
"""


class TidemillError(Exception):
    """The root of the tree; its message is a sentence for the user."""


class InvalidInput(TidemillError):
    """An input row or a parameter that cannot be accepted."""


class InvalidSettings(TidemillError):
    """Settings that stop the start; the message lists all of them."""


class TooLarge(TidemillError):
    """More than a limit allows; nothing of it is kept."""


class UnknownKind(TidemillError):
    """No handler of that name."""


class Unknown(TidemillError):
    """There is no such thing, or not for whoever asks: the two look alike."""


class UnknownJob(Unknown):
    """No such job."""


class UnknownItem(Unknown):
    """No such item in that job."""


class UnknownUser(Unknown):
    """No such user, or no such key."""


class KeyReused(TidemillError):
    """An idempotency key that stands for another submission."""


class Conflict(TidemillError):
    """The job is in a state that does not allow this."""


class Busy(TidemillError):
    """Everybody is busy; try again soon."""


class Unavailable(TidemillError):
    """The database cannot be reached, or its schema is not ours."""


class Unreachable(TidemillError):
    """Another machine does not answer, or not in time."""


class Interrupted(TidemillError):
    """Nobody wants it any more, or not now; what there is of it stays, to go on from."""


class StaleLease(TidemillError):
    """The lease was lost; nothing was written."""
