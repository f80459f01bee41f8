"""What a search takes beyond the work of its trials, and what the decisions of a large one cost."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.bench.harness import FABRIC, Row, fresh_home, seconds_of
from workbench.paths import Home, default_home
from workbench.search.config import SearchConfig
from workbench.search.method import Create, Operation, RunTo, StopTrial
from workbench.search.searcher import Searcher
from workbench.store.db.database import Store
from workbench.store.queries.experiments import experiment
from workbench.store.updates.experiments import insert_experiment, new_experiment_id, record_event

TRIALS: Final = 200
AT_ONCE: Final = 4
SECONDS: Final = 1
"""How long a trial works."""
LAST_SECONDS: Final = 900.0
SIMULATED: Final = 10_000
FLOOR_LINES: Final = 2000

_MANIFEST: Final = f"""\
name: searched
framework: {{name: custom, command: 'sleep {SECONDS}; echo loss=${{params.x}}'}}
seed: 1
search:
  method: random
  metric: loss
  max_trials: {TRIALS}
  max_concurrent: {AT_ONCE}
  params: {{x: {{uniform: [0, 1]}}}}
"""
_OPTUNA: Final = f"""
import subprocess, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)

def objective(trial):
    command = "sleep {SECONDS}; echo loss=%f" % trial.suggest_float("x", 0, 1)
    printed = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=True, text=True).stdout
    return float(printed.partition("=")[2])

study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
study.optimize(objective, n_trials={TRIALS}, n_jobs={AT_ONCE})
"""
_RAY: Final = f"""
import logging, subprocess, ray
from ray import tune

def objective(config):
    command = "sleep {SECONDS}; echo loss=%f" % config["x"]
    printed = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {{"loss": float(printed.partition("=")[2])}}

