"""Checkpoints of code that never heard of fabric: lists, policies, resumes, stores and new jobs work with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric, Serve
from workbench.paths import Home

TRAIN = """\
import json, os, sys, zipfile
folder = os.environ["CHECKPOINT_DIR"]
print("found", sorted(name for name in os.listdir(folder) if not name.endswith("metadata.json")), flush=True)

def save(name):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", name)

"""
TRAINER = (
    TRAIN
    + """\
losses = {5: 0.9, 20: 0.3, 100: 0.6, 120: 0.7}
for step in losses:
    below = os.path.join(folder, "checkpoint-%d" % step)
    save("checkpoint-%d/model.pt" % step)
    history = [{"step": each, "epoch": each / 5, "eval_loss": losses[each]} for each in losses if each <= step]
    open(below + "/trainer_state.json", "w").write(json.dumps({"log_history": history}))
"""
)
"""Hugging Face's Trainer: folders whose order by name is not their order by step."""

LIGHTNING = (
    TRAIN
    + """\
for epoch, loss in enumerate((0.5, 0.2, 0.4)):
    save("epoch=%d-step=%d-val_loss=%s.ckpt" % (epoch, 10 * epoch, loss))
save("last.ckpt")
"""
)
PLAIN = (
    TRAIN
    + """\
for epoch in range(1, 13):
    save("model_%d.pt" % epoch)
"""
)

RunTrain = Callable[..., str]


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path) -> Fabric:
    return module_fabric.within(tmp_path / "work")


@pytest.fixture
def home(module_fabric: Fabric) -> Home:
    return module_fabric.jobs_home


@pytest.fixture
def run_train(fabric: Fabric) -> RunTrain:
    """Run a script with a policy; return the job's id."""

    def run(script: str, policy: dict[str, Any] | None = None, *args: str, expect: int = 0) -> str:
        code = fabric.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(script)
        manifest: dict[str, Any] = {
            "name": "found",
            "code": ".",
            "framework": {"command": "python3 train.py"},
        }
        if policy is not None:
            manifest["checkpoints"] = policy
        (code / "manifest.yml").write_text(json.dumps(manifest))
        fabric("run", "--quiet", "--runner", "process", *args, "code/manifest.yml", expect=expect)
        job_id: str = fabric.json("list", "--json")[0]["id"]
        return job_id

    return run


def here(home: Home, job: str) -> list[str]:
    return sorted(
        path.name for path in home.job(job).checkpoints.iterdir() if not path.name.endswith("metadata.json")
    )


OTHER_NAMES = pytest.mark.soak(
    "names of another library; the gate has plain ones here, and keeps the best of these"
)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(TRAINER, id="trainer", marks=OTHER_NAMES),
        pytest.param(LIGHTNING, id="lightning", marks=OTHER_NAMES),
        pytest.param(PLAIN, id="plain"),
    ],
)
def test_without_a_policy_none_is_removed(
    fabric: Fabric, home: Home, run_train: RunTrain, script: str
) -> None:
    job = run_train(script)

    listed = fabric.json("checkpoint", "list", job, "--json")

    assert sorted(each["name"] for each in listed) == here(home, job)
    assert [each["where"] for each in listed] == [["here"]] * len(listed)
    assert len(listed) == {TRAINER: 4, LIGHTNING: 4, PLAIN: 12}[script]
    steps = [each["step"] for each in listed if each["step"] is not None]
    assert steps == sorted(steps)
    assert all(each["size_bytes"] > 0 for each in listed)


def test_the_last_and_the_best_are_kept_as_a_policy_asks(home: Home, run_train: RunTrain) -> None:
    job = run_train(TRAINER, {"keep_last": 1, "keep_best": 1, "metric": "eval_loss"})

    assert here(home, job) == ["checkpoint-120", "checkpoint-20"]


def test_the_best_is_known_by_the_metric_in_its_name(home: Home, run_train: RunTrain) -> None:
    job = run_train(LIGHTNING, {"keep_last": 1, "keep_best": 1, "metric": "val_loss"})

    assert here(home, job) == [
        "epoch=1-step=10-val_loss=0.2.ckpt",
        "epoch=2-step=20-val_loss=0.4.ckpt",
        "last.ckpt",  # the code's own: no policy removes it
    ]


def test_numbers_count_not_the_order_of_names(home: Home, run_train: RunTrain) -> None:
    job = run_train(PLAIN, {"keep_last": 3})

    assert here(home, job) == ["model_10.pt", "model_11.pt", "model_12.pt"]


def test_a_metric_that_none_has_removes_none(fabric: Fabric, home: Home, run_train: RunTrain) -> None:
    job = run_train(PLAIN, {"keep_best": 1, "metric": "accuracy"})

    assert len(here(home, job)) == 12
    assert "no checkpoint has the metric accuracy" in fabric("show", job).stdout


REPORTED = (
    PLAIN
    + """\
from fabric_learner import checkpoint
for step in (1, 2, 3):
    save("mine-%d/weights.bin" % step)
    checkpoint(os.path.join(folder, "mine-%d" % step), step=step)
"""
)


