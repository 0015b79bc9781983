"""The attacks of a hostile user. Each runs in a process of its own, at a bounded rate and with a low priority.

``python -m tidemill_bench.attacks NAME ADDRESS PORT KEY SLOW_PORT SECONDS`` attacks until its standard input ends, or
for this number of seconds. Then it prints its responses and its processor time as JSON.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tidemill_bench import attack_connections, attack_requests
from tidemill_bench.attack_requests import Attacker

ATTACKER_NICE = 10
ATTACKER_ADDRESS = "127.0.0.2"
ATTACK_STOP_TIMEOUT_S = 30.0
START_POLL_S = 0.05

ATTACKS: Mapping[str, Callable[[Attacker], Awaitable[None]]] = {
    "slow_url_imports": attack_requests.import_slow_urls,
    "slow_url_previews": attack_requests.preview_slow_urls,
    "wide_previews": attack_requests.preview_wide_files,
    "giant_attribute": attack_requests.preview_and_import("giant_attribute"),
    "shared_part": attack_requests.preview_and_import("shared_part"),
    "deep_json": attack_requests.preview_and_import("deep_json"),
    "false_zip": attack_requests.preview_and_import("false_zip"),
    "equal_rows": attack_requests.preview_and_import("equal_rows"),
    "half_open_connections": attack_connections.hold_half_open_connections,
    "slow_stream_readers": attack_connections.read_streams_slowly,
    "long_slices": attack_requests.request_long_slices,
    "sleeping_trigger": attack_requests.import_trap("sleep"),
    "terminating_trigger": attack_requests.import_trap("terminate"),
    "quota_exhaustion": attack_requests.exhaust_quota,
}
SLOW_SERVER_ATTACKS = ("slow_url_imports", "slow_url_previews")  # the service may download only from these servers
SECOND_ACCOUNT_ATTACKS = frozenset({"quota_exhaustion"})  # a user at a quota could not start the other attacks


@dataclass(frozen=True, slots=True)
class AttackReport:
    """The responses that an attack received, by status, and the processor time of its client."""

    statuses: Mapping[str, int]
    cpu_s: float


class RunningAttacks:
    """Attack processes. ``stop`` ends them; they also end with this process, and after ``max_seconds``."""

    def __init__(
        self, address: tuple[str, int], keys: Mapping[str, str], slow_ports: Mapping[str, int], max_seconds: float
    ) -> None:
        """``keys``: the API key of each attack to run. ``slow_ports``: the ports of their slow servers."""
        self._commands = {
            name: [name, *map(str, address), key, str(slow_ports.get(name, 0)), str(max_seconds)]
            for name, key in keys.items()
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name, arguments in self._commands.items():
            argv = [sys.executable, "-m", "tidemill_bench.attacks", *arguments]
            self._processes[name] = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()

    def wait_until_started(self, timeout_s: float) -> None:
        """Wait until each attack has received its first response."""
        deadline = time.monotonic() + timeout_s
        for name, process in self._processes.items():
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            while not process.stdout.readline():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise TimeoutError(f"The attack {name} got no response within {timeout_s:g} s")
                time.sleep(START_POLL_S)
            os.set_blocking(process.stdout.fileno(), True)

    def stop(self) -> dict[str, AttackReport]:
        """End the attacks; return the report of each."""
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        found = {}
        for name, process in self._processes.items():
            process.stdin = None
            output, _ = process.communicate(timeout=ATTACK_STOP_TIMEOUT_S)
            report: dict[str, Any] = json.loads(output.splitlines()[-1])
            found[name] = AttackReport(**report)
        return found


async def run_attack(name: str, me: Attacker, seconds: float) -> None:
    """Attack until standard input ends or the time is over. Print a line after the first response."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: (os.read(0, 1), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    attack = asyncio.create_task(_await(ATTACKS[name](me)))
    stop = asyncio.create_task(ended.wait())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not me.statuses and not attack.done():  # noqa: ASYNC110  the responses have no event
                await asyncio.sleep(START_POLL_S)
            print("started", flush=True)
            await asyncio.wait([attack, stop], return_when=asyncio.FIRST_COMPLETED)
    attack.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attack


async def _await(attack: Awaitable[None]) -> None:
    await attack


def main(arguments: Sequence[str]) -> None:
    name, host, port, key, slow_port, seconds = arguments
    os.nice(ATTACKER_NICE)
    me, started = Attacker((host, int(port)), key, ATTACKER_ADDRESS, int(slow_port)), time.process_time()
    try:
        asyncio.run(run_attack(name, me, float(seconds)))
    finally:
        cpu_s = round(time.process_time() - started, 2)
        print(json.dumps({"statuses": dict(me.statuses.most_common()), "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
