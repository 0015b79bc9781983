"""How much a strained machine takes on."""

from tidemill.domain.measure import clamp

LEAST = 0.1


def spare_time(load: float, high: float) -> float:
    """The part of a slice that is still claimed, 0.1 … 1; ``load`` is per core.

    1 is a machine that is busy, and no reason to do less. A worker that does the work it is there for, its database
    beside it, makes a load of 2 per core by itself. Only well beyond that claims shrink, in proportion: at twice
    ``high``, half. It is their time that shrinks, so that other machines get the work; a claim of a thousand quick
    items holds up nobody, and in smaller ones they cost more: 40 % more at a third of the size.
    """
    return 1.0 if load <= high else clamp(high / load, LEAST, 1.0)


def spare_room(memory: float, high: float) -> float:
    """The part of a claim's items that is still taken, 0.1 … 1; ``memory`` is the used part of what there is.

    From ``high`` on evenly down, to a tenth when nothing is left.
    """
    if memory <= high:
        return 1.0
    left = (1 - memory) / (1 - high) if high < 1 else 0.0
    return clamp(LEAST + (1 - LEAST) * left, LEAST, 1.0)
