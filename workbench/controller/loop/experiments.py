"""Searches under way: trials become jobs, what they report goes to the searcher, and its answers are carried out.

An event is on the disk before anything follows from it. After a crash the events are replayed, which gives the same
searcher, and what had not been carried out yet is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from runners.interface import StopRequest
from runners.registry import capabilities_of
from workbench.clock import elapsed_seconds
from workbench.controller.client.submission import Submission, detail_of
from workbench.controller.decide.messages import Woken
from workbench.controller.decide.requests import RETAIN
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.removal import remove_folder
from workbench.controller.loop.retention import OF_SEARCH
from workbench.controller.loop.stop_rules import was_stopped
from workbench.controller.runtime.initial_checkpoint import initial_checkpoint
from workbench.controller.runtime.searcher_process import SearcherProcess, interpreter
from workbench.controller.runtime.secrets import forget_secrets, read_secrets, write_secrets
from workbench.data.code.snapshot import unpack
from workbench.errors import FabricError, UsageError
from workbench.job import BEFORE_THE_COMMAND, Intent, JobId, State, new_job_id
from workbench.learner.determined_jobs import (
    CONFIG_VARIABLE,
    LENGTHS_VARIABLE,
    PROMOTED_VARIABLE,
    searcher_of,
)
from workbench.learner.platform.files import is_put, put_folder, remove_put
from workbench.manifest.builder.params import trial_spec
from workbench.metric_names import is_held_out
from workbench.search.config import SearchConfig
from workbench.search.method import Create, MetricMissing, Operation, RunTo, Shutdown, StopTrial, TrialEnd
from workbench.search.searcher import Searcher
from workbench.spec import SWEEP_LABEL, JobSpec, spec_from_json, spec_to_json
from workbench.store.db.reserve import with_reserve
from workbench.store.db.rows import JobRow, TargetRef, is_over
from workbench.store.history.journal import catch_up
from workbench.store.queries.experiments import (
    COMPLETED,
    FAILED,
    ID_PREFIX,
    KILLED,
    PAUSED,
    REPLACES_EARLY_ENDS,
    RUNNING,
    STOPPING,
    TRIALS_AHEAD,
    ExperimentRow,
    annotations_of,
    deleted_experiments,
    events_of,
    experiment,
    experiments,
    may_go_on,
    read_experiment_file,
    trial_job_ids,
    trials,
    turns_of,
)
from workbench.store.queries.jobs import attempts, detail, job
from workbench.store.queries.metric_values import find_series, metric_names, reported_names
from workbench.store.queries.requests import add_request, requests
from workbench.store.queries.step_course import AS_REPORTED, course_of
from workbench.store.updates.experiments import (
    catch_up_experiment,
    keep_continued,
    record_event,
    remove_experiment,
)
from workbench.store.updates.jobs import add_note, annotate, insert_job
from workbench.values import dataclass

SEARCHER_DEATHS_MAX: Final = 3
"""A process that chooses is started again so often without having answered."""

SEARCHER_LATE_SECONDS: Final = 60.0
"""After so long without an answer the search says that it waits for one."""

BY: Final = "the search"
BY_PAUSE: Final = "the pause of its search"
BY_COMPARISON: Final = "its search, to be compared with others"
STOP_AGAIN_SECONDS: Final = 30.0
"""A trial that is to stop and runs on is asked again: its backend may have been cut off."""

INVALID_HP: Final = "searcher/invalid_hp"
"""What a trial reports whose hyper-parameters make no sense."""

ABOUT_METRIC: Final = "metric"
ABOUT_TIME: Final = "time_metric"
ABOUT_SEARCHER: Final = "searcher"
"""What a note of a search is about. A note of an older fabric does not say, and its text does."""
LATE_SEARCHER: Final = "the searcher has not answered"

INVALID_IN_A_ROW_MAX: Final = 100
"""A search gives up after so many such trials one after the other: each begins another one."""

HALVING: Final = ("asha", "adaptive_asha")
COMPARED: Final = (*HALVING, "optuna", "python")
"""The methods for which a trial that has reported nothing has failed."""

WAITING_AT_ONCE: Final = 2
"""How many trials wait at each of several backends: one is being launched, and one is there when a slot is free."""

_WAITING: Final = frozenset({State.QUEUED, State.PENDING})

STEP: Final = "step"
"""As a time metric it is the step of each validation, unless a metric has that name."""


@dataclass(slots=True)
class _Trial:
    """One trial whose job is not over."""

    trial: str
    number: int
    job_id: str
    create: Mapping[str, Any]
    is_stopped: bool = False
    seen: int = 0
    """How many points of the metric were taken."""
    asked: tuple[int, float] = (0, 0.0)
    """The attempt that was asked to stop, and when."""
    paused: int = 0
    """The attempt that was to be halted for the search to go on later; it counts as not ended. 0 for none."""
    until: float | None = None
    """Its next report that counts is the first at so many units; None where each one counts."""
    is_waiting: bool = False
    """Whether it has come so far, and the search has not decided yet whether it goes on."""
    has_begun: bool = True
    """Whether the checkpoint that it begins with, if any, was copied: that of another trial, which must not change."""
    ended_as: TrialEnd | None = None
    """How it ended; None while it runs."""
    goes_on_after: int | None = None
    """The attempt after which it goes on, of a search that was continued; 0 where it has no job yet."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where trials of a search may run."""

    ref: TargetRef
    recorded: Mapping[str, Any]
    """What a job records there."""


