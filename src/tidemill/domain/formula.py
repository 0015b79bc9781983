"""Text that a spreadsheet might take for a formula, and how it is kept from that.

One apostrophe goes in front of what begins so, or would but for apostrophes of its own: then taking one away again
gives back every text as it was.
"""

import re
from typing import Final

_BEGINS: Final = r"[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]"  # the last four are = + @ - in full width
FORMULA: Final = rf"^'*{_BEGINS}"  # the same in Python and in PostgreSQL
_formula = re.compile(FORMULA).match
_defused = re.compile(rf"'+{_BEGINS}").match


def defuse(text: str) -> str:
    return "'" + text if _formula(text) else text


def restore(text: str) -> str:
    return text[1:] if _defused(text) else text
