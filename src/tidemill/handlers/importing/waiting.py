"""Rows that refer to other rows of their own file: whoever comes too early waits, as long as it makes sense."""

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.item import Item
from tidemill.domain.outcome import Outcome, Retry, Wait
from tidemill.domain.values import Flaw
from tidemill.store import imports
from tidemill.store.database import Connection

FIRST_PASS_S, AGAIN_S = 2.0, 0.5
TRIES = 3  # of a batch that got no row in, while others go round again


class Hope:
    """What may still bring the rows that others refer to.

    It is asked before the table is: what ends in between is seen there.
    """

    def __init__(self, *, first_pass: bool = False, others: bool = False) -> None:
        self._first_pass = first_pass
        self._others = others

    @classmethod
    async def ask(cls, conn: Connection, job_id: UUID) -> "Hope":
        first_pass, others = await imports.rest(conn, job_id)
        return cls(first_pass=first_pass, others=others)

    def outcome(self, item: Item, flaws: Sequence[Flaw], *, progress: bool) -> Outcome | None:
        """Waiting, for a row with nothing but such references wrong; None when nobody is left who could help it.

        Every round in which a row gets in is free: there are no more of these than rows. Of others there are few.
        """
        reason, code = flaws[0].reason, flaws[0].name
        if self._first_pass:
            return Wait(reason, code=code, after=FIRST_PASS_S)
        if progress:
            return Wait(reason, code=code, after=AGAIN_S)
        if self._others and item.attempt < TRIES:
            return Retry(reason, code=code, after=AGAIN_S)
        return None