@dataclass(slots=True)
class _Active:
    """One search."""

    id: str
    config: SearchConfig
    document: Mapping[str, Any]
    spec: JobSpec
    searcher: Searcher
    is_begun: bool = False
    is_paused: bool = False
    is_stopping: bool = False
    why: str = ""
    killed: bool = False
    is_ahead: bool = False
    """Whether trials are created before they may run; the limit of their jobs says how many may."""
    at_most: int | None = None
    """That limit, for the jobs of trials that begin, or go on."""
    targets: Mapping[tuple[str, str], _Target] = field(default_factory=dict)
    """By backend and runner, in the order of the manifest."""
    numbers: int = 0
    open: dict[str, _Trial] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    """The job of each trial that there ever was."""
    number_of: dict[str, int] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    """The trials that the search has stopped, those that have ended since, too."""
    ended: dict[str, _Trial] = field(default_factory=dict)
    """The trials that have ended, in the order of their ends."""
    is_to_continue: bool = False
    """Whether a person has continued it, and which trials go on is not written down yet."""
    begins_at: dict[str, float] = field(default_factory=dict)
    """The units that are in the checkpoint which a trial begins with, for those that begin with one."""
    until: dict[str, float] = field(default_factory=dict)
    """How far each trial was last sent, in the units that it reports: those of its first checkpoint count."""
    noted: str = ""
    """What is noted of it, and about what; it is withdrawn when that is reported."""
    noted_about: str = ""
    has_metric: bool = False
    """Whether any trial has reported the metric."""
    has_time: bool = False
    """Whether any trial has reported the time metric with it."""
    invalid: int = 0
    """How many trials in a row said that their hyper-parameters make no sense."""
    outside: _Outside | None = None
    """Who is asked for samples, where something outside chooses them."""
    has_lengths: bool = False
    """Whether its file, of Determined, says how long the code trains: it reports units at the ends of lengths alone."""
    has_own_lengths: bool = False
    """Whether that counts something else than the units of its rungs."""


@dataclass(slots=True)
class _Outside:
    """A search's process that chooses, and what it has to know."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    """All that it was given, in order: a new process is given them again."""
    questions: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Those of the messages that are not answered yet, by their numbers."""
    answered: int = 0
    """How many questions were answered; the number of a question is that of the trial which its answer begins."""
    asked: int = 0
    process: SearcherProcess | None = None
    deaths: int = 0
    """How many processes have died since the last answer."""
    is_late: bool = False
    """Whether it was noted that it does not answer."""


