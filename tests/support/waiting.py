"""The one way in which tests wait: for a condition, never for a time.

Every limit is multiplied by ``FABRIC_TEST_PATIENCE`` (``.ci/run`` sets 3), so that a busy machine makes a test slow and
not red. A limit that is not reached costs nothing: give one only where 60 s are too few. That something was quick is no
business of a test but of ``tests/bench``; that it did not wait for something else is shown by order or by a count.
"""

from __future__ import annotations

import inspect
import os
import select
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

PATIENCE: Final = float(os.environ.get("FABRIC_TEST_PATIENCE", "1"))
"""How many times longer than on a quiet machine a test may wait."""
LIMIT_SECONDS: Final = 60.0
EVERY_SECONDS: Final = 0.01
REST: Final = 4.0
"""How many times as long as a look took nobody looks again: four of five parts of a processor are left to others."""
REST_SECONDS: Final = 0.5
"""The longest rest after a look."""
PART_OF_WAIT: Final = 1 / 16
"""Who has waited long looks less often: what comes is seen by this part of the wait later."""
PART_SECONDS: Final = 0.05
"""The longest pause of that kind."""

Found = TypeVar("Found")
What = str | Callable[[], object]
"""What is waited for; a function is called when it did not come, and says what is there instead."""


def patience(seconds: float = LIMIT_SECONDS) -> float:
    """Return how long a call with a time limit of its own may take here: ``timeout=patience(20)``."""
    return seconds * PATIENCE


def until(
    holds: Callable[[], Found],
    what: What = "",
    *,
    seconds: float = LIMIT_SECONDS,
    every: float = EVERY_SECONDS,
    despite: tuple[type[Exception], ...] = (),
) -> Found:
    """Wait until something holds, and return what it gave.

    Args:
        holds: Asked again and again until it gives something true.
        what: What is waited for; without it the condition's source stands for it.
        seconds: The limit, before :data:`PATIENCE`.
        every: The least pause between two questions, in seconds; one that takes long to answer is asked less often,
            and so is what does not come for long.
        despite: Errors of the condition that mean "not yet".

    Raises:
        AssertionError: It did not come to hold; says for what and how long, the load, and what was last seen.
    """
    began_at = time.monotonic()
    deadline = began_at + patience(seconds)
    while True:
        error: Exception | None = None
        asked_at = time.monotonic()
        try:
            if found := holds():
                return found
        except despite as raised:
            error = raised
        if time.monotonic() >= deadline:
            raise late(what or _source(holds), seconds) from error
        time.sleep(max(every, _rest_after(asked_at), _part_of_wait_since(began_at)))


async def until_async(
    holds: Callable[[], Awaitable[Found]],
    what: What = "",
    *,
    pause: Callable[[float], Awaitable[object]],
    seconds: float = LIMIT_SECONDS,
    every: float = EVERY_SECONDS,
    despite: tuple[type[Exception], ...] = (),
) -> Found:
    """Wait until something holds, as :func:`until` does.

    Args:
        holds: Asked again and again until it gives something true.
        what: What is waited for; without it the condition's source stands for it.
        pause: Sleeps, and lets others go on: a pilot's ``pause`` for screens, ``asyncio.sleep``.
        seconds: The limit, before :data:`PATIENCE`.
        every: The least pause between two questions, in seconds; one that takes long to answer is asked less often.
        despite: Errors of the condition that mean "not yet".
    """
    began_at = time.monotonic()
    deadline = began_at + patience(seconds)
    while True:
        error: Exception | None = None
        asked_at = time.monotonic()
        try:
            if found := await holds():
                return found
        except despite as raised:
            error = raised
        if time.monotonic() >= deadline:
            raise late(what or _source(holds), seconds) from error
        await pause(max(every, _rest_after(asked_at), _part_of_wait_since(began_at)))


def _rest_after(asked_at: float) -> float:
    return min(REST * (time.monotonic() - asked_at), REST_SECONDS)


def _part_of_wait_since(began_at: float) -> float:
    return min(PART_OF_WAIT * (time.monotonic() - began_at), PART_SECONDS)


def ended(
    process: subprocess.Popen[bytes] | subprocess.Popen[str],
    what: What = "",
    *,
    seconds: float = LIMIT_SECONDS,
) -> int:
    """Wait until a process has ended, and return its exit status; one that does not end is killed.

    It is known at once: ``Popen.wait`` with a limit looks every 50 ms.
    """
    if process.poll() is None and not _is_readable(os.pidfd_open(process.pid), patience(seconds)):
        process.kill()
        process.wait()
        raise late(what or f"{process.args!r} to end", seconds)
    return process.wait()


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Say whether something comes within a time, and close the descriptor."""
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def late(what: What, seconds: float) -> AssertionError:
    """Return the error of something that did not come in time."""
    seen = what() if callable(what) else what
    load = os.getloadavg()[0]
    return AssertionError(f"waited {patience(seconds):g} s (load {load:.1f}) for {seen}")


def _source(holds: Callable[[], object]) -> str:
    try:
        return inspect.getsource(holds).strip()
    except (OSError, TypeError):
        return repr(holds)
