"""What happens to a job that is followed, as values, and the base of what shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The job as it is now; the first event of all, then whenever the store changed."""

    row: JobRow
    history: tuple[TransitionRow, ...]
    """What happened since the last such event, the oldest first."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Bytes that a learner printed, as they are: they may end within a line, or within a character."""

    attempt: int
    learner: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AttemptPrinted:
    """All that an attempt printed has come."""


@dataclass(frozen=True, slots=True)
class MetricsChanged:
    """The latest values, at most four times a second."""

    series: tuple[SeriesRow, ...]
    recognised: tuple[str, ...] = ()
    """What the collector ``auto`` says of metrics that it begins to read, each once."""


@dataclass(frozen=True, slots=True)
class DataCopied:
    """How far data or results are on their way."""

    text: str
    """Empty while none are."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence about something that hinders the job or the following; an empty one when nothing does any more."""

    text: str


@dataclass(frozen=True, slots=True)
class Idle:
    """There is nothing new; comes at least twenty times a second, for what depends on time alone."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Nothing more will happen to the job by itself; the last event."""

    row: JobRow
    results: str
    """Where its results are: an address in a store, or a folder here."""


JobEvent = StateChanged | LogBytes | AttemptPrinted | MetricsChanged | DataCopied | Notice | Idle | JobEnded


class JobView:
    """Shows the events of a job. A subclass has a method for each kind that it shows; others are left out."""

    def take(self, event: JobEvent) -> None:
        """Show an event."""
        match event:
            case LogBytes():
                self.output(event.attempt, event.learner, event.data)
            case Idle():
                self.tick()
            case StateChanged():
                self.state(event.row, event.history)
            case MetricsChanged():
                for text in event.recognised:
                    self.recognised(text)
                self.metrics(event.series)
            case DataCopied():
                self.progress(event.text)
            case Notice():
                if event.text:
                    self.notice(event.text)
            case AttemptPrinted():
                self.finish_output()
            case JobEnded():
                self.ended(event.row, event.results)

    def descriptor(self) -> int | None:
        """Return where learners' bytes may be copied to as they are; None: they have to come as events."""
        return None

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Take the job as it is now, and what happened since the last call."""

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Take bytes that a learner printed."""

    def finish_output(self) -> None:
        """Take note that this attempt prints no more."""

    def recognised(self, text: str) -> None:
        """Take which metrics are recognised in the output."""

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Take the latest values."""

    def progress(self, text: str) -> None:
        """Take how far data or results are on their way; an empty text where they are not."""

    def notice(self, text: str) -> None:
        """Take a sentence about what hinders the following, not the job."""

    def tick(self) -> None:
        """Draw what depends on time alone."""

    def ended(self, row: JobRow, results: str) -> None:
        """Take the end."""
