"""Numbers that are measured again and again."""

MOVING_AVERAGE_ALPHA = 0.3  # of the newest observation in a moving average


def clamp(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))


def update_moving_average(average: float | None, newest: float, alpha: float = MOVING_AVERAGE_ALPHA) -> float:
    """An exponentially weighted moving average; the first observation is its beginning."""
    return newest if average is None else average + alpha * (newest - average)
