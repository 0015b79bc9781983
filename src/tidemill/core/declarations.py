"""What a mill declares in Python beside its handlers. ``tidemill.toml`` declares the same things in tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Declarations:
    """Declarations by name. Tables are checked where they are used, together with those of ``tidemill.toml``."""

    normalizers: dict[str, Callable[[str], str]] = field(default_factory=dict)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    dataset_functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    limiters: dict[str, dict[str, Any]] = field(default_factory=dict)
