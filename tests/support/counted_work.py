"""Measures of time and memory that do not depend on the load of the machine."""

import sys
import tracemalloc
from collections.abc import Callable


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions a call enters, in Python and in C: a measure of time that does not depend on load."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def measure_peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that was allocated during a call, beyond what was allocated before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
