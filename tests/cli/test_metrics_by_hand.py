"""``metrics --try`` and the presets, line by line; ``metrics --plot`` in the terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_output, write_records
from tests.support.command import Fabric
from workbench.job import State
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid

SAMPLES: dict[str, tuple[str, list[dict[str, float] | None]]] = {
    "caffe": (
        "I0607 05:04:31.012345    12 solver.cpp:330] Iteration 0, Testing net (#0)\n"
        "I0607 05:04:32.012345    12 solver.cpp:397]     Test net output #0: accuracy = 0.0928\n"
        "I0607 05:04:32.012345    12 solver.cpp:397]     Test net output #1: loss = 2.36 (* 1 = 2.36 loss)\n"
        "I0607 05:04:33.012345    12 solver.cpp:218] Iteration 100 (21.3 iter/s, 4.69s/100 iters), loss = 0.214\n"
        "I0607 05:04:33.012345    12 solver.cpp:237]     Train net output #0: loss = 0.214\n"
        "I0607 05:04:33.012345    12 sgd_solver.cpp:105] Iteration 100, lr = 0.0099\n",
        [
            None,
            None,
            {"accuracy": 0.0928, "loss": 2.36, "(iteration)": 0},
            {"loss": 0.214, "(iteration)": 100},
            None,
            {"lr": 0.0099, "(iteration)": 100},
        ],
    ),
    "keras": (
        "Epoch 3/10\n"
        "938/938 - 3s - loss: 0.2581 - accuracy: 0.9263 - val_loss: 0.1304 - 3s/epoch - 3ms/step\n"
        "  1/938 [....] - ETA: 2s - loss: 0.1\n"
        "\x1b[1m938/938\x1b[0m \x1b[32m━━━\x1b[0m \x1b[1m2s\x1b[0m 2ms/step - accuracy: 0.8 - loss: 0.61\n",
        [
            None,
            {"loss": 0.2581, "accuracy": 0.9263, "val_loss": 0.1304, "(epoch)": 3},
            None,
            {"accuracy": 0.8, "loss": 0.61},
        ],
    ),
    "lightning": (
        "Epoch 2:  50%|███ | 469/938 [00:05<00:05, 90.00it/s, v_num=0, train_loss=0.500]\n"
        "Epoch 2: 100%|████| 938/938 [00:10<00:00, 90.12it/s, v_num=0, train_loss=0.312, val_acc=0.93]\n",
        [None, {"train_loss": 0.312, "val_acc": 0.93, "(epoch)": 2}],
    ),
    "huggingface": (
        "{'loss': 0.5012, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': 1.0}\n"
        " 50%|███ | 5/10 [01:00<01:00,  8.33it/s]{'eval_loss': 0.4, 'eval_accuracy': 0.81, 'epoch': 1.0}\n"
        "{'loss': '0.3', 'learning_rate': '2e-05', 'epoch': '2'}\n"
        "some words\n",
        [
            {"loss": 0.5012, "grad_norm": 1.25, "learning_rate": 4.5e-05, "(epoch)": 1.0},
            {"loss": 0.4, "accuracy": 0.81, "(epoch)": 1.0},
            {"loss": 0.3, "learning_rate": 2e-05, "(epoch)": 2.0},
            None,
        ],
    ),
    "tqdm": (
        "epoch 1:  45%|███ | 421/938 [00:05<00:06, 80.02it/s, acc=0.9, loss=nan]\r"
        "100%|████| 938/938 [00:09<00:00, 99.9it/s]\nnothing\n",
        [
            {"percent": 45.0, "acc": 0.9, "loss": float("nan"), "(step)": 421},
            {"percent": 100.0, "(step)": 938},
            None,
        ],
    ),
}


@pytest.mark.parametrize("preset", SAMPLES)
def test_a_preset_reads_what_its_tool_prints(fabric: Fabric, preset: str) -> None:
    text, expected = SAMPLES[preset]
    (fabric.folder / "train.log").write_text(text)

    tried = fabric.json("metrics", "--try", preset, "train.log", "--json")

    assert [_comparable(each["values"]) for each in tried] == [_comparable(values) for values in expected]


def _comparable(values: dict[str, Any] | None) -> str:
    return json.dumps(values, sort_keys=True).replace("NaN", "null")


def test_a_job_with_a_preset_has_its_metrics(fabric: Fabric) -> None:
    text, _ = SAMPLES["keras"]
    (fabric.folder / "keras.log").write_text(text)
    (fabric.folder / "m.yml").write_text(
        "name: k\nframework: {command: cat keras.log}\nevaluation_metrics: {type: keras}\n"
    )

    fabric("run", "m.yml")

    assert fabric.json("show", "@last", "--json")["metrics"]["epoch/loss"] == 0.61
    assert (
        "did you mean keras?"
        in fabric("run", "m.yml", "--set", "evaluation_metrics.type=kears", expect=65).stderr
    )


MANIFEST = """\
name: x
framework: {command: 'true'}
evaluation_metrics:
  type: regex_extractor
  groups:
    train:
      regex: 'step %{INT:step} loss %{FLOAT:loss}'
      etimes: {step: {type: INT, value: $step}}
      scalars: {loss: {type: FLOAT, value: $loss}}
