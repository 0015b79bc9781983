"""Registers imports of files into tables."""

from tidemill.core.kinds import IMPORT_KIND
from tidemill.features import Feature

FEATURE = Feature(
    name="imports",
    handlers={IMPORT_KIND: "tidemill.imports.handler:make_import_handler"},
    kinds={IMPORT_KIND: "tidemill.imports.use_cases:IMPORT_HOOKS"},
    routers=[
        "tidemill.imports.routes:router",
        "tidemill.imports.mapping_routes:router",
        "tidemill.imports.undo_routes:router",
    ],
    openapi_tag=("imports", "Import files into tables, with an error for every invalid row"),
    openapi_examples=[
        "tidemill.imports.schemas:OPENAPI_EXAMPLES",
        "tidemill.imports.preview_schemas:OPENAPI_EXAMPLES",
        "tidemill.imports.failed_row_schemas:OPENAPI_EXAMPLES",
        "tidemill.imports.mapping_routes:OPENAPI_EXAMPLES",
        "tidemill.imports.undo_routes:OPENAPI_EXAMPLES",
    ],
    operation_steps={
        "repair": "tidemill.imports.repairs:run_repair_step",
        "undo": "tidemill.imports.undo:run_undo_step",
        "redo": "tidemill.imports.undo:run_undo_step",
    },
    file_tasks={"import": "tidemill.imports.import_file_task:ImportFileTask"},
    housekeeping=["tidemill.imports.remembered_mappings:delete_excess_mappings"],
    commands={
        "tidemill.imports.cli": {
            "import": "Import a file into a table of your database, and report every invalid row.",
            "promote": "Promote a dry run: import its file with all fixed rows.",
        },
        "tidemill.imports.failed_rows_cli": {
            "fix": "Send back fixed rows of an import, and retry only these rows.",
            "repair": "Fix all rows of an import that failed for one cause, with one rule, and retry them.",
        },
        "tidemill.imports.undo_cli": {
            "undo": "Undo an import, except for rows that have changed since. The exit code is 0 only if all rows were "
            "reversed.",
        },
        "tidemill.imports.mapping_cli": {
            "mappings": "List the remembered column mappings of imports, and share or forget them.",
        },
    },
)
