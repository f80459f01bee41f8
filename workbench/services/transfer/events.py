"""What a transfer reports while it runs. The caller decides what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.formats import duration, size
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.stores.transfer import TransferProgress


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is; comes several times a second."""

    what: str
    """What is copied."""
    progress: TransferProgress


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not copied: it leads out of its folder, or is not a file."""

    name: str


@dataclass(frozen=True, slots=True)
class TransferNotice:
    """A sentence about something that changes what the result holds, such as a backend that did not answer."""

    text: str


TransferEvent = CopyProgress | SkippedFile | TransferNotice

Report = Callable[[TransferEvent], None]


def event_text(event: TransferEvent) -> str:
    """Return an event as front ends say it."""
    if isinstance(event, CopyProgress):
        return f"{event.what}: {progress_text(event.progress)}"
    if isinstance(event, SkippedFile):
        return f"skipped {event.name}: it points outside the folder, or is not a file"
    return event.text


def progress_text(progress: TransferProgress) -> str:
    """Return how far a copy is: ``42%, 1.2 GiB of 2.9 GiB, 110 MiB/s, 15 s left``."""
    parts = [f"{size(progress.done_bytes)} of {size(progress.total_bytes)}"]
    if progress.total_bytes:
        parts.insert(0, f"{100 * progress.done_bytes // progress.total_bytes}%")
    if progress.bytes_per_second > 0:
        parts.append(f"{size(int(progress.bytes_per_second))}/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts)


def ignore(event: TransferEvent) -> None:
    """Take an event and do nothing with it."""
