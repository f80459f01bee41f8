"""Determined's own Core API examples, byte by byte as they are, run as jobs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric, until_search_is
from tests.support.several_learners import EXPERIMENT as SEVERAL
from tests.support.several_learners import TRAIN as OF_SEVERAL
from tests.support.waiting import until
from workbench.learner.determined_jobs import trial_number
from workbench.paths import Home
from workbench.search.config import SearchConfig
from workbench.search.method import Operation, StopTrial, TrialEnd
from workbench.search.searcher import Searcher
from workbench.store.queries.experiments import events_of, read_experiment_file

SLOTS = """\
name: slots
entrypoint: echo slots $DET_SLOT_IDS
resources: {slots_per_trial: 2}
searcher: {name: single, metric: x}
"""
FOLDER = os.environ.get("FABRIC_DETERMINED_FILES", "")
needs_files = pytest.mark.skipif(
    not FOLDER, reason="FABRIC_DETERMINED_FILES names no folder of Determined's files"
)


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path) -> Fabric:
    return module_fabric.within(tmp_path / "work")


@pytest.fixture
def home(module_fabric: Fabric) -> Home:
    return module_fabric.jobs_home


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "core_api"
    shutil.copytree(Path(FOLDER, "examples/tutorials/core_api"), folder)
    return folder


def logged(fabric: Fabric, job: str) -> list[str]:
    return values_of_x(fabric("logs", job).stdout)


def values_of_x(text: str) -> list[str]:
    return [line.rpartition("x is now ")[2] for line in text.splitlines() if "x is now " in line]


def until_printed(fabric: Fabric, job: str, holds: Callable[[str], bool]) -> None:
    """Wait until a job's first attempt has printed what it should have: the file is read, and no command asked."""
    output = fabric.jobs_home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and holds(output.read_text()), lambda: fabric("logs", job).stdout)


@needs_files
def test_stage_0_prints_a_hundred_lines(fabric: Fabric, example: Path) -> None:
    ran = fabric("run", "-q", str(example / "0_start.yaml"))

    assert ran.stdout.count("x is now") == 100


@needs_files
def test_stage_1_reports_metrics_and_progress(fabric: Fabric, example: Path) -> None:
    fabric("run", "-q", str(example / "1_metrics.yaml"))

    head, *rows = fabric("metrics", "@last").stdout.splitlines()
    assert head.split() == ["step", "training/x", "validation/x"]
    assert [row.split()[:2] for row in rows] == [[str(step), str(step)] for step in range(10, 101, 10)]
    assert [len(row.split()) for row in rows] == [2] * 9 + [3]
    (reported,) = fabric.json("show", "@last", "--json")["progress"]
    assert reported["fraction"] == 1.0


@needs_files
def test_stage_2_goes_on_after_its_checkpoint_and_a_new_trial_keeps_only_x(
    fabric: Fabric, example: Path
) -> None:
    file = str(example / "2_checkpoints.yaml")
    job = fabric("run", "-d", "-q", file).stdout.strip()
    until_printed(fabric, job, lambda text: len(values_of_x(text)) >= 3)
    fabric("halt", job)
    fabric("wait", job, expect=None)
    assert fabric.json("show", job, "--json")["state"] == "HALTED"
    before = logged(fabric, job)
    assert len(before) % 10 == 0

    fabric("resume", job)
    fabric("wait", job)

    after = logged(fabric, job)
    assert after[-1] == "100"
    assert str(len(before) + 1) in after

    other = fabric("run", "-d", "-q", file, "--from", job).stdout.strip()
    until_printed(fabric, other, lambda text: len(values_of_x(text)) >= 2)
    fabric("halt", other)
    fabric("wait", other, expect=None)
    assert logged(fabric, other)[0] == "101"


@needs_files
def test_checkpoints_go_to_the_shared_folder_of_the_file_and_are_found_there(
    fabric: Fabric, example: Path, tmp_path: Path
) -> None:
    file, shared = example / "2_checkpoints.yaml", tmp_path / "shared"
    storage = f"{{type: shared_fs, host_path: {shared}, storage_path: ck, save_trial_latest: 1}}"
    file.write_text(f"{file.read_text()}\ncheckpoint_storage: {storage}\n")
    job = fabric("run", "-d", "-q", str(file)).stdout.strip()
    until_printed(fabric, job, lambda text: len(values_of_x(text)) >= 3)
    fabric("halt", job)
    fabric("wait", job, expect=None)
    before = logged(fabric, job)
    # On a slow machine more batches are over by then; the best is not known without a validation, so all are kept.
    saved = [path.name for path in (shared / "ck" / job / "_checkpoints").iterdir()]
    listed = fabric("checkpoint", "list", job).stdout
    assert saved and all(name in listed for name in saved)

    fabric("resume", job)
    fabric("wait", job)

    assert logged(fabric, job)[-1] == "100"
    assert str(len(before) + 1) in logged(fabric, job)


@needs_files
@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("tutorials/core_api/3_hpsearch.yaml", {25: 6, 100: 4}),
        ("computer_vision/iris_tf_keras/adaptive.yaml", {25: 273, 100: 152, 400: 66, 1600: 17, 6400: 4}),
    ],
)
def test_a_file_is_previewed_as_by_determined(fabric: Fabric, file: str, counts: dict[int, int]) -> None:
    path = str(Path(FOLDER, "examples", file))

    document = json.loads(fabric("preview", path, "--json", "--samples", "3", "--seed", "42").stdout)

    assert {each["units"]: each["count"] for each in document["trials"]} == counts
    if "3_hpsearch" in file:
        assert [each["hparams"]["increment_by"] for each in document["samples"]] == [7, 5, 3]
        assert [each["seed"] for each in document["samples"]] == [1201263687, 429389014, 613608295]
        assert document["samples"][0]["id"] == "b33deacb-5c03-42f3-8e95-f52e6af463bb"


