"""What real libraries give under ``fabric run -- python train.py``, with nothing configured."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.examples.libraries import environment_folder, is_made
from tests.support.command import Fabric
from tests.support.kept_agents import lend_agents
from tests.support.processes import end_everything
from workbench.paths import Home

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "libraries"
ENVIRONMENT = environment_folder()  # now: tests have another home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # an import of PyTorch takes half a minute on a busy machine
    pytest.mark.skipif(
        not is_made(ENVIRONMENT), reason="no environment of libraries: python3 -m tests.examples.libraries"
    ),
]


RECORDED = pytest.mark.soak(
    "another library; the gate trains with scikit-learn, and PyTorch's Trial classes, and reads its files recorded"
)


TORCH = pytest.mark.soak(
    "PyTorch's processes themselves; the gate has their environments (tests/runners, tests/learner/test_determined.py)"
)


class Trained(NamedTuple):
    """A job that has ended."""

    id: str
    series: dict[tuple[str, int], dict[str, Any]]
    """Metrics by name and learner."""
    steps: list[int | None]
    """Of its checkpoints."""
    output: str

    def points(self, name: str, learner: int = 1) -> int:
        return int(self.series[name, learner]["points"])

    def last(self, name: str, learner: int = 1) -> float:
        return float(self.series[name, learner]["last"])


Train = Callable[..., Trained]


@pytest.fixture
def fabric(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run the command in a folder as somebody does who works in the environment of libraries."""
    monkeypatch.setenv("PATH", f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    lend_agents(home)
    yield lambda folder, *args: Fabric(folder)(*args).stdout
    end_everything(home)


@pytest.fixture
def train(fabric: Callable[..., str]) -> Train:
    """Run an example."""

    def run(example: str, *options: str) -> Trained:
        folder = EXAMPLES / example
        output = fabric(folder, "run", *options, "--", "python", "train.py")
        job = json.loads(fabric(folder, "list", "--json"))[0]["id"]
        measured = json.loads(fabric(folder, "metrics", job, "--json"))["series"]
        series = {(each["name"], each["learner"]): each for each in measured if each["kind"] == "value"}
        saved = json.loads(fabric(folder, "checkpoint", "list", job, "--json"))
        assert all(each["where"] == ["here"] and each["size_bytes"] for each in saved)
        return Trained(job, series, [each["step"] for each in saved], output)

    return run


@RECORDED
def test_hugging_face_trainer(train: Train) -> None:
    job = train("huggingface")

    assert {name for name, _ in job.series} >= {"loss", "eval_loss", "grad_norm", "learning_rate"}
    assert [job.points(name) for name in ("loss", "learning_rate", "eval_loss")] == [15, 15, 3]
    assert job.last("loss") < 2.5
    assert job.last("eval_loss") < 2.5
    assert not [name for name, _ in job.series if "runtime" in name]
    assert job.steps == [10, 20, 30]


@pytest.mark.soak(
    "a second job of it; the gate resumes another program, and has --from a checkpoint (tests/cli)"
)
def test_hugging_face_trainer_goes_on_from_a_checkpoint(train: Train) -> None:
    job = train("huggingface")

    resumed = train("huggingface", "--from", f"{job.id}@20")

    assert resumed.points("loss") == 5
    assert resumed.points("eval_loss") == 1
    assert resumed.steps == [30]


@RECORDED
def test_lightning(train: Train) -> None:
    job = train("lightning")

    assert {name for name, _ in job.series} == {"train_loss", "val_loss", "val_accuracy"}
    assert [job.points(name) for name in ("train_loss", "val_loss", "val_accuracy")] == [23, 4, 4]
    assert job.last("val_accuracy") > 0.8
    assert job.last("train_loss") < 1
    assert job.steps == [23, 46, 69, 92]


@RECORDED
def test_keras_on_torch(train: Train) -> None:
    job = train("keras")

    names = ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert {name for name, _ in job.series} == set(names)
    assert [job.points(name) for name in names] == [4] * 4
    assert job.last("val_accuracy") > 0.8
    assert job.steps == [1, 2, 3, 4]

    resumed = train("keras", "--from", job.id)

    assert resumed.steps == [5, 6, 7, 8]
    assert resumed.series["loss", 1]["last_step"] == 8


def test_scikit_learn(train: Train) -> None:
    job = train("scikit-learn")

    assert {name for name, _ in job.series} == {"loss", "Validation_score"}
    assert job.points("loss") == job.points("Validation_score") >= 20
    assert job.last("loss") < 0.6
    assert job.last("Validation_score") > 0.85
    assert job.steps == []


@RECORDED
def test_xgboost(train: Train) -> None:
    job = train("xgboost")

    names = ["train-mlogloss", "train-merror", "eval-mlogloss", "eval-merror"]
    assert {name for name, _ in job.series} == set(names)
    assert [job.points(name) for name in names] == [20] * 4
    assert job.last("eval-mlogloss") < 0.5
    assert job.steps == [5, 10, 15]


@RECORDED
def test_lightgbm(train: Train) -> None:
    job = train("lightgbm")

    names = ["train_multi_logloss", "train_multi_error", "valid_multi_logloss", "valid_multi_error"]
    assert {name for name, _ in job.series} == set(names)
    assert [job.points(name) for name in names] == [20] * 4
    assert job.last("valid_multi_error") < 0.1
    assert job.steps == []


@TORCH
def test_two_learners_of_torch(train: Train) -> None:
    job = train("torch-ddp", "--set", "learners=2")

    assert set(job.series) == {(name, learner) for name in ("loss", "accuracy") for learner in (1, 2)}
    assert {each["points"] for each in job.series.values()} == {10}
    # The same weights in both: what each sees of all images is alike.
    assert job.last("accuracy", 1) == job.last("accuracy", 2) > 0.9
    assert sorted(job.steps, key=str) == sorted([*range(1, 11), None], key=str)

    resumed = train("torch-ddp", "--set", "learners=2", "--from", job.id)

    assert resumed.series["loss", 1]["last_step"] == 20
    assert resumed.last("loss") < job.last("loss") + 0.1


DETERMINED_FILES = os.environ.get("FABRIC_DETERMINED_FILES", "")
EXPERIMENT = """\
name: distributed
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
resources: {slots_per_trial: 2}
searcher: {name: single, metric: x}
"""
DISTRIBUTED = """\
import determined as det
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank = core.distributed.rank
    x = torch.tensor(float(rank + 1))
    dist.all_reduce(x)
    if rank == 0:
        core.train.report_validation_metrics(steps_completed=1, metrics={"x": x.item()})
    with core.checkpoint.store_path({"steps_completed": 1, "rank_%d" % rank: "ok"}, shard=True) as (path, _):
        torch.save(x, str(path / ("state_%d" % rank)))
    assert not core.preempt.should_preempt()
    print("done", sorted(each.name for each in path.glob("state_*")))
"""


@TORCH
def test_torch_starts_a_process_for_each_slot_of_an_experiment(
    fabric: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    (tmp_path / "train.py").write_text(DISTRIBUTED)

    output = fabric(tmp_path, "run", "-q", "experiment.yaml")

    for rank in (0, 1):
        assert f"[rank={rank}] done ['state_0', 'state_1']" in output
    assert fabric(tmp_path, "metrics", "@last").split()[-2:] == ["1", "3"]
    (saved,) = json.loads(fabric(tmp_path, "checkpoint", "list", "@last", "--json"))
    assert saved["step"] == 1


@TORCH
@pytest.mark.skipif(
    not DETERMINED_FILES, reason="FABRIC_DETERMINED_FILES names no folder of Determined's files"
)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("3.yaml",), id="by its file"),
        pytest.param(
            ("--", "python", "-m", "torch.distributed.run", "--nproc_per_node=2", "3_torch_distributed.py"),
            id="by a command",
        ),
    ],
)
def test_the_unmanaged_example_of_determined_with_torch_is_a_job_as_it_is(
    fabric: Callable[..., str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "unmanaged"
    shutil.copytree(Path(DETERMINED_FILES, "examples/features/unmanaged"), folder)

    output = fabric(folder, "run", "-q", *words)

    # Determined's launcher, which the file names, puts the rank before each line.
    assert output.count("See the experiment at: fabric show ") == 1
    assert ("[rank=0] See" in output) == (words == ("3.yaml",))
    series = json.loads(fabric(folder, "metrics", "@last", "--json"))["series"]
    points = {each["name"]: each["points"] for each in series}
    assert (points["training/rank"], points["validation/rank"]) == (100, 10)
    saved = json.loads(fabric(folder, "checkpoint", "list", "@last", "--json"))
    assert [each["step"] for each in saved] == list(range(100))