"""


def test_why_a_line_gives_nothing_is_explained(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(MANIFEST)
    log = "step 1 loss 0.5\nstep 2 los 0.4\n[info] step 3 loss 0.3\nnothing\n"

    ran = fabric("metrics", "--try", "m.yml", "-", input=log)

    lines = ran.stdout.splitlines()
    assert lines[1] == "  = train: loss=0.5 (step)=1 at step 1"
    assert lines[3] == "  - train comes to column 11, then wants 's %{FLOAT:loss}'"
    assert lines[5] == "  - train matches from column 8 on, but has to from the first; begin it with .*"
    assert lines[7] == "  - train wants 'step %{INT:step} loss %{FLOAT:loss}'"
    assert ran.stderr == "1 match in 4 lines\n"
    assert fabric("metrics", "--try", "m.yml", "-", input="nothing\n", expect=1).stderr.startswith(
        "0 matches"
    )


def test_what_cannot_be_tried_is_reported(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text("name: x\nframework: {command: 'true'}\n")

    assert "needs a manifest and a log" in fabric("metrics", "--try", "m.yml", expect=64).stderr
    assert (
        "extracts nothing from lines" in fabric("metrics", "--try", "m.yml", "-", input="", expect=64).stderr
    )
    assert "there is no log gone.log" in fabric("metrics", "--try", "keras", "gone.log", expect=66).stderr
    assert "needs --try" in fabric("metrics", "@last", "train.log", expect=64).stderr


@pytest.fixture
def measured(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "curve", State.COMPLETED)
        folder = folder_of(home, row)
        write_output(folder, [b"x\n"])
        steps = list(range(200))
        losses = [1.0 / (step + 1) for step in steps]
        accuracies = [None if step == 5 else step / 200 for step in steps]
        write_records(folder, row, [points(steps, loss=losses, acc=accuracies)], home=home_uuid(home))
        ingest(store, row.id, 1, 1, folder.records)


def test_metrics_are_drawn_within_the_terminal(fabric: Fabric, measured: None) -> None:
    drawn = fabric("metrics", "curve", "--plot", COLUMNS="80").stdout
    one = fabric("metrics", "curve", "--plot", "--metric", "loss", COLUMNS="80").stdout

    assert max(len(line) for line in drawn.splitlines()) <= 80
    assert "loss  last 0.005" in one
    assert "acc" not in one
    assert one.splitlines()[1].lstrip().startswith("1 ")
    assert "step 0" in one.splitlines()[-2]
    assert "step 199" in one.splitlines()[-2]
    assert any(0x2800 < ord(c) <= 0x28FF for c in one)
    assert "(1 is nan)" in drawn
    assert "did you mean loss?" in fabric("metrics", "curve", "--plot", "-m", "lsos", expect=64).stderr