@needs_files
def test_stage_3_is_searched_and_its_events_stop_the_same_trials_when_they_are_replayed(
    fabric: Fabric, home: Home, example: Path
) -> None:
    file = str(example / "3_hpsearch.yaml")
    experiment = fabric("run", "-q", file, "--set", "seed=42").stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=150)

    events = events_of(home, experiment)
    document = read_experiment_file(home, experiment)
    config = SearchConfig.from_json(document["spec"]["search"])
    searcher = Searcher(config.make_method(), config.space(), document["seed"])
    replayed: list[str] = []
    for event in events:
        operations: list[Operation] = []
        if event["do"] == "begin":
            operations = searcher.begin()
        elif event["do"] == "report" and event["metrics"]:
            operations = searcher.report(event["trial"], event["metrics"])
        elif event["do"] == "end":
            operations = searcher.end(event["trial"], TrialEnd(event["how"]))
        replayed += [each.trial for each in operations if isinstance(each, StopTrial)]

    recorded = [
        each["trial"] for event in events for each in event.get("operations") or () if each["do"] == "stop"
    ]
    assert replayed == recorded
    # Four of ten may train to the end at most: the others are stopped at a rung, or were at the end already.
    assert len(recorded) >= 6
    trials = fabric.json("experiment", "trials", experiment, "--json")
    assert [each["hparams"]["increment_by"] for each in trials][:3] == [7, 5, 3]
    assert [each["best"] for each in trials][:3] == [70.0, 50.0, 30.0]


def test_an_alert_and_metadata_of_the_code_are_kept_with_the_job(fabric: Fabric) -> None:
    (fabric.folder / "alert.yaml").write_text(
        "name: alert\nentrypoint: python3 train.py\nresources: {slots_per_trial: 0}\n"
        "searcher: {name: single, metric: loss}\n"
    )
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "with det.core.init() as core:\n"
        "    core.alert('loss', 'is too high', 'warn')\n"
        "    core.train.set_metadata({'best': 3})\n"
    )

    fabric("run", "-q", "alert.yaml")

    shown = fabric.json("show", "@last", "--json")
    assert [(each["level"], each["text"]) for each in shown["notes"]] == [
        ("warning", "alert: loss: is too high")
    ]
    assert "alert: loss: is too high" in fabric("show", "@last").stdout
    assert "determined-metadata.json" in fabric("files", "@last").stdout


VARIABLES = """\
name: variables
entrypoint: python3 train.py
hyperparameters: {deep: {size: 2}, lr: {type: double, minval: 0.5, maxval: 1.0}}
searcher: {name: random, metric: loss, max_trials: 2, max_concurrent_trials: 1}
resources: {slots_per_trial: 2}
reproducibility: {experiment_seed: 11}
max_restarts: 1
"""


def test_variables_of_a_trial_are_those_of_determined_and_agree_with_the_package(fabric: Fabric) -> None:
    (fabric.folder / "variables.yaml").write_text(VARIABLES)
    (fabric.folder / "train.py").write_text(
        "import json, os\nimport determined as det\n"
        "info = det.get_cluster_info()\n"
        "print(json.dumps({name: value for name, value in os.environ.items() if name.startswith(('DET_', 'C10'))}))\n"
        "print(json.dumps({'cluster': info.cluster_id, 'agent': info.agent_id, 'task': info.task_id,\n"
        "    'allocation': info.allocation_id, 'slots': info.slot_ids, 'latest': info.latest_checkpoint,\n"
        "    'hparams': info.trial.hparams, 'seed': info.trial.trial_seed, 'trial': info.trial.trial_id,\n"
        "    'experiment': info.trial.experiment_id, 'run': info.trial._trial_run_id,\n"
        "    'steps': info.trial._steps_completed, 'port': os.environ['MASTER_PORT'], 'cwd': os.getcwd()}))\n"
        "distributed = det.core.DistributedContext(rank=0, size=1)\n"
        "with det.core.init(distributed=distributed) as core:\n"
        "    core.train.report_validation_metrics(5, {'loss': 1.0})\n"
        "    if info.latest_checkpoint is None:\n"
        "        with core.checkpoint.store_path({'steps_completed': 5}):\n            pass\n"
        "        raise SystemExit(3)\n"
    )
    experiment = fabric("run", "-q", "variables.yaml").stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    documents = []
    trials = fabric.json("experiment", "trials", experiment, "--json")
    for trial in trials:
        for attempt in "1", "2":
            lines = fabric("logs", trial["id"], "--attempt", attempt).stdout.splitlines()
            documents += [json.loads(line) for line in lines if line.startswith("{")]
    assert len(documents) == 8
    for number, (variables, info) in enumerate(zip(documents[::2], documents[1::2], strict=True)):
        run = number % 2 + 1
        assert variables["DET_TASK_TYPE"] == "TRIAL"
        assert int(variables["DET_TRIAL_RUN_ID"]) == info["run"] == run
        assert int(variables["DET_STEPS_COMPLETED"]) == info["steps"] == (0 if run == 1 else 5)
        assert variables.get("DET_LATEST_CHECKPOINT") == info["latest"]
        assert (info["latest"] is None) == (run == 1)
        assert json.loads(variables["DET_HPARAMS"]) == info["hparams"]
        assert info["hparams"]["deep"] == {"size": 2} and 0.5 <= info["hparams"]["lr"] <= 1.0
        assert json.loads(variables["DET_SLOT_IDS"]) == info["slots"] == [0, 1]
        assert int(variables["DET_TRIAL_SEED"]) == info["seed"] == trials[number // 2]["seed"]
        assert int(variables["DET_TRIAL_ID"]) == info["trial"]
        assert int(variables["DET_EXPERIMENT_ID"]) == info["experiment"]
        assert variables["DET_CLUSTER_ID"] == info["cluster"] != ""
        assert variables["DET_AGENT_ID"] == info["agent"] == os.uname().nodename
        assert variables["DET_TASK_ID"] == info["task"] == trials[number // 2]["id"]
        assert variables["DET_ALLOCATION_ID"] == info["allocation"] == f"{info['task']}.{run}"
        assert variables["DET_WORKDIR"] == info["cwd"]
        assert variables["C10D_PORT"] == info["port"]
        assert not any("TOKEN" in name or "MASTER" in name for name in variables)
    assert len({each["experiment"] for each in documents[1::2]}) == 1
    assert len({each["trial"] for each in documents[1::2]}) == 2


PREEMPTED = """\
name: preempted
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
resources: {slots_per_trial: 0}
max_restarts: 0
"""
WAIT_FOR_A_STOP = (
    "import sys, time\n"
    "import determined as det\n"
    "with det.core.init() as core:\n"
    "    print('begun', flush=True)\n"
)


@pytest.mark.parametrize(
    ("rest", "state", "exit_code"),
    [
        ("while not core.preempt.should_preempt(): time.sleep(0.01)", "HALTED", 143),
        ("while not core.preempt.should_preempt(auto_ack=False): time.sleep(0.01)", "COMPLETED", 0),
        (
            # It ends after the request and has never looked; it gets no signal so early.
            "import os\n    while not os.path.lexists(os.environ['FABRIC_STOP_FILE']): time.sleep(0.01)",
            "COMPLETED",
            0,
        ),
    ],
    ids=["acknowledged", "not acknowledged", "not asked for"],
)
def test_a_halted_trial_that_ends_without_an_acknowledgement_is_complete(
    fabric: Fabric, rest: str, state: str, exit_code: int
) -> None:
    (fabric.folder / "preempted.yaml").write_text(PREEMPTED)
    (fabric.folder / "train.py").write_text(f"{WAIT_FOR_A_STOP}    {rest}\n")
    job = fabric("run", "-d", "-q", "preempted.yaml").stdout.strip()
    until_printed(fabric, job, lambda text: "begun" in text)

    fabric("halt", job, expect=None)
    fabric("wait", job, expect=None)

    shown = fabric.json("show", job, "--json")
    assert (shown["state"], shown["exit_code"]) == (state, exit_code)
    if state == "HALTED":
        fabric("resume", job)
        fabric("kill", job, expect=None)


OPERATIONS = """\
name: operations
entrypoint: python3 train.py
hyperparameters: {size: {type: int, minval: 1, maxval: 99}}
searcher: {name: async_halving, metric: loss, num_rungs: 2, divisor: 2, max_trials: 2,
  max_concurrent_trials: 1%s}
resources: {slots_per_trial: 0}
reproducibility: {experiment_seed: 17}
"""


def operates(
    fabric: Fabric, keys: str = ", max_length: {batches: 4}", *, before: str = ""
) -> list[tuple[Any, list[str]]]:
    """Run a search whose code asks for operations; return its trials and what each of them has printed.

    Args:
        fabric: the command line.
        keys: keys of the searcher that follow the others.
        before: a line of the code before an operation is completed.
    """
    (fabric.folder / "operations.yaml").write_text(OPERATIONS % keys)
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "det.core._searcher.DECISION_SECONDS = 60\n"
        "with det.core.init() as core:\n"
        "    size, latest = det.get_cluster_info().trial.hparams['size'], det.get_cluster_info().latest_checkpoint\n"
        "    batch = core.checkpoint.get_metadata(latest)['steps_completed'] if latest else 0\n"
        "    for operation in core.searcher.operations():\n"
        "        print('from', batch, 'to', operation.length, flush=True)\n"
        f"        {before or 'pass'}\n"
        "        batch = operation.length\n"
        "        with core.checkpoint.store_path({'steps_completed': batch}):\n"
        "            pass\n"
        "        operation.report_completed(size)\n"
    )
    experiment = fabric("run", "-q", "operations.yaml").stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)
    shown = fabric.json("experiment", "show", experiment, "--json")
    assert shown["state"] == "COMPLETED", shown
    trials = fabric.json("experiment", "trials", experiment, "--json")
    return [(each, printed(fabric, each["id"])) for each in trials]