class Experiments:
    """All searches of the home that are open."""

    def __init__(self, context: ControllerContext, track: Callable[[JobRow], TrackedJob]) -> None:
        self._context = context
        self._track = track
        self._active: dict[str, _Active] = {}
        self._deleting: dict[str, set[str]] = {}
        """The searches that are being deleted, with the jobs of theirs whose deletion was asked for."""
        self.failure: FabricError | None = None
        """Why the last step has left a search as it was; it is to be taken again."""

    def step(self) -> set[str]:
        """Take what has happened since, and do what follows; return the jobs that need a decision.

        A search that cannot be read or written holds up no other one: see :attr:`failure`.
        """
        touched: set[str] = set()
        self.failure = None
        deleted = deleted_experiments(self._context.store)
        for experiment_id, who in deleted.items():
            try:
                touched |= self._delete(experiment_id, who)
            except FabricError as error:
                self.failure = error
        if deleted:  # some of them may be gone now, or stay after all
            deleted = deleted_experiments(self._context.store)
        for row in experiments(self._context.store, only_open=True):
            if row.id in deleted:
                continue
            try:
                active = self._active.get(row.id) or self._load(row.id)
                if row.state == STOPPING and not active.is_stopping:
                    active.is_stopping, active.killed, active.why = True, True, row.reason
                active.is_paused = row.state == PAUSED
                self._renew_note(active, row)
                touched |= self._advance(active)
            except FabricError as error:
                # What the searcher knows may not be written down: the events say what is true.
                self._drop(row.id)
                self.failure = error
        return touched

    @property
    def is_asking(self) -> bool:
        """Whether a process that chooses what is tried has still to answer."""
        return any(
            each.outside is not None and not each.is_paused and each.searcher.is_asking
            for each in self._active.values()
        )

    def _drop(self, experiment_id: str) -> None:
        active = self._active.pop(experiment_id, None)
        if active is not None and active.outside is not None and active.outside.process is not None:
            active.outside.process.end()

    def _delete(self, experiment_id: str, who: str) -> set[str]:
        """Have the jobs of a search deleted, and remove it once they are; nothing else happens to it any more.

        All that this goes by is on the disk: the event that asks for it, and the tombstones of the jobs.
        """
        context, store = self._context, self._context.store
        self._drop(experiment_id)  # its events are read again should it go on
        if experiment_id not in self._deleting:
            with context.atomic():
                catch_up_experiment(store, experiment_id)
                if keep_continued(store, experiment_id):
                    return set()
                for one in trials(store, experiment_id):
                    catch_up(store, one.job_id)
            self._deleting[experiment_id] = set()
        asked = self._deleting[experiment_id]
        left = trial_job_ids(store, experiment_id)
        touched: set[str] = set()
        rows = [row for job_id in left if job_id not in asked and (row := job(store, job_id)) is not None]
        # Those that wait go first: each could begin as soon as another one ends.
        for row in sorted(rows, key=lambda one: one.state not in _WAITING):
            touched |= with_reserve(context.home, partial(self._request, row, "delete", who))
            asked.add(row.id)
        if left:
            return touched
        # A trial that had begun to begin has secrets, and no job that would forget them.
        for secrets_of in (experiment_id, *(one.job_id for one in trials(store, experiment_id))):
            forget_secrets(context.home, secrets_of)
        leftover = with_reserve(context.home, partial(self._remove, experiment_id))
        del self._deleting[experiment_id]
        try:
            context.concurrency.start_thread(partial(self._remove_leftover, leftover), "forget")
        except (RuntimeError, MemoryError):
            self._remove_leftover(leftover)
        return touched

    def _remove(self, experiment_id: str) -> Path:
        with self._context.atomic():
            return remove_experiment(self._context.store, experiment_id)

    def _remove_leftover(self, folder: Path) -> None:
        try:
            remove_folder(folder, self._context.concurrency)
        except OSError as error:
            self._context.log.say(
                f"{folder} is left of a deleted search: {error}; the next controller removes it"
            )

    def _load(self, experiment_id: str) -> _Active:
        """Make a search of its events."""
        context = self._context
        with context.atomic():
            catch_up_experiment(context.store, experiment_id)
        document = read_experiment_file(context.home, experiment_id)
        config = SearchConfig.from_json(document["spec"]["search"])
        space = config.space()
        method = config.make_method(replaces_early_ends=bool(document.get(REPLACES_EARLY_ENDS)))
        searcher = Searcher(method, space, document["seed"])
        active = _Active(experiment_id, config, document, spec_from_json(document["spec"]), searcher)
        keys = searcher_of(active.spec.env.get(CONFIG_VARIABLE))
        active.has_lengths = keys.get("max_length") is not None
        active.has_own_lengths = active.has_lengths and keys.get("max_time") is not None
        if config.is_asked:
            active.outside = _Outside()
        active.is_ahead, active.at_most = bool(document.get(TRIALS_AHEAD)), active.spec.at_most
        active.targets = _targets_of(document)
        for event in events_of(context.home, experiment_id):
            self._replay(active, event)
            self._inform(active, event)
        self._active[experiment_id] = active
        return active

    def _replay(self, active: _Active, event: Mapping[str, Any]) -> None:
        searcher = active.searcher
        match event["do"]:
            case "begin":
                active.is_begun = True
                searcher.begin()
            case "report":
                self._count_reported(active, event)
                if event["metrics"]:
                    searcher.report(event["trial"], event["metrics"])
                if (trial := active.open.get(event["trial"])) is not None:
                    trial.seen = event["point"]
                    trial.is_waiting = bool(event["metrics"]) and trial.until is not None
            case "ask":
                searcher.ask()
            case "answer":
                searcher.answer(event["hparams"])
            case "prune":
                searcher.stop(event["trial"])
            case "end":
                if not active.is_stopping:
                    searcher.end(event["trial"], TrialEnd(event["how"]))
                self._close_trial(active, event["trial"], TrialEnd(event["how"]))
            case "continue":
                active.config = SearchConfig.from_json(event["search"])
                # An older fabric that has it go on leaves the limit as it is.
                active.at_most = event.get("at_most", active.at_most)
                active.is_to_continue = True
                active.is_stopping, active.killed, active.why = False, False, ""
                active.noted, active.invalid = "", 0
            case "continued":
                active.is_to_continue = False
                self._reopen(active, {each["trial"]: each["attempt"] for each in event["trials"]})
            case "paused" | "held":
                if event["trial"] in active.open:
                    active.open[event["trial"]].paused = event["attempt"]
            case "begun":
                if event["trial"] in active.open:
                    active.open[event["trial"]].has_begun = True
            case "kill":
                active.killed = True
            case "note":
                self._take_note(active, event)
        if event.get("state") == STOPPING:
            active.is_stopping, active.why = True, event.get("reason", "")
        self._count_invalid(active, event)
        self._note(active, event.get("operations") or ())

    def _count_reported(self, active: _Active, event: Mapping[str, Any]) -> None:
        active.has_metric = True
        active.has_time |= event.get("units") is not None

    def _take_note(self, active: _Active, event: Mapping[str, Any]) -> None:
        is_about_searcher = event["reason"].startswith(LATE_SEARCHER)
        about = event.get("about", ABOUT_SEARCHER if is_about_searcher else ABOUT_METRIC)
        if active.outside is not None:
            active.outside.is_late = about == ABOUT_SEARCHER
        if about != ABOUT_SEARCHER:
            active.noted, active.noted_about = event["reason"], about

    def _count_invalid(self, active: _Active, event: Mapping[str, Any]) -> None:
        if event["do"] == "end":
            active.invalid = active.invalid + 1 if event["how"] == TrialEnd.INVALID.value else 0

    def _inform(self, active: _Active, event: Mapping[str, Any]) -> None:
        """Give the process that chooses what an event means for it; all that it knows comes from here."""
        outside = active.outside
        if outside is None:
            return
        message: dict[str, Any]
        match event["do"]:
            case "ask":
                outside.asked += 1
                message = outside.questions[outside.asked] = {"do": "ask", "trial": outside.asked}
            case "answer":
                outside.answered += 1
                outside.deaths = 0
                outside.questions.pop(outside.answered)["known"] = event["hparams"]
                return
            case "report" if event["metrics"]:
                number = active.number_of[event["trial"]]
                value, units = event["value"], event.get("units")
                message = {"do": "report", "trial": number, "value": value, "units": units}
            case "end":
                stopped = event["trial"] in active.stopped
                number = active.number_of[event["trial"]]
                message = {"do": "tell", "trial": number, "how": "stopped" if stopped else event["how"]}
            case _:
                return
        outside.messages.append(message)
        if outside.process is not None:
            outside.process.send(message)

    def _note(self, active: _Active, operations: Sequence[Mapping[str, Any]]) -> None:
        for each in operations:
            if each["do"] == "create":
                active.numbers = each["number"]
                active.open[each["trial"]] = _Trial(each["trial"], each["number"], each["job"], each)
                active.open[each["trial"]].has_begun = "parent" not in each
                active.jobs[each["trial"]] = each["job"]
                active.number_of[each["trial"]] = each["number"]
                if "begins_at" in each:
                    active.begins_at[each["trial"]] = each["begins_at"]
            elif each["do"] == "run":
                active.until[each["trial"]] = each["units"]
                if (trial := active.open.get(each["trial"])) is not None:
                    trial.until, trial.is_waiting = each["units"], False
            elif each["do"] == "stop":
                active.stopped.add(each["trial"])
                if (trial := active.open.get(each["trial"])) is not None:
                    trial.is_stopped = True

    def _advance(self, active: _Active) -> set[str]:
        touched: set[str] = set()
        if not active.is_begun and not active.is_stopping:
            active.is_begun = True
            self._record(active, {"do": "begin"}, active.searcher.begin())
        if active.is_to_continue and not active.is_stopping:
            self._continue(active)
            if active.id not in self._active:
                return touched
        changed = True
        while changed:
            changed = self._consult(active) if active.outside is not None else False
            is_full = False
            room = self._room(active)
            is_behind = (active.is_paused or active.is_stopping) and self._some_wait(active)
            for trial in list(active.open.values()):
                row = self._row(trial)
                if not active.is_stopping and _waits_to_go_on(trial, row):
                    if active.is_paused or room <= 0:
                        continue
                    room -= 1
                    if row is not None:
                        changed_limit = self._changed_limit(active, row)
                        touched |= self._request(row, "resume", while_runs=active, payload=changed_limit)
                        continue
                if row is None:
                    if active.is_stopping:
                        forget_secrets(self._context.home, trial.job_id)  # it may have begun to begin
                        self._end(active, trial, TrialEnd.CANCELLED)
                    elif active.is_paused or is_full or not self._may_begin(active, trial):
                        continue
                    elif (target := self._free_target(active)) is None or self._is_too_early(active):
                        is_full = True  # nor is there room for any other one
                        continue
                    elif (row := self._start(active, trial, target)) is None:
                        is_full = True
                        continue
                    else:
                        touched.add(row.id)
                    changed = True
                    continue
                # Not by its state: it may have begun and been halted while no controller looked.
                if not trial.has_begun and row.started_us is not None:
                    self._record(active, {"do": "begun", "trial": trial.trial}, [])
                    trial.has_begun = changed = True
                if not (active.is_ahead and row.started_us is None and row.state in _WAITING):
                    changed |= self._take_reports(active, trial)
                has_ended = is_over(row) or row.deleted_us is not None
                is_awaited = not active.is_stopping and _is_awaited(active, trial)
                if trial.is_waiting and has_ended and not (trial.is_stopped or active.is_stopping):
                    continue  # what its end means is known when the search has decided
                if self._is_held(active, trial, row):
                    if not (active.is_paused or is_awaited):
                        touched |= self._request(row, "resume", while_runs=active)
                elif has_ended:
                    self._end(active, trial, self._how(active, trial, row))
                    changed = True
                elif is_behind and row.state not in _WAITING:
                    continue  # as long as it runs, none of those that wait may begin
                elif active.is_stopping:
                    touched |= self._request(row, "kill")
                elif is_awaited or (trial.is_waiting and not trial.is_stopped):
                    touched |= self._hold(active, trial, row, "held", BY_COMPARISON)
                elif active.is_paused:
                    touched |= self._hold(active, trial, row, "paused", BY_PAUSE)
                elif (
                    trial.is_stopped
                    and row.state in BEFORE_THE_COMMAND
                    and not self._has_reported(active, row)
                ):
                    # An attempt that has failed is not made again, though its last report stopped it a moment later.
                    touched |= self._request(row, "halt")
                elif trial.is_stopped:
                    self._ask_to_stop(trial, row)
        if active.is_stopping and not active.open:
            state = KILLED if active.killed else FAILED
            self._close(active, state, active.why)
        return touched

    def _consult(self, active: _Active) -> bool:
        """Take what the process that chooses has answered, and ask on; return whether trials changed."""
        outside = active.outside
        if outside is None or active.is_stopping or active.id not in self._active:
            return False
        try:
            process = outside.process or self._start_searcher(active, outside)
        except (OSError, FabricError) as error:
            self._give_up(active, f"the searcher cannot be started: {error}")
            return True
        changed = False
        for answer in process.answers():
            changed |= self._take_answer(active, outside, answer)
            if active.is_stopping or active.id not in self._active:
                return changed
        while active.searcher.wanted > 0 and not active.is_paused:
            active.searcher.ask()
            self._record(active, {"do": "ask"}, [])
        self._say_late(active, outside)
        return changed

    def _start_searcher(self, active: _Active, outside: _Outside) -> SearcherProcess:
        """Start a process that is given all that happened so far."""
        context, document, config = self._context, active.document, active.config
        folder, code = context.home.experiment(active.id), ""
        is_own = config.method == "python"
        if is_own:
            if not document["code_hash"]:
                raise UsageError("the job has no code; name it by code:")
            code = str(folder.code)
            if not is_put(code):
                making = folder.code.with_name("code.new")
                shutil.rmtree(making, ignore_errors=True)
                unpack(context.home.snapshot(document["code_hash"]), making)
                remove_put(code)  # what a controller has left that was killed as it did this
                put_folder(str(making), code)
        begin = {"do": "begin", "code": code, "search": {**config.for_searcher(), "seed": document["seed"]}}
        python = interpreter(str(document["recorded"].get("python") or ""), is_own=is_own)
        outside.process = SearcherProcess(
            python, folder.searcher_log, [begin, *outside.messages], lambda: context.post(Woken())
        )
        return outside.process

    def _take_answer(self, active: _Active, outside: _Outside, answer: Mapping[str, Any]) -> bool:
        """Write an answer down and do what follows; one that was written down already changes nothing."""
        if "error" in answer:
            self._give_up(active, f"the searcher failed: {answer['error']}")
        elif "exit" in answer:
            outside.process = None
            outside.deaths += 1
            if outside.deaths >= SEARCHER_DEATHS_MAX:
                how = f"the signal {-answer['exit']}" if answer["exit"] < 0 else f"exit code {answer['exit']}"
                self._give_up(active, f"the searcher has ended {outside.deaths} times, at last with {how}")
            else:
                self._context.post(Woken())
        elif "stop" in answer:
            trial = next(name for name, number in active.number_of.items() if number == answer["stop"])
            found = active.searcher.stop(trial)
            if found:
                self._record(active, {"do": "prune", "trial": trial}, found)
            return bool(found)
        elif answer["trial"] > outside.answered:
            found = active.searcher.answer(answer["hparams"])
            event: dict[str, Any] = {"do": "answer", "hparams": answer["hparams"]}
            self._record_with_end(active, event, found)
            if outside.is_late and active.id in self._active:
                self._write_note(active, active.noted, active.noted_about)
        return True

    def _say_late(self, active: _Active, outside: _Outside) -> None:
        """Say of a search whose process has not answered for long that it waits for it."""
        if outside.process is None or outside.is_late or outside.asked == outside.answered:
            return
        if elapsed_seconds() - outside.process.asked_at >= SEARCHER_LATE_SECONDS:
            seconds = round(SEARCHER_LATE_SECONDS)
            text = f"{LATE_SEARCHER} for more than {seconds} s"
            self._write_note(active, text, ABOUT_SEARCHER)

    def _write_note(self, active: _Active, text: str, about: str) -> None:
        event = {"do": "note", "reason": text, "about": about or ABOUT_METRIC}
        with self._context.atomic():
            record_event(self._context.store, active.id, event)
        self._take_note(active, event)

    def _free_target(self, active: _Active) -> _Target | None:
        """Return where the next trial begins: where fewest wait, then where fewest run; None while all are taken.

        So a backend gets as many trials as it has slots, and one that is cut off keeps no more than it had.
        """
        if len(active.targets) == 1:
            return next(iter(active.targets.values()))
        waiting, begun = dict.fromkeys(active.targets, 0), dict.fromkeys(active.targets, 0)
        for trial in active.open.values():
            row = self._row(trial)
            if row is None or is_over(row) or row.deleted_us is not None:
                continue
            if (at := (row.target.backend, row.target.runner)) in waiting:
                (waiting if row.state in _WAITING else begun)[at] += 1
        name = min(active.targets, key=lambda each: (waiting[each], begun[each]))
        return active.targets[name] if waiting[name] < WAITING_AT_ONCE else None

    def _start(self, active: _Active, trial: _Trial, to: _Target) -> JobRow | None:
        """Submit a trial's job: its id was chosen with the event, so it is made once however often this is tried.

        None where a person has paused or ended the search meanwhile: once that is written, nothing of it begins.
        """
        context, document, create = self._context, active.document, trial.create
        most = active.config.max_trials
        spec = trial_spec(
            active.spec, create["hparams"], number=trial.number, seed=create["seed"], max_trials=most
        )
        labels = {**spec.labels, SWEEP_LABEL: active.id.removeprefix(ID_PREFIX)}
        spec = replace(spec, labels=labels, at_most=active.at_most)
        if spec.env.get(CONFIG_VARIABLE) and active.config.method in HALVING and not active.has_own_lengths:
            rungs = sorted(set(active.config.make_method().rungs()))
            # Of several brackets the trial's own is the one that begins where it is sent first.
            lengths = [units for units in rungs if trial.until is None or units >= trial.until]
            spec = replace(spec, env={**spec.env, LENGTHS_VARIABLE: json.dumps(lengths)})
            if active.config.variant == "promotion":
                spec = replace(spec, env={**spec.env, PROMOTED_VARIABLE: trial.job_id})
        target = to.ref
        beginning, missing = self._beginning(active, trial, spec, target)
        submission = Submission(
            spec=spec,
            manifest_text=document["manifest_text"],
            origins={
                key: origin for key, origin in document["origins"].items() if not key.startswith("search.")
            },
            target=target,
            code_hash=document["code_hash"],
            recorded={
                **to.recorded,
                "seed": create["seed"],
                **beginning,
            },
            parent=active.id,
            trial=trial.number,
            job_id=JobId(trial.job_id),
        )
        forget_secrets(context.home, trial.job_id)
        write_secrets(context.home, trial.job_id, read_secrets(context.home, active.id))
        with context.atomic():
            now = experiment(context.store, active.id)
            if now is None or now.state != RUNNING:
                forget_secrets(context.home, trial.job_id)
                return None
            turns = turns_of(context.store, active.id)
            if turns.priority is not None:
                spec = replace(spec, priority=turns.priority)
            if turns.weight is not None:
                spec = replace(spec, weight=turns.weight)
            detail = detail_of(JobId(trial.job_id), replace(submission, spec=spec), document["who"])
            row = insert_job(context.store, detail, who=document["who"], origin="controller")
            if missing:
                add_note(context.store, row.id, missing)
            if tags := annotations_of(context.store, active.id).tags:
                annotate(context.store, row.id, tags=tags, who=document["who"], origin="controller")
                row = job(context.store, row.id) or row
        self._track(row)
        context.queue_stale = True
        return row

    def _row(self, trial: _Trial) -> JobRow | None:
        """Return the row of a trial's job, if it was made; of an open one as the loop knows it, which asks no store."""
        tracked = self._context.jobs.get(trial.job_id)
        return job(self._context.store, trial.job_id) if tracked is None else tracked.row

    def _is_too_early(self, active: _Active) -> bool:
        """Say whether a trial that is created ahead could begin before those that come before it.

        Where trials are compared, the order in which they run decides. So one of them is given to the host once all
        before it have begun or wait there: after a crash in the middle of a launch the host would go on with the next.
        """
        if not active.is_ahead or active.config.method not in HALVING:
            return False
        made = [row for each in active.open.values() if (row := self._row(each)) is not None]
        if len(made) < (active.at_most or 0):
            return False
        tracked = (self._context.jobs.get(row.id) for row in made if row.state in _WAITING)
        return any(
            one is not None and one.row.started_us is None and not one.is_handed_over for one in tracked
        )

    def _may_begin(self, active: _Active, trial: _Trial) -> bool:
        """Say whether a trial may begin: one that begins with a checkpoint needs one that is not written to."""
        parent = trial.create.get("parent")
        row = job(self._context.store, active.jobs[parent]) if parent else None
        return row is None or is_over(row) or row.deleted_us is not None

    def _beginning(
        self, active: _Active, trial: _Trial, spec: JobSpec, target: TargetRef
    ) -> tuple[dict[str, Any], str]:
        """Return what a trial's job records of the checkpoint that it begins with, and why there is none."""
        parent = trial.create.get("parent")
        if not parent:
            return {}, ""
        row = job(self._context.store, active.jobs[parent])
        try:
            if row is None or row.deleted_us is not None:
                raise UsageError("its job is deleted")
            return {"from": initial_checkpoint(self._context.store, row, None, spec, target)}, ""
        except UsageError as error:
            return {}, f"begins without the checkpoint of the trial that it copies: {error}"

    def _take_reports(self, active: _Active, trial: _Trial) -> bool:
        """Give the searcher what a trial has reported since; return whether there was anything."""
        config, store = active.config, self._context.store
        if not config.metric or (trial.is_waiting and not trial.is_stopped):
            return False
        series = find_series(store, trial.job_id, config.metric)
        if series is None:
            self._say_missing(active, trial)
            return False
        sql = "SELECT seq, attempt, step, time, value FROM points WHERE series = ? AND seq > ? ORDER BY seq"
        points = store.rows(sql, (series, trial.seen))
        if not points:
            return False
        times = self._times(active, trial, points[0][3])
        is_by_step = not times and config.time_metric == STEP
        course = course_of(store.connection, series) if is_by_step else AS_REPORTED
        for seq, attempt, step, time, value in points:
            trial.seen = seq
            if trial.is_stopped:
                continue  # it has had its say
            units = course.step(seq, step) if is_by_step else times.get((attempt, step, time))
            event: dict[str, Any] = {"do": "report", "trial": trial.trial, "point": seq}
            event |= {"units": units, "value": value}
            metrics: dict[str, Any] = {}
            found: list[Operation] = []
            if units is None and active.has_lengths:
                is_due = False  # it has validated by itself, in the middle of a length or before its end is reported
            else:
                is_due = trial.until is None or units is None or units >= trial.until
            if is_due and not active.is_stopping:
                metrics[config.metric] = value
                if units is not None:
                    metrics[config.time_metric] = units
                try:
                    if trial.until is not None and units is None:
                        raise MetricMissing(config.time_metric)
                    found = active.searcher.report(trial.trial, metrics)
                except MetricMissing:
                    self._fail(active, trial)
                    metrics = {}
            if metrics and trial.until is not None:
                goes_on = any(isinstance(one, RunTo) and one.trial == trial.trial for one in found)
                trial.is_waiting = event["waits"] = not goes_on
            self._record(active, {**event, "metrics": metrics}, found)
            self._count_reported(active, event)
            if trial.is_waiting and not trial.is_stopped:
                break  # what it has reported since counts once it goes on
        self._withdraw_note(active)
        if not active.has_lengths:
            self._say_untimed(active, trial)
        return True

    def _has_reported(self, active: _Active, row: JobRow) -> bool:
        """Say whether the last attempt of a trial's job has: then its command runs, though nobody has seen it yet.

        What a learner reports and how it is are read by two threads.
        """
        series = find_series(self._context.store, row.id, active.config.metric)
        sql = "SELECT 1 FROM points WHERE series = ? AND attempt = ? LIMIT 1"
        return series is not None and any(self._context.store.rows(sql, (series, row.attempt)))

    def _times(self, active: _Active, trial: _Trial, since: int) -> dict[tuple[Any, Any, Any], float]:
        name, store = active.config.time_metric, self._context.store
        series = find_series(store, trial.job_id, name) if name else None
        if series is None:
            return {}
        sql = "SELECT attempt, step, time, value FROM points WHERE series = ? AND time >= ?"
        return {
            (attempt, step, time): value
            for attempt, step, time, value in store.rows(sql, (series, since))
            if value is not None
        }

    def _fail(self, active: _Active, trial: _Trial) -> None:
        """Give a search up that cannot decide anything: what it goes by is not reported."""
        names = reported_names(self._context.store, trial.job_id)
        config = active.config
        self._give_up(
            active,
            f"the time metric {config.time_metric!r} is not reported with {config.metric!r}; there are {names}",
        )

    def _give_up(self, active: _Active, why: str) -> None:
        active.is_stopping, active.why = True, why
        with self._context.atomic():
            record_event(self._context.store, active.id, {"do": "fail", "state": STOPPING, "reason": why})

    def _say_missing(self, active: _Active, trial: _Trial, *, row: JobRow | None = None) -> None:
        """Note that no trial has reported the metric, with the names of what there is, once that is sure.

        A program reports what it trains with long before its first validation, so that alone says nothing. It is sure
        when a trial has validated, or has ended (``row`` is its job then) and was not cut short by the search or by
        a person. Validated has who reports a metric of data held out from the training: its name has ``val``,
        ``validation``, ``eval``, ``test`` or the like as a part (:func:`~workbench.metric_names.is_held_out`),
        as that of all metrics in the group ``validation`` of Determined's core API.
        """
        metric = active.config.metric
        if not metric or active.has_metric or active.noted or active.is_stopping:
            return
        store = self._context.store
        names = reported_names(store, trial.job_id)
        if row is None:
            if not names or not any(map(is_held_out, metric_names(store, trial.job_id))):
                return
        elif not names and row.state is State.FAILED:
            return  # its job says why
        rest = f"; there are {names}" if names else ", nor any other"
        self._write_note(active, f"the metric {metric!r} has not been reported{rest}", ABOUT_METRIC)

    def _say_untimed(self, active: _Active, trial: _Trial) -> None:
        """Note that the metric comes without the time metric, where the search can do without that."""
        name = active.config.time_metric
        if not name or active.has_time or active.noted or active.is_stopping or not active.has_metric:
            return
        names = reported_names(self._context.store, trial.job_id)
        text = f"the time metric {name!r} is not reported with {active.config.metric!r}; there are {names}"
        self._write_note(active, text, ABOUT_TIME)

    def _renew_note(self, active: _Active, row: ExperimentRow) -> None:
        """Withdraw a note that a crash has left though it holds no longer; write one again that a pause has covered."""
        self._withdraw_note(active)
        if active.noted and not row.reason and not active.is_paused and not active.is_stopping:
            self._write_note(active, active.noted, active.noted_about)

    def _withdraw_note(self, active: _Active) -> None:
        if self._is_outdated(active) and not active.is_stopping:
            self._write_note(active, "", active.noted_about)

    def _is_outdated(self, active: _Active) -> bool:
        if not active.noted:
            return False
        return active.has_time if active.noted_about == ABOUT_TIME else active.has_metric

    def _how(self, active: _Active, trial: _Trial, row: JobRow) -> TrialEnd:
        if was_stopped(row) and not trial.is_stopped:
            # One that a rule has ended before its time cannot be compared with those of the next rung.
            return TrialEnd.FAILED if active.config.time_metric else TrialEnd.COMPLETED
        if row.deleted_us is not None or (row.state is State.HALTED and not trial.is_stopped):
            return TrialEnd.CANCELLED
        if not trial.is_stopped and find_series(self._context.store, trial.job_id, INVALID_HP) is not None:
            return TrialEnd.INVALID
        if row.state is State.FAILED and not trial.is_stopped:
            return TrialEnd.FAILED
        if active.config.method in COMPARED and not trial.seen:
            return TrialEnd.FAILED  # nothing can be compared
        if trial.until is not None and not trial.is_stopped:
            return TrialEnd.FAILED  # it did not come as far as it was sent
        return TrialEnd.COMPLETED

    def _continue(self, active: _Active) -> None:
        """Write down which trials of a search that was over go on: those that failed or that a person ended."""
        goes_on: dict[str, int] = {}
        for trial in active.ended.values():
            # Not as the loop knows it: the thread that deletes a job may have done so a moment ago.
            row = job(self._context.store, trial.job_id)
            if trial.ended_as is not None and may_go_on(trial.ended_as.value.upper(), row):
                # One that a person has resumed meanwhile is under way.
                goes_on[trial.trial] = 0 if row is None else row.attempt - (not is_over(row))
        active.is_to_continue = False
        found = self._reopen(active, goes_on)
        listed = [{"trial": trial, "attempt": attempt} for trial, attempt in goes_on.items()]
        self._record_with_end(active, {"do": "continued", "trials": listed}, found)

    def _reopen(self, active: _Active, goes_on: Mapping[str, int]) -> list[Operation]:
        for name, attempt in goes_on.items():
            trial = active.open[name] = active.ended.pop(name)
            trial.ended_as, trial.goes_on_after, trial.paused = None, attempt, 0
        ends = {each.trial: each.ended_as for each in active.ended.values() if each.ended_as is not None}
        config = active.config
        return active.searcher.reopen(
            tuple(goes_on), ends, max_trials=config.max_trials, max_concurrent=config.max_concurrent
        )

    def _some_wait(self, active: _Active) -> bool:
        """Say whether trials wait that could begin as soon as another one ends: those are stopped first."""
        if not active.is_ahead:
            return False
        rows = (self._row(each) for each in active.open.values())
        return any(row is not None and row.state in _WAITING and row.deleted_us is None for row in rows)

    def _changed_limit(self, active: _Active, row: JobRow) -> dict[str, Any]:
        """Return what changes of the job of a trial that goes on once its search has another limit."""
        if not active.is_ahead:
            return {}
        now = detail(self._context.store, row.id)
        if now.spec.at_most == active.at_most:
            return {}
        spec = spec_to_json(replace(now.spec, at_most=active.at_most))
        return {"changed": {"spec": spec, "origins": dict(now.origins)}}

    def _room(self, active: _Active) -> int:
        """Return how many of the trials that wait to go on may do so now."""
        if all(each.goes_on_after is None for each in active.open.values()):
            return 0
        rows = [(each, self._row(each)) for each in active.open.values()]
        running = sum(not _waits_to_go_on(trial, row) for trial, row in rows)
        return (active.config.max_concurrent or len(rows)) - running

    def _close_trial(self, active: _Active, name: str, how: TrialEnd) -> None:
        trial = active.open.pop(name, None)
        if trial is not None:
            trial.ended_as = how
            active.ended[name] = trial

    def _end(self, active: _Active, trial: _Trial, how: TrialEnd) -> None:
        row = self._row(trial)
        if row is not None and how in (TrialEnd.COMPLETED, TrialEnd.FAILED) and not trial.is_stopped:
            self._say_missing(active, trial, row=row)
            if active.has_lengths:
                self._say_untimed(active, trial)
        found = [] if active.is_stopping else active.searcher.end(trial.trial, how)
        self._close_trial(active, trial.trial, how)
        event: dict[str, Any] = {"do": "end", "trial": trial.trial, "how": how.value}
        self._record_with_end(active, event, found)
        if active.invalid >= INVALID_IN_A_ROW_MAX and not active.is_stopping:
            self._give_up(
                active, f"{active.invalid} trials in a row said that their hyper-parameters are invalid"
            )

    def _record_with_end(self, active: _Active, event: dict[str, Any], found: Sequence[Operation]) -> None:
        """Write an event down that may be the search's last."""
        over = next((each for each in found if isinstance(each, Shutdown)), None)
        if over is not None:
            event["state"] = FAILED if over.failed else KILLED if over.cancelled else COMPLETED
            event["reason"] = "" if over.cancelled else self._reason(active, has_failed=over.failed)
        self._record(active, event, found)
        if over is not None:
            self._forget(active)

    def _reason(self, active: _Active, *, has_failed: bool) -> str:
        """Return why all trials of a search have failed; of one that is over otherwise what it never got."""
        noted = "" if self._is_outdated(active) else active.noted
        if not has_failed:
            return noted
        last = next(
            (each for each in reversed(active.ended.values()) if each.ended_as is TrialEnd.FAILED), None
        )
        row = None if last is None else job(self._context.store, last.job_id)
        if last is None or row is None or (row.state is State.COMPLETED and noted):
            return noted or "every trial has failed"
        why = row.reason.text
        if not why and last.until is not None:
            why = f"it ended before {active.config.time_metric} {last.until:g}, to which it was sent"
        return f"every trial has failed; of the last: {why}" if why else "every trial has failed"

    def _close(self, active: _Active, state: str, why: str) -> None:
        with self._context.atomic():
            record_event(self._context.store, active.id, {"do": "close", "state": state, "reason": why})
        self._forget(active)

    def _forget(self, active: _Active) -> None:
        self._drop(active.id)
        forget_secrets(self._context.home, active.id)

    def _record(self, active: _Active, event: dict[str, Any], operations: Sequence[Operation]) -> None:
        plain = [each for one in operations if (each := self._plain(active, one)) is not None]
        with self._context.atomic():
            record_event(self._context.store, active.id, {**event, "operations": plain})
            if event.get("state") == COMPLETED and active.spec.checkpoints.at_end is not None:
                add_request(self._context.store, RETAIN, "", {OF_SEARCH: active.id}, BY, "controller")
                self._context.has_ended_jobs = True  # so that it is taken in this turn
        self._count_invalid(active, event)
        self._note(active, plain)
        self._inform(active, event)

    def _plain(self, active: _Active, operation: Operation) -> dict[str, Any] | None:
        match operation:
            case Create(trial, hparams, seed, parent):
                active.numbers += 1
                created = {
                    "do": "create",
                    "trial": trial,
                    "number": active.numbers,
                    "job": new_job_id(),
                    "hparams": hparams,
                    "seed": seed,
                }
                if parent:
                    # Its training goes on where the checkpoint ends, and so do the units that it reports.
                    active.begins_at[trial] = active.until[parent]
                    created |= {"parent": parent, "begins_at": active.until[parent]}
                return created
            case RunTo(trial, units):
                until = active.until[trial] = active.begins_at.get(trial, 0) + units
                return {"do": "run", "trial": trial, "units": until}
            case StopTrial(trial):
                return {"do": "stop", "trial": trial}
        return None

    def _hold(self, active: _Active, trial: _Trial, row: JobRow, do: str, who: str) -> set[str]:
        """Halt a trial that is to go on later. That is written down first, as its end then means nothing else."""
        if row.intent is not Intent.NONE:
            return set()
        if not trial.is_stopped and trial.paused != row.attempt:
            self._record(active, {"do": do, "trial": trial.trial, "attempt": row.attempt}, [])
            trial.paused = row.attempt
        return self._request(row, "halt", who)

    def _is_held(self, active: _Active, trial: _Trial, row: JobRow) -> bool:
        """Say whether a trial's job has ended only for the search to go on later.

        The halt of an attempt that failed first, and that its host has followed by the next one, ended that one.
        """
        if active.is_stopping or trial.is_stopped or row.deleted_us is not None or not trial.paused:
            return False
        # Who has its job deleted is answered first: a resume would be refused as often as it is asked for.
        if row.state is not State.HALTED or row.intent is not Intent.NONE or was_stopped(row):
            return False
        between = range(trial.paused, row.attempt)
        return all(
            one.state is State.FAILED
            for one in (attempts(self._context.store, row.id) if between else ())
            if one.attempt in between
        )

    def _request(
        self,
        row: JobRow,
        kind: str,
        who: str = BY,
        *,
        while_runs: _Active | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> set[str]:
        """Ask for something of a trial's job, once.

        With ``while_runs`` nothing is asked for where a person has paused or ended that search meanwhile.
        """
        store = self._context.store
        intent = Intent.of(kind)
        if intent and not intent.replaces(row.intent):
            return set()
        if any(one.kind == kind and not one.outcome for one in requests(store, row.id)):
            return set()
        with self._context.atomic():
            if while_runs is not None:
                now = experiment(store, while_runs.id)
                if now is None or now.state != RUNNING:
                    return set()
            add_request(store, kind, row.id, dict(payload or {}), who, "controller")
        self._context.has_ended_jobs = True  # so that the request is answered in this turn
        return {row.id}

    def _ask_to_stop(self, trial: _Trial, row: JobRow) -> None:
        """Have ``should_stop()`` say yes in a trial; one that does not look runs to its end."""
        context = self._context
        tracked = context.jobs.get(row.id)
        if tracked is None or not tracked.is_launched or row.intent is not Intent.NONE:
            return
        attempt, at = trial.asked
        if attempt == row.attempt and context.now() < at + STOP_AGAIN_SECONDS:
            return
        trial.asked = (row.attempt, context.now())
        # Other runners have no way to tell the command without a signal. The launch has imported this one.
        can = capabilities_of(row.target.runner)
        kind: Any = "finish" if can and can.finish else "halt"
        request = StopRequest(kind, tracked.spec.grace_seconds, by=BY)
        context.worker(row.target).stop(tracked.attempt, request)


def _targets_of(document: Mapping[str, Any]) -> dict[tuple[str, str], _Target]:
    """Return where the trials of a search may run, in its order. One that an older fabric has begun has one."""
    recorded = document["recorded"]
    places = document.get("places") or [{"target": document["place"], "recorded": {}}]
    # What holds for one backend is not said of another.
    apart = {name for each in places for name in each["recorded"]}
    shared = {name: value for name, value in recorded.items() if name not in apart}
    targets = [_Target(TargetRef(**each["target"]), {**shared, **each["recorded"]}) for each in places]
    return {(each.ref.backend, each.ref.runner): each for each in targets}


def _waits_to_go_on(trial: _Trial, row: JobRow | None) -> bool:
    """Say whether a trial of a search that was continued has not been resumed yet."""
    if trial.goes_on_after is None or row is None:
        return trial.goes_on_after is not None
    if row.deleted_us is not None or row.state is State.COMPLETED:
        return False  # a person has done that meanwhile
    return row.attempt == trial.goes_on_after and is_over(row)


def _is_awaited(active: _Active, trial: _Trial) -> bool:
    """Say whether another trial is still to begin with the checkpoint of this one, which must not change."""
    if active.config.method != "pbt":
        return False
    return any(not each.has_begun and each.create["parent"] == trial.trial for each in active.open.values())
