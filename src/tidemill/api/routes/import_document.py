"""What the routes of imports take, for the OpenAPI document: their bodies are read as streams, so no model says it."""

from typing import Any

_FILE = {"type": "string", "format": "binary"}
_BINARY = {"schema": _FILE}
_CSV = "email,name\nada@example.com,Ada\n"
_LAYOUT: dict[str, dict[str, Any]] = {
    "format": {"$ref": "#/components/schemas/FileFormat"},
    "encoding": {"type": "string", "maxLength": 40},
    "delimiter": {"type": "string", "maxLength": 10},
    "quote": {"type": "string", "maxLength": 1},
    "line_end": {"type": "string", "maxLength": 10, "description": "`lf`, `crlf` or `cr`"},
    "header": {"type": "boolean"},
    "compression": {"$ref": "#/components/schemas/Compression"},
    "sheet": {"type": "string", "description": "Of a workbook: its name, or its number from 1"},
    "filename": {"type": "string", "description": "Says the format if nothing else does"},
}
_WORDS: dict[str, dict[str, Any]] = {
    "resource": {"type": "string", "minLength": 1, "maxLength": 200},
    "mode": {"$ref": "#/components/schemas/ImportMode"},
    "validate_only": {"type": "boolean"},
    "duplicates": {"$ref": "#/components/schemas/DuplicatePolicy"},
    "mapping": {"type": "string", "description": "A JSON object: column of the file -> field"},
    "key": {"type": "string", "description": "Fields between commas, or a JSON list"},
    "spreadsheet_safe": {"type": "boolean", "description": "The file was exported so"},
    "keep_empty": {"type": "boolean", "description": "Empty text is kept, and is not the same as nothing"},
    "policy": {"type": "string", "description": "A JSON object, as PolicyIn"},
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    **_LAYOUT,
}
_ROWS: dict[str, dict[str, Any]] = {"rows": {"type": "integer", "minimum": 1, "maximum": 1000}}
_EXAMPLES = {
    "url": {
        "summary": "A file of another machine",
        "value": {"resource": "users", "source": {"url": "https://files.example.com/users.csv.gz"}, "mode": "upsert"},
    },
    "file": {
        "summary": "The file of a job or an export of yours",
        "value": {"resource": "users", "source": {"file_id": "3f1c6a0e9b2d4c583f1c6a0e9b2d4c58"}},
    },
    "folder": {
        "summary": "A file in a configured folder",
        "value": {"resource": "users", "source": {"name": "inbox", "path": "users.csv"}, "validate_only": True},
    },
}


def _body(words: dict[str, dict[str, Any]], model: str | None, required: list[str], text: str = _CSV) -> dict[str, Any]:
    form = {"type": "object", "properties": words | {"file": _FILE}, "required": [*required, "file"]}
    content: dict[str, Any] = {
        "multipart/form-data": {
            "schema": form,
            "example": {"resource": "users", "file": text} if required else {"file": text},
        },
        "text/csv": {"schema": _FILE, "example": text},
        "application/x-ndjson": _BINARY,
        "application/octet-stream": _BINARY,
    }
    if model is not None:
        reference = {"schema": {"$ref": f"#/components/schemas/{model}"}, "examples": _EXAMPLES}
        content = {"application/json": reference} | content
    return {"required": True, "content": content}


def _beside(words: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """With JSON, and with a form, these words are in the body."""
    text = "Of a body that is a file"
    return [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        for name, schema in words.items()
    ]


BODY, BESIDE = _body(_WORDS, "ImportIn", ["resource"]), _beside(_WORDS)
PREVIEW_BODY, PREVIEW_BESIDE = _body(_WORDS | _ROWS, "PreviewIn", ["resource"]), _beside(_WORDS | _ROWS)
FIXES_BODY = _body(_LAYOUT, None, [], "email,name,_row\nada@example.com,Ada,7\n")
FIXES_BESIDE = _beside(_LAYOUT)