def printed(fabric: Fabric, job: str) -> list[str]:
    """Return the lines of all attempts of a job."""
    attempts = range(1, fabric.json("show", job, "--json")["attempt"] + 1)
    outputs = [fabric("logs", job, "--attempt", str(number)).stdout for number in attempts]
    return [line for output in outputs for line in output.splitlines()]


VALIDATES = (
    "for each in range(batch + 1, operation.length + 1):\n"
    "            core.train.report_validation_metrics(each, {'loss': size})"
)


def has_lengths_of_its_rungs(trials: list[tuple[Any, list[str]]]) -> bool:
    best = min((each for each, _ in trials), key=lambda each: each["hparams"]["size"])
    for trial, lines in trials:
        operated = [line for line in lines if line.startswith("from")]
        assert operated == (["from 0 to 2", "from 2 to 4"] if trial is best else ["from 0 to 2"])
    return bool(best["units"] == 4)


def test_operations_have_the_length_of_their_rung_and_go_on_where_the_trial_is_promoted(
    fabric: Fabric,
) -> None:
    assert has_lengths_of_its_rungs(operates(fabric, before=VALIDATES))


def test_a_trial_knows_the_best_validation_of_its_experiment_also_once_it_is_promoted(fabric: Fabric) -> None:
    says = "print(core.train.get_experiment_best_validation(), flush=True)"

    trials = operates(fabric, before=says)

    assert has_lengths_of_its_rungs(trials)  # also where nothing was validated before
    sizes = [float(trial["hparams"]["size"]) for trial, _ in trials]
    printed_best = [[line for line in lines if not line.startswith("from")] for _, lines in trials]
    promoted = int(sizes[1] < sizes[0])
    begins = [["None"], [str(sizes[0])]]
    # It has validated after its last checkpoint, at the same step: that counts all the same.
    begins[promoted].append(str(min(sizes)))
    assert printed_best == begins

    job = trials[1][0]["id"]
    again = fabric("rerun", "-d", "-q", job).stdout.strip()
    fabric("wait", again, expect=None)
    assert printed(fabric, again)[:2] == ["from 0 to 2", "None"]


def test_a_trial_that_its_search_stops_may_validate_before_it_completes_an_operation(fabric: Fabric) -> None:
    trials = operates(fabric, ", max_length: {batches: 4}, stop_once: true", before=VALIDATES)

    assert [lines[0] for _, lines in trials] == ["from 0 to 2"] * 2
    assert max(each["units"] for each, _ in trials) == 4


def test_operations_have_the_files_own_length_beside_the_units_of_its_search(fabric: Fabric) -> None:
    keys = ", max_length: {epochs: 3}, time_metric: batches, max_time: 4"
    validates = "core.train.report_validation_metrics(4, {'loss': size, 'batches': 4})"
    (trial, lines), _ = operates(fabric, keys, before=validates)

    assert lines == ["from 0 to 3"]
    assert trial["units"] == 4


