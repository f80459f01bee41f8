"""The search of a history: who begins it, steers it and looks at its trials, and what must hold of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.checks import Violation
from workbench.controller.runtime.secrets import forget_secrets, secrets_file, write_secrets
from workbench.job import JobId, short_id
from workbench.search.config import SearchConfig
from workbench.search.method import Create, Operation, RunTo, SearchContext, StopTrial, TrialEnd
from workbench.search.searcher import Searcher
from workbench.search.stream import RandomStream
from workbench.services.submit.experiments import (
    continue_experiment,
    delete_experiment,
    kill_experiment,
    pause_experiment,
    resume_experiment,
)
from workbench.services.submit.trials_ahead import with_trials_ahead
from workbench.spec import SWEEP_LABEL, Framework, JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.queries.experiments import (
    COMPLETED,
    FAILED,
    ID_PREFIX,
    KILLED,
    PAUSED,
    REPLACES_EARLY_ENDS,
    STOPPED,
    STOPPING,
    TRIALS_AHEAD,
    ExperimentRow,
    events_of,
    experiment,
    newest_search,
    read_experiment_file,
    trial_job_ids,
    trials,
)
from workbench.store.queries.jobs import job
from workbench.store.updates.experiments import insert_experiment

if TYPE_CHECKING:
    from tests.simulation.targets import Learner
    from tests.simulation.world import World

SEARCH: Final = f"{ID_PREFIX}searchaaa"
LETTERS: Final = "abcdefghjkmnpqrstuvwxyz"
LENGTH: Final = 4
"""So many epochs a trial is trained at most."""

PARAMS: Final[Mapping[str, Any]] = {"x": {"int": [1, 1000]}}
COMPARING: Final[Mapping[str, Any]] = {
    "method": "asha",
    "metric": "loss",
    "time_metric": "epoch",
    "max_time": LENGTH,
    "divisor": 2,
    "params": PARAMS,
}
METHODS: Final[tuple[Mapping[str, Any], ...]] = (
    {"method": "random", "metric": "loss", "params": PARAMS},
    {"method": "grid", "metric": "loss", "params": {"x": {"choice": [10, 20, 30, 40]}}},
    COMPARING,
    {**COMPARING, "variant": "promotion"},
    {**COMPARING, "method": "adaptive_asha"},
    {**COMPARING, "method": "adaptive_asha", "variant": "promotion", "mode": "conservative"},
)
STEERING: Final[Mapping[str, Callable[[Store, ExperimentRow], object]]] = {
    "pause": pause_experiment,
    "resume": resume_experiment,
    "kill": kill_experiment,
    "delete": delete_experiment,
    "continue": lambda store, row: continue_experiment(store, row, []),
}
"""What people do with a search, by the very code of the commands."""


class Search:
    """The search of a history, where it has one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_there = world.chance.is_active("search")
        self.was_refused = False
        """Whether its command said that it was not begun."""
        self._jobs = 0
        self._at_once = 0
        self._replaces_early_ends = True
        self._deleted: set[str] = set()
        """Trials' jobs whose deletion somebody asked for."""

    def begin(self) -> None:
        """Plan that somebody begins it."""
        if self.is_there:
            self._world.scheduler.after(
                self._world.chance.between("when a search begins", 0.0, 10.0), self._begin
            )

    def next_job_id(self) -> JobId:
        """Return the id of the next trial's job: the same one whenever the history is lived."""
        self._jobs += 1
        return self._job_id(self._jobs)

    def _job_id(self, number: int) -> JobId:
        high, low = divmod(number, len(LETTERS))
        return JobId(f"training-trialaa{LETTERS[high]}{LETTERS[low]}")

    def is_trial(self, spec: JobSpec) -> bool:
        """Say whether a job is a trial of it."""
        return spec.labels.get(SWEEP_LABEL) == SEARCH.removeprefix(ID_PREFIX)

    # What people do

    def _begin(self) -> None:
        world, draw = self._world, self._world.chance.of("what a search is")
        config = dict(METHODS[int(draw.random() * len(METHODS))])
        if config["method"] != "grid":
            config["max_trials"] = 2 + int(draw.random() * 4)
        config["max_concurrent"] = 1 + int(draw.random() * 2)
        searched = SearchConfig.from_json(config)
        begun = searched.make_method().begin(SearchContext(searched.space(), RandomStream(1)))
        # Of several brackets each begins one at least.
        self._at_once = sum(isinstance(each, Create) for each in begun)
        count = 1 if draw.random() < 0.7 else 2
        first = int(draw.random() * len(world.targets))
        targets = [*world.targets[first:], *world.targets[:first]][:count]
        refs = [world.refs[one.name] for one in targets]
        spec = JobSpec(
            name="searched",
            framework=Framework(command="true"),
            search=config,
            gpus=int(draw.random() * 2),
            max_restarts=int(draw.random() * 2),
            max_platform_restarts=int(draw.random() * 4),
            grace_seconds=1.0 + int(draw.random() * 5),
        )
        ahead: dict[str, Any] = {}
        if draw.random() < 0.6:
            spec, ahead = with_trials_ahead(spec, refs)
        replaces = self._replaces_early_ends = draw.random() < 0.8
        document = {
            **ahead,
            REPLACES_EARLY_ENDS: replaces,
            "seed": int(draw.random() * 1000),
            "who": "somebody@here",
            "place": asdict(refs[0]),
            "places": [{"target": asdict(ref), "recorded": {}} for ref in refs],
            "spec": spec_to_json(spec),
            "manifest_text": "",
            "origins": {},
            "code_hash": "",
            "recorded": {},
        }

        def work(store: Store) -> None:
            try:
                write_secrets(store.home, SEARCH, {"TOKEN": "canary"})
                insert_experiment(store, SEARCH, document)
            except BaseException:
                forget_secrets(store.home, SEARCH)
                raise

        world.story(
            f"a search begins at {' and '.join(one.name for one in targets)}: {config['method']} "
            f"{config.get('variant', '')}, {config.get('max_trials', 'all')} trials, {self._at_once} at once"
            f"{f', {ahead[TRIALS_AHEAD]} ahead' if ahead else ''}, {spec.gpus} GPUs each"
        )
        world.people.run("begin of the search", work, self._refuse)
        self._act_later()

    def _refuse(self) -> None:
        self.was_refused = True

    def _act_later(self) -> None:
        chance = self._world.chance
        self._world.scheduler.after(chance.between("when people act on a search", 0.0, 20.0), self._act)

    def _act(self) -> None:
        chance = self._world.chance
        if chance.ended:
            return
        if chance.goes_wrong("search", "steered", 2.0):
            steered = ("pause", "pause", "resume", "resume", "kill", "delete", "continue", "continue")
            self.steer(chance.choose("how a search is steered", steered))
        found = self._trial_jobs()
        if found and chance.goes_wrong("search", "a trial's job", 1.0):
            job_id = JobId(chance.choose("which trial", found))
            kind = chance.choose("what is asked of a trial", ("halt", "kill", "delete"))
            if kind == "delete":
                self._deleted.add(job_id)
            self._world.people.ask(job_id, kind)
        self._act_later()

    def steer(self, do: str) -> None:
        """Have somebody steer it."""

        def work(store: Store) -> None:
            if (row := experiment(store, SEARCH)) is not None:
                STEERING[do](store, row)

        self._world.story(f"somebody steers the search: {do}")
        self._world.people.run(f"{do} of the search", work)

    def _trial_jobs(self) -> list[str]:
        return sorted(trial_job_ids(self._world.checks.store, SEARCH)) if self.is_there else []

    def left(self) -> str:
        """Return its state as long as something is to be done; empty where it is over, or there is none."""
        row = experiment(self._world.checks.store, SEARCH) if self.is_there else None
        return row.state if row is not None and row.is_open else ""

    def is_being_ended(self, spec: JobSpec) -> bool:
        """Say whether a job is a trial, and the search is being ended with all of them."""
        return self.is_trial(spec) and self.left() == STOPPING

    def settle(self) -> None:
        """Have a search go on that is paused, once nothing goes wrong any more."""
        if self.left() == PAUSED:
            self.steer("resume")

    # What must hold

    def check_limit(self, one: Learner) -> None:
        """No more trials run at once than may; ``Checks`` looks at those that are created ahead of their turn.

        One that is being ended does not count any more, be it by the search or by a person; and its host may begin
        its next attempt as long as it has not heard of that.
        """
        if not self.is_trial(one.spec) or one.spec.at_most is not None:
            return
        running = {
            other.ref.job_id
            for other in self._world.all_learners()
            if other.runs and not other.is_hidden and self.is_trial(other.spec)
        }
        stopped = {each.job_id for each in trials(self._world.checks.store, SEARCH) if each.state == STOPPED}
        is_being_ended = one.ref.job_id in stopped or self._world.people.was_stopped(one.ref.job_id)
        if one.is_handed_over and is_being_ended:
            return
        others = running - {one.ref.job_id} - stopped
        others = {each for each in others if not self._world.people.was_stopped(each)}
        if len(others) >= self._at_once:
            raise Violation(f"{one.name} starts while {len(others)} trials run, of {self._at_once}")

    def at_rest(self) -> None:
        """Look at everything."""
        if not self.is_there:
            return
        store = self._world.checks.store
        row = experiment(store, SEARCH)
        self._no_secret_is_left()
        if row is None:
            if left := trials(store, SEARCH) or trial_job_ids(store, SEARCH):
                raise Violation(f"the search is gone, and {len(left)} of its trials are there")
            return
        if self.was_refused:
            raise Violation("the search is there, though its command said that it was not begun")
        if row.state not in (COMPLETED, FAILED, KILLED):
            raise Violation(f"the search is {row.state} for ever: {row.reason}")
        self._all_trials_are_over(row)
        self._is_decided_alike()
        self._reports_count_once()

    def _no_secret_is_left(self) -> None:
        """Only jobs keep secrets, so that they can be resumed; what who is killed leaves is for `fabric orphans`."""
        if any(self._world.chance.is_active(kind) for kind in ("kill", "second")):
            return
        home = self._world.home
        kept = set(self._trial_jobs())
        made = {self._job_id(number) for number in range(1, self._jobs + 1)}
        for name in sorted({SEARCH, *made} - kept):
            if secrets_file(home, name).exists():
                raise Violation(f"{name} is over or was never made, and its secrets are still there")

    def _all_trials_are_over(self, row: ExperimentRow) -> None:
        found = trials(self._world.checks.store, SEARCH)
        for one in found:
            if one.state in ("QUEUED", "RUNNING", "PAUSED", "WAITING"):
                raise Violation(f"the search is {row.state}, and trial {one.number} is {one.state}")
        numbers, jobs = [one.number for one in found], {one.job_id for one in found}
        if numbers != list(range(1, len(found) + 1)) or len(jobs) < len(found):
            raise Violation(f"the trials of the search are {numbers}, with {len(jobs)} jobs")
        config = self._config()
        expected = config.space().size() if config.method == "grid" else config.max_trials
        if row.state == COMPLETED and len(found) != expected and self._replaces_early_ends:
            raise Violation(f"the search has completed with {len(found)} of {expected} trials")
        if row.state == COMPLETED:
            for one in found:
                there = job(self._world.checks.store, one.job_id)
                if there is None and one.job_id not in self._deleted:
                    raise Violation(f"trial {one.number} has no job {short_id(JobId(one.job_id))}")

    def _config(self) -> SearchConfig:
        home = self._world.home
        return SearchConfig.from_json(newest_search(home, SEARCH, read_experiment_file(home, SEARCH)))

    def _is_decided_alike(self) -> None:
        """A search that is given the same events decides what its history says."""
        home = self._world.home
        document = read_experiment_file(home, SEARCH)
        for event, decided in replayed(document, events_of(home, SEARCH)):
            recorded = [
                {key: value for key, value in each.items() if key not in ("job", "number")}
                for each in event.get("operations") or ()
            ]
            if recorded != decided:
                raise Violation(f"the search decided {recorded} at {event}; its events give {decided}")

    def _reports_count_once(self) -> None:
        points = [
            (each["trial"], each["point"])
            for each in events_of(self._world.home, SEARCH)
            if each["do"] == "report"
        ]
        if len(points) > len(set(points)):
            raise Violation(f"the search was given reports twice: {points}")


