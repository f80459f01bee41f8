"""The rules of ``stop_when``: a job is stopped for what it reports, and its history says why.

Most are followed by the learner's agent, also while no controller runs. Left for this one are rules that compare with
other jobs or stop nothing, and agents that know no rules (of hosts without Python, of an older version).

Rules are evaluated again from the points of the current attempt whenever a controller begins to track a job, so nothing
of them is stored but what followed: a request, or a note.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from workbench.controller.decide.outcome import OVER
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.job import Intent, State
from workbench.learner.journal.stop_rules import BY, WORSE_THAN, StopRule, is_for_agent
from workbench.metric_names import goal_of
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import transitions
from workbench.store.queries.metric_values import find_series, reported_names
from workbench.store.queries.requests import add_request, requests
from workbench.store.queries.sweeps import Median, median_of_sweep
from workbench.store.updates.jobs import add_note
from workbench.values import dataclass

MISSING_AFTER: Final = 100
"""A metric of a rule is called missing once others have so many values."""


def was_stopped(row: JobRow) -> bool:
    """Say whether a rule has stopped a job."""
    return row.state is State.HALTED and f" by {BY}" in row.reason.text


COMPARED_EACH: Final = 20
"""A job is compared with its sweep again once it has a twentieth more values."""


@dataclass(slots=True)
class WatchedRule:
    """One rule of an attempt, and how far it has been judged."""

    judged: StopRule
    series: int | None = None
    learner: int = 1
    """The one that reports it."""
    seen: int = 0
    """The last point that was taken."""
    is_done: bool = False
    """Whether what follows from it is written down."""
    is_missing: bool = False
    """Whether the history says that its metric is not reported."""
    compare_at: int = 0
    """How many values the attempt has when it is compared with its sweep again."""

    @property
    def rule(self) -> Mapping[str, Any]:
        """The keys of the rule."""
        return self.judged.rule

    def take_median(self, found: Median | None) -> None:
        """Take how the job compares with the others of its sweep; the rule may hold now."""
        if found is None or not self.judged.is_better(found.others, found.own):
            return
        values = f"{found.values} value{'s' if found.values > 1 else ''}"
        self.judged.sentence = (
            f"{self.rule['metric']} was at best {found.own:.6g} in its first {values}, worse than the median of"
            f" {found.jobs} others of its sweep, {found.others:.6g}"
        )


def _is_ended(tracked: TrackedJob) -> bool:
    """Say whether all learners of a job have ended: its last values may come later, and then stop nothing any more."""
    phases = [status.phase for status in tracked.statuses.values()]
    return len(phases) == tracked.spec.learners and OVER.issuperset(phases)


def rule_of(rule: Mapping[str, Any]) -> StopRule:
    """Return a rule of a job's spec as it is judged."""
    return StopRule({"goal": goal_of(rule["metric"]), **rule})