INVALID = """\
name: invalid
entrypoint: python3 train.py
hyperparameters: {size: {type: int, minval: 1, maxval: 4}}
searcher: {name: %s, metric: loss, max_trials: 3, max_concurrent_trials: 1%s}
resources: {slots_per_trial: 0}
reproducibility: {experiment_seed: 11}
"""
RAISES_BELOW_3 = """\
import determined as det
with det.core.init() as core:
    size = det.get_cluster_info().trial.hparams["size"]
    if size < 3:
        raise det.InvalidHP("%d is too small" % size)
    for batch in range(1, 5):
        core.train.report_validation_metrics(batch, {"batches": batch, "loss": size / batch})
        if core.preempt.should_preempt():
            break
"""


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("random", ""),
        pytest.param(
            "adaptive_asha",
            ", time_metric: batches, max_time: 4",
            marks=pytest.mark.soak(
                "another method; the gate has random and grid, and asha in tests/quick/search"
            ),
        ),
    ],
)
def test_a_trial_that_raises_invalid_hp_is_replaced_by_another_one(
    fabric: Fabric, method: str, keys: str
) -> None:
    (fabric.folder / "invalid.yaml").write_text(INVALID % (method, keys))
    (fabric.folder / "train.py").write_text(RAISES_BELOW_3)
    experiment = fabric("run", "-q", "invalid.yaml").stdout.strip()

    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    assert fabric.json("experiment", "show", experiment, "--json")["state"] == "COMPLETED"
    trials = fabric.json("experiment", "trials", experiment, "--json")
    invalid = [each for each in trials if each["state"] == "INVALID"]
    assert invalid and len(trials) - len(invalid) == 3
    assert [each["hparams"]["size"] < 3 for each in trials] == [each in invalid for each in trials]
    assert all(each["last"] is None for each in invalid)
    job = fabric.json("show", invalid[0]["id"], "--json")
    assert (job["state"], job["exit_code"]) == ("COMPLETED", 0)
    assert "is too small" in fabric("logs", invalid[0]["id"]).stdout
    assert not any("Traceback" in fabric("logs", each["id"]).stdout for each in trials)


def test_a_point_of_a_grid_that_raises_invalid_hp_is_counted_and_not_replaced(fabric: Fabric) -> None:
    (fabric.folder / "invalid.yaml").write_text(
        "name: invalid\n"
        "entrypoint: python3 train.py\n"
        "hyperparameters: {size: {type: int, minval: 1, maxval: 4, count: 4}}\n"
        "searcher: {name: grid, metric: loss, max_concurrent_trials: 2}\n"
        "resources: {slots_per_trial: 0}\n"
    )
    (fabric.folder / "train.py").write_text(RAISES_BELOW_3)
    experiment = fabric("run", "-q", "invalid.yaml").stdout.strip()

    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    shown = fabric.json("experiment", "show", experiment, "--json")
    assert (shown["state"], shown["progress"]) == ("COMPLETED", 1.0)
    trials = fabric.json("experiment", "trials", experiment, "--json")
    found = {each["hparams"]["size"]: each["state"] for each in trials}
    assert found == {1: "INVALID", 2: "INVALID", 3: "COMPLETED", 4: "COMPLETED"}
    assert fabric.json("experiment", "best", experiment, "--json")["hparams"] == {"size": 3}


NAMED = """\
name: named
entrypoint: python3 train.py "${params.lr (max)}"
hyperparameters:
  a.b.c: {type: int, minval: 1, maxval: 2, count: 2}
  1st: {type: categorical, vals: [x]}
  lr (max): 0.5
  N: 1
  n: {type: const, val: 2}
  choice: 5
  net: {uniform: 0.25, d.e: {type: int, minval: 3, maxval: 4, count: 2}}
searcher: {name: grid, metric: loss}
resources: {slots_per_trial: 0}
"""
PRINTS_NAMES = """\
import json, os, sys
import determined as det
with det.core.init() as core:
    hparams = det.get_cluster_info().trial.hparams
    print("read", json.dumps(hparams, sort_keys=True), sys.argv[1])
    print("has", os.environ["FABRIC_PARAM_A_B_C"], os.environ["FABRIC_PARAM_NET_D_E"])
    print("unnamed", [name for name in os.environ if "(" in name])
    core.train.report_validation_metrics(1, {"loss": hparams["a.b.c"] * hparams["net"]["d.e"]})
"""


def test_hyperparameters_of_a_search_have_any_names_wherever_they_are_read(separate_fabric: Fabric) -> None:
    fabric = separate_fabric
    (fabric.folder / "named.yaml").write_text(NAMED)
    (fabric.folder / "train.py").write_text(PRINTS_NAMES)
    samples = fabric.json("preview", "named.yaml", "--samples", "2", "--json")["samples"]
    assert [each["hparams"]["net"]["uniform"] for each in samples] == [0.25] * 2
    experiment = fabric("run", "-q", "named.yaml").stdout.strip()

    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    assert fabric.json("experiment", "show", experiment, "--json")["state"] == "COMPLETED"
    best = fabric.json("experiment", "best", experiment, "--json")
    constants = {"1st": "x", "lr (max)": 0.5, "N": 1, "n": 2, "choice": 5}
    assert best["hparams"] == {**constants, "a.b.c": 1, "net": {"uniform": 0.25, "d.e": 3}}
    printed = fabric("logs", best["id"]).stdout
    assert f"read {json.dumps(best['hparams'], sort_keys=True)} 0.5" in printed
    assert "has 1 3" in printed and "unnamed []" in printed
    assert "a.b.c=1" in fabric("experiment", "trials", experiment).stdout
    assert "lr (max)=0.5" in fabric("show", best["id"]).stdout
    where = "params.a.b.c=1 params.net.d.e=3"
    assert [each["id"] for each in fabric.json("list", "--all", "--where", where, "--json")] == [best["id"]]
    listed = fabric("list", "--all", "--sort", "params.lr (max)", "--columns", "id,params.a.b.c").stdout
    assert sorted(line.split()[1] for line in listed.splitlines()) == ["1", "1", "2", "2", "params.a.b.c"]
    forked = fabric("experiment", "fork", experiment, "--set", "name=again").stdout.strip()
    until_search_is(fabric, forked, "COMPLETED", "FAILED", seconds=90)
    again = fabric.json("experiment", "trials", forked, "--json")
    assert [each["state"] for each in again] == ["COMPLETED"] * 4


CONTINUED = """\
name: continued
entrypoint: python3 train.py
hyperparameters: {size: {type: int, minval: 1, maxval: 9}}
searcher: {name: random, metric: loss, max_trials: 2}
resources: {slots_per_trial: 0}
max_restarts: 0
"""


def test_an_experiment_that_failed_is_continued_from_its_checkpoints(fabric: Fabric) -> None:
    (fabric.folder / "continued.yaml").write_text(CONTINUED)
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "with det.core.init() as core:\n"
        "    begun = det.get_cluster_info().latest_checkpoint is not None\n"
        "    print('goes on' if begun else 'begins', flush=True)\n"
        "    core.train.report_validation_metrics(2 if begun else 1, {'loss': 1.0})\n"
        "    with core.checkpoint.store_path({'steps_completed': 1}) as (path, _):\n"
        "        path.joinpath('state').write_text('1')\n"
        "    assert begun\n"
    )
    experiment = fabric("run", "-q", "continued.yaml").stdout.strip()

    until_search_is(fabric, experiment, "FAILED")
    fabric("experiment", "continue", experiment, "--config", "searcher.max_trials=3")
    until_search_is(fabric, experiment, "COMPLETED")

    trials = fabric.json("experiment", "trials", experiment, "--json")
    assert [each["state"] for each in trials] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert [fabric("logs", each["id"]).stdout.splitlines()[0] for each in trials] == [
        "goes on",
        "goes on",
        "begins",
    ]


