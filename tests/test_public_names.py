"""The public names: adding or losing one is a decision, not an accident."""

import inspect

import tidemill


def test_the_public_names_are_these() -> None:
    assert tidemill.__all__ == [
        "Counts",
        "Done",
        "Fail",
        "Item",
        "Job",
        "Mill",
        "NotFound",
        "Outcome",
        "Retry",
        "Skip",
        "TidemillError",
    ]


def test_every_public_name_is_there_and_explains_itself() -> None:
    for name in tidemill.__all__:
        assert inspect.getdoc(getattr(tidemill, name)), name


def test_the_doors_of_a_mill_are_these() -> None:
    doors = {name for name in vars(tidemill.Mill) if not name.startswith("_")}
    assert doors == {
        "batch_handler",
        "dataset",
        "handler",
        "job",
        "job_async",
        "limit",
        "limiter",
        "normalizer",
        "open_image",
        "resource",
        "settings",
        "submit",
        "submit_async",
    }
