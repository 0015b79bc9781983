"""Registers exports: rows of tables and results of jobs as files."""

from tidemill.core.kinds import EXPORT_KIND
from tidemill.features import Feature

FEATURE = Feature(
    name="exports",
    handlers={EXPORT_KIND: "tidemill.exports.handler:make_export_handler"},
    kinds={EXPORT_KIND: "tidemill.exports.use_cases:EXPORT_HOOKS"},
    routers=["tidemill.exports.routes:router"],
    openapi_tag=("exports", "Rows of tables, streamed or as files; a job's rows as a file"),
    openapi_examples="tidemill.exports.schemas:OPENAPI_EXAMPLES",
    commands_module="tidemill.exports.cli",
    commands={
        "export": "Write rows of a table of your database into a file, at the speed of COPY: all as they are at one "
        "moment.",
    },
    open_results="tidemill.exports.use_cases:open_results",
)
