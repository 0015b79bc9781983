"""The type of JSON documents whose fields Tidemill does not know."""

from typing import Any

JsonObject = dict[str, Any]
"""A JSON object that belongs to the caller: an item's input, a job's parameters. For fields that Tidemill itself
defines, use a dataclass or a TypedDict."""
