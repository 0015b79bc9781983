"""Registers imports: files into tables, with an error for each row that does not fit."""

from tidemill.core.kinds import IMPORT_KIND
from tidemill.features import Feature

FEATURE = Feature(
    name="imports",
    handlers={IMPORT_KIND: "tidemill.imports.handler:make_import_handler"},
    kinds={IMPORT_KIND: "tidemill.imports.use_cases:IMPORT_HOOKS"},
    routers=["tidemill.imports.routes:router"],
    openapi_tag=("imports", "Files into tables, with an error for every row that does not fit"),
    openapi_examples="tidemill.imports.schemas:OPENAPI_EXAMPLES",
    file_tasks={"import": "tidemill.imports.import_file_task:ImportFileTask"},
    commands_module="tidemill.imports.cli",
    commands={
        "import": "Load a file into a table of your database: every row is stored first, and each bad one is told.",
        "fix": "Send mended rows of an import back: they are stored as corrections, and only they run again.",
        "promote": "Do what an import with --validate-only has only tried: the same file, with the corrections made "
        "since.",
    },
)
