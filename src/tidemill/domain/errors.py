"""Everything Tidemill raises on purpose.

TidemillError
├── InvalidInput        an input row or a parameter that cannot be accepted
├── InvalidSettings     settings that stop the start; the message lists all of them
├── UnknownKind         no handler of that name
├── UnknownJob          no such job
├── Conflict            the job is in a state that does not allow this
├── Unavailable         the database cannot be reached, or its schema is not ours
└── StaleLease          the lease was lost; nothing was written
"""


class TidemillError(Exception):
    """The root of the tree; its message is a sentence for the user."""


class InvalidInput(TidemillError):
    """An input row or a parameter that cannot be accepted."""


class InvalidSettings(TidemillError):
    """Settings that stop the start; the message lists all of them."""


class UnknownKind(TidemillError):
    """No handler of that name."""


class UnknownJob(TidemillError):
    """No such job."""


class Conflict(TidemillError):
    """The job is in a state that does not allow this."""


class Unavailable(TidemillError):
    """The database cannot be reached, or its schema is not ours."""


class StaleLease(TidemillError):
    """The lease was lost; nothing was written."""
