"""Leaves work that a caller does not wait for any longer: it sets an event, and the call ends within a second."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from workbench.errors import FabricError

if TYPE_CHECKING:
    from workbench.data.code.scan import Progress

T = TypeVar("T")

POLL_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 0.5
"""How long work may take to stop by itself before it is left to its thread."""


class Cancelled(FabricError):
    """The caller cancelled the call before it was done."""

    exit_code = 130


def check_cancelled(cancel: threading.Event | None) -> None:
    """Raise where the caller has cancelled.

    Raises:
        Cancelled: ``cancel`` is set.
    """
    if cancel is not None and cancel.is_set():
        raise Cancelled("cancelled")


def cancellable(progress: Progress, cancel: threading.Event | None) -> Progress:
    """Return a report of progress that also ends the work that reports, once ``cancel`` is set."""
    if cancel is None:
        return progress

    def report(step: str, done: int, total: int) -> None:
        check_cancelled(cancel)
        progress(step, done, total)

    return report


class _CancellableStream:
    """A stream whose reading ends once the caller cancels; all else of it is as it was."""

    def __init__(self, stream: BinaryIO, cancel: threading.Event) -> None:
        self._stream = stream
        self._cancel = cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            Cancelled: ``cancel`` is set.
        """
        check_cancelled(self._cancel)
        return self._stream.read(size)


def cancellable_stream(stream: BinaryIO, cancel: threading.Event | None) -> BinaryIO:
    """Return a stream whose reading raises :class:`Cancelled` once ``cancel`` is set."""
    return stream if cancel is None else cast("BinaryIO", _CancellableStream(stream, cancel))


def call(work: Callable[[], T], cancel: threading.Event | None) -> T:
    """Call a function, and return within a second once ``cancel`` is set.

    A connection attempt or a file system that does not answer cannot be interrupted: the function then ends in a
    thread of its own, and its result is dropped. Without ``cancel`` it is called in this thread.

    Raises:
        Cancelled: ``cancel`` was set before the function returned.
    """
    if cancel is None:
        return work()
    check_cancelled(cancel)
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again where the caller waits
            failures.append(error)

    # The profile that is in force is a context variable: the other thread needs it too.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="cancellable", daemon=True)
    thread.start()
    while thread.is_alive() and not cancel.is_set():
        thread.join(POLL_SECONDS)
    thread.join(GRACE_SECONDS)
    if failures:
        raise failures[0]
    if not results:
        raise Cancelled("cancelled")
    return results[0]
