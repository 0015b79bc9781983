"""Protects spreadsheets from text that they would execute as a formula.

Text that starts like a formula, after any number of apostrophes, gets one more apostrophe in front. Removing one
apostrophe restores the original.
"""

import re
from typing import Final

_FORMULA_START: Final = r"[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]"  # the last four are = + @ - in full width
FORMULA_PATTERN: Final = rf"^'*{_FORMULA_START}"  # the same in Python and in PostgreSQL
_match_formula = re.compile(FORMULA_PATTERN).match
_match_escaped_formula = re.compile(rf"'+{_FORMULA_START}").match


def escape_formula(text: str) -> str:
    return "'" + text if _match_formula(text) else text


def unescape_formula(text: str) -> str:
    return text[1:] if _match_escaped_formula(text) else text
