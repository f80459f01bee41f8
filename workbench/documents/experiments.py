"""Documents of searches for hyper-parameters."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from workbench.documents.values import Id, Time


class PreviewedTrials(TypedDict):
    """Trials that get equally far."""

    units: NotRequired[int]
    """How far, in units of the time metric; left out where nothing stops them."""
    max_length: NotRequired[Literal[True]]
    """There where they run as long as their own code does."""
    count: int


class SampledTrial(TypedDict):
    """One trial as it would be drawn."""

    hparams: dict[str, Any]
    """Of a job of a sweep its `params`, and the other keys that `--set` lists."""
    id: str
    """Empty for a job of a sweep."""
    seed: int


class PreviewDocument(TypedDict):
    """What a search would try: `fabric preview --json`."""

    schema: Literal["fabric.preview/1"]
    method: str
    """`single` where the manifest has no search, `grid` where lists in `--set` start several jobs."""
    seed: int
    """What the samples are drawn with."""
    trials: list[PreviewedTrials]
    samples: list[SampledTrial]
    """The first trials, in the order in which they would begin; none of the methods `optuna` and `python`."""
    gpu_hours: float | None
    """What it costs at most; null where the job has no GPU or no `max_runtime`."""


class TrialDocument(TypedDict):
    """A trial of a search: `fabric experiment trials --json`."""

    schema: Literal["fabric.trial/1"]
    experiment: str
    number: int
    """From 1, in the order of their creation."""
    trial: str
    """The id that the search drew for it."""
    id: Id
    """Its job."""
    backend: str | None
    """Where it runs, or waits for its turn; null as long as it has no job."""
    state: Literal["RUNNING", "PAUSED", "WAITING", "STOPPED", "COMPLETED", "FAILED", "INVALID", "CANCELLED"]
    """`STOPPED` by the search; `PAUSED` with it; `WAITING` for it to decide whether the trial goes on.

    `RUNNING` includes waiting for its turn or a slot.
    """
    begun: bool
    """Whether it has ever run; one that was ended before that counts. `RUNNING` without it waits for its turn."""
    hparams: dict[str, Any]
    seed: int
    units: float | None
    """How far it was trained at its last report, in units of the time metric."""
    last: float | None
    """The last value of the metric."""
    best: float | None
    rung: int | None
    """How many rungs it has reached; null where its search has none."""


class UnmadeJobDocument(TypedDict):
    """A job of an array, or of a search, that is not made: `fabric show 'NAME[17]' --json`."""

    schema: Literal["fabric.unmade/1"]
    experiment: str
    """The array, or the search."""
    experiment_name: str
    experiment_state: Literal["RUNNING", "PAUSED", "STOPPING", "COMPLETED", "FAILED", "KILLED"]
    number: int
    """From 1, in the order in which they are made."""
    expected_trials: int
    """How many there will be; of what was ended early, how many there would have been."""
    name: str | None
    """What the job will be called; null where that has parameters which are not known yet."""
    hparams: dict[str, Any] | None
    """Null where they are chosen when its turn comes."""
    will_be_made: bool
    """Whether its turn comes by itself, or once what is paused goes on; false where all is over."""
    reason: str
    """Why it is not made."""
    made: int
    """How many jobs there are already."""
    running: int
    at_most: int | None
    """How many may run at once; null where nothing limits that."""


class RungEntry(TypedDict):
    """A rung at which a search compares its trials."""

    units: int
    reached: int
    """How many trials have come to it."""


class ExperimentDocument(TypedDict):
    """A search: `fabric experiment list --json`, `show --json`, `wait --json`, `fork --json`, and what changes one."""

    schema: Literal["fabric.experiment/1"]
    id: str
    name: str
    state: Literal["RUNNING", "PAUSED", "STOPPING", "COMPLETED", "FAILED", "KILLED"]
    reason: str
    method: str
    metric: str
    goal: str
    created: Time
    ended: Time | None
    description: str
    """Of what was submitted."""
    labels: dict[str, str]
    """Those of its trials' jobs; of an experiment of Determined also its `workspace` and `project`."""
    tags: list[str]
    """Given to the search itself; trials that begin later get them."""
    note: str
    archived: bool
    """Whether a person has archived it: `list` shows it with `--all` only."""
    trials: int
    """How many have begun; those that wait for their turn have not."""
    running: int
    expected_trials: int
    """How many there will be; of a search that was ended early, how many there would have been."""
    ended_trials: int
    progress: float | None
    """How much is done, from 0 to 1; null where what was submitted is gone."""
    expected_end: Time | None
    """When it ends at its rate so far; null where it does not run, or that cannot be told yet."""
    rungs: list[RungEntry]
    """Where trials are compared, ascending; empty for a method that compares none."""
    best: TrialDocument | None
    """The trial with the best value so far."""
