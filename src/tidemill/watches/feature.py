"""Registers watches: files that arrive in a folder, a bucket or on a server become jobs."""

from tidemill.features import Feature

FEATURE = Feature(
    name="watches",
    declarations=["tidemill.watches.scanner:load_watches"],
    routers=["tidemill.watches.routes:router"],
    openapi_tag=("sources", "Files that come by themselves: watches, their files, and scans"),
    openapi_examples="tidemill.watches.routes:OPENAPI_EXAMPLES",
    config_sections=["watches"],
    commands_module="tidemill.watches.cli",
    commands={
        "sources": "The watches that are declared: what they watch, their last scans, their files, and what is wrong.",
        "scan": "Look now at what a watch watches, whatever its schedule; exit code 1 if something is wrong with it.",
    },
    worker_loops="tidemill.watches.scanner:make_worker_loops",
    housekeeping=["tidemill.watches.watch_files:forget_old_watch_files"],
)
