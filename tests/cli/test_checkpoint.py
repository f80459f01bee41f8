"""``fabric checkpoint`` lists what a job saved, fetches it from where it is, and removes it there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.screens import seeding
from tests.support.command import Fabric, Serve, shared_fabric, until_search_is
from workbench.job import short_id
from workbench.paths import Home
from workbench.store.db.database import Store

TRAIN = """\
import os
from fabric_learner import checkpoint
for step in (100, 200):
    path = os.path.join(os.environ["CHECKPOINT_DIR"], "step-%d.pt" % step)
    open(path, "w").write("x" * step)
    checkpoint(path, step=step, metrics={"loss": 1 / step})
"""


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path) -> Fabric:
    return module_fabric.within(tmp_path / "work")


@pytest.fixture
def home(module_fabric: Fabric) -> Home:
    return module_fabric.jobs_home


@pytest.fixture
def job(fabric: Fabric, serve: Serve) -> str:
    """A job with two checkpoints, here and in the store."""
    serve(str(fabric.folder / "store"))
    fabric("data", "mkbucket", "served:saved")
    (fabric.folder / "code").mkdir()
    (fabric.folder / "code" / "train.py").write_text(TRAIN)
    fabric("run", "--quiet", "--results", "served:saved", "code", "--", "python3", "train.py")
    job_id: str = fabric.json("list", "--json")[0]["id"]
    return job_id


def stored(fabric: Fabric, job: str) -> list[str]:
    folder = fabric.folder / "store" / "saved" / job / "_checkpoints"
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith("metadata.json"))


def test_checkpoints_are_listed_with_size_metrics_and_where_they_are_and_are_fetched_from_there(
    fabric: Fabric, home: Home, job: str
) -> None:
    (home.job(job).checkpoints / "step-100.pt").unlink(missing_ok=True)

    first, second = fabric.json("checkpoint", "list", job, "--json")

    assert (first["name"], first["step"], first["size_bytes"], first["where"]) == (
        "step-100.pt",
        100,
        100,
        ["store"],
    )
    assert (second["where"], second["metrics"]) == (["here", "store"], {"loss": 0.005})
    assert len(second["sha256"]) == 64
    assert "step-200.pt" in fabric("checkpoint", "list", job).stdout

    shutil.rmtree(home.job(job).checkpoints)
    fabric("checkpoint", "download", job, "out", "--step", "200")
    fabric("checkpoint", "download", job, "all")

    there = sorted(path.name for path in (fabric.folder / "out" / "checkpoints").iterdir())
    assert there == ["step-200.pt", "step-200.pt.metadata.json"]
    assert len(list((fabric.folder / "all" / "checkpoints").glob("*.pt"))) == 2
    refused = fabric("checkpoint", "download", job, "out", "--step", "300", expect=64)
    assert "no checkpoint of step 300" in refused.stderr
    assert "100, 200" in refused.stderr


def test_a_checkpoint_that_is_a_folder_is_as_large_as_its_files(fabric: Fabric) -> None:
    (fabric.folder / "train.py").write_text(
        "import os\nfrom fabric_learner import checkpoint\n"
        "path = os.path.join(os.environ['CHECKPOINT_DIR'], 'epoch-1')\n"
        "os.makedirs(os.path.join(path, 'shards'))\n"
        "for name, size in (('state', 7), ('shards/0', 100)):\n"
        "    open(os.path.join(path, name), 'w').write('x' * size)\n"
        "checkpoint(path, step=1)\n"
    )
    fabric("run", "--quiet", "--", "python3", "train.py")

    (listed,) = fabric.json("checkpoint", "list", "@last", "--json")

    assert (listed["name"], listed["size_bytes"]) == ("epoch-1", 107)


def test_a_checkpoint_is_removed_here_and_in_the_store(fabric: Fabric, home: Home, job: str) -> None:
    assert "There is no terminal" in fabric("checkpoint", "delete", job, "--step", "100", expect=64).stderr
    assert "which checkpoints?" in fabric("checkpoint", "delete", job, "--yes", expect=64).stderr

    fabric("checkpoint", "delete", job, "--step", "100", "--yes")

    assert stored(fabric, job) == ["step-200.pt"]
    assert sorted(path.name for path in home.job(job).checkpoints.glob("*.pt")) == ["step-200.pt"]
    first, _ = fabric.json("checkpoint", "list", job, "--json")
    assert first["where"] == []
    assert [
        each["name"] for each in fabric.json("checkpoint", "delete", job, "--all", "--yes", "--json")
    ] == ["step-200.pt"]
    assert not list((fabric.folder / "store").rglob("step-*"))


def test_a_job_that_runs_keeps_its_checkpoints(fabric: Fabric) -> None:
    job = fabric("run", "-d", "--", "sleep", "600").stdout.strip()

    refused = fabric("checkpoint", "delete", job, "--all", "--yes", expect=64)

    assert f"{short_id(job)} has not ended" in refused.stderr
    fabric("kill", job)
    assert "no checkpoint" in fabric("checkpoint", "list", job).stderr
    assert not (Path(job) / "checkpoints").exists()


EIGHT = """\
import os, sys
from fabric_learner import checkpoint
for step in range(8):
    path = os.path.join(os.environ["CHECKPOINT_DIR"], "step-%d" % step)
    os.mkdir(path)
    open(path + "/weights", "w").write("x")
    checkpoint(path, step=step, val_loss=abs(step - 3))
