"""What POST /jobs takes, for the OpenAPI document: its body is read as a stream, so no model says it."""

from typing import Any

_FILE = {"type": "string", "format": "binary"}
_WORDS: dict[str, dict[str, Any]] = {
    "kind": {"type": "string", "maxLength": 200},
    "params": {"type": "string", "description": "A JSON object"},
    "policy": {"type": "string", "description": "A JSON object, as PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    "format": {"$ref": "#/components/schemas/SourceFormat"},
    "filename": {"type": "string", "description": "Says the format if nothing else does"},
}
_FORM = {
    "type": "object",
    "properties": _WORDS | {"file": {"anyOf": [_FILE, {"type": "array", "items": _FILE, "description": "Images"}]}},
    "required": ["kind", "file"],
}
_INPUTS = {"kind": "price.lookup", "inputs": [{"sku": "A-1"}, {"sku": "A-2"}]}
_SOURCE = {"kind": "price.lookup", "source": {"name": "inbox", "path": "2026/11/prices.csv"}}
_BINARY = {"schema": _FILE}

BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/JobIn"},
            "examples": {
                "inputs": {"summary": "Inputs, an item for each", "value": _INPUTS},
                "source": {"summary": "A file in a configured folder", "value": _SOURCE},
            },
        },
        "multipart/form-data": {"schema": _FORM, "example": {"kind": "price.lookup", "file": "sku\nA-1\nA-2\n"}},
        "text/csv": {"schema": _FILE, "example": "sku\nA-1\nA-2\n"},
        "text/tab-separated-values": _BINARY,
        "application/x-ndjson": {"schema": _FILE, "example": '{"sku": "A-1"}\n{"sku": "A-2"}\n'},
        "application/zip": _BINARY,
        "image/*": _BINARY,
    },
}

# With JSON, and with a form, these words are in the body.
BESIDE = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": "Of a body that is a file"}
    for name, schema in _WORDS.items()
]
