"""The public names: adding or losing one is a decision, not an accident."""

import inspect

import tidemill


def test_package_exports_exactly_the_documented_names() -> None:
    assert tidemill.__all__ == [
        "Conflict",
        "Counts",
        "Done",
        "Fail",
        "IdempotencyKeyReused",
        "InvalidInput",
        "InvalidSettings",
        "Item",
        "ItemRecord",
        "ItemStatus",
        "Job",
        "JobStatus",
        "Mill",
        "NotFound",
        "Outcome",
        "Retry",
        "Settings",
        "Skip",
        "TidemillError",
        "Unavailable",
        "UnknownJob",
        "UnknownKind",
    ]


def test_every_exported_name_has_docstring() -> None:
    for name in tidemill.__all__:
        assert inspect.getdoc(getattr(tidemill, name)), name


DECLARATIONS = {"batch_handler", "dataset", "handler", "limiter", "normalizer", "on_start", "on_stop", "resource"}
WITH_ASYNC_TWIN = {
    "cancel",
    "close",
    "export_results",
    "iter_items",
    "iter_results",
    "job",
    "open_export",
    "open_image",
    "pause",
    "preview_repair",
    "preview_undo",
    "repair",
    "reprocess",
    "resume",
    "submit",
    "submit_distribution",
    "submit_export",
    "submit_import",
    "undo_import",
    "wait",
}
OTHERS = {"limit", "settings", "shared_database"}


def test_the_methods_of_a_mill_are_these() -> None:
    methods = {name for name in dir(tidemill.Mill) if not name.startswith("_")}
    twins = {f"{name}_async" for name in WITH_ASYNC_TWIN}
    assert methods == DECLARATIONS | WITH_ASYNC_TWIN | twins | OTHERS


def test_async_twins_have_the_same_parameters() -> None:
    for name in WITH_ASYNC_TWIN:
        blocking = inspect.signature(getattr(tidemill.Mill, name)).parameters
        awaited = inspect.signature(getattr(tidemill.Mill, f"{name}_async")).parameters
        assert list(blocking) == list(awaited), name
        assert all(blocking[one].default == awaited[one].default for one in blocking), name