def test_where_code_reports_its_own_what_is_found_is_left_alone(home: Home, run_train: RunTrain) -> None:
    job = run_train(REPORTED, {"keep_last": 1})

    assert here(home, job) == sorted([f"model_{epoch}.pt" for epoch in range(1, 13)] + ["mine-3"])


ROTATING = (
    TRAINER
    + """\
import shutil, time
deadline = time.monotonic() + 30
while not os.path.exists(below + "/metadata.json") and time.monotonic() < deadline:
    time.sleep(0.05)
shutil.rmtree(os.path.join(folder, "checkpoint-20"))
for step in (200, 210):
    save("checkpoint-%d/model.pt" % step)
    history.append({"step": step, "eval_loss": 0.75 - step / 1000})
    state = os.path.join(folder, "checkpoint-%d/trainer_state.json" % step)
    open(state, "w").write(json.dumps({"log_history": history}))
"""
)


def test_one_that_the_library_removes_is_no_longer_the_best(home: Home, run_train: RunTrain) -> None:
    job = run_train(
        ROTATING, {"keep_last": 1, "keep_best": 2, "metric": "eval_loss"}, "--set", "upload_seconds=0.2"
    )

    assert here(home, job) == ["checkpoint-200", "checkpoint-210"]


def test_a_new_job_begins_with_one_of_them(fabric: Fabric, run_train: RunTrain) -> None:
    run_train(TRAINER, None, "--name", "first")

    newest = fabric("run", "--runner", "process", "--from", "first", "code", "--", "python3", "train.py")
    chosen = fabric("run", "--runner", "process", "--from", "first@20", "code", "--", "python3", "train.py")

    assert "found ['checkpoint-120']" in newest.stdout
    assert "found ['checkpoint-20']" in chosen.stdout


STOPPED = (
    TRAIN
    + """\
import time
if not os.path.exists(os.path.join(folder, "model_3.pt")):
    for epoch in (1, 2, 3):
        save("model_%d.pt" % epoch)
    sys.exit(3)
save("model_4.pt")
"""
)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(
            None, id="all", marks=pytest.mark.soak("without a policy; the gate resumes a job that has one")
        ),
        pytest.param({"keep_last": 2}, id="last"),
    ],
)
def test_a_resumed_job_finds_them_and_adds_its_own(
    fabric: Fabric, home: Home, run_train: RunTrain, policy: dict[str, Any] | None
) -> None:
    job = run_train(STOPPED, policy, expect=3)
    fabric("resume", job)
    fabric("wait", job)

    listed = fabric.json("checkpoint", "list", job, "--json")
    assert [(each["step"], each["attempt"]) for each in listed] == [(1, 1), (2, 1), (3, 1), (4, 2)]
    kept = ["model_3.pt", "model_4.pt"] if policy else [f"model_{epoch}.pt" for epoch in (1, 2, 3, 4)]
    assert here(home, job) == kept
    found = kept[:1] if policy else kept[:3]
    assert f"found {['model_2.pt', *found] if policy else found}" in fabric("logs", job).stdout


def test_they_go_to_the_store_and_come_back_from_it(
    fabric: Fabric, home: Home, run_train: RunTrain, serve: Serve
) -> None:
    serve(str(fabric.folder / "store"))
    fabric("data", "mkbucket", "served:saved")
    job = run_train(TRAINER, {"keep_last": 2}, "--results", "served:saved")
    folder = fabric.folder / "store" / "saved" / job / "_checkpoints"

    stored = sorted(path.name for path in folder.iterdir())
    assert stored == ["checkpoint-100", "checkpoint-120"]
    state = json.loads((folder / "checkpoint-120/metadata.json").read_text())
    assert (state["step"], state["metrics"]) == (120, {"eval_loss": 0.7})
    listed = fabric.json("checkpoint", "list", job, "--json")
    assert [each["step"] for each in listed if "store" in each["where"]] == [100, 120]
    again = fabric(
        "run",
        "--runner",
        "process",
        "--results",
        "served:saved",
        "--from",
        job,
        "code",
        "--",
        "python3",
        "train.py",
    )
    assert "found ['checkpoint-120']" in again.stdout
    fabric("checkpoint", "download", job, "out", "--step", "100")
    assert (fabric.folder / "out/checkpoints/checkpoint-100/model.pt").exists()


def test_those_among_the_results_are_listed_and_only_deleted_on_request(
    fabric: Fabric, home: Home, run_train: RunTrain
) -> None:
    script = PLAIN.replace("CHECKPOINT_DIR", "RESULT_DIR")
    job = run_train(script, {"keep_last": 1})
    results: Path = home.job(job).results

    assert len(list(results.glob("*.pt"))) == 12
    fabric("checkpoint", "delete", job, "--step", "3", "--yes")
    assert len(list(results.glob("*.pt"))) == 11
    assert not (results / "model_3.pt").exists()
