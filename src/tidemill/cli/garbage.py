"""The garbage collector of processes that make many short-lived objects."""

import gc


def collect_less() -> None:
    """What is there now stays, and need not be looked at again; what comes is looked at by the ten thousands.

    A worker that looks at every 700 items loses a fifth of its throughput; a service stands still for as long as it
    takes to look at everything it has imported.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
