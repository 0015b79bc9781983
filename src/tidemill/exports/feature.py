"""Registers the exports feature: table rows and job results as files."""

from tidemill.core.kinds import EXPORT_KIND
from tidemill.features import Feature

FEATURE = Feature(
    name="exports",
    handlers={EXPORT_KIND: "tidemill.exports.handler:make_export_handler"},
    kinds={EXPORT_KIND: "tidemill.exports.use_cases:EXPORT_HOOKS"},
    routers=["tidemill.exports.routes:router"],
    openapi_tag=("exports", "Export table rows as a stream or a file, and job results as a file"),
    openapi_examples=["tidemill.exports.schemas:OPENAPI_EXAMPLES"],
    commands={
        "tidemill.exports.cli": {
            "export": "Export the rows of a table to a file. All rows come from one database snapshot.",
            "results": "Write the results of a job to a file: the columns of its input, then those of the results.",
        },
    },
    open_results="tidemill.exports.use_cases:export_results_and_open_file",
)
