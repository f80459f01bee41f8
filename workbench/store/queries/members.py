"""Jobs of arrays and of searches by their number: those that are made, and those whose turn is still to come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import FabricError, TryAgain, UnknownName
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.experiments import (
    CANCELLED,
    COMPLETED,
    PAUSED,
    RUNNING,
    STOPPING,
    WAITING,
    ExperimentRow,
    newest_search,
    read_experiment_file,
    running_trials,
    short_experiment_id,
)
from workbench.store.queries.jobs import job
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.search.config import SearchConfig

DRAWN_MOST: Final = 1000
"""Of a random search the parameters of so many trials are drawn to tell those of one."""


@dataclass(frozen=True, slots=True)
class UnmadeJob:
    """A job of an array, or of a search, that is to be made when its turn comes, or never was."""

    search: ExperimentRow
    number: int
    """From 1, in the order in which they are made."""
    count: int
    """How many jobs there will be, as far as that is known."""
    name: str | None
    """What it will be called; None where its name has parameters that are not known yet."""
    hparams: Mapping[str, Any] | None
    """None where they are chosen when its turn comes."""
    made: int
    """How many jobs of its search there are already."""
    running: int
    at_most: int | None
    """How many may run at once; None where nothing limits that."""

    @property
    def id(self) -> str:
        """Return what stands for it before there is a job with an id."""
        return f"{short_experiment_id(self.search.id)}[{self.number}]"

    @property
    def will_be_made(self) -> bool:
        """Whether its turn may come by itself."""
        return self.search.state in (RUNNING, PAUSED)

    @property
    def kind(self) -> str:
        """What it is a job of, as people call it."""
        return "array" if self.search.method == "grid" and not self.search.metric else "search"

    @property
    def reason(self) -> str:
        """Why there is no such job."""
        match self.search.state:
            case "RUNNING":
                at_once = "" if self.at_most is None else f", at most {self.at_most:,} at once"
                runs = "runs" if self.running == 1 else "run"
                are = "is" if self.made == 1 else "are"
                return f"{self.made:,} of {self.count:,} {are} made, {self.running:,} {runs}{at_once}"
            case "PAUSED":
                return f"the {self.kind} is paused"
            case "STOPPING":
                return f"the {self.kind} is being ended"
        why = f": {self.search.reason}" if self.search.reason else ""
        return f"the {self.kind} is {self.search.state}{why}"


class NotMade(FabricError):
    """A job of an array that there is not: its turn has not come yet, or the array was ended before."""

    def __init__(self, unmade: UnmadeJob) -> None:
        search, short = unmade.search, short_experiment_id(unmade.search.id)
        fate = "is not made yet" if unmade.will_be_made else "was never made"
        hint = ""
        if search.state == PAUSED:
            hint = f"`fabric experiment resume {short}` has the {unmade.kind} go on"
        elif search.state == RUNNING:
            hint = (
                f"`fabric wait '{unmade.id}'` waits for it; `fabric experiment kill {short}` ends the whole"
                f" {unmade.kind}"
            )
        elif search.state not in (STOPPING, COMPLETED):
            hint = f"`fabric experiment continue {short}` has the {unmade.kind} go on"
        number = f"job {unmade.number:,} of {unmade.count:,}"
        super().__init__(f"{number} of {search.name} ({short}) {fate}: {unmade.reason}", hint=hint)
        self.unmade = unmade
        self.exit_code = (TryAgain if unmade.will_be_made else UnknownName).exit_code


def member(store: Store, search: ExperimentRow, number: int) -> JobRow:
    """Return the job of an array, or of a search, with a number.

    Raises:
        NotMade: it is to be made when its turn comes, or never was.
        UnknownName: there is no such number, or the job is deleted.
        InputMissing: the search's file is gone, which says how many there are.
    """
    found = made_job(store, search, number)
    if found is None:
        raise NotMade(unmade_job(store, search, number))
    return found


def made_job(store: Store, search: ExperimentRow, number: int) -> JobRow | None:
    """Return the job with a number where it is made.

    Raises:
        UnknownName: it is deleted.
    """
    sql = "SELECT job_id, state FROM trials WHERE experiment = ? AND number = ?"
    found = store.row(sql, (search.id, number))
    if found is None:
        return None
    row = job(store, found[0])
    # Of one that has ended by itself there was a job; where the rows were made again nothing may be left of it.
    is_gone = row is None and found[1] not in (RUNNING, PAUSED, WAITING, CANCELLED)
    if is_gone or (row is not None and row.deleted_us is not None):
        raise UnknownName(
            f"job {number:,} of {search.name} ({short_experiment_id(search.id)}) was deleted",
            hint=f"`fabric experiment trials {short_experiment_id(search.id)}` says what became of it",
        )
    return row


def unmade_job(store: Store, search: ExperimentRow, number: int) -> UnmadeJob:
    """Return what is known of a job that is not made.

    Raises:
        UnknownName: there is no such number.
        InputMissing: the search's file is gone, which says how many there are.
    """
    # Commands that look for a job seldom name one that is not made.
    from workbench.manifest.builder.params import trial_spec
    from workbench.search.config import SearchConfig
    from workbench.spec import spec_from_json

    document = read_experiment_file(store.home, search.id)
    config = SearchConfig.from_json(newest_search(store.home, search.id, document))
    (created,) = store.row("SELECT max(number) FROM trials WHERE experiment = ?", (search.id,)) or (0,)
    seed = int(document["seed"])
    count = max(sum(config.make_method().outlook(seed).values()), created or 0)
    if not 1 <= number <= count:
        short = short_experiment_id(search.id)
        raise UnknownName(
            f"{search.name} ({short}) has no job {number:,}",
            hint=f"its jobs are {short}[1] to {short}[{count}]",
        )
    hparams = _hparams(store, search, number, config, seed)
    name = None
    if hparams is not None:
        spec, most = spec_from_json(document["spec"]), config.max_trials
        name = trial_spec(spec, hparams, number=number, seed=seed, max_trials=most).name
    (made,) = store.row("SELECT count(DISTINCT trial) FROM jobs WHERE parent = ?", (search.id,)) or (0,)
    return UnmadeJob(
        search,
        number,
        count,
        name,
        hparams,
        made,
        running_trials(store, search.id),
        config.max_concurrent or None,
    )


def _hparams(
    store: Store, search: ExperimentRow, number: int, config: SearchConfig, seed: int
) -> Mapping[str, Any] | None:
    """Return the parameters of a trial that is not made; None where they are chosen when its turn comes."""
    sql = "SELECT hparams FROM trials WHERE experiment = ? AND number = ?"
    if (created := store.row(sql, (search.id, number))) is not None:
        found: dict[str, Any] = json.loads(created[0])
        return found
    if config.method == "grid":
        space = config.space()
        return space.point(space.size() - number)  # it begins with the last
    if config.method == "random" and number <= DRAWN_MOST:
        return config.first_trials(number, seed)[-1].hparams
    return None
