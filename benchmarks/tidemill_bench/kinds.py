"""Kinds of the attacks and of the load. Clients of attacks do not import the mill, which takes half a second."""

SLOW_KIND = "bench.slow"  # each item sleeps for a second
BRIEF_KIND = "bench.brief"  # each item sleeps for 10 ms
PARKED_KIND = "bench.parked"  # a registered kind that no worker runs