class StopRules:
    """The rules of all tracked jobs."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._watched: dict[str, tuple[int, list[WatchedRule]]] = {}
        self._undecided: set[str] = set()
        """Jobs with a rule that holds, of whose agent it is not known whether it stops them itself."""

    def evaluate(self, job_id: str, *, is_over: bool = False) -> bool:
        """Take what a job has reported since; return whether a stop was asked for.

        What the learner's agent stops itself is left to that. A job whose command has ended (``is_over``) is not
        stopped any more, its history says that a rule held.

        Raises:
            FabricError: the store takes nothing now; the same call works later.
        """
        tracked = self._context.jobs.get(job_id)
        if tracked is None or not tracked.spec.stop_when:
            self._watched.pop(job_id, None)
            self._undecided.discard(job_id)
            return False
        is_asked, is_drained = False, is_over
        is_over |= _is_ended(tracked)
        for watched in self._of(tracked):
            if not watched.judged.sentence:
                self._take_points(tracked, watched, is_over=is_over)
            if (
                watched.judged.sentence
                and not watched.is_done
                and (is_over or self._is_ours(tracked, watched))
            ):
                is_asked |= self._follow(tracked, watched, is_over=is_over)
                watched.is_done = True
        if is_drained:
            self._watched.pop(job_id, None)
            self._undecided.discard(job_id)
        return is_asked

    def undecided(self, job_ids: Collection[str]) -> list[str]:
        """List those of some jobs with a rule that holds and that somebody is to follow: it was not known who."""
        return sorted(self._undecided.intersection(job_ids))

    def _is_ours(self, tracked: TrackedJob, watched: WatchedRule) -> bool:
        """Say whether the controller follows a rule that holds; not as long as the agent may do so."""
        self._undecided.discard(tracked.row.id)
        if not is_for_agent(watched.rule) or watched.learner != 1:
            return True  # the first learner's agent goes by what that one reports
        status = tracked.statuses.get(1)
        if status is not None and status.stops_itself is not None:
            return not status.stops_itself
        if not tracked.is_observed:
            self._undecided.add(tracked.row.id)
        return tracked.is_observed

    def _of(self, tracked: TrackedJob) -> list[WatchedRule]:
        attempt, watched = self._watched.get(tracked.row.id, (0, []))
        if attempt != tracked.row.attempt:
            watched = [WatchedRule(rule_of(rule)) for rule in tracked.spec.stop_when]
            self._watched[tracked.row.id] = (tracked.row.attempt, watched)
        return watched

    def _take_points(self, tracked: TrackedJob, watched: WatchedRule, *, is_over: bool) -> None:
        store, row = self._context.store, tracked.row
        if watched.series is None or watched.learner != 1:
            self._find_series(tracked, watched, is_over=is_over)
        if watched.series is None:
            self._say_missing(tracked, watched, 1 if is_over else MISSING_AFTER)
            return
        sql = "SELECT seq, step, value FROM points WHERE series = ? AND seq > ? AND attempt = ? ORDER BY seq"
        for seq, step, value in store.rows(sql, (watched.series, watched.seen, row.attempt)):
            watched.seen = seq
            if WORSE_THAN in watched.rule:
                watched.judged.count += 1
            elif watched.judged.take(value, step):
                return
        count = watched.judged.count
        if WORSE_THAN in watched.rule and count >= max(watched.compare_at, 1):
            # Each time all values of the sweep are read: the more there are, the more seldom.
            watched.compare_at = count + 1 + count // COMPARED_EACH
            watched.take_median(
                median_of_sweep(
                    store,
                    row,
                    watched.rule["metric"],
                    smaller_is_better=watched.judged.is_smaller_better,
                    after=watched.rule.get("after", 0),
                )
            )

    def _find_series(self, tracked: TrackedJob, watched: WatchedRule, *, is_over: bool) -> None:
        """Find what a rule is judged by: the first learner's values, as its agent has it.

        Another learner's count where the first one has ended or would be called missing. When the first one reports the
        metric after all, its values count from the first one on.
        """
        store, row = self._context.store, tracked.row
        found = find_series(store, row.id, watched.rule["metric"])
        if found is None or found == watched.series:
            return
        ((learner,),) = store.rows("SELECT learner FROM series WHERE id = ?", (found,))
        first = tracked.statuses.get(1)
        is_first_silent = is_over or (first is not None and first.phase in OVER)
        if learner == 1 or is_first_silent or reported_names(store, row.id, points=MISSING_AFTER):
            watched.series, watched.learner, watched.seen = found, learner, 0
            watched.judged = StopRule(watched.rule)

    def _follow(self, tracked: TrackedJob, watched: WatchedRule, *, is_over: bool) -> bool:
        context, job_id = self._context, tracked.row.id
        then = watched.rule.get("then", "halt")
        if then == "tell" or is_over:
            is_stopped = tracked.row.intent is not Intent.NONE or any(
                one.stopped in ("halt", "kill") for one in tracked.statuses.values()
            )
            if not is_stopped or then == "tell":
                self._note(tracked, BY + watched.judged.sentence)
            return False
        if tracked.row.intent is not Intent.NONE:
            return False
        if any(not one.outcome and one.kind in ("halt", "kill") for one in requests(context.store, job_id)):
            return True  # it was asked for before a crash
        with context.atomic():
            add_request(context.store, then, job_id, {}, BY + watched.judged.sentence, "controller")
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
