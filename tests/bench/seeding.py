"""Stores for benchmarks: with many jobs, and with an array of which many jobs are over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.screens.seeding import NOW_US, add_job
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.experiments import catch_up_experiment, new_experiment_id
from workbench.store.updates.jobs import step


def seed_jobs(home: Home, count: int) -> None:
    """Fill a home's store with ``count`` jobs that ended, through the store's own functions."""
    store = Store.open(home)
    store.connection.execute("PRAGMA synchronous = OFF")
    try:
        with store.atomic():
            for number in range(count):
                row = add_job(store, number, f"job-{number}", age_seconds=float(count - number))
                for state in (State.PENDING, State.PROCESSING, State.STORING):
                    step(store, row.id, 1, state, Reason("on its way"))
                step(
                    store,
                    row.id,
                    1,
                    State.COMPLETED,
                    Reason("the command ended with 0"),
                    exit_code=0,
                    exit_by="job",
                )
    finally:
        store.close()


def seed_array(home: Home, count: int, of: int) -> None:
    """Write down an array of ``of`` jobs that runs, of which ``count`` are over, without the jobs themselves."""
    search: dict[str, Any] = {
        "method": "grid", "metric": "", "time_metric": "", "goal": "minimize", "max_trials": of,
        "max_concurrent": 100, "params": {"index": {"choice": [*range(1, of + 1)]}},
    }  # fmt: skip
    document = {"format": 1, "seed": 1, "who": "ada@box", "spec": {"name": "array", "search": search}}
    experiment = new_experiment_id()
    folder = home.experiment(experiment)
    with Store.open(home) as store:
        folder.experiment_file.parent.mkdir(parents=True)
        folder.experiment_file.write_text(json.dumps(document))
        with folder.events.open("w") as stream:
            for event in [{"do": "submit", "time": NOW_US}, *_array_events(count)]:
                stream.write(json.dumps(event, separators=(",", ":")) + "\n")
        with store.atomic():
            catch_up_experiment(store, experiment)


def _array_events(count: int) -> Iterator[dict[str, Any]]:
    for number in range(1, count + 1):
        trial, time_us = f"{number:016x}", NOW_US + number * 10_000
        create = {"do": "create", "trial": trial, "number": number, "job": f"training-{number:09}"}
        create |= {"hparams": {"index": number}, "seed": number}
        yield {"do": "begin", "time": time_us, "operations": [create]}
        yield {"do": "end", "time": time_us + 5000, "trial": trial, "how": "completed", "operations": []}
