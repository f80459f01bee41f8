"""Determined's wheel with all that it depends on: what a user has who installs it as its documentation says."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.libraries import (
    deepspeed_folder,
    make_deepspeed_environment,
    make_whole_wheel_environment,
    whole_wheel_folder,
)
from tests.support.command import Fabric
from tests.support.kept_agents import lend_agents
from tests.support.processes import end_everything
from tests.support.waiting import until
from workbench.paths import Home

ENVIRONMENT = whole_wheel_folder()  # now: tests have another home
DEEPSPEED = deepspeed_folder()

pytestmark = [
    pytest.mark.soak(
        "a gigabyte of its own; the gate trains a Trial class with what the wheel imports for that"
    ),
    pytest.mark.timeout(1800),  # pip downloads for minutes
]

MODEL = """\
import os
import time

import torch
from determined import pytorch
from torch import nn


class Digits(torch.utils.data.Dataset):
    '''Images of 28 x 28: the brightest of ten stripes says which digit it is.'''

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (count,), generator=generator)
        self.images = torch.rand((count, 1, 28, 28), generator=generator)
        for image, label in zip(self.images, self.labels):
            image[0, 2 * label + 4 : 2 * label + 6] += 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        return self.images[number], self.labels[number]


class MNistTrial(pytorch.PyTorchTrial):
    def __init__(self, context, hparams=None):
        self.context = context
        hparams = hparams or context.get_hparams()
        self.batch_size = hparams["global_batch_size"]
        network = nn.Sequential(
            nn.Conv2d(1, hparams["n_filters"], 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(169 * hparams["n_filters"], 10), nn.LogSoftmax(dim=1),
        )
        self.model = context.wrap_model(network)
        self.optimizer = context.wrap_optimizer(torch.optim.Adadelta(self.model.parameters(), lr=hparams["lr"]))

    def build_training_data_loader(self):
        return pytorch.DataLoader(Digits(640, 1), batch_size=self.batch_size)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Digits(160, 2), batch_size=self.batch_size)

    def train_batch(self, batch, epoch_idx, batch_idx):
        if os.environ.get("WAITS") and batch_idx == 25 and not os.environ.get("DET_LATEST_CHECKPOINT"):
            print("waits for the halt", flush=True)
            while not self.context._core.preempt.should_preempt():
                time.sleep(0.01)
        images, labels = batch
        loss = nn.functional.nll_loss(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        images, labels = batch
        output = self.model(images)
        right = output.argmax(dim=1).eq(labels).sum().item()
        return {"validation_loss": nn.functional.nll_loss(output, labels).item(), "accuracy": right / len(labels)}
"""
TRAINER = """\
import logging

import determined as det
from determined import pytorch

import model_def

logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
info = det.get_cluster_info()
with pytorch.init() as context:
    trial = model_def.MNistTrial(context, info.trial.hparams)
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Batch(40),
        checkpoint_period=pytorch.Batch(10),
        validation_period=pytorch.Batch(10),
        reporting_period=pytorch.Batch(10),
        latest_checkpoint=info.latest_checkpoint,
    )
"""
CORE = """\
import importlib
import json

import determined as det
from determined import _wheel

found = {}
for name in sorted(_wheel.PARTS):
    try:
        found[name] = importlib.import_module("determined." + name).__file__
    except ImportError as error:
        found[name] = "no " + str(error.name)
with det.core.init() as core:
    for batch in range(1, 4):
        core.train.report_training_metrics(steps_completed=batch, metrics={"x": batch})
    core.train.report_progress(1.0)
    with core.checkpoint.store_path({"steps_completed": batch}) as (path, uuid):
        path.joinpath("state").write_text("x")
    core.train.report_validation_metrics(steps_completed=batch, metrics={"x": batch})
    assert not core.preempt.should_preempt()
found["core"], found["launch"] = det.core.__file__, importlib.import_module("determined.launch").__file__
print(json.dumps(found))
"""
OF_DEEPSPEED = """\
import deepspeed
import determined as det
import torch
from determined import pytorch
from determined.pytorch import deepspeed as det_ds


class Line(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        x = torch.tensor([number / 64])
        return x, 2 * x + 1


class LineTrial(det_ds.DeepSpeedTrial):
    def __init__(self, context, hparams):
        self.context = context
        model = torch.nn.Linear(1, 1)
        optimizer = {"type": "SGD", "params": {"lr": hparams["lr"]}}
        config = {"train_batch_size": hparams["global_batch_size"], "optimizer": optimizer}
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        self.engine = context.wrap_model_engine(engine)

    def build_training_data_loader(self):
        return pytorch.DataLoader(Line(), batch_size=self.context.get_train_micro_batch_size_per_gpu())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batches, epoch_idx, batch_idx):
        x, y = self.context.to_device(next(batches))
        loss = torch.nn.functional.mse_loss(self.engine(x), y)
        self.engine.backward(loss)
        self.engine.step()
        return {"loss": loss.item()}

    def evaluate_batch(self, batches, batch_idx):
        x, y = self.context.to_device(next(batches))
        return {"accuracy": -torch.nn.functional.mse_loss(self.engine(x), y).item()}


info = det.get_cluster_info()
with det_ds.init(hparams=info.trial.hparams) as context:
    trial = LineTrial(context, info.trial.hparams)
    det_ds.Trainer(trial, context).fit(max_length=pytorch.Batch(8), latest_checkpoint=info.latest_checkpoint)
"""
ON_CPU = """\
def choose_cpu(context):
    context.device = torch.device("cpu")


