"""From what people write, in a ``tidemill.toml`` or in Python, to limiters."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.domain.declaration import values
from tidemill.domain.declaration.section import Section
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.errors import InvalidSettings
from tidemill.domain.limits import words
from tidemill.domain.limits.limiter import LOWEST_SHARE, Limiter, usual_burst

_LIMITER: dict[str, values.Reader] = {
    "rate": words.rate,
    "delay": words.delay,
    "burst": words.burst,
    "concurrency": words.concurrency,
    "adaptive": values.flag,
    "lowest": words.rate,
}


def limiters(document: Mapping[str, Any]) -> dict[str, Limiter]:
    """The limiters in a document, by name; InvalidSettings with everything that is wrong with them."""
    return _Limiters().declared(document)


def check_named(declared: Mapping[str, Limiter], named: Iterable[tuple[str, str | None]]) -> None:
    """Every limiter that somebody names is declared: (who, limiter); InvalidSettings with those that are not."""
    wrong = [
        f"  - {who} has limit={limiter!r}, which is not declared" + did_you_mean(limiter, declared)
        for who, limiter in named
        if limiter is not None and limiter not in declared
    ]
    if wrong:
        where = '[limiters.NAME] in a tidemill.toml, or mill.limiter("NAME", "5/s")'
        raise InvalidSettings("\n".join(["these limiters are missing:", *wrong, f"declare them: {where}"]))


class _Limiters(Section[Limiter]):
    section = "limiters"
    is_name = re.compile(r"[a-z][a-z0-9_.-]{0,62}").fullmatch
    names_are = "lower-case letters, digits and _ . -"

    def one(self, path: str, name: str, given: Mapping[str, Any]) -> Limiter | None:
        before = len(self.problems)
        said = self.read(path, given, _LIMITER)
        self._check(path, given, said)
        return _limiter(name, said) if len(self.problems) == before else None

    def _check(self, path: str, given: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        if not given.keys() & {"rate", "delay", "concurrency"}:
            self.wrong(path, "it limits nothing: give it a rate, a delay or a concurrency")
        if "rate" in given and "delay" in given:
            self.wrong(f"{path}.delay", "there is a rate already; a delay of 1s is a rate of 1/s and a burst of 1")
        if "burst" in given and "rate" not in given:
            self.wrong(f"{path}.burst", "a burst goes with a rate")
        if "lowest" in given and not given.keys() & {"rate", "delay"}:
            self.wrong(f"{path}.lowest", "the lowest rate goes with a rate")
        highest = _rate(said)
        if highest is not None and said.get("lowest", 0) > highest:
            self.wrong(f"{path}.lowest", "it is above the rate")
        if given.get("adaptive") is False and "lowest" in given:
            self.wrong(f"{path}.lowest", "a limiter that is not adaptive never goes below its rate")


def _rate(said: Mapping[str, Any]) -> float | None:
    return 1 / said["delay"] if "delay" in said else said.get("rate")


def _limiter(name: str, said: Mapping[str, Any]) -> Limiter:
    rate = _rate(said)
    usual = 1 if rate is None or "delay" in said else usual_burst(rate)
    return Limiter(
        name,
        rate,
        said.get("burst", usual),
        said.get("concurrency"),
        said.get("adaptive", True),
        said["lowest"] / rate if "lowest" in said and rate else LOWEST_SHARE,
    )