while "stay" in sys.argv and len(os.listdir(os.environ["CHECKPOINT_DIR"])) > 3:
    pass
"""
POLICY = {"keep_last": 2, "keep_best": 1, "metric": "val_loss"}


def run_eight(fabric: Fabric, policy: dict[str, Any], command: str, **keys: Any) -> str:
    """Run a job that saves eight checkpoints and has no data store; return its id."""
    (fabric.folder / "code").mkdir()
    (fabric.folder / "code" / "train.py").write_text(EIGHT)
    framework = {"name": "custom", "command": command}
    manifest = {"name": "eight", "code": ".", "framework": framework, "checkpoints": policy, **keys}
    (fabric.folder / "code" / "manifest.yml").write_text(json.dumps(manifest))
    fabric("run", "--runner", "process", "code/manifest.yml")
    job_id: str = fabric.json("list", "--json")[0]["id"]
    return job_id


def test_a_policy_holds_without_a_data_store_while_the_job_runs_too(fabric: Fabric, home: Home) -> None:
    # The command ends once only three are left.
    job_id = run_eight(fabric, POLICY, "python3 train.py stay", upload_seconds=0.2, max_runtime="60s")

    here = home.job(job_id).checkpoints
    assert sorted(path.name for path in here.iterdir()) == ["step-3", "step-6", "step-7"]
    assert json.loads((here / "step-3" / "metadata.json").read_text())["metrics"] == {"val_loss": 0}
    listed = fabric.json("checkpoint", "list", job_id, "--json")
    assert [each["step"] for each in listed if each["where"] == ["here"]] == [3, 6, 7]
    assert fabric.json("show", job_id, "--json")["state"] == "COMPLETED"


def test_the_last_checkpoints_are_judged_at_the_end(fabric: Fabric, home: Home) -> None:
    job_id = run_eight(fabric, POLICY, "python3 train.py")

    assert sorted(path.name for path in home.job(job_id).checkpoints.iterdir()) == [
        "step-3",
        "step-6",
        "step-7",
    ]


def test_a_metric_that_no_checkpoint_has_is_reported_and_removes_none(fabric: Fabric, home: Home) -> None:
    job_id = run_eight(fabric, {**POLICY, "metric": "acc"}, "python3 train.py")

    assert len(list(home.job(job_id).checkpoints.iterdir())) == 8
    assert "no checkpoint has the metric acc" in fabric("show", job_id).stdout


SEARCH = """\
name: hill
framework: {name: custom, command: python3 train.py}
seed: 3
search:
  method: grid
  metric: loss
  max_concurrent: 1
  params: {x: {choice: [3, 1, 2]}}
"""
CLIMB = """\
import os
from fabric_learner import checkpoint, report
for step in (1, 2):
    loss = float(os.environ["FABRIC_PARAM_X"]) / step
    path = os.path.join(os.environ["CHECKPOINT_DIR"], f"step-{step}.pt")
    open(path, "w").write("x")
    report(step=step, loss=loss)
    checkpoint(path, step=step, metrics={"score": loss} if step == 2 else {})
"""


@pytest.fixture(scope="module")
def search(module_fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search over three values, each with a checkpoint after two steps: loss x, then x / 2."""
    fabric = module_fabric.within(tmp_path_factory.mktemp("search"))
    (fabric.folder / "train.py").write_text(CLIMB)
    (fabric.folder / "search.yml").write_text(SEARCH)
    found = fabric("run", "-q", "search.yml").stdout.strip()
    until_search_is(fabric, found, "COMPLETED", "FAILED")
    return found


