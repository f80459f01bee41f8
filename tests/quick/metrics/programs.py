"""Training programs that are halted and resumed: what each attempt of theirs reports, and what of it counts in the end.

A program knows its own course: each attempt goes on from a state that one before it had saved, or from the beginning.
What leads from the end of the last attempt back to the beginning counts; all else was given up. Nothing here looks at
how fabric finds that out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice, takewhile

ATTEMPT_SECONDS = 100_000


@dataclass(frozen=True)
class ReportedValue:
    """What a program reports at once, or a checkpoint that it saves."""

    attempt: int
    at: int
    """How many batches the training has done by then, over all epochs."""
    seconds: float
    step: float | None = None
    epoch: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    is_checkpoint: bool = False
    is_reported: bool = True
    """Whether anybody hears of a checkpoint."""


@dataclass(frozen=True)
class Program:
    """How a program counts, logs and saves."""

    batches: int = 3
    """Of an epoch."""
    every: int = 1
    """So many batches lie between two reports of the loss."""
    counts: str = "batches"
    """``batches`` of all epochs, those of each ``epoch`` anew, ``epochs``, or ``fractions`` of those."""
    first: int = 1
    """What the first batch is called."""
    has_epochs: bool = False
    """Whether reports name their epoch."""
    validates: int = 0
    """So many batches lie between two reports of ``val``; 0 for never."""
    validated_by: int = 1000
    """The last attempt that does so."""
    saves: int = 3
    """So many batches lie between two checkpoints."""
    saved_as: str = ""
    """What a checkpoint calls its step: ``step``, ``epoch``, ``none``, or it is not heard of where empty."""
    starts_with: float | None = None
    """The step that every attempt reports first, before it has done anything: a baseline."""

    def step(self, done: int) -> float:
        """What it calls the step at which so many batches are done."""
        if self.counts == "fractions":
            return round(done / self.batches, 2)
        if self.counts == "epochs":
            return done // self.batches
        return (done - 1) % self.batches + self.first if self.counts == "epoch" else done - 1 + self.first

    def epoch(self, done: int) -> float | None:
        if self.counts == "fractions":
            return round(done / self.batches, 2)
        return (done - 1) // self.batches + 1 if self.has_epochs else None

    def attempt(self, number: int, loaded: int) -> Iterator[ReportedValue]:
        """Yield what an attempt says that has loaded the state after some batches; it does not end by itself."""
        reported = ReportedValue(number, loaded, number * ATTEMPT_SECONDS)
        if self.starts_with is not None:
            yield replace(reported, step=self.starts_with, values={"loss": 1e6 * number + loaded})
        for done in count(loaded + 1):
            now = replace(reported, at=done, seconds=reported.seconds + 10 * (done - loaded))
            named = replace(now, step=self.step(done), epoch=self.epoch(done))
            if done % self.every == 0:
                yield replace(named, values={"loss": 1e6 * number + done})
            if self.validates and number <= self.validated_by and done % self.validates == 0:
                yield replace(named, seconds=now.seconds + 1, values={"val": 1e6 * number + done})
            if done % self.saves == 0:
                step = {"step": done, "epoch": done // self.batches}.get(self.saved_as)
                yield replace(
                    now,
                    seconds=now.seconds + 2,
                    step=step,
                    is_checkpoint=True,
                    is_reported=bool(self.saved_as),
                )


@dataclass(frozen=True)
class Life:
    """A program from its first start to its last end."""

    reported: Sequence[ReportedValue]
    course: Sequence[ReportedValue]
    """Those of it that count in the end."""
    began_anew: Sequence[int] = ()
    """Attempts that loaded nothing though there was something to load."""

    @property
    def given_up(self) -> list[ReportedValue]:
        """What was reported and does not count."""
        return [one for one in self.reported if one not in self.course and not one.is_checkpoint]


def lived(program: Program, attempts: Sequence[tuple[int, bool]], *, anywhere: bool = False) -> Life:
    """Let a program live.

    Args:
        program: How it does.
        attempts: After how many batches of its own each attempt is halted, and whether it loads the last checkpoint.
        anywhere: Whether it is after so many things that it says.
    """
    reported: list[ReportedValue] = []
    before: dict[int, list[ReportedValue]] = {}
    """What counts at the end of each attempt."""
    state: list[ReportedValue] = []
    began_anew: list[int] = []
    for number, (lasts, loads) in enumerate(attempts, 1):
        loaded = state if loads else []
        at = loaded[-1].at if loaded else 0
        began_anew += [number] if state and not loads else []
        says = program.attempt(number, at)
        own: list[ReportedValue] = []
        for one in islice(says, lasts) if anywhere else takewhile(partial(_is_by, at + lasts), says):
            own.append(one)
            if one.is_checkpoint:
                state = [*loaded, *own]
        before[number] = [*loaded, *own]
        reported += own
    course = [one for one in before[len(attempts)] if not one.is_checkpoint]
    return Life(reported, course, began_anew)


def _is_by(at: int, one: ReportedValue) -> bool:
    return one.at <= at


def tells_its_course(program: Program, life: Life) -> bool:
    """Say whether somebody who only sees what a program reported could tell its course."""
    attempts = sorted({one.attempt for one in life.reported})
    losses = {
        n: [one for one in life.reported if one.attempt == n and "loss" in one.values] for n in attempts
    }
    if any(len(each) < (2 if program.starts_with is None else 4) for each in losses.values()):
        return False  # one step may be a baseline
    if program.starts_with is not None:
        for each in losses.values():
            baseline, first, *_ = each
            if first.at > 1 and (first.step or 0) - (baseline.step or 0) < 2 * program.every:
                return False  # what it began with is next to its baseline
    if program.counts == "epoch" and (program.starts_with or 0) > program.first:
        return False  # the steps of its first epoch go back
    if program.counts == "epoch" and program.every >= program.batches:
        return False  # each step has the same number, or one of few
    if program.counts == "epoch" and not program.has_epochs:
        # Batch 1 of any epoch looks like the beginning: that a checkpoint was there says that it is not.
        return bool(program.saved_as) and not life.began_anew and program.batches % program.every == 0
    return True
