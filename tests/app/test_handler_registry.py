"""Handlers are validated when they are declared."""

import functools
from typing import Any

import pytest

from tidemill import Item, Mill
from tidemill.app.mill_declarations import HandlerRegistry, make_batch_handler, make_item_handler
from tidemill.config import Settings
from tidemill.core.errors import InvalidInput, UnknownKind
from tidemill.core.kinds import HANDLER_CONCURRENCY_MAX


@pytest.fixture
def mill() -> Mill:
    return Mill(Settings())


async def one(item: Item) -> None: ...


async def many(items: list[Item]) -> None: ...


def test_registry_lists_kinds_sorted(mill: Mill) -> None:
    for kind in ("b", "a", "shop.price:v2"):
        mill.handler(kind)(one)
    assert mill.registry.kinds() == ["a", "b", "shop.price:v2"]
    assert [handler.kind for handler in mill.registry.create_all()] == mill.registry.kinds()
    assert mill.registry.get("a").call is one


def test_handler_decorator_returns_function_unchanged(mill: Mill) -> None:
    assert mill.handler("a")(one) is one
    assert mill.batch_handler("b")(many) is many


def test_registry_error_for_unknown_kind_lists_registered_kinds(mill: Mill) -> None:
    with pytest.raises(UnknownKind, match=r'No handler for kind "x"\. Known kinds: none'):
        mill.registry.get("x")
    mill.handler("b")(one)
    mill.handler("a")(one)
    with pytest.raises(UnknownKind, match=r"Known kinds: a, b"):
        mill.registry.get("x")


def test_second_handler_for_kind_is_rejected(mill: Mill) -> None:
    mill.handler("a")(one)
    with pytest.raises(InvalidInput, match='Kind "a" already has a handler'):
        mill.batch_handler("a")(many)


@pytest.mark.parametrize("kind", ["", "Upper", "with space", ".dot", "ünï", "a" * 101, "a\n", "a/b"])
def test_invalid_kind_name_is_rejected(mill: Mill, kind: str) -> None:
    with pytest.raises(InvalidInput, match="kind must consist of lower-case"):
        mill.handler(kind)(one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency must be from 1"),
        ({"concurrency": HANDLER_CONCURRENCY_MAX + 1}, "concurrency must be from 1"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"timeout": -1}, "timeout must be positive"),
        ({"flush_size": 0}, "flush_size must be at least 1"),
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"max_attempts_not_found": 0}, "max_attempts must be at least 1"),
        ({"max_attempts": 40_000}, "max_attempts must be at most"),
        ({"max_attempts_not_found": 40_000}, "at most"),
        ({"backoff": -1}, "backoff, backoff_cap and not_found_delay must not be negative"),
        ({"backoff_cap": -1}, "backoff, backoff_cap and not_found_delay must not be negative"),
        ({"not_found_delay": -1}, "backoff, backoff_cap and not_found_delay must not be negative"),
    ],
)
def test_handler_option_out_of_bounds_is_rejected(mill: Mill, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mill.handler("a", **options)(one)


def test_invalid_handler_options_are_reported_in_one_error(mill: Mill) -> None:
    with pytest.raises(InvalidInput, match=r'Handler "a": concurrency.*; timeout.*; backoff'):
        mill.handler("a", concurrency=0, timeout=0, backoff=-1)(one)


def test_handler_options_are_stored(mill: Mill) -> None:
    mill.handler("a", concurrency=7, timeout=None, max_attempts=9, backoff=0.5, flush_size=1, limit="shop")(one)
    handler = mill.registry.get("a")
    assert (handler.concurrency, handler.timeout, handler.flush_size, handler.limiter) == (7, None, 1, "shop")
    assert (handler.retry.max_attempts, handler.retry.backoff) == (9, 0.5)


def test_handler_attempts_default_to_settings() -> None:
    mill = Mill(Settings(max_attempts_error=8, max_attempts_not_found=4))
    mill.handler("a")(one)
    mill.handler("b", max_attempts=1)(one)
    assert mill.registry.get("a").retry.max_attempts == 8
    assert mill.registry.get("a").retry.max_attempts_not_found == 4
    assert mill.registry.get("b").retry.max_attempts == 1


def test_handler_mode_is_detected_from_function() -> None:
    def blocking(item: Item) -> None: ...

    async def run_batch(items: list[Item]) -> None: ...

    async def run_batch_in_transaction(items: list[Item], conn: Any) -> None: ...

    assert make_item_handler("a", one).mode == "async"
    assert make_item_handler("a", functools.partial(one)).mode == "async"
    assert make_item_handler("a", blocking).mode == "sync"
    assert make_batch_handler("a", run_batch).is_batch
    assert not make_batch_handler("a", run_batch).in_transaction
    assert make_batch_handler("a", run_batch_in_transaction).in_transaction


def test_blocking_batch_handler_with_transaction_is_rejected() -> None:
    def run_batch_in_transaction(items: list[Item], conn: Any) -> None: ...

    with pytest.raises(InvalidInput, match="so it must be async"):
        make_batch_handler("a", run_batch_in_transaction)


def test_registries_are_independent() -> None:
    first, second = HandlerRegistry(), HandlerRegistry()
    first.add_handler(make_item_handler("a", one))
    assert second.kinds() == []
