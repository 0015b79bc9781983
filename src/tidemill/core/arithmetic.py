"""Limits to a range, and exponentially weighted moving averages."""

MOVING_AVERAGE_ALPHA = 0.3  # the weight of the newest observation


def clamp(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))


def update_moving_average(average: float | None, newest: float, alpha: float = MOVING_AVERAGE_ALPHA) -> float:
    """Return the moving average after a new observation; the first observation is the first average."""
    return newest if average is None else average + alpha * (newest - average)
