"""The decorator of fuzz targets: how many examples a target runs, and the count of examples for the report."""

import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.hypothesis_profiles import FUZZ_ENDS_AT, FUZZ_FACTOR, FUZZ_PROFILE

EXAMPLE_MAX_CHARS = 2_000  # of each argument of a failing example, in the report
examples_by_target: Counter[str] = Counter()


def fuzz(examples: int = 25, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., Any]], Any]:
    """Run a test with generated arguments: ``examples`` times in `make test-full`, many times more in `make fuzz`."""

    def decorate(test: Callable[..., Any]) -> Any:
        failed: list[BaseException] = []

        @wraps(test)
        def run_and_count(*args: Any, **kwargs: Any) -> Any:
            if time.monotonic() > FUZZ_ENDS_AT and not failed:
                return None
            examples_by_target[test.__name__] += 1
            try:
                return test(*args, **kwargs)
            except BaseException as error:
                failed.append(error)
                error.add_note(", ".join(f"{name}={kwargs[name]!r}"[:EXAMPLE_MAX_CHARS] for name in strategies))
                raise

        profile = settings(settings.get_profile(FUZZ_PROFILE), max_examples=examples * FUZZ_FACTOR)
        return profile(given(**strategies)(run_and_count))

    return decorate


def get_target_name(nodeid: str) -> str:
    """Return the name of the test function in a node ID of pytest."""
    return nodeid.rpartition("::")[2].partition("[")[0]