@needs_files
def test_stage_4_adds_up_what_the_processes_of_its_slots_give(fabric: Fabric, example: Path) -> None:
    file = str(example / "4_distributed.yaml")
    planned = fabric("plan", file).stdout
    assert "the 8 slots are processes on the CPU with no cores of their own: there is no GPU" in planned

    # Drawn is 7 with this seed.
    two = ("--set", "seed=42", "--set", "resources.slots_per_trial=2")
    experiment = fabric("run", "-q", file, *two).stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    (trial,) = fabric.json("experiment", "trials", experiment, "--json")
    assert trial["hparams"] == {"increment_by": 7}
    *_, last = fabric("metrics", trial["id"]).stdout.splitlines()
    assert last.split() == ["100", "1400", "1400"]
    assert "[rank=0] INFO: " in fabric("logs", trial["id"]).stdout


def test_a_trial_of_several_learners_is_halted_and_goes_on_as_one(fabric: Fabric) -> None:
    (fabric.folder / "several.yaml").write_text(SEVERAL)
    (fabric.folder / "train.py").write_text(OF_SEVERAL)
    args = ("several.yaml", "--set", "learners=2")
    planned = fabric("plan", *args).stdout
    assert (
        "the 4 slots are processes on the CPU with no cores of their own, 2 in each of 2 learners: "
        in planned
    )

    job = fabric("run", "-d", "-q", *args).stdout.strip()
    until(lambda: len(fabric("metrics", job, expect=None).stdout.splitlines()) > 2)
    fabric("halt", job)
    fabric("wait", job, expect=None)

    shown = fabric.json("show", job, "--json")
    assert (shown["state"], shown["exit_code"], shown["learners"]) == ("HALTED", 143, 2)
    assert sum("ends 2 2" in line for line in fabric("logs", job).stdout.splitlines()) == 4

    fabric("resume", job)
    fabric("wait", job)

    assert sum("goes on with True" in line for line in fabric("logs", job).stdout.splitlines()) == 4
    rows = [line.split() for line in fabric("metrics", job).stdout.splitlines()[1:]]
    assert {learner for learner, *_ in rows} == {"1"}
    first = int(rows[0][2])
    assert [row[2:] for row in rows] == [[str(first + at), str((first + at) * 18)] for at in range(len(rows))]


def test_slots_are_divided_equally_among_the_learners_of_a_trial(fabric: Fabric) -> None:
    (fabric.folder / "several.yaml").write_text(SEVERAL)

    refused = fabric("plan", "several.yaml", "--set", "learners=3", expect=64)
    assert "4 slots cannot be divided equally among 3 learners" in refused.stderr
    assert "resources.slots_per_trial: 6 can" in refused.stderr


def test_each_trial_of_a_search_has_the_learners_of_its_file(fabric: Fabric) -> None:
    drawn = SEVERAL.replace("{step: 3}", "{step: {type: categorical, vals: [3]}}")
    search = drawn.replace("{name: single, metric: x}", "{name: random, metric: x, max_trials: 2}")
    (fabric.folder / "several.yaml").write_text(search)
    (fabric.folder / "train.py").write_text(OF_SEVERAL.replace("1000000", "2"))

    two = ("--set", "learners=2", "--set", "resources.slots_per_trial=2")
    experiment = fabric("run", "-q", "several.yaml", *two).stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED", seconds=90)

    trials = fabric.json("experiment", "trials", experiment, "--json")
    assert [each["state"] for each in trials] == ["COMPLETED"] * 2
    for each in trials:
        shown = fabric.json("show", each["id"], "--json")
        assert (shown["spec"]["learners"], shown["spec"]["ends_when"]) == (2, "all")
        assert each["last"] == 6  # the ranks 0 and 1 add up to 1


def test_a_file_that_names_no_slots_runs_where_there_is_no_gpu(fabric: Fabric) -> None:
    text = "name: own\nentrypoint: echo slots $DET_SLOT_IDS, on $ON\nsearcher: {name: single, metric: x}\n"
    by_device = "environment: {environment_variables: {cpu: [ON=cpu], cuda: [ON=cuda]}}\n"
    (fabric.folder / "own.yaml").write_text(text + by_device)

    assert fabric("run", "-q", "own.yaml").stdout == "slots [0], on cpu\n"
    planned = fabric("plan", "own.yaml").stdout
    assert "the slot is a process on the CPU with no cores of its own: there is no GPU" in planned


def test_slots_that_are_set_on_the_command_line_are_those_of_a_file(fabric: Fabric) -> None:
    text = "name: own\nentrypoint: echo slots $DET_SLOT_IDS, on $ON\nsearcher: {name: single, metric: x}\n"
    by_device = "environment: {environment_variables: {cpu: [ON=cpu], cuda: [ON=cuda]}}\n"
    (fabric.folder / "own.yaml").write_text(text + by_device)

    set_slots = fabric("run", "-q", "own.yaml", "--set", "resources.slots_per_trial=2")
    assert set_slots.stdout == "slots [0, 1], on cpu\n"
    assert fabric("run", "-q", "own.yaml", "--gpus", "0").stdout.endswith(", on cpu\n")


def test_a_slot_is_a_process_where_there_is_no_gpu_unless_it_is_configured_otherwise(
    separate_fabric: Fabric,
) -> None:
    fabric = separate_fabric
    (fabric.folder / "slots.yaml").write_text(SLOTS)

    assert fabric("run", "-q", "slots.yaml").stdout == "slots [0, 1]\n"
    assert "The job asks for 2 GPUs" in fabric("plan", "slots.yaml", "--gpus", "2").stdout

    fabric("config", "set", "experiments.cpu_slot", "0.5")
    planned = fabric.json("plan", "slots.yaml", "--json")
    assert any(
        "1 cores in all: there is no GPU ([experiments] cpu_slot = 0.5)" in text for text in planned["notes"]
    )
    assert fabric.json("show", "@last", "--json")["spec"]["gpus"] == 0

    fabric("config", "set", "experiments.cpu_slot", "false")
    planned = fabric.json("plan", "slots.yaml", "--json")
    assert planned["notes"] == []
    assert any("The job asks for 2 GPUs" in text for text in planned["warnings"])


