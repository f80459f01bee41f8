"""What must hold in every history: after each transaction, whenever a learner starts, and when all has come to rest."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tests.simulation.targets import Learner, SimulatedTarget
from workbench.controller.targets.backend_worker import COLLECT_TRIES
from workbench.job import LEGAL_STEPS, TERMINAL, LearnerPhase, State, exit_code_of, short_id
from workbench.learner.journal.stop_rules import BY
from workbench.manifest.builder.scripts_run import may_be_preempted
from workbench.paths import Home
from workbench.spec import SWEEP_LABEL
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job
from workbench.time_expressions import iso_us

if TYPE_CHECKING:
    from runners.shared.staged_launch import Rendezvous
    from tests.simulation.world import World

_ROWS: Final = (
    "SELECT id, attempt, state, reason, intent, exit_code, exit_by, restarts, platform_restarts FROM jobs "
    "WHERE deleted_us IS NULL"
)
_DONE: Final = "SELECT id, kind, job_id FROM requests WHERE outcome = 'done' AND kind IN ('halt', 'kill')"
_COMPARED: Final = (
    "SELECT id, attempt, state, reason, reason_code, intent, exit_code, exit_by, restarts, platform_restarts, "
    "started_us, ended_us, deleted_us IS NOT NULL FROM jobs ORDER BY id"
)
_SERIES: Final = (
    "SELECT series.job_id, series.learner, points.attempt, points.step, count(*) FROM points "
    "JOIN series ON series.id = points.series WHERE series.name = 'loss' GROUP BY 1, 2, 3, 4"
)

HANGS_SECONDS: Final = 600.0
"""A lease that was taken longer ago may be that of a launch that hangs."""

HEARD_SECONDS: Final = 10.0
"""So long other hosts may not know that an attempt is decided."""

DELAYED_SECONDS: Final = 2500.0
"""So long what went wrong may delay that: a call hangs, a machine sleeps, a controller is not begun again."""

_SILENCERS: Final = ("kill", "second", "disk", "link", "refuse", "repeat", "machine", "sleep", "order")
"""What may keep a controller from passing it on at once."""

LEFT_THERE: Final = "its last output and files stay on the backend"
"""What the reason of an attempt says whose files its backend refuses to give."""


class Violation(AssertionError):
    """Something that must hold does not."""


class Checks:
    """Looks at the home and at the world, and compares."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store: Store | None = None
        self._rows: list[tuple[object, ...]] = []
        """All rows of jobs at the last look."""
        self._known: dict[str, tuple[object, ...]] = {}
        self._heard_by: dict[str, int] = {}
        """By job: how many controllers there had been when it came."""
        self._allowed: dict[str, tuple[int, int]] = {}
        self._started: set[object] = set()
        self._without_files: dict[object, bytes] = {}
        """By learners whose files somebody has removed: the most that one had printed by then."""
        self._answered: list[tuple[object, ...]] = []
        """All rows of stops that were answered, at the last look."""
        self._done: set[int] = set()
        """Those of them that were looked at."""
        self.points: Counter[tuple[str, int, int, int]] = Counter()

    def allow(self, job_id: str, restarts: int, platform_restarts: int) -> None:
        """Note how often a job may be tried again."""
        self._allowed[job_id] = (restarts, platform_restarts)

    @property
    def store(self) -> Store:
        """The home's store, as anybody reads it."""
        if self._store is None:
            self._store = Store.open(self._world.home, makes=False)
        return self._store

    def close(self) -> None:
        """Give the connection back."""
        if self._store is not None:
            self._store.close()

    def reason_of(self, job_id: str) -> str:
        """Return why a job is in its state."""
        return str(self._known[job_id][3]) if job_id in self._known else ""

    def files_lost(self, one: Learner) -> None:
        """Note that somebody has removed a learner's files: nobody can know that it started, nor what it reported."""
        self._started.discard(one.ref)
        before = self._without_files.get(one.ref, b"")
        self._without_files[one.ref] = max(before, bytes(one.output), key=len)

    # Whenever a learner starts

    def learner_starts(self, target: SimulatedTarget, one: Learner) -> None:
        """No learner runs twice, nor beside another attempt's or a job's that it comes after; slots are given once."""
        if one.ref in self._started:
            raise Violation(f"{one.name} was started twice")
        self._started.add(one.ref)
        for other in self._world.all_learners():
            is_same = (other.ref.job_id, other.ref.learner) == (one.ref.job_id, one.ref.learner)
            if other is not one and other.runs and is_same:
                raise Violation(f"{one.name} starts while {other.name} runs")
            comes_before = f"{other.ref.job_id}:completed" in one.spec.after
            if comes_before and other.runs and not other.is_hidden:
                raise Violation(f"{one.name} comes after {other.name}, which runs")
        self._check_time(one)
        self._check_limit(one)
        self._check_log_policies(one)
        if target.held() > target.slots and not self._world.chance.is_active("capacity"):
            raise Violation(f"{target.name} has {target.slots} GPUs, and {target.held()} are held")

    def _check_time(self, one: Learner) -> None:
        """Nothing starts before its time, unless somebody has changed that, or a clock is wrong."""
        sql = "SELECT 1 FROM requests WHERE job_id = ? AND kind = 'queue' LIMIT 1"
        begin_us = iso_us(one.spec.begin) if one.spec.begin else None
        if begin_us is None or self._world.chance.has_happened(("clock",)):
            return
        self._world.judged["a job begins at its time"] += 1
        if self._world.scheduler.now_us() < begin_us and not self.store.row(sql, (one.ref.job_id,)):
            raise Violation(f"{one.name} starts before {one.spec.begin}")

    def _check_limit(self, one: Learner) -> None:
        """No more attempts of a sweep run at once than may."""
        sweep = one.spec.labels.get(SWEEP_LABEL)
        if sweep is None or one.spec.at_most is None:
            return
        running = {
            (other.ref.job_id, other.ref.attempt)
            for other in self._world.all_learners()
            if other.runs and not other.is_hidden and other.spec.labels.get(SWEEP_LABEL) == sweep
        }
        others = running - {(one.ref.job_id, one.ref.attempt)}
        if len(others) >= one.spec.at_most:
            raise Violation(f"{one.name} starts while {len(others)} of its sweep run")

    def _check_log_policies(self, one: Learner) -> None:
        """What has failed and printed what a policy names is not started again, unless a person resumes it."""
        if not one.spec.log_policies or one.spec.learners > 1 or one.ref.job_id in self._world.people.resumed:
            return
        for before in self._world.all_learners():
            is_before = (before.ref.job_id, before.ref.attempt) == (one.ref.job_id, one.ref.attempt - 1)
            has_failed = before.phase is LearnerPhase.EXITED and bool(before.exit_code or before.signal)
            if not (is_before and has_failed and before.ended_by_itself) or before.stopped:
                continue
            for policy in one.spec.log_policies:
                is_printed = re.search(policy["pattern"].encode(), bytes(before.output), re.MULTILINE)
                if is_printed and not self._may_miss_records(before):
                    raise Violation(f"{one.name} starts, though {before.name} printed {policy['pattern']}")

    def is_to_be_stopped(self, one: Learner) -> bool:
        """Say whether a learner will not run for ever: it is the first one and a rule holds, or its search ends."""
        is_held = bool(one.held) and one.ref.learner == 1
        return (is_held or self._world.people.search.is_being_ended(one.spec)) and not one.is_hidden

    # Of jobs over several hosts

    def meet_at_one_place(self, attempt: tuple[str, int], rendezvous: Rendezvous) -> None:
        """The learners of an attempt all have the same place at which they meet."""
        for target in self._world.targets:
            if (other := target.parts.get(attempt, rendezvous)) != rendezvous:
                text = f"{short_id(attempt[0])}.{attempt[1]} meet at {rendezvous} and at {other}"
                self._world.fail(Violation(f"learners of {text}"))

    def is_heard_soon(self, attempt: tuple[str, int]) -> None:
        """What decides an attempt at one host is soon known at the others, unless something has delayed it."""
        since = self._world.scheduler.now - DELAYED_SECONDS

        def look() -> None:
            if self._world.chance.has_happened(_SILENCERS, since):
                return
            self._world.judged["a decision is heard"] += 1
            unheard = [
                target.name
                for target in self._world.targets
                if attempt in target.parts
                and attempt not in target.decisions
                and any(
                    (one.ref.job_id, one.ref.attempt) == attempt and not one.is_over
                    for one in target.learners.values()
                )
            ]
            if unheard:
                text = f"{unheard[0]} has not heard that {short_id(attempt[0])}.{attempt[1]} is decided"
                self._world.fail(Violation(text))

        self._world.scheduler.after(HEARD_SECONDS, look)

    def wait_since_one_time(self, home: str, jobs: Sequence[str]) -> None:
        """A job that waits at several hosts does so since the same time: so two have the same order at all of them.

        The next controller knows no time of a job of which one host alone has heard, and a host that was away when a
        launch failed has that of the attempt before.
        """
        if self._world.chance.has_happened(("clock",)):
            return
        for job_id in jobs:
            if job_id in self._known and self._known[job_id][1] != 1:
                continue
            if self._heard_by.get(job_id) != len(self._world.controllers):
                continue
            self._world.judged["a job waits since one time"] += 1
            lines = (target.line for target in self._world.targets if target.line is not None)
            times = {since for line in lines if (since := line.waits_since(home, job_id)) is not None}
            if len(times) > 1:
                self._world.fail(Violation(f"{short_id(job_id)} waits since several times"))

    # After each transaction

    def after_commit(self) -> None:
        """Look at what has changed."""
        rows = self.store.rows(_ROWS)
        if rows != self._rows:
            self._rows = rows
            for row in rows:
                before = self._known.get(row[0])
                if before == row:
                    continue
                self._known[row[0]] = row
                self._heard_by.setdefault(row[0], len(self._world.controllers))
                self._changed(before, *row)
        answered = self.store.rows(_DONE)
        if answered == self._answered:
            return
        self._answered = answered
        for request_id, kind, job_id in answered:
            if request_id not in self._done:
                self._done.add(request_id)
                state = str(self._known[job_id][2]) if job_id in self._known else ""
                if state and State(state) not in TERMINAL:
                    raise Violation(f"the {kind} of {short_id(job_id)} counts as done, and it is {state}")

    def _changed(
        self,
        before: tuple[object, ...] | None,
        job_id: str,
        attempt: int,
        state: str,
        reason: str,
        intent: str,
        exit_code: int | None,
        exit_by: str,
        restarts: int,
        platform_restarts: int,
    ) -> None:
        name = short_id(job_id)
        if before is None or before[1:4] != (attempt, state, reason):
            self._world.story(f"{name}: attempt {attempt} is {state}: {reason}")
        if not reason:
            raise Violation(f"{name} is {state} without a reason")
        allowed = self._allowed.get(job_id)
        if allowed is not None and (restarts > allowed[0] or platform_restarts > allowed[1]):
            raise Violation(f"{name} was restarted {restarts} and {platform_restarts} times, of {allowed}")
        if before is not None and before[1:3] == (attempt, State.QUEUED) and state == State.PENDING:
            self._check_left_queue(job_id, attempt)
        if state == State.QUEUED or State(state) in TERMINAL:
            self._check_leases(job_id, state)
        for one in self._world.all_learners():
            # Of a job that has ended the next attempt may be its host's, too.
            is_over = State(state) in TERMINAL or one.ref.attempt < attempt
            if one.ref.job_id == job_id and is_over and one.may_run:
                raise Violation(f"{name}: attempt {attempt} is {state}, but {one.name} is {one.phase}")
        if State(state) in TERMINAL and (before is None or before[2] != state):
            self._check_exit_code(job_id, attempt, state, intent, exit_code, exit_by)
            self._check_rules(job_id, attempt, state, reason)

    def _check_leases(self, job_id: str, state: str) -> None:
        """Who is not being launched holds no GPUs by a connection; a call that hangs may for long."""
        if self._world.chance.is_active("second"):
            return
        for target in self._world.targets:
            for lease in target.leases:
                is_held = lease.holder.is_open and lease.slots > 0
                is_fresh = lease.at > self._world.scheduler.now - HANGS_SECONDS
                if lease.attempt.job_id == job_id and is_held and is_fresh:
                    raise Violation(
                        f"{short_id(job_id)} is {state}, and {lease.slots} GPUs of {target.name} are leased"
                    )

    def _check_left_queue(self, job_id: str, attempt: int) -> None:
        """A job that waits at its host is QUEUED until its host starts it."""
        of_attempt = (job_id, attempt)
        if not self.store.row("SELECT 1 FROM learners WHERE job_id = ? AND attempt = ?", of_attempt):
            return  # not known to wait there
        waiting = [
            one.is_handed_over and one.waits_for_slots
            for one in self._world.all_learners()
            if (one.ref.job_id, one.ref.attempt) == of_attempt
        ]
        if waiting and all(waiting):
            raise Violation(f"{short_id(job_id)} is PENDING, and waits at its host")

    def _check_exit_code(
        self, job_id: str, attempt: int, state: str, intent: str, exit_code: int | None, exit_by: str
    ) -> None:
        ended = [
            one
            for one in self._world.all_learners()
            if (one.ref.job_id, one.ref.attempt) == (job_id, attempt)
        ]
        codes = {
            exit_code_of(one.exit_code, one.signal)
            for one in ended
            if one.exit_code is not None or one.signal
        }
        if exit_by == "job" and exit_code not in codes:
            raise Violation(f"{short_id(job_id)} shows exit code {exit_code}; its learners wrote {codes}")
        if (state == State.COMPLETED) != (exit_by == "job" and exit_code == 0):
            raise Violation(f"{short_id(job_id)} is {state} with exit code {exit_code} by '{exit_by}'")
        if len(ended) == 1 and ended[0].spec.learners == 1 and exit_by != "job":
            (one,) = ended
            code = exit_code_of(one.exit_code, one.signal)
            is_own = (
                one.phase is LearnerPhase.EXITED
                and one.ended_by_itself
                and not one.stopped
                and not one.is_hidden
            )
            if is_own and code not in (143, 137) and one not in self._world.removed:
                raise Violation(
                    f"{short_id(job_id)} ended by itself with {code}, and shows {exit_code} {exit_by}"
                )

    def _check_rules(self, job_id: str, attempt: int, state: str, reason: str) -> None:
        """A rule stops only what it holds for, and a job that its agent has stopped by one says so.

        A stop for what an attempt has reported may find the next one, which its host has begun meanwhile.
        """
        of_job = [one for one in self._world.all_learners() if one.ref.job_id == job_id]
        learners = [one for one in of_job if one.ref.attempt == attempt]
        first = next((one for one in learners if one.ref.learner == 1), None)
        may_hold = [first] if first is not None and first.began and first.stopped else [*learners]
        may_hold += [one for one in of_job if one.ref.attempt == attempt - 1]
        is_by_rule = state == State.HALTED and f" by {BY}" in reason
        if is_by_rule and not any(one.held for one in may_hold):
            raise Violation(f"{short_id(job_id)} is {state}: {reason}, and no rule of it held")
        for one in learners:
            is_stopped = one.stopped in ("halt", "kill") and one.asked_by.startswith(BY)
            is_seen = one.phase is LearnerPhase.EXITED and not one.is_hidden
            is_asked_by_others = one.spec.learners > 1 or self._world.people.was_stopped(job_id)
            if is_stopped and is_seen and not (is_by_rule or is_asked_by_others):
                raise Violation(f"{one.name} was stopped by its rule, and its job is {state}: {reason}")

    # When all has come to rest

    def at_rest(self) -> None:
        """Look at everything."""
        self._nothing_runs()
        if name := self.left_up():
            raise Violation(f"{name} is up though no job needs it")
        self._nothing_stays_preempted()
        self._nothing_is_left_of_what_failed()
        self._nothing_is_left_of_deleted_jobs()
        self._all_is_over()
        self._histories_are_legal()
        self._points_count_once()
        self._journals_are_whole()

    def _nothing_runs(self) -> None:
        for one in self._world.all_learners():
            if one.may_run:
                raise Violation(f"{one.name} is {one.phase}, and no open job owns it")
        for target in self._world.targets:
            if target.held():
                raise Violation(f"{target.name} still holds {target.held()} GPUs")
            if target.line is not None and (waiting := list(target.line.held())):
                raise Violation(f"{short_id(waiting[0])} still stands in the queue of {target.name}")

    def _nothing_stays_preempted(self) -> None:
        """Who was preempted has not failed: another attempt follows, unless a person wants none."""
        may_be = {one.ref.job_id for one in self._world.all_learners() if may_be_preempted(one.spec)}
        for row in self.store.rows(_ROWS):
            if row[6] == "preempt" and row[0] in may_be and not self._world.people.was_stopped(row[0]):
                raise Violation(f"{short_id(row[0])} is {row[2]} for ever: {row[3]}")

    def _nothing_is_left_of_what_failed(self) -> None:
        for job_id in self._world.people.refused:
            if job(self.store, job_id) is not None or self._world.home.job(job_id).path.exists():
                raise Violation(
                    f"{short_id(job_id)} is there, though its command said that it was not submitted"
                )

    def _nothing_is_left_of_deleted_jobs(self) -> None:
        deleted = {
            job_id for (job_id,) in self.store.rows("SELECT id FROM jobs WHERE deleted_us IS NOT NULL")
        }
        for target in self._world.targets:
            if target.is_off:
                continue  # nobody starts a machine to have files removed
            for one in target.learners.values():
                if one.ref.job_id in deleted and target.kind != "local":
                    raise Violation(
                        f"{short_id(one.ref.job_id)} is deleted, and {one.name} is still on {target.name}"
                    )
        left = {job_id for (job_id,) in self.store.rows("SELECT DISTINCT job_id FROM series")} & deleted
        if left:
            raise Violation(f"{short_id(min(left))} is deleted, and its metrics are in the store")
        if found := self.leftover():
            raise Violation(f"{short_id(found)} is deleted, and its folder is there")

    def leftover(self) -> str:
        """Return a deleted job whose folder is there; empty where there is none."""
        deleted = self.store.rows("SELECT id FROM jobs WHERE deleted_us IS NOT NULL")
        return next((str(one) for (one,) in deleted if self._world.home.job(one).path.exists()), "")

    def machine_stops(self, target: SimulatedTarget) -> None:
        """Nothing runs at a host that is being stopped, unless two controllers work, of which one needs it."""
        controllers = sum(not (one.is_over or one.process.is_killed) for one in self._world.controllers)
        running = [one.name for one in target.learners.values() if one.may_run]
        if running and controllers < 2:
            raise Violation(f"{target.name} is stopped while {', '.join(running)} may run there")

    def left_up(self) -> str:
        """Return a host that is up though its jobs are over; empty where there is none."""
        return next((one.name for one in self._world.on_demand if not one.is_off), "")

    def _all_is_over(self) -> None:
        for row in self.store.rows(_ROWS):
            if State(row[2]) not in TERMINAL:
                raise Violation(f"{short_id(row[0])} is {row[2]} for ever: {row[3]}")
            if row[4]:
                raise Violation(f"{short_id(row[0])} has ended, and its {row[4]} is open")
        for request_id, kind, job_id in self.store.rows(
            "SELECT id, kind, job_id FROM requests WHERE outcome = ''"
        ):
            raise Violation(f"request {request_id}, {kind} of {short_id(job_id)}, was never answered")

    def _histories_are_legal(self) -> None:
        states: dict[tuple[str, int], State] = {}
        sql = "SELECT job_id, attempt, state FROM transitions WHERE kind = 'state' ORDER BY job_id, id"
        for job_id, attempt, text in self.store.rows(sql):
            state, before = State(text), states.get((job_id, attempt))
            if before is not None and before is not state:
                if state not in LEGAL_STEPS[before]:
                    raise Violation(f"{short_id(job_id)}: attempt {attempt} went from {before} to {state}")
                self._world.steps[before, state] += 1
            states[job_id, attempt] = state

    def _points_count_once(self) -> None:
        open_jobs = {job_id for (job_id,) in self.store.rows("SELECT id FROM jobs WHERE deleted_us IS NULL")}
        found: Counter[tuple[str, int, int]] = Counter()
        for job_id, learner, attempt, step, count in self.store.rows(_SERIES):
            if count != 1:
                raise Violation(
                    f"step {step} of {short_id(job_id)}.{attempt}.{learner} is in the store {count} times"
                )
            found[job_id, attempt, learner] += 1
        for one in self._world.all_learners():
            ref = one.ref
            if ref.job_id not in open_jobs or self._may_miss_records(one):
                continue
            have = found[ref.job_id, ref.attempt, ref.learner]
            if have != one.reported:
                raise Violation(f"{one.name} reported {one.reported} times, {have} are in the store")

    def _may_miss_records(self, one: Learner) -> bool:
        return (
            one.ref in self._without_files
            or self._world.may_miss_records(one)
            or self._is_left_at_target(one)
            or self._is_of_another_controller(one)
        )

    def _is_of_another_controller(self, one: Learner) -> bool:
        """Say whether a controller whose lock was taken away launched it once the next one had ended its attempt."""
        sql = "SELECT 1 FROM learners WHERE job_id = ? AND attempt = ?"
        is_known = self.store.row(sql, (one.ref.job_id, one.ref.attempt)) is not None
        return self._world.chance.is_active("second") and not is_known

    def _is_left_at_target(self, one: Learner) -> bool:
        """Say whether its target refused to give what a learner left so often that it stays there, and this is told."""
        ref, refusals = one.ref, self._world.target_of(one).refusals[one.ref]
        sql = "SELECT reason FROM attempts WHERE job_id = ? AND attempt = ?"
        found = self.store.row(sql, (ref.job_id, ref.attempt))
        return refusals >= COLLECT_TRIES and found is not None and LEFT_THERE in str(found[0])

    def _journals_are_whole(self) -> None:
        for one in self._world.all_learners():
            target = self._world.target_of(one)
            folder = target.folder(one)
            file = folder / "output.log"
            if target.kind == "local" or not file.exists():
                continue
            output = file.read_bytes()
            # One that was launched again has a journal of its own, and what came of the lost one stays here.
            printed = max(self._without_files.get(one.ref, b""), bytes(one.output), key=len)
            if not printed.startswith(output):
                raise Violation(f"the output of {one.name} is not what it printed: {output!r}")
            if not self._may_miss_records(one) and output != bytes(one.output):
                raise Violation(f"{one.name} printed {len(one.output)} bytes, {len(output)} are here")

    def rebuilt_alike(self) -> None:
        """A database made of the files alone has the same jobs."""
        from workbench.metrics.ingestion import ingest
        from workbench.store.updates.rebuild import rebuild

        home: Home = self._world.home
        before = [*_jobs(self.store)]
        points = sorted(self.store.rows(_SERIES))
        self.close()
        self._store = None
        rebuild(home, ingest=ingest)
        after = [*_jobs(self.store)]
        if before != after:
            raise Violation(f"a rebuild of the store gives other jobs: {before} and {after}")
        if points != sorted(self.store.rows(_SERIES)):
            raise Violation("a rebuild of the store gives other metrics")


def _jobs(store: Store) -> Iterator[str]:
    for row in store.rows(_COMPARED):
        yield json.dumps(row)
