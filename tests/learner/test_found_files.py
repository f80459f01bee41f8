"""Metrics in files that libraries write on their own: each point once, from one file, and nothing from data."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner import event_files as tf
from tests.learner.collecting import Rig, context
from workbench.learner.collectors.auto.collector import AutoCollector
from workbench.learner.collectors.auto.files.found import FilesCollector
from workbench.learner.collectors.auto.files.series import canonical_name
from workbench.learner.collectors.interface import Context


def job(root: Path, **more: Any) -> Context:
    """A learner whose command runs in ``root/model``."""
    for name in ("model", "results", "checkpoints"):
        (root / name).mkdir(exist_ok=True)
    found = context(
        root,
        MODEL_DIR=str(root / "model"),
        RESULT_DIR=str(root / "results"),
        CHECKPOINT_DIR=str(root / "checkpoints"),
    )
    return found._replace(**more)


def rig(root: Path) -> Rig:
    where = job(root)
    return Rig(lambda: FilesCollector({}, where))


def series(one: Rig) -> dict[str, list[tuple[Any, Any]]]:
    """The points by the names that people see; evaluation times are left out."""
    names = {key for record in one.written if record["kind"] == "metrics" for key in record["values"]}
    return {
        "/".join(part for part in (group, name) if part): points
        for (group, _, name), points in one.points.items()
        if name in names
    }


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def mlflow(root: Path, name: str, values: dict[int, float]) -> None:
    lines = "".join(f"17000000000{step:02} {value} {step}\n" for step, value in values.items())
    write(root / "model/mlruns/0" / ("ab" * 16) / "metrics" / name, lines)


def wandb(root: Path, rows: list[dict[str, float]]) -> None:
    def record(row: dict[str, float]) -> bytes:
        items = b"".join(
            tf.field(1, tf.field(2, key.encode()) + tf.field(16, json.dumps(value).encode()))
            for key, value in row.items()
        )
        payload = tf.field(2, items)
        return struct.pack("<IHB", 0, len(payload), 1) + payload

    path = root / "model/wandb/offline-run-1/run-1.wandb"
    head = b"" if path.exists() else b":W&B\xe1\xbe\x00"
    write(path, head + b"".join(record(row) for row in rows))


def trackio(root: Path, rows: list[tuple[int, dict[str, float]]]) -> None:
    folder = root / "job/logs/trackio"
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(folder / "p.db") as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics)"
        )
        db.executemany(
            "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, 'r', ?, ?)",
            [("2026-11-22T00:00:00+00:00", step, json.dumps(row)) for step, row in rows],
        )
    db.close()


def test_every_kind_of_file_gives_its_series(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write(model / "runs/today/events.out.tfevents.1", tf.scalars({1: {"a": 0.5}, 2: {"a": 0.25}}))
    write(model / "lightning_logs/version_0/metrics.csv", "epoch,step,b\n0,1,0.5\n0,2,0.25\n")
    history = {"log_history": [{"step": 1, "c": 0.5, "epoch": 0.5}, {"step": 2, "c": 0.25, "epoch": 1}]}
    write(tmp_path / "results/checkpoint-2/trainer_state.json", json.dumps(history))
    write(model / "training.log", "epoch;d\n1;0.5\n2;0.25\n")
    write(model / "metrics.json", '{"iteration": 1, "e": 0.5}\n{"iteration": 2, "e": 0.25}\n')
    wandb(tmp_path, [{"_step": 1, "f": 0.5}, {"_step": 2, "f": 0.25}])
    mlflow(tmp_path, "g", {1: 0.5, 2: 0.25})
    trackio(tmp_path, [(1, {"h": 0.5}), (2, {"h": 0.25})])
    one = rig(tmp_path)

    one.step()
    one.finish()

    assert series(one) == {name: [(1, 0.5), (2, 0.25)] for name in "abcdefgh"}
    assert one.notes == []


@pytest.mark.parametrize("config", ["", '{"name": "e"}'])
def test_what_a_trial_class_of_determined_reports_besides_is_not_taken_from_its_event_files(
    tmp_path: Path, config: str
) -> None:
    found = job(tmp_path)
    found = found._replace(environment={**found.environment, "DET_EXPERIMENT_CONFIG": config})
    one = Rig(lambda: FilesCollector({}, found))
    tags = {"Determined/loss": 0.5, "Determined/val_loss": 0.25, "own/loss": 1.0, "Determined": 2.0}
    write(tmp_path / "job/logs/tensorboard/events.out.tfevents.1", tf.scalars({1: tags}))
    # What else has such names is somebody's own.
    write(tmp_path / "model/metrics.csv", "step,Determined/accuracy\n1,0.5\n2,0.75\n")

    one.step()
    one.finish()

    theirs = {"Determined/loss", "Determined/val_loss"}
    assert set(series(one)) == {*tags, "Determined/accuracy"} - (theirs if config else set())
    assert one.notes == []


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl"])
def test_a_step_in_a_table_is_exact_to_64_bits(tmp_path: Path, name: str) -> None:
    steps = [2**53 + 1, 2**62 + 3, 2**63 - 1]
    rows = [f"{step},0.5\n" for step in steps]
    lines = [json.dumps({"step": step, "loss": 0.5}) + "\n" for step in steps]
    found = rig(tmp_path)
    write(tmp_path / "job/logs" / name, "".join(["step,loss\n", *rows] if name.endswith("csv") else lines))
    found.finish()

    assert series(found)["loss"] == [(step, 0.5) for step in steps]


def test_an_event_file_gives_what_a_table_would_give_again(tmp_path: Path) -> None:
    run = tmp_path / "model/lightning_logs/version_0"
    write(run / "metrics.csv", "epoch,step,train_loss,lr\n0,1,0.5,0.1\n")
    write(
        run / "events.out.tfevents.1", tf.scalars({1: {"train/loss": 0.25, "epoch": 0.0, "hp_metric": -1.0}})
    )
    one = rig(tmp_path)
    one.step()
    one.kill()
    write(run / "metrics.csv", "0,2,0.5,0.1\n")
    one.step()
    one.finish()

    assert series(one) == {"train/loss": [(1, 0.25)], "lr": [(1, 0.1), (2, 0.1)]}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("train/loss", "loss"),
        ("eval_loss", "validation/loss"),
        ("Loss/train", "train_loss"),
        ("validation/epoch_loss", "val_loss"),
    ],
)
def test_one_series_has_several_names(left: str, right: str) -> None:
    assert canonical_name(left) == canonical_name(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [("loss", "val_loss"), ("val_loss", "test_loss"), ("loss", "accuracy"), ("top@1", "top@5")],
)
def test_names_of_two_series_stay_apart(left: str, right: str) -> None:
    assert canonical_name(left) != canonical_name(right)


def test_training_and_validation_are_kept_apart_and_one_run_is_not_named(tmp_path: Path) -> None:
    for phase in ("train", "validation"):
        write(tmp_path / f"job/logs/{phase}/events.out.tfevents.1", tf.scalars({1: {"epoch_loss": 0.5}}))
    write(tmp_path / "results/a/log.csv", "step,mae\n1,0.5\n")
    write(tmp_path / "results/b/log.csv", "step,mae\n1,0.25\n")
    one = rig(tmp_path)
    one.step()
    one.finish()

    assert set(series(one)) == {"train/epoch_loss", "validation/epoch_loss", "mae", "b/mae"}


EVENTS = "events.out.tfevents.1"


def runs_of(root: Path, *folders: str) -> Rig:
    """Read event files in these folders, each with points of its own: of the n-th folder n00, n01, n02."""
    one = rig(root)
    for number, folder in enumerate(folders):
        write(root / folder / EVENTS, tf.scalars({step: {"loss": 100 * number + step} for step in range(3)}))
    one.step()
    one.finish()
    return one


@pytest.mark.parametrize(
    "names",
    [
        {"exp1/train": "exp1/train", "exp2/train": "exp2/train", "train": "train"},
        {"run1/train": "train", "run2/train": "run2/train", "run1/validation": "validation",
         "run2/validation": "run2/validation"},
        {"a/x/train": "train", "b/x/train": "b/x/train", "c/y/train": "y/train"},
        {"tr": "tr", "train": "LOG_DIR/train", "training": "LOG_DIR/training"},
        {"lr1/tb": "", "lr2/tb": "lr2/tb", "lr3/tb": "lr3/tb"},
        {"fold1": "", "fold2": "fold2"},
    ],
    ids=lambda names: " ".join(names),
)  # fmt: skip
def test_runs_in_several_folders_are_distinguished_and_each_point_comes_once(
    tmp_path: Path, names: dict[str, str]
) -> None:
    one = runs_of(tmp_path, *(f"job/logs/{folder}" for folder in names))

    assert series(one) == {
        "/".join(filter(None, (name, "loss"))): [(step, 100 * number + step) for step in range(3)]
        for number, name in enumerate(names.values())
    }
    assert one.notes == []


@pytest.mark.parametrize("folder", ["tb", "train"])
def test_runs_of_one_name_in_two_of_the_jobs_folders_are_distinguished(tmp_path: Path, folder: str) -> None:
    one = runs_of(tmp_path, f"job/logs/{folder}", f"results/{folder}", f"model/{folder}")

    found = [[value for _, value in points] for points in series(one).values()]
    assert sorted(found) == [[0, 1, 2], [100, 101, 102], [200, 201, 202]]


def test_a_run_keeps_its_name_when_others_come_and_the_agent_is_killed(tmp_path: Path) -> None:
    one = rig(tmp_path)
    for number, folder in enumerate(("x/b/train", "a/c/train", "d/c/train")):
        for step in (1, 2):
            write(tmp_path / "job/logs" / folder / EVENTS, tf.scalars({step: {"loss": 10 * number + step}}))
            one.step(milliseconds=600)
            one.kill()
            one.step(milliseconds=600)
    write(tmp_path / "job/logs/a/c/train" / EVENTS, tf.scalars({3: {"loss": 13}}))
    one.finish()

    assert series(one) == {
        "train/loss": [(1, 1), (2, 2)],
        "c/train/loss": [(1, 11), (2, 12), (3, 13)],
        "d/c/train/loss": [(1, 21), (2, 22)],
    }


def test_of_more_series_than_a_cursor_holds_no_two_are_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.learner.collectors.auto.files.series._OWNERS_LIMIT", 2)
    for number, run in enumerate("ab"):
        values = {f"m{tag}": 10 * number + tag for tag in range(5)}
        write(tmp_path / "job/logs" / run / EVENTS, tf.scalars({1: values}))
    one = rig(tmp_path)
    one.step()
    one.finish()

    found = list(series(one).values())
    assert sorted(found) == [[(1, 10 * number + tag)] for number in range(2) for tag in range(5)]


def test_a_table_that_is_data_is_no_log(tmp_path: Path) -> None:
    where = job(tmp_path)
    write(tmp_path / "model/old.csv", "step,speed\n1,2\n2,3\n")
    write(tmp_path / "learner/launch.json", "{}")
    begin = (tmp_path / "learner/launch.json").stat().st_mtime_ns
    os.utime(tmp_path / "model/old.csv", ns=(begin - 10**10, begin - 10**10))
    one = Rig(lambda: FilesCollector({}, where))
    write(tmp_path / "model/written-at-once.csv", "step,speed\n1,2\n2,3\n")
    write(tmp_path / "model/names.csv", "name,speed\na,2\nb,3\n")
    write(tmp_path / "model/numbers.csv", "1,2\n3,4\n")
    one.step(milliseconds=600)
    one.finish()

    assert one.written == []


def test_a_table_becomes_a_log_by_growing(tmp_path: Path) -> None:
    one = rig(tmp_path)
    write(tmp_path / "model/run.csv", "step,speed\n1,2\n")
    one.step(milliseconds=600)
    assert one.written == []
    write(tmp_path / "model/run.csv", "2,3\n")
    one.step(milliseconds=600)

    assert series(one) == {"speed": [(1, 2), (2, 3)]}


def test_of_a_table_that_was_there_before_only_new_rows_are_the_commands(tmp_path: Path) -> None:
    where = job(tmp_path)
    table, lines = tmp_path / "results/log.csv", tmp_path / "results/log.jsonl"
    write(table, "step,loss\n1,2\n")
    write(lines, '{"step": 1, "acc": 2}\n')
    write(tmp_path / "learner/launch.json", "{}")
    begin = (tmp_path / "learner/launch.json").stat().st_mtime_ns
    for path in (table, lines):
        os.utime(path, ns=(begin - 10**10, begin - 10**10))
    one = Rig(lambda: FilesCollector({}, where))
    one.step()
    write(table, "2,3\n")
    write(lines, '{"step": 2, "acc": 3}\n')
    one.step(milliseconds=40_000)
    one.finish()

    assert series(one) == {"loss": [(2, 3)], "acc": [(2, 3)]}


def test_a_resumed_trainer_gives_only_what_it_trained_itself(tmp_path: Path) -> None:
    where = job(tmp_path)

    def save(step: int, steps: range) -> Path:
        path = tmp_path / f"checkpoints/checkpoint-{step}/trainer_state.json"
        write(path, json.dumps({"log_history": [{"step": at, "loss": 1 / at} for at in steps]}))
        return path

    old = [save(2, range(1, 3)), save(4, range(1, 5))]
    write(tmp_path / "learner/launch.json", "{}")
    begin = (tmp_path / "learner/launch.json").stat().st_mtime_ns
    for path in old:
        os.utime(path, ns=(begin - 10**10, begin - 10**10))
    one = Rig(lambda: FilesCollector({}, where))
    one.step()
    save(6, range(1, 7))
    one.step(milliseconds=600)
    one.kill()
    save(8, range(1, 9))
    one.step(milliseconds=600)
    one.finish()

    assert [step for step, _ in series(one)["loss"]] == [5, 6, 7, 8]


def test_links_are_not_followed_and_hidden_folders_not_searched(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "log.csv", "step,loss\n1,2\n")
    where = job(tmp_path)
    (tmp_path / "model/link").symlink_to(outside)
    (tmp_path / "model/log.csv").symlink_to(outside / "log.csv")
    write(tmp_path / "model/.cache/log.csv", "step,loss\n1,2\n")
    one = Rig(lambda: FilesCollector({}, where))
    one.step()
    one.finish()

    assert one.written == []


def test_a_job_that_writes_no_such_file_is_not_polled(tmp_path: Path) -> None:
    where = job(tmp_path)
    collector = FilesCollector({}, where)
    write(tmp_path / "model/data.bin", b"x" * 100)

    collector.poll(10**15)

    assert collector.is_watched
    assert not collector.waiting
    collector.close()


def test_a_torn_or_foreign_file_costs_nothing(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write(model / "events.out.tfevents.1", b"garbage" * 100)
    write(model / "log.csv", "step,loss\n1,0.5\nx,y\n" + "," * 3000 + "\n2,0.25\n")
    write(model / "metrics.jsonl", '{"step": 1, "acc": 0.5}\n[1]\n{"step":\n{"step": 2, "acc": 1e999}\n')
    write(model / "trainer_state.json", '{"log_history": [{"step": 1')
    write(model / "wandb/offline-run-1/run-1.wandb", b":W&B\xe1\xbe\x00" + b"\xff" * 500)
    mlflow(tmp_path, "mae", {1: 0.5})
    write(model / "mlruns/0" / ("ab" * 16) / "metrics/mae", "what is this\n")
    one = rig(tmp_path)
    one.step()
    one.finish()

    found = series(one)
    assert found["loss"] == [(1, 0.5), (2, 0.25)]
    assert found["acc"] == [(1, 0.5), (2, "inf")]
    assert found["mae"] == [(1, 0.5)]


def test_what_lived_too_briefly_to_be_read_is_counted_but_not_every_folder(tmp_path: Path) -> None:
    one = rig(tmp_path)
    one.step()
    for folder in ("job/logs/tmp", "model/tmp", "results/__pycache__"):
        write(tmp_path / folder / EVENTS, tf.scalars({1: {"loss": 1}}))
        shutil.rmtree(tmp_path / folder)
    write(tmp_path / "model" / EVENTS, b"")
    (tmp_path / "model" / EVENTS).unlink()
    one.step(milliseconds=1500)
    one.finish()

    assert series(one) == {}
    assert one.notes == ["2 folders or files of metrics were removed before they could be read"]


def test_hard_links_of_a_file_are_one_file(tmp_path: Path) -> None:
    file = tmp_path / "job/logs/a" / EVENTS
    write(file, tf.scalars({1: {"loss": 1}}))
    os.link(file, file.with_name(f"{EVENTS}.again"))
    (tmp_path / "model/b").mkdir(parents=True)
    os.link(file, tmp_path / "model/b" / EVENTS)
    one = rig(tmp_path)
    one.step()
    one.kill()
    write(file, tf.scalars({2: {"loss": 2}}))
    one.finish()

    assert series(one) == {"loss": [(1, 1), (2, 2)]}


def test_what_of_an_event_file_could_not_be_read_is_noted_once(tmp_path: Path) -> None:
    broken = tf.frame(b"\xff" * 30)
    damaged = bytearray(tf.scalars({5: {"loss": 5}}))
    damaged[-1] ^= 1
    for run in ("a", "b"):
        data = tf.scalars({1: {run: 1}}) + broken + broken + bytes(damaged) + tf.scalars({2: {run: 2}})
        write(tmp_path / "job/logs" / run / EVENTS, data)
    one = rig(tmp_path)
    one.step()
    one.finish()

    assert series(one) == {run: [(1, 1), (2, 2)] for run in ("a", "b")}
    assert one.notes == [
        f"{kind} in event files are left out (the first in LOG_DIR/a/{EVENTS})"
        for kind in ("damaged records", "records that are not events")
    ]


def test_a_series_that_lines_and_files_have_comes_from_one_of_them(tmp_path: Path) -> None:
    where = job(tmp_path)
    one = Rig(lambda: AutoCollector({}, where))
    for step in range(1, 6):
        one.print(f"step {step} loss: {step / 2} acc: {step / 4}\n".encode())
    one.step()
    one.kill()
    table = tmp_path / "model/log.csv"
    write(table, "step,loss,train_acc,mae\n1,9,9,9\n2,8,8,8\n")
    one.step(milliseconds=40_000)
    one.print(b"step 6 loss: 3.0 acc: 1.5\n")
    one.step()
    one.finish()

    found = series(one)
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in found["acc"]] == [1, 2, 3, 4, 5]
    assert found["train_acc"] == [(1, 9), (2, 8)]
    assert found["mae"] == [(1, 9), (2, 8)]


def _rewritten_table(path: Path) -> Callable[[int], None]:
    rows: list[dict[str, float]] = []

    def add(step: int) -> None:
        rows.append(
            {"step": step, "b": step / 2} if step < 4 else {"step": step, "b": step / 2, "late": step}
        )
        columns = sorted({name for row in rows for name in row}, reverse=True)
        text = "\n".join(
            [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    return add


@settings(max_examples=examples(24), deadline=None)
@given(st.data())
def test_each_point_comes_once_whenever_the_agent_is_killed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("job")
    one = rig(root)
    add_row = _rewritten_table(root / "model/lightning_logs/version_0/metrics.csv")
    history: list[dict[str, float]] = []
    for step in range(1, 9):
        for source in data.draw(st.permutations(["tf", "csv", "lines", "wandb", "trainer", "trackio"])):
            if source == "tf":
                write(root / "model/runs/events.out.tfevents.1", tf.scalars({step: {"a": step / 2}}))
            elif source == "csv":
                add_row(step)
            elif source == "lines":
                write(root / "results/log.jsonl", json.dumps({"step": step, "c": step / 2}) + "\n")
            elif source == "wandb":
                wandb(root, [{"_step": step, "d": step / 2, "a": 9.0}])
            elif source == "trainer" and step % 2 == 0:
                history += [{"step": at, "e": at / 2} for at in (step - 1, step)]
                write(
                    root / f"checkpoints/checkpoint-{step}/trainer_state.json",
                    json.dumps({"log_history": history}),
                )
            elif source == "trackio" and step % 4 == 0:
                trackio(root, [(at, {"f": at / 2}) for at in range(step - 3, step + 1)])
            one.suffer(data)
    one.finish()

    found = series(one)
    late = found.pop("late")
    owner = found.pop("a")
    assert found == {name: [(step, step / 2) for step in range(1, 9)] for name in "bcdef"}
    assert late == [(step, step) for step in range(4, 9)]
    assert owner in ([(step, step / 2) for step in range(1, 9)], [(step, 9.0) for step in range(1, 9)])