ray.init(num_cpus={AT_ONCE}, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
settings = tune.TuneConfig(metric="loss", mode="min", num_samples={TRIALS}, max_concurrent_trials={AT_ONCE})
tuner = tune.Tuner(
    tune.with_resources(objective, {{"cpu": 1}}),
    param_space={{"x": tune.uniform(0, 1)}},
    tune_config=settings,
    run_config=tune.RunConfig(verbose=0),
)
assert len(tuner.fit()) == {TRIALS}
"""
_PEERS: Final = (
    ("optuna", f"Optuna, `n_jobs={AT_ONCE}`, the same command", _OPTUNA),
    ("ray", f"Ray Tune, {AT_ONCE} processes, the same command", _RAY),
)
"""Module, name and program of each that runs the same trials where it is installed."""
_ASHA: Final[dict[str, Any]] = {
    "method": "asha",
    "metric": "loss",
    "time_metric": "epoch",
    "max_time": 81,
    "divisor": 3,
    "max_trials": SIMULATED,
    "max_concurrent": 16,
    "params": {"x": {"uniform": [0, 1]}, "layers": {"int": [1, 8]}},
}


def rows() -> list[Row]:
    """Measure a search of short trials beside those peers that are installed, then many simulated trials."""
    return [*_overhead_rows(), *_decision_rows()]


def _overhead_rows() -> list[Row]:
    ideal = TRIALS * SECONDS / AT_ONCE
    what = f"{TRIALS} trials of {SECONDS} s, {AT_ONCE} at a time, over the {ideal:g} s that they work"
    peers: list[tuple[str, float | None]] = []
    with fresh_home() as environment:
        for module, name, program in _PEERS:
            if find_spec(module) is None:
                print(f"{module} is not installed: it is left out", file=sys.stderr)
            else:
                peers.append((name, seconds_of([sys.executable, "-c", program], environment) / ideal))
        ours = _search_seconds(environment) / ideal
    return [
        Row(what, ours, "x", name, theirs, "<= 1.1 x", ours <= 1.1) for name, theirs in peers or [("", None)]
    ]


def _search_seconds(environment: dict[str, str]) -> float:
    folder = Path(environment["HOME"]) / "work"
    folder.mkdir()
    (folder / "search.yml").write_text(_MANIFEST)
    started = time.perf_counter()
    argv = [FABRIC, "run", "-q", "search.yml"]
    ran = subprocess.run(argv, env=environment, cwd=folder, check=True, capture_output=True, text=True)
    with Store.open(Home(Path(environment["FABRIC_HOME"]))) as store:
        while True:
            row = experiment(store, ran.stdout.strip())
            assert row is not None
            if not row.is_open:
                break
            if time.perf_counter() - started > LAST_SECONDS:
                raise TimeoutError("the search is not over")
            time.sleep(0.1)
    if row.state != "COMPLETED":
        raise SystemExit(f"the search is {row.state}: {row.reason}")
    return time.perf_counter() - started


def _decision_rows() -> list[Row]:
    argv = [sys.executable, "-m", "tests.bench.searches"]
    with fresh_home() as environment:
        folder = Path(__file__).parents[2]
        ran = subprocess.run(argv, env=environment, cwd=folder, check=True, capture_output=True, text=True)
    found = json.loads(ran.stdout)
    what = f"{SIMULATED:,} simulated trials of ASHA"
    decided, written, megabytes = found["decided_us"], found["written_us"], found["megabytes"]
    return [
        Row(f"{what}, a decision", decided, "us", "", None, "<= 1,000 us", decided <= 1000),
        Row(
            f"{what}, a decision written into history and rows",
            written,
            "us",
            "a line appended, and `fsync`",
            found["floor_us"],
            "<= 3 x",
            written <= 3 * found["floor_us"],
        ),
        Row(
            f"{what}, CPU of a decision, all in all",
            found["cpu_us"],
            "us",
            "",
            None,
            "<= 2,000 us",
            found["cpu_us"] <= 2000,
        ),
        Row(f"{what}, memory", megabytes, "MB", "", None, "<= 300 MB", megabytes <= 300),
    ]


class _Simulation:
    """A search whose trials report as soon as they are sent; each decision is written down as the controller does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        config = SearchConfig.from_json(_ASHA)
        self._id = new_experiment_id()
        document = {"seed": 1, "spec": {"name": "simulated", "search": _ASHA}}
        insert_experiment(store, self._id, document)
        self._searcher = Searcher(config.make_method(), config.space(), 1)
        self._rungs = config.make_method().rungs()
        self._random = random.Random(1)
        self._under_way: deque[tuple[str, int]] = deque()
        """Trials and the rung that each comes to next."""
        self._stopped: set[str] = set()
        self._created = 0
        self.decisions = 0
        self.decided_seconds = 0.0
        self.written_seconds = 0.0

    def run(self) -> None:
        """Play it to its end."""
        started = time.perf_counter()
        self._take({"do": "begin"}, self._searcher.begin(), started)
        while self._under_way:
            trial, rung = self._under_way.popleft()
            if trial in self._stopped or rung == len(self._rungs):
                started = time.perf_counter()
                found = self._searcher.end(trial)
                self._take({"do": "end", "trial": trial, "how": "completed"}, found, started)
                continue
            units, value = self._rungs[rung], self._random.random()
            metrics = {"loss": value, "epoch": units}
            event = {"do": "report", "trial": trial, "point": rung + 1, "units": units, "value": value}
            self._under_way.append((trial, rung + 1))
            started = time.perf_counter()
            found = self._searcher.report(trial, metrics)
            self._take({**event, "metrics": metrics}, found, started)
        assert self._searcher.is_over and self._created >= SIMULATED

    def _take(self, event: dict[str, Any], found: list[Operation], started: float) -> None:
        decided = time.perf_counter()
        event["operations"] = [plain for each in found if (plain := self._plain(each)) is not None]
        with self._store.atomic():
            record_event(self._store, self._id, event)
        self.decisions += 1
        self.decided_seconds += decided - started
        self.written_seconds += time.perf_counter() - decided

    def _plain(self, operation: Operation) -> dict[str, Any] | None:
        match operation:
            case Create(trial, hparams, seed):
                self._created += 1
                self._under_way.append((trial, 0))
                created = {"do": "create", "trial": trial, "number": self._created}
                return {**created, "job": f"training-{self._created}", "hparams": hparams, "seed": seed}
            case RunTo(trial, units):
                return {"do": "run", "trial": trial, "units": units}
            case StopTrial(trial):
                self._stopped.add(trial)
                return {"do": "stop", "trial": trial}
        return None


def _floor_us(folder: Path) -> float:
    """Return how long it takes to append the line of a report so that it outlives a crash."""
    line = json.dumps({"do": "report", "trial": "0" * 36, "metrics": {"loss": 0.5, "epoch": 27}}).encode()
    started = time.perf_counter()
    for _ in range(FLOOR_LINES):
        with (folder / "lines").open("ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
    return (time.perf_counter() - started) / FLOOR_LINES * 1e6


def main() -> None:
    """Simulate in this process, whose memory is measured, and print what it took."""
    home = default_home()
    with Store.open(Home(home)) as store:
        simulation = _Simulation(store)
        simulation.run()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "decisions": simulation.decisions,
                "decided_us": simulation.decided_seconds / simulation.decisions * 1e6,
                "written_us": simulation.written_seconds / simulation.decisions * 1e6,
                "floor_us": _floor_us(home),
                "cpu_us": (used.ru_utime + used.ru_stime) / simulation.decisions * 1e6,
                "megabytes": used.ru_maxrss / 1e3,
            }
        )
    )


if __name__ == "__main__":
    main()
