"""The section ``[limiters]`` of ``tidemill.toml``."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, StrictBool, ValidationInfo, field_validator

from tidemill.config_sections import ConfigTable, parse_section
from tidemill.limits.limiter import (
    LOWEST_RATE_SHARE,
    Limiter,
    compute_default_burst,
    parse_burst,
    parse_concurrency,
    parse_delay,
    parse_rate,
)

_LIMITER_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
Rate = Annotated[float, PlainValidator(parse_rate)]


class LimiterTable(ConfigTable):
    rate: Rate | None = None
    delay: Annotated[float, PlainValidator(parse_delay)] | None = None
    burst: Annotated[int, PlainValidator(parse_burst)] | None = None
    concurrency: Annotated[int, PlainValidator(parse_concurrency)] | None = None
    adaptive: StrictBool = True
    lowest: Rate | None = None

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if not given.keys() & {"rate", "delay", "concurrency"}:
            yield "", 'Set at least one of "rate", "delay" and "concurrency"'
        if "rate" in given and "delay" in given:
            yield "delay", 'Conflicts with "rate". A delay of "1s" means the same as a rate of "1/s" with a burst of 1'
        if "burst" in given and "rate" not in given:
            yield "burst", 'Requires "rate"'
        if "lowest" in given and not given.keys() & {"rate", "delay"}:
            yield "lowest", 'Requires "rate" or "delay"'
        if given.get("adaptive") is False and "lowest" in given:
            yield "lowest", 'Conflicts with "adaptive = false", because only an adaptive limiter reduces its rate'

    @field_validator("lowest")
    @classmethod
    def _check_lowest_below_rate(cls, lowest: float | None, info: ValidationInfo) -> float | None:
        delay = info.data.get("delay")
        rate = 1 / delay if delay else info.data.get("rate")
        if lowest is not None and rate is not None and lowest > rate:
            raise ValueError('"lowest" must not be greater than "rate"')
        return lowest

    def build_limiter(self, name: str) -> Limiter:
        rate = 1 / self.delay if self.delay else self.rate
        burst = 1 if rate is None or self.delay else compute_default_burst(rate)
        return Limiter(
            name,
            rate,
            self.burst or burst,
            self.concurrency,
            self.adaptive,
            self.lowest / rate if self.lowest and rate else LOWEST_RATE_SHARE,
        )


def parse_limiters(document: Mapping[str, Any]) -> dict[str, Limiter]:
    """Return the limiters in a document by name; raise InvalidSettings with all problems."""
    return parse_section(
        document, "limiters", LimiterTable, lambda name, table: table.build_limiter(name), names=_LIMITER_NAME_PATTERN
    )
