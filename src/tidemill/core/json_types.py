"""The type of JSON documents whose fields Tidemill does not know."""

from typing import Any

JsonObject = dict[str, Any]
"""A JSON object that comes from outside: an item's input, a job's parameters, an answer that is not validated yet.
For fields that Tidemill itself defines, use a dataclass or a TypedDict."""
