"""The command quarantine."""

import json
from typing import TYPE_CHECKING

from tidemill.dispatch import quarantine
from tidemill.store.database import Database

if TYPE_CHECKING:
    from support.command import Tidemill


async def test_quarantine_command_lists_and_clears_messages(tidemill: "Tidemill", db: Database) -> None:
    assert "The quarantine is empty" in tidemill("quarantine").out
    for number in range(3):
        await db.run(quarantine.quarantine_message, "w1", b"[rubbish] %d" % number, "The message is not a JSON object")
    lines = tidemill("quarantine", "--json").out.splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["[rubbish] 2", "[rubbish] 1", "[rubbish] 0"]
    shown = tidemill("quarantine", "--limit", "1", "--clear").out
    assert "[rubbish] 2" in shown
    assert "The message is not a JSON object" in shown
    assert "Deleted" in shown
    assert tidemill("quarantine", "--json").out == ""