@pytest.mark.parametrize("value", ["2000", "many", "true"])
def test_what_a_slot_cannot_be_is_refused(fabric: Fabric, value: str) -> None:
    refused = fabric("config", "set", "experiments.cpu_slot", value, expect=64)

    assert "experiments.cpu_slot must be a number of cores, 0 for none reserved, or false" in refused.stderr


@pytest.mark.parametrize("value", ["0", "many", "true", "1.5"])
def test_how_many_slots_a_pod_cannot_have_is_refused(fabric: Fabric, value: str) -> None:
    refused = fabric("config", "set", "experiments.max_slots_per_pod", value, expect=64)

    assert "experiments.max_slots_per_pod must be a whole number from 1 to 1024" in refused.stderr


def test_the_startup_hook_is_read_before_the_command_and_fails_the_job_if_it_fails(fabric: Fabric) -> None:
    text = "name: hook\nentrypoint: echo trained $HOOKED\nresources: {slots_per_trial: 0}\nmax_restarts: 0\n"
    (fabric.folder / "hook.yaml").write_text(text + "searcher: {name: single, metric: x}\n")
    (fabric.folder / "manifest.yml").write_text("name: own\nframework: {command: echo $HOOKED.}\n")
    hook = fabric.folder / "startup-hook.sh"
    hook.write_text("export HOOKED=by-hook\nfalse || echo hook\n")

    ran = fabric("run", "hook.yaml")
    assert ran.stdout.splitlines()[-2:] == ["hook", "trained by-hook"]
    assert "startup-hook.sh of the code is run before the command" in fabric("plan", "hook.yaml").stdout
    assert fabric("run", "-q", "manifest.yml").stdout == ".\n"

    hook.write_text("echo broken\nfalse\n")
    assert fabric("run", "-q", "hook.yaml", expect=1).stdout == "broken\n"


def test_only_an_experiment_has_the_package_and_the_variables_of_determined(fabric: Fabric) -> None:
    (fabric.folder / "look.py").write_text(
        "import importlib.util, os\n"
        "print(importlib.util.find_spec('determined') is not None, any(name[:4] == 'DET_' for name in os.environ))\n"
    )
    end = "searcher: {name: single, metric: x}\nresources: {slots_per_trial: 0}\n"
    (fabric.folder / "e.yaml").write_text(f"name: e\nentrypoint: python3 look.py\n{end}")
    (fabric.folder / "manifest.yml").write_text("name: own\nframework: {command: python3 look.py}\n")

    assert fabric("run", "-q", "e.yaml").stdout == "True True\n"
    assert fabric("run", "-q", "manifest.yml").stdout == "False False\n"
    assert fabric("run", "-q", "--", "python3", "look.py").stdout == "False False\n"


def test_what_determined_leaves_out_of_its_code_is_left_out_of_an_experiment_alone(fabric: Fabric) -> None:
    end = "searcher: {name: single, metric: x}\nresources: {slots_per_trial: 0}\n"
    (fabric.folder / "e.yaml").write_text(f"name: e\nentrypoint: ls\n{end}")
    (fabric.folder / "manifest.yml").write_text("name: own\nframework: {command: ls}\n")
    (fabric.folder / "terraform.tf").touch()

    assert "terraform.tf" not in fabric("run", "-q", "e.yaml").stdout.splitlines()
    assert "terraform.tf" in fabric("run", "-q", "manifest.yml").stdout.splitlines()


def test_checkpoints_are_kept_as_the_experiment_says(fabric: Fabric) -> None:
    (fabric.folder / "keep.yaml").write_text(
        "name: keep\nentrypoint: python3 train.py\nresources: {slots_per_trial: 0}\n"
        "searcher: {name: single, metric: loss}\n"
        "checkpoint_storage: {type: directory, container_path: /unused, save_trial_best: 1, save_trial_latest: 1}\n"
    )
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "with det.core.init() as core:\n"
        "    for step, loss in (1, 0.5), (2, 0.1), (3, 0.7), (4, 0.3):\n"
        "        core.train.report_validation_metrics(step, {'loss': loss})\n"
        "        with core.checkpoint.store_path({'steps_completed': step}) as (path, _):\n"
        "            path.joinpath('state').write_text(str(step))\n"
    )

    fabric("run", "-q", "keep.yaml")

    saved = fabric.json("checkpoint", "list", "@last", "--json")
    assert [(each["step"], each["where"]) for each in saved] == [
        (1, []),
        (2, ["here"]),
        (3, []),
        (4, ["here"]),
    ]


@pytest.mark.parametrize(("code", "steps"), [(0, {2}), (1, {2, 3})])
def test_the_newest_checkpoint_stays_until_the_job_has_completed(
    fabric: Fabric, code: int, steps: set[int]
) -> None:
    (fabric.folder / "keep.yaml").write_text(
        "name: keep\nentrypoint: python3 train.py\nresources: {slots_per_trial: 0}\nmax_restarts: 0\n"
        "searcher: {name: single, metric: loss}\n"
        "checkpoint_storage: {type: directory, container_path: /unused, save_trial_best: 1, save_trial_latest: 0}\n"
    )
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "with det.core.init() as core:\n"
        "    for step, loss in (1, 0.5), (2, 0.1), (3, 0.7):\n"
        "        core.train.report_validation_metrics(step, {'loss': loss})\n"
        "        with core.checkpoint.store_path({'steps_completed': step}) as (path, _):\n"
        "            path.joinpath('state').write_text(str(step))\n"
        f"raise SystemExit({code})\n"
    )

    fabric("run", "-q", "keep.yaml", expect=code)

    def left() -> set[int]:
        return {
            each["step"] for each in fabric.json("checkpoint", "list", "@last", "--json") if each["where"]
        }

    until(lambda: left() == steps, f"{steps} to be left")


RETAINED = """\
name: retained
entrypoint: python3 train.py
hyperparameters: {trial: {type: categorical, vals: [2, 1]}}
searcher: {name: grid, metric: loss, max_concurrent_trials: 1}
resources: {slots_per_trial: 0}
checkpoint_storage:
  {type: directory, container_path: "%s", save_experiment_best: %s, save_trial_best: %s, save_trial_latest: %s}
"""
LOSSES = """\
import determined as det
LOSSES = {3: 0.6, 4: 0.5, 5: 0.4, 7: 0.2, 8: 0.3}
with det.core.init() as core:
    first = {1: 1, 2: 6}[det.get_cluster_info().trial.hparams["trial"]]
    for step in range(first, first + 5):
        if step in LOSSES:
            core.train.report_validation_metrics(step, {"loss": LOSSES[step]})
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            path.joinpath("state").write_text(str(step))
"""


