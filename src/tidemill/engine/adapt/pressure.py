"""How much a strained machine takes on."""

from tidemill.domain.measure import clamp

LEAST = 0.1


def pressure(cpu: float, memory: float, *, cpu_high: float, memory_high: float) -> float:
    """The part of a claim that is still taken, 0.1 … 1.

    ``cpu`` is the load per core: 1 is a machine that is busy, and no reason to do less. A worker that does the
    work it is there for, its database beside it, makes a load of 2 per core by itself. Only well beyond that the
    claim shrinks, in proportion: at twice ``cpu_high``, half. ``memory`` is the used part of what there is: from
    ``memory_high`` on the claim shrinks evenly, to a tenth when nothing is left.
    """
    by_cpu = 1.0 if cpu <= cpu_high else cpu_high / cpu
    by_memory = 1.0
    if memory > memory_high:
        left = (1 - memory) / (1 - memory_high) if memory_high < 1 else 0.0
        by_memory = LEAST + (1 - LEAST) * left
    return clamp(min(by_cpu, by_memory), LEAST, 1.0)
