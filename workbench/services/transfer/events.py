"""What a transfer reports while it runs. The caller decides what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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


def ignore(event: TransferEvent) -> None:
    """Take an event and do nothing with it."""
