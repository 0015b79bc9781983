"""The brokers that are measured: those that were named, or our own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidemill.cli.bench.brokers import Broker, RabbitServer, RedisServer, rabbit_binary, redis_binary
from tidemill.cli.bench.dispatch.plan import Plan
from tidemill.cli.views import errors

OURS: dict[str, type[Broker]] = {"redis": RedisServer, "rabbitmq": RabbitServer}
BINARIES = {"redis": redis_binary, "rabbitmq": rabbit_binary}


@contextmanager
def brokers(plan: Plan, folder: Path) -> Iterator[dict[str, str]]:
    """Name to address. What is not there is said, and not measured."""
    found: dict[str, str] = {}
    with ExitStack() as stack:
        for name, server in OURS.items():
            said: str | None = getattr(plan, name)
            if said is not None:
                found[name] = said
            elif BINARIES[name]() is None:
                errors.print(f"[yellow]NOT MEASURED: there is no {name} on this machine; say --{name} URL[/]")
            else:
                with errors.status(f"starting {name}"):
                    found[name] = stack.enter_context(server(folder / name)).url
        yield found