def test_the_best_checkpoints_of_a_search_are_those_of_all_its_trials(fabric: Fabric, search: str) -> None:
    job_of = {
        each["hparams"]["x"]: each["id"] for each in fabric.json("experiment", "trials", search, "--json")
    }

    every = fabric.json("checkpoint", "list", "hill", "--json")
    best = fabric.json("checkpoint", "list", "hill", "--best", "3", "--json")

    assert [(each["job"], each["step"]) for each in every] == [
        (job, step) for job in job_of.values() for step in (1, 2)
    ]
    assert "value" not in every[0]
    assert [(each["job"], each["step"], each["value"]) for each in best[:1]] == [(job_of[1], 2, 0.5)]
    assert {(each["job"], each["step"], each["value"]) for each in best[1:]} == {
        (job_of[1], 1, 1.0),
        (job_of[2], 2, 1.0),
    }
    head, first, *_ = fabric("checkpoint", "list", "hill", "--best", "1").stdout.splitlines()
    assert head.split()[:3] == ["JOB", "STEP", "LOSS"]
    assert first.split()[:3] == [short_id(job_of[1]), "2", "0.5"]
    (worst,) = fabric.json("checkpoint", "list", "hill", "--best", "1", "--by", "-score", "--json")
    assert (worst["job"], worst["value"]) == (job_of[3], 1.5)
    unknown = fabric("checkpoint", "list", "hill", "--best", "1", "--by", "speed", expect=64).stderr
    assert "no checkpoint has a value of speed" in unknown


def test_the_best_checkpoints_are_copied_into_a_folder_for_each_trial(fabric: Fabric, search: str) -> None:
    job_of = {
        each["hparams"]["x"]: each["id"] for each in fabric.json("experiment", "trials", search, "--json")
    }

    fabric("checkpoint", "download", search, "best", "--best", "1")
    fabric("checkpoint", "download", job_of[3], "last", "--latest")
    (copied,) = fabric.json("checkpoint", "download", search, "again", "--best", "1", "--json")

    found = {path.relative_to(fabric.folder) for path in (fabric.folder / "best").rglob("*.pt")}
    assert found == {Path("best", job_of[1], "checkpoints", "step-2.pt")}
    assert [path.name for path in (fabric.folder / "last").rglob("*.pt")] == ["step-2.pt"]
    assert copied["id"] == job_of[1]
    assert Path(copied["folders"]["checkpoints"], "step-2.pt").exists()


@pytest.fixture(scope="module")
def seeded() -> Iterator[Fabric]:
    """A home with one search, whose jobs are rows alone."""
    with shared_fabric() as fabric:
        with Store.open(fabric.jobs_home) as store:
            seeding.search(store)
        yield fabric


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["download", "digits"], "--best N takes"),
        (["download", "digits", "--best", "1", "--latest"], "one of --step, --best and --latest"),
        (["delete", "digits", "--all", "--yes"], "is a search, not a job"),
        (["list", "digits", "--by", "loss"], "give --best N, too"),
        (["list", "0b16f4ba-0000-4000-8000-000000000000"], "no job has a checkpoint 0b16f4ba"),
    ],
)
def test_what_cannot_be_chosen_is_refused_with_what_can(seeded: Fabric, args: list[str], says: str) -> None:
    assert says in seeded("checkpoint", *args, expect=64).stderr


def test_a_checkpoint_is_meant_by_its_uuid(fabric: Fabric) -> None:
    names = ["5774f4bb-6e4b-42c8-a5ad-aaa85d2a7bea", "216567e9-3df3-4d8e-9f7c-e557ab8a7057"]
    (fabric.folder / "train.py").write_text(
        "import os\nfrom fabric_learner import checkpoint\n"
        f"for step, name in enumerate({names!r}):\n"
        "    path = os.path.join(os.environ['CHECKPOINT_DIR'], name)\n"
        "    os.mkdir(path)\n"
        "    open(os.path.join(path, 'state'), 'w').write(name)\n"
        "    checkpoint(path, step=step, metrics={'loss': step})\n"
    )
    fabric("run", "--quiet", "--", "python3", "train.py")

    (listed,) = fabric.json("checkpoint", "list", names[1], "--json")
    fabric("checkpoint", "download", names[1], "one")
    fabric("checkpoint", "delete", names[1], "--yes")

    assert (listed["name"], listed["step"]) == (names[1], 1)
    assert [path.parent.name for path in (fabric.folder / "one").rglob("state")] == [names[1]]
    where = {each["name"]: each["where"] for each in fabric.json("checkpoint", "list", "@last", "--json")}
    assert where == {names[0]: ["here"], names[1]: []}
    assert "names no metric" in fabric("checkpoint", "list", "@last", "--best", "1", expect=64).stderr
    (least,) = fabric.json("checkpoint", "list", "@last", "--best", "5", "--by", "-loss", "--json")
    assert least["name"] == names[0]
