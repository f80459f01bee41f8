"""Trial classes of Determined's own wheel under ``fabric run``, as they are: on our core, without a master."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.libraries import is_made, make_tensorflow_environment, tensorflow_folder, wheel_folder
from tests.support.command import Fabric
from tests.support.kept_agents import lend_agents
from tests.support.processes import end_everything
from tests.support.waiting import until
from workbench.paths import Home

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "libraries"
ENVIRONMENT = wheel_folder()  # now: tests have another home
TENSORFLOW = tensorflow_folder()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # an import of PyTorch takes half a minute on a busy machine
    pytest.mark.skipif(
        not is_made(ENVIRONMENT), reason="no environment of libraries: python3 -m tests.examples.libraries"
    ),
]

MODEL = """\
import os

import torch
from determined import pytorch


class Line(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        x = torch.tensor([number / 64])
        return x, 2 * x + 1


class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context, hparams=None):
        self.context = context
        hparams = hparams or context.get_hparams()
        self.batch_size = hparams["global_batch_size"]
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=hparams["lr"])
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        workers = 1 if os.environ.get("WAITS") else 0  # whose end would be the training's
        return pytorch.DataLoader(Line(), batch_size=self.batch_size, num_workers=workers)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Line(), batch_size=self.batch_size)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"off": torch.nn.functional.mse_loss(self.model(x), y).item()}
"""
TRAINER = """\
import os
import time

import determined as det
from determined import pytorch

import model_def

info = det.get_cluster_info()
begins_with = info.latest_checkpoint
with pytorch.init() as context:
    trial = model_def.LineTrial(context, info.trial.hparams)
    train_batch, batches = trial.train_batch, []

    def waiting_batch(*args, **kwargs):
        batches.append(1)
        if len(batches) == 26:
            print("waits for the halt", flush=True)
        while len(batches) == 26 and not context._core.preempt.should_preempt():
            time.sleep(0.01)
        return train_batch(*args, **kwargs)

    if os.environ.get("WAITS") and begins_with is None:
        trial.train_batch = waiting_batch
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Batch(40),
        checkpoint_period=pytorch.Batch(10),
        validation_period=pytorch.Batch(10),
        reporting_period=pytorch.Batch(10),
        latest_checkpoint=begins_with,
    )
"""
KERAS = """\
import determined as det
import numpy
import tensorflow as tf
from determined import core
from determined.keras import DeterminedCallback