OTHER_ROWS = pytest.mark.soak(
    "a part of the last row of the table; the gate has that, and each in tests/quick/controller"
)


def jobs_of_search(fabric: Fabric, file: str) -> list[str]:
    """Run a search to its end; return the jobs of its trials."""
    experiment = fabric("run", "-q", file).stdout.strip()
    until_search_is(fabric, experiment, "COMPLETED", "FAILED")
    return [each["id"] for each in fabric.json("experiment", "trials", experiment, "--json")]


def steps_left(fabric: Fabric, jobs: list[str]) -> set[int]:
    listed = [each for job in jobs for each in fabric.json("checkpoint", "list", job, "--json")]
    return {each["step"] for each in listed if each["where"]}


@pytest.mark.parametrize(
    ("best_of_all", "best", "last", "steps"),
    [
        (0, 0, 0, set()),
        pytest.param(2, 0, 0, {8, 7}, marks=OTHER_ROWS),
        pytest.param(0, 1, 1, {10, 7, 5}, marks=OTHER_ROWS),
        (2, 1, 1, {10, 8, 7, 5}),
    ],
)
def test_a_search_that_is_over_has_the_checkpoints_of_determineds_table(
    fabric: Fabric, tmp_path: Path, best_of_all: int, best: int, last: int, steps: set[int]
) -> None:
    (fabric.folder / "retained.yaml").write_text(RETAINED % (tmp_path / "kept", best_of_all, best, last))
    (fabric.folder / "train.py").write_text(LOSSES)

    jobs = jobs_of_search(fabric, "retained.yaml")

    assert len(jobs) == 2
    until(lambda: steps_left(fabric, jobs) == steps, f"{steps} to be left")
    folders = [path for job in jobs for path in (tmp_path / "kept" / job / "_checkpoints").glob("*/state")]
    assert {int(path.read_text()) for path in folders} == steps


def test_a_trial_that_failed_keeps_its_newest_checkpoint_to_go_on(fabric: Fabric, tmp_path: Path) -> None:
    (fabric.folder / "retained.yaml").write_text(
        RETAINED % (tmp_path / "kept", 1, 0, 0) + "max_restarts: 0\n"
    )
    (fabric.folder / "train.py").write_text(f"{LOSSES}assert first == 6\n")

    jobs = jobs_of_search(fabric, "retained.yaml")

    until(
        lambda: steps_left(fabric, jobs) == {7, 5}, "the best of all, and the newest of the one that failed"
    )


@needs_files
def test_unmanaged_examples_are_jobs_as_they_are(fabric: Fabric, tmp_path: Path) -> None:
    folder = tmp_path / "unmanaged"
    shutil.copytree(Path(FOLDER, "examples/features/unmanaged"), folder)

    fabric("run", "-q", str(folder / "1.yaml"))
    series = fabric.json("metrics", "@last", "--json")["series"]
    points = {each["name"]: each["points"] for each in series}
    assert (points["training/loss"], points["validation/loss"]) == (100, 10)

    first = fabric("run", "-q", str(folder / "2.yaml")).stdout
    second = fabric("run", "-q", str(folder / "2.yaml"), "--from", "@last").stdout
    assert "initial step: 0\n" in first
    assert "initial step: 99\n" in second
    steps = [each["step"] for each in fabric.json("checkpoint", "list", "@last", "--json")]
    assert sorted(set(steps)) == list(range(99, 199, 10))


def described(fabric: Fabric) -> list[str]:
    """Return what ``fabric show`` has of what the last job's code says of its experiment."""
    lines = fabric("show", "@last").stdout.splitlines()
    return [line.removeprefix("experiment").strip() for line in lines if line.startswith("experiment ")]


@needs_files
def test_unmanaged_examples_need_no_file(separate_fabric: Fabric, tmp_path: Path) -> None:
    folder = tmp_path / "unmanaged"
    shutil.copytree(Path(FOLDER, "examples/features/unmanaged"), folder)
    fabric = separate_fabric.within(folder)

    planned = fabric("plan", "--", "python3", "1_singleton.py").stdout
    fabric("run", "-q", "--", "python3", "1_singleton.py")
    series = fabric.json("metrics", "@last", "--json")["series"]

    note = "1_singleton.py is made for Determined's Core API: the job is an experiment"
    assert [line for line in planned.splitlines() if note in line and line.startswith("note ")]
    points = {each["name"]: each["points"] for each in series}
    assert (points["training/loss"], points["validation/loss"]) == (100, 10)
    assert described(fabric) == ["name: unmanaged-1-singleton"]

    command = ("--", "python3", "2_checkpoints.py")
    first = fabric("run", "-q", *command).stdout
    planned = fabric("plan", *command).stdout
    second = fabric("run", *command)
    third = fabric("run", "-q", "--from", "none", *command).stdout
    fourth = fabric("run", "-q", "--from", "@last", *command).stdout
    assert "initial step: 0\n" in first
    assert "initial step: 99\n" in second.stdout
    assert "initial step: 0\n" in third
    assert "initial step: 99\n" in fourth
    note = "which had the external trial id test-unmanaged-2-checkpoints, too (--from none: with none)"
    assert note in planned
    assert note in second.stdout + second.stderr
    assert "external trial id: test-unmanaged-2-checkpoints" in described(fabric)


UNMANAGED = """\
from determined.experimental import core_v2
config = core_v2.Config(
    name="valley", description="finds the lowest point", labels=["a", "b"], hparams={"lr": 0.1, "sizes": [4, 2]}
)
with core_v2.init_context(config=config) as core:
    for number in range(8):
        core.alert("alert %d" % number)
    core.train.report_validation_metrics(1, {"loss": core.info.trial.hparams["lr"]})
    with core.checkpoint.store_path({"steps_completed": 1}):
        pass
"""


def test_what_code_says_of_its_experiment_is_shown_with_the_job_however_much_is_noted_later(
    fabric: Fabric,
) -> None:
    (fabric.folder / "train.py").write_text(UNMANAGED)

    fabric("run", "-q", "--set", "params.lr=0.2", "--", "python3", "train.py")
    job = fabric.json("show", "@last", "--json")
    lines = fabric("show", "@last").stdout.splitlines()

    assert described(fabric) == [
        "name: valley",
        "description: finds the lowest point",
        "labels: a, b",
        "hyperparameters: lr=0.2 sizes=[4, 2]",
    ]
    assert "experiment labels: a, b" in [each["text"] for each in job["notes"]]
    assert sum(line.startswith("note ") for line in lines) == 5
    refused = fabric("checkpoint", "list", "@last", "--best", "1", expect=None)
    assert "names no metric by which its checkpoints are the best" in refused.stderr

    # A job that is begun again needs no look at its script.
    fabric("rerun", "-q", "@last")
    assert "name: valley" in described(fabric)


