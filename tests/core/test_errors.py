"""Messages of errors quote what users send, so they escape what a terminal, PostgreSQL or JSON cannot carry."""

import pickle

import pytest

from tidemill.core.errors import InvalidColumns, InvalidInput, InvalidRequest, InvalidRows, TidemillError


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("a\x00b", "a\\x00b"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("half \ud83d pair", "half \\ud83d pair"),
        ("\u202eevil", "\\u202eevil"),
        ("zero\u200bwidth\u2028", "zero\\u200bwidth\\u2028"),
        ("line\r\nnext\tcell", "line\\r\nnext\tcell"),
        ("Gänsefüßchen „ß“ 日本 🌊", "Gänsefüßchen „ß“ 日本 🌊"),
    ],
)
def test_error_message_escapes_unprintable_characters(sent: str, shown: str) -> None:
    assert str(InvalidInput(f'Unknown column "{sent}"')) == f'Unknown column "{shown}"'
    assert InvalidColumns([sent]).problems == InvalidRequest([sent]).problems == [shown]
    assert InvalidRows([sent], 1).problems == [shown]


def test_error_survives_pickling_unchanged() -> None:
    error = pickle.loads(pickle.dumps(TidemillError("a\x00b")))
    assert str(error) == "a\\x00b"