def replayed(
    document: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], list[dict[str, Any]]]]:
    """Yield each event of a search with what a new one decides that is given all before it."""
    config = SearchConfig.from_json(document["spec"]["search"])
    method = config.make_method(replaces_early_ends=bool(document[REPLACES_EARLY_ENDS]))
    searcher = Searcher(method, config.space(), document["seed"])
    ends: dict[str, TrialEnd] = {}
    is_stopping = False
    for event in events:
        found: list[Operation] = []
        match event["do"]:
            case "begin":
                found = searcher.begin()
            case "report" if event["metrics"]:
                found = searcher.report(event["trial"], event["metrics"])
            case "end":
                ends[event["trial"]] = TrialEnd(event["how"])
                if not is_stopping:
                    found = searcher.end(event["trial"], ends[event["trial"]])
            case "continue":
                config, is_stopping = SearchConfig.from_json(event["search"]), False
            case "continued":
                names = tuple(each["trial"] for each in event["trials"])
                for name in names:
                    ends.pop(name)
                found = searcher.reopen(
                    names, ends, max_trials=config.max_trials, max_concurrent=config.max_concurrent
                )
        is_stopping |= event.get("state") == STOPPING
        yield event, [plain for one in found if (plain := _plain(one))]


def _plain(operation: Operation) -> dict[str, Any]:
    match operation:
        case Create(trial, hparams, seed):
            return {"do": "create", "trial": trial, "hparams": hparams, "seed": seed}
        case RunTo(trial, units):
            return {"do": "run", "trial": trial, "units": units}
        case StopTrial(trial):
            return {"do": "stop", "trial": trial}
    return {}