NOTES = """\
from workbench.learner.report import note
for number in range(9):
    note("experiment %d: begun" % number)
    note("experiment name: try %d" % number)
"""


def test_notes_that_only_begin_alike_are_notes(fabric: Fabric) -> None:
    (fabric.folder / "notes.py").write_text(NOTES)

    def noted() -> list[str]:
        lines = fabric("show", "@last").stdout.splitlines()
        return [line.removeprefix("note").strip() for line in lines if line.startswith("note ")]

    fabric("run", "-q", "--", "python3", "notes.py")
    assert described(fabric) == []
    assert noted()[-2:] == ["experiment 8: begun", "experiment name: try 8"]
    assert len(noted()) == 5

    # The same code, where the job is an experiment that no file describes.
    fabric("run", "-q", "-e", 'DET_EXPERIMENT_CONFIG={"unmanaged": true}', "--", "python3", "notes.py")
    assert described(fabric) == ["name: try 8"]
    assert noted() == [f"experiment {number}: begun" for number in range(4, 9)]


WARM = """\
name: warm
entrypoint: python3 train.py
hyperparameters: {{x: {hyperparameter}}}
searcher: {{name: {searcher}, metric: loss{source}}}
resources: {{slots_per_trial: 0}}
"""
SAVED_SUM = """\
import determined as det
info = det.get_cluster_info()
with det.core.init() as core:
    total = 0
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            total = int(path.joinpath("state").read_text())
    print("begins at", total)
    for step in (1, 2):
        total += info.trial.hparams["x"]
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            path.joinpath("state").write_text(str(total))
    core.train.report_validation_metrics(2, {"loss": total})
"""


def write_warm(fabric: Fabric, file: str, source: str, searcher: str = "single", x: str = "10") -> None:
    text = WARM.format(hyperparameter=x, searcher=searcher, source=source)
    (fabric.folder / file).write_text(text)


@dataclass(frozen=True)
class FirstTrial:
    """A trial that has completed, and its home."""

    fabric: Fabric
    id: str
    checkpoints: dict[int, str]
    """Their names by their steps."""


def run_first(fabric: Fabric) -> FirstTrial:
    (fabric.folder / "train.py").write_text(SAVED_SUM)
    write_warm(fabric, "first.yaml", "")
    fabric("run", "-q", "first.yaml")
    saved = {each["step"]: each["name"] for each in fabric.json("checkpoint", "list", "@last", "--json")}
    return FirstTrial(fabric, fabric.json("show", "@last", "--json")["id"], saved)


@pytest.fixture(scope="module")
def first(module_fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> FirstTrial:
    """One for all tests that let it stay."""
    return run_first(module_fabric.within(tmp_path_factory.mktemp("first")))


def test_a_trial_begins_with_the_checkpoint_or_the_trial_that_its_searcher_names(
    first: FirstTrial,
) -> None:
    fabric, number = first.fabric, trial_number(first.id)
    write_warm(fabric, "uuid.yaml", f", source_checkpoint_uuid: {first.checkpoints[1]}")
    write_warm(fabric, "trial.yaml", f", source_trial_id: {number}")

    by_uuid = fabric("run", "uuid.yaml")
    by_trial = fabric("run", "trial.yaml")

    assert "begins at 10\n" in by_uuid.stdout
    assert f"begins with the checkpoint {first.checkpoints[1]} of" in by_uuid.stdout + by_uuid.stderr
    assert "begins at 20\n" in by_trial.stdout


def test_a_rerun_begins_with_the_same_checkpoint_and_is_refused_without_it(
    fabric: Fabric,
) -> None:
    first = run_first(fabric)
    write_warm(fabric, "uuid.yaml", f", source_checkpoint_uuid: {first.checkpoints[1]}")
    fabric("run", "-q", "uuid.yaml")

    again = fabric("rerun", "@last")
    fabric("delete", "--yes", first.id)
    refused = fabric("rerun", "@last", expect=66).stderr

    assert "begins at 10\n" in again.stdout
    assert f"begins with the checkpoint {first.checkpoints[1]} of" in again.stdout + again.stderr
    assert "is not here any more" in refused
    assert "--from JOB" in refused


def test_from_takes_the_uuid_of_a_checkpoint_and_comes_before_the_file(
    first: FirstTrial,
) -> None:
    fabric = first.fabric
    write_warm(fabric, "uuid.yaml", f", source_checkpoint_uuid: {first.checkpoints[2]}")

    assert "begins at 10\n" in fabric("run", "-q", "uuid.yaml", "--from", first.checkpoints[1]).stdout
    assert (
        "begins at 0\n"
        in fabric("run", "-q", "uuid.yaml", "--set", "searcher.source_checkpoint_uuid=null").stdout
    )


def test_all_trials_of_a_search_begin_with_the_checkpoint_that_it_names(
    first: FirstTrial,
) -> None:
    fabric, source = first.fabric, f", source_checkpoint_uuid: {first.checkpoints[2]}"
    write_warm(fabric, "search.yaml", source, "grid", "{type: categorical, vals: [1, 2]}")

    jobs = jobs_of_search(fabric, "search.yaml")

    assert ["begins at 20" in fabric("logs", job).stdout for job in jobs] == [True, True]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("source_checkpoint_uuid: 0a4c4a4a-1111-4222-8333-444455556666", "no job has a checkpoint 0a4c4a4a"),
        ("source_checkpoint_uuid: warm", "'warm' is no UUID of a checkpoint"),
        ("source_trial_id: 3355", "no trial here has the number 3355"),
    ],
)
def test_a_source_that_is_not_here_is_a_warning_of_the_plan_and_refused_at_the_start(
    first: FirstTrial, source: str, problem: str
) -> None:
    fabric = first.fabric
    write_warm(fabric, "warm.yaml", f", {source}")

    plan = fabric("plan", "warm.yaml").stdout
    refused = fabric("run", "warm.yaml", expect=64).stderr

    for shown in (plan, refused):
        assert problem in shown
        assert "--from JOB" in shown
    fabric("run", "-q", "warm.yaml", "--from", first.id)
