"""The rules of ``stop_when``: a job is stopped for what it reports, and its history says why.

Rules are evaluated again from the points of the current attempt whenever a controller begins to track a job, so nothing
of them is stored but what followed: a request, or a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.job import Intent, State
from workbench.metrics.direction import smaller_is_better
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import transitions
from workbench.store.queries.metric_values import find_series, reported_names
from workbench.store.queries.requests import add_request, requests
from workbench.store.queries.sweeps import Median, median_of_sweep
from workbench.store.updates.jobs import add_note
from workbench.values import dataclass

BY: Final = "stop_when: "
"""How the name of a rule begins where a person's stands elsewhere: "halted by stop_when: loss is nan at step 7"."""

MISSING_AFTER: Final = 100
"""A metric of a rule is called missing once others have so many values."""


def was_stopped(row: JobRow) -> bool:
    """Say whether a rule has stopped a job."""
    return row.state is State.HALTED and f" by {BY}" in row.reason.text


WORSE_THAN: Final = "worse_than"
COMPARED_EACH: Final = 20
"""A job is compared with its sweep again once it has a twentieth more values."""


@dataclass(slots=True)
class WatchedRule:
    """One rule, and what it has seen of an attempt. :meth:`take` reads and writes nothing else."""

    rule: Mapping[str, Any]
    count: int = 0
    best: float | None = None
    worse: int = 0
    """How many values in a row were no better than the best."""
    series: int | None = None
    seen: int = 0
    """The last point that was taken."""
    sentence: str = ""
    """Why the rule holds; empty until it does."""
    is_done: bool = False
    """Whether what follows from it is written down."""
    is_missing: bool = False
    """Whether the history says that its metric is not reported."""
    compare_at: int = 0
    """How many values the attempt has when it is compared with its sweep again."""

    def take(self, value: float | None, step: float | None) -> bool:
        """Take the next value, None for NaN; return whether the rule holds now."""
        self.count += 1
        if WORSE_THAN in self.rule or self.count <= self.rule.get("after", 0):
            return False
        if found := self._holds(math.nan if value is None else value):
            at = "" if step is None else f" at step {step:.15g}"
            self.sentence = f"{self.rule['metric']} {found}{at}"
        return bool(found)

    def take_median(self, found: Median | None) -> bool:
        """Take how the job compares with the others of its sweep; return whether the rule holds now."""
        if found is None or not self._is_better(found.others, found.own):
            return False
        values = f"{found.values} value{'s' if found.values > 1 else ''}"
        self.sentence = (
            f"{self.rule['metric']} was at best {found.own:.6g} in its first {values}, worse than the median of"
            f" {found.jobs} others of its sweep, {found.others:.6g}"
        )
        return True

    @property
    def is_smaller_better(self) -> bool:
        """Whether the metric is to become small."""
        goal = self.rule.get("goal")
        return goal == "minimize" if goal else smaller_is_better(self.rule["metric"]) is not False

    def _holds(self, value: float) -> str:
        rule = self.rule
        if "is" in rule:
            return "is nan" if math.isnan(value) else ""
        if "above" in rule:
            return f"is {value:.6g}, above {rule['above']:g}" if value > rule["above"] else ""
        if "below" in rule:
            return f"is {value:.6g}, below {rule['below']:g}" if value < rule["below"] else ""
        if math.isfinite(value) and (self.best is None or self._is_better(value, self.best)):
            self.best, self.worse = value, 0
            return ""
        self.worse += 1
        if self.worse < rule["no_better_for"]:
            return ""
        than = "no number" if self.best is None else f"no better than {self.best:.6g}"
        return f"was {than} for {self.worse} value{'s' if self.worse > 1 else ''}"

    def _is_better(self, value: float, best: float) -> bool:
        return value < best if self.is_smaller_better else value > best


class StopRules:
    """The rules of all tracked jobs."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._watched: dict[str, tuple[int, list[WatchedRule]]] = {}

    def evaluate(self, job_id: str, *, is_over: bool = False) -> bool:
        """Take what a job has reported since; return whether a stop was asked for.

        A job whose command has ended (``is_over``) is not stopped any more, its history says that a rule held.

        Raises:
            FabricError: the store takes nothing now; the same call works later.
        """
        tracked = self._context.jobs.get(job_id)
        if tracked is None or not tracked.spec.stop_when:
            self._watched.pop(job_id, None)
            return False
        is_asked = False
        for watched in self._of(tracked):
            if not watched.sentence:
                self._take_points(tracked, watched, is_over=is_over)
            if watched.sentence and not watched.is_done:
                is_asked |= self._follow(tracked, watched, is_over=is_over)
                watched.is_done = True
        if is_over:
            self._watched.pop(job_id, None)
        return is_asked

    def _of(self, tracked: TrackedJob) -> list[WatchedRule]:
        attempt, watched = self._watched.get(tracked.row.id, (0, []))
        if attempt != tracked.row.attempt:
            watched = [WatchedRule(rule) for rule in tracked.spec.stop_when]
            self._watched[tracked.row.id] = (tracked.row.attempt, watched)
        return watched

    def _take_points(self, tracked: TrackedJob, watched: WatchedRule, *, is_over: bool) -> None:
        store, row = self._context.store, tracked.row
        if watched.series is None:
            watched.series = find_series(store, row.id, watched.rule["metric"])
        if watched.series is None:
            self._say_missing(tracked, watched, 1 if is_over else MISSING_AFTER)
            return
        sql = "SELECT seq, step, value FROM points WHERE series = ? AND seq > ? AND attempt = ? ORDER BY seq"
        for seq, step, value in store.rows(sql, (watched.series, watched.seen, row.attempt)):
            watched.seen = seq
            if watched.take(value, step):
                return
        if WORSE_THAN in watched.rule and watched.count >= max(watched.compare_at, 1):
            # Each time all values of the sweep are read: the more there are, the more seldom.
            watched.compare_at = watched.count + 1 + watched.count // COMPARED_EACH
            watched.take_median(
                median_of_sweep(
                    store,
                    row,
                    watched.rule["metric"],
                    smaller_is_better=watched.is_smaller_better,
                    after=watched.rule.get("after", 0),
                )
            )

    def _follow(self, tracked: TrackedJob, watched: WatchedRule, *, is_over: bool) -> bool:
        context, job_id = self._context, tracked.row.id
        then = watched.rule.get("then", "halt")
        if then == "tell" or is_over:
            if tracked.row.intent is Intent.NONE or then == "tell":
                self._note(tracked, BY + watched.sentence)
            return False
        if tracked.row.intent is not Intent.NONE:
            return False
        if any(not one.outcome and one.kind in ("halt", "kill") for one in requests(context.store, job_id)):
            return True  # it was asked for before a crash
        with context.atomic():
            add_request(context.store, then, job_id, {}, BY + watched.sentence, "controller")
        return True

    def _say_missing(self, tracked: TrackedJob, watched: WatchedRule, points: int) -> None:
        if watched.is_missing or not (
            names := reported_names(self._context.store, tracked.row.id, points=points)
        ):
            return
        self._note(tracked, f"{BY}{watched.rule['metric']} has not been reported; there are {names}")
        watched.is_missing = True

    def _note(self, tracked: TrackedJob, text: str) -> None:
        """Add a line to the job's history, once an attempt."""
        store, row = self._context.store, tracked.row
        if any(one.text == text and one.attempt == row.attempt for one in transitions(store, row.id)):
            return
        with self._context.atomic():
            add_note(store, row.id, text)