info = det.get_cluster_info()
distributed, strategy = core.DistributedContext.from_tf_config()
with core.init(distributed=distributed) as context:
    x = numpy.linspace(0, 1, 64, dtype="float32").reshape(-1, 1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
        model.compile(optimizer=tf.keras.optimizers.SGD(info.trial.hparams["lr"]), loss="mse")

    class Waits(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2 and info.latest_checkpoint is None:
                print("waits for the halt", flush=True)
                while not context.preempt.should_preempt():
                    pass
                self.model.stop_training = True

    tracked = DeterminedCallback(context, info.latest_checkpoint, info.trial.trial_id)
    model.fit(x, 2 * x + 1, batch_size=16, epochs=5, validation_data=(x, 2 * x + 1), callbacks=[tracked, Waits()])
"""
EXPERIMENT = """\
name: line
entrypoint: {entrypoint}
hyperparameters: {{lr: 0.3, global_batch_size: 16}}
searcher: {{name: single, metric: {metric}{length}}}
environment: {{environment_variables: ["WAITS={waits}"]}}
resources: {{slots_per_trial: {slots}}}
max_restarts: 0
"""


@pytest.fixture
def fabric(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run the command in a folder with the model, as somebody does who works in the environment of the wheel."""
    monkeypatch.setenv("PATH", f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "model_def.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAINER)

    lend_agents(home)
    yield lambda *args: Fabric(tmp_path)(*args).stdout
    end_everything(home)


def write_experiment(
    folder: Path, entrypoint: str, *, metric: str = "off", length: str = "", waits: str = "", slots: int = 0
) -> None:
    """Write the file of an experiment of the model."""
    text = EXPERIMENT.format(entrypoint=entrypoint, metric=metric, length=length, waits=waits, slots=slots)
    (folder / "experiment.yaml").write_text(text)


def steps_of(fabric: Callable[..., str], name: str, attempt: int | None = None) -> list[int]:
    """Return the steps at which the last job has reported a metric, in all attempts or in one."""
    rows = json.loads(fabric("metrics", "@last", "--all", "--json"))["rows"]
    return [row["step"] for row in rows if name in row["values"] and attempt in (None, row["attempt"])]


def printed(home: Home) -> str:
    """Return what the jobs have printed, read as it is kept: a command each time would take a processor."""
    return "".join(
        file.read_text(errors="replace") for file in home.jobs.glob("*/attempt-*/learner-*/output.log")
    )


def checkpoints(fabric: Callable[..., str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(fabric("checkpoint", "list", "@last", "--json"))
    return found


def test_a_trial_class_is_trained_by_its_trainer_and_goes_on_at_its_checkpoint(
    fabric: Callable[..., str], tmp_path: Path, home: Home
) -> None:
    write_experiment(tmp_path, "python3 train.py", waits="1")
    fabric("run", "--detach", "experiment.yaml")
    until(lambda: "waits for the halt" in printed(home), lambda: printed(home), seconds=120, every=0.2)

    fabric("halt", "@last")
    halted = [each["step"] for each in checkpoints(fabric)]
    fabric("resume", "@last")
    fabric("wait", "@last")

    assert halted == [10, 20, 30]
    assert [each["step"] for each in checkpoints(fabric)] == [10, 20, 30, 40]
    assert steps_of(fabric, "training/loss", attempt=2) == [40]
    assert steps_of(fabric, "validation/off")[-1] == 40
    assert json.loads(fabric("show", "@last", "--json"))["progress"][0]["fraction"] == 1.0


@pytest.mark.soak(
    "six seconds of a processor; the gate trains a Trial class by its trainer, and has what an entrypoint becomes in "
    "tests/quick/manifest and tests/learner"
)
def test_an_entrypoint_that_is_a_trial_class_is_trained_by_the_files_settings(
    fabric: Callable[..., str], tmp_path: Path, home: Home
) -> None:
    write_experiment(tmp_path, "model_def:LineTrial", length=", max_length: {batches: 40}", slots=1)

    output = fabric("run", "-q", "experiment.yaml")

    assert "[rank=0] " in output
    assert steps_of(fabric, "validation/off") == [40]
    assert [each["step"] for each in checkpoints(fabric)] == [40]
    # Its event files have what it reports under names of their own.
    assert list(home.jobs.rglob("*tfevents*"))
    assert "Determined/" not in fabric("metrics", "@last", "--all", "--json")


@pytest.mark.soak("another library; the gate trains a Trial class, which needs more of the wheel")
def test_a_callback_of_transformers_reports_and_saves(fabric: Callable[..., str], tmp_path: Path) -> None:
    code = (EXAMPLES / "huggingface" / "train.py").read_text()
    beginning, _, _ = code.partition("folder = arguments.output_dir")
    (tmp_path / "train.py").write_text(
        beginning + "import determined as det\n"
        "from determined.transformers import DetCallback\n\n"
        "with det.core.init() as core:\n"
        "    trainer.add_callback(DetCallback(core, arguments))\n"
        "    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)\n"
    )
    write_experiment(tmp_path, "python3 train.py", metric="eval_loss", length=", max_length: {epochs: 3}")

    fabric("run", "-q", "experiment.yaml")

    assert steps_of(fabric, "validation/eval_loss") == [10, 20, 30]
    assert len(steps_of(fabric, "training/loss")) == 15


@pytest.mark.soak("TensorFlow takes 1.3 GB; the gate trains a Trial class, which needs more of the wheel")
def test_a_callback_of_keras_reports_saves_and_goes_on(
    fabric: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = make_tensorflow_environment(TENSORFLOW) / "bin"
    monkeypatch.setenv("PATH", f"{python}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "train.py").write_text(KERAS)
    write_experiment(tmp_path, "python3 -m determined.launch.tensorflow -- python3 train.py", metric="loss")
    fabric("run", "--detach", "experiment.yaml")
    until(
        lambda: "waits for the halt" in fabric("logs", "@last"),
        lambda: fabric("logs", "@last"),
        seconds=120,
        every=0.5,
    )

    fabric("halt", "@last")
    halted = [each["step"] for each in checkpoints(fabric)]
    fabric("resume", "@last")
    fabric("wait", "@last")

    assert halted == [4, 8, 12]
    assert [each["step"] for each in checkpoints(fabric)] == [4, 8, 12, 16, 20]
    assert steps_of(fabric, "training/loss", attempt=2) == [16, 20]
    assert steps_of(fabric, "validation/loss") == [4, 8, 12, 16, 20]
    assert json.loads(fabric("show", "@last", "--json"))["progress"][0]["fraction"] == 1.0
