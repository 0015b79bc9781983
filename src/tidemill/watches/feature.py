"""Registers watches: new files in a folder, a bucket or on a server become jobs."""

from tidemill.features import Feature

FEATURE = Feature(
    name="watches",
    declarations=["tidemill.watches.scanner:load_watches"],
    routers=["tidemill.watches.routes:router"],
    openapi_tag=("sources", "Watches, which create jobs from new files, and their files and scans"),
    openapi_examples=["tidemill.watches.routes:OPENAPI_EXAMPLES"],
    config_sections=["watches"],
    commands={
        "tidemill.watches.cli": {
            "sources": "List the declared watches with their sources, last scans, file counts and problems.",
            "scan": "Scan a watch now, regardless of its schedule. The exit code is 1 if the scan reports a problem.",
        },
    },
    worker_loops="tidemill.watches.scanner:make_worker_loops",
    housekeeping=["tidemill.watches.watch_records:forget_old_watch_files"],
)