det_ds.DeepSpeedTrialContext._init_device = choose_cpu
"""
"""What the part of the wheel does not do by itself."""
EXPERIMENT = """\
name: digits
entrypoint: {entrypoint}
hyperparameters: {{lr: 1.0, n_filters: 4, global_batch_size: 16}}
searcher: {{name: single, metric: accuracy, smaller_is_better: false{length}}}
environment:
  environment_variables: ["DET_MASTER={master}", "DET_MASTER_ADDR={master}", "WAITS={waits}", DS_ACCELERATOR=cpu]
resources: {{slots_per_trial: {slots}}}
max_restarts: 0
"""
NOT_INSTALLED = {
    "keras": "no tensorflow",
    "transformers": "no transformers",
}
"""Parts of the wheel that are for libraries which it does not bring."""


class Master:
    """What answers at the address of a master, and notes who asks."""

    def __init__(self) -> None:
        self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            self.asked += 1
            connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    yield made
    made.close()
    assert made.asked == 0


@pytest.fixture
def fabric(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run the command in a folder with the model, as somebody does who works in that environment."""
    binaries = make_whole_wheel_environment(ENVIRONMENT) / "bin"
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for name, text in (("model_def.py", MODEL), ("train.py", TRAINER), ("script.py", CORE)):
        (tmp_path / name).write_text(text)

    lend_agents(home)
    yield lambda *args: Fabric(tmp_path)(*args).stdout
    end_everything(home)


def write_experiment(
    folder: Path, master: Master, entrypoint: str, *, length: str = "", waits: str = "", slots: int = 0
) -> None:
    keys: dict[str, Any] = {"length": length, "waits": waits, "slots": slots, "master": master.address}
    (folder / "experiment.yaml").write_text(EXPERIMENT.format(entrypoint=entrypoint, **keys))


def series_of(fabric: Callable[..., str]) -> dict[str, Any]:
    found = json.loads(fabric("metrics", "@last", "--json"))["series"]
    return {each["name"]: each for each in found}


def steps_saved(fabric: Callable[..., str]) -> list[int]:
    return [each["step"] for each in json.loads(fabric("checkpoint", "list", "@last", "--json"))]


def test_a_trial_class_is_halted_and_goes_on_at_its_checkpoint(
    fabric: Callable[..., str], tmp_path: Path, master: Master
) -> None:
    write_experiment(tmp_path, master, "python3 train.py", waits="1")
    fabric("run", "--detach", "experiment.yaml")
    until(
        lambda: "waits for the halt" in fabric("logs", "@last"),
        lambda: fabric("logs", "@last"),
        seconds=120,
        every=0.5,
    )

    fabric("halt", "@last")
    halted = steps_saved(fabric)
    fabric("resume", "@last")
    fabric("wait", "@last")

    assert halted == [10, 20, 30]
    assert steps_saved(fabric) == [10, 20, 30, 40]
    assert series_of(fabric)["validation/accuracy"]["last"] > 0.8
    assert series_of(fabric)["validation/accuracy"]["last_step"] == 40


def test_an_entrypoint_that_is_a_trial_class_is_trained_by_the_files_settings(
    fabric: Callable[..., str], tmp_path: Path, master: Master
) -> None:
    length = ", max_length: {batches: 40}"
    write_experiment(tmp_path, master, "model_def:MNistTrial", length=length, slots=1)

    output = fabric("run", "-q", "experiment.yaml")

    assert "[rank=0] " in output
    assert series_of(fabric)["validation/accuracy"]["last_step"] == 40
    assert steps_saved(fabric) == [40]


def test_a_script_of_the_core_api_has_fabrics_core_and_all_other_parts_of_the_wheel(
    fabric: Callable[..., str], tmp_path: Path, master: Master
) -> None:
    write_experiment(tmp_path, master, "python3 script.py")

    output = fabric("run", "-q", "experiment.yaml")

    found = json.loads(output.splitlines()[-1])
    ours = {name for name, file in found.items() if "/workbench/learner/libraries/determined/" in file}
    assert ours == {"core", "launch"}
    assert {name: why for name, why in found.items() if why.startswith("no ")} == NOT_INSTALLED
    assert all(
        file.startswith(str(ENVIRONMENT))
        for name, file in found.items()
        if name not in ours | set(NOT_INSTALLED)
    )
    assert (series_of(fabric)["training/x"]["points"], steps_saved(fabric)) == (3, [3])


def test_deepspeed_is_what_its_part_of_the_wheel_misses(
    fabric: Callable[..., str], tmp_path: Path, master: Master
) -> None:
    (tmp_path / "train.py").write_text(
        "try:\n    from determined.pytorch import deepspeed\n"
        "except ModuleNotFoundError as error:\n    print(error.name, error)\n"
    )
    write_experiment(tmp_path, master, "python3 train.py")

    assert fabric("run", "-q", "experiment.yaml") == "deepspeed No module named 'deepspeed'\n"


@pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles its messages on the CPU by c++")
def test_a_trial_class_of_deepspeed_trains_on_our_core_in_the_processes_of_its_launcher_and_needs_gpus(
    fabric: Callable[..., str], tmp_path: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = make_deepspeed_environment(DEEPSPEED, ENVIRONMENT) / "bin"
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    launches = "python3 -m determined.launch.deepspeed python3 train.py"
    write_experiment(tmp_path, master, launches, slots=2)
    (tmp_path / "train.py").write_text(OF_DEEPSPEED.replace("\ninfo =", f"\n{ON_CPU}\ninfo =", 1))

    output = fabric("run", "-q", "experiment.yaml")

    assert all(f"[rank={rank}] " in output for rank in (0, 1))
    assert series_of(fabric)["validation/accuracy"]["last_step"] == 8
    assert steps_saved(fabric) == [8]

    (tmp_path / "train.py").write_text(OF_DEEPSPEED)
    write_experiment(tmp_path, master, "python3 train.py || true")
    assert "GPUs required for DeepSpeedTrial." in fabric("run", "-q", "experiment.yaml")
