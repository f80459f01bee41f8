"""Jobs whose names, texts and files no UTF-8 can hold come to their end, with all else of them intact."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.cli.jobs import add_job
from tests.support.command import Fabric
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store

BEGIN = """\
import json, os
from fabric_learner import checkpoint, progress, report
report(loss=0.5, step=1)
"""
END = """
report(loss=0.25, step=2)
print("done", flush=True)
"""

EVENT_FILE = """
folder = os.fsencode(os.environ["LOG_DIR"]) + b"/tr\\xe9in"
os.mkdir(folder)
with open(folder + b"/events.out.tfevents.1", "wb") as file, open("events", "rb") as events:
    file.write(events.read())
"""

REPORT_ALONE = """
with open(os.environ["FABRIC_REPORT"], "a") as file:
    for record in (
        {"kind": "checkpoint", "path": "p", "step": "abc"},
        {"kind": "progress", "fraction": "half", "seq": 10**18, "cursors": 5, "format": 99},
    ):
        file.write(json.dumps(record) + "\\n")
"""

FILE_NAMES = """
for name in (b"tr\\xe9s", b"two\\nlines"):
    with open(os.fsencode(os.environ["RESULT_DIR"]) + b"/" + name, "wb") as file:
        file.write(b"content")
"""


def run(fabric: Fabric, code: str, *args: str) -> dict[str, Any]:
    """Run a job and return what ``show`` says of it; it must have come to its end by itself."""
    (fabric.folder / "train.py").write_text(BEGIN + code + END)
    ran = fabric("run", "--quiet", *args, "--", "python3", "train.py")
    assert ran.stdout == "done\n"
    shown = dict(fabric.json("show", "@last", "--json"))
    assert shown["state"] == "COMPLETED"
    assert shown["metrics"]["loss"] == 0.25
    return shown


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (r'report({"bad\ud800name": 1})', r"bad\ud800name-deb088"),
        (r'report({"n\0ul\n": 1})', r"n\x00ul\x0a-d02c54"),
        (r'report(big=10**400, flag=True, **{"\udce9": float("nan")})', "big"),
    ],
)
def test_a_metric_may_have_any_name(fabric: Fabric, code: str, name: str) -> None:
    shown = run(fabric, code)

    assert name in shown["metrics"]
    assert name in fabric("metrics", "@last", "--latest").stdout
    listed = fabric.json("metrics", "@last", "--json")
    assert name in [one["name"] for one in listed["series"]]
    fabric("list")
    fabric.json("list", "--json")


def test_texts_of_training_code_may_be_any(fabric: Fabric) -> None:
    shown = run(
        fabric,
        r"""
report(note="x\udce9y")
checkpoint("a\udce9.pt", step=1, metrics={"k\ud800": 10**400}, why="\ud800")
progress(0.5, "half\udce9\0")
""",
    )

    assert shown["progress"][0]["text"] == r"half\xe9\x00"
    (saved,) = shown["checkpoints"]
    assert saved["path"].endswith(r"a\xe9.pt")
    assert (saved["metrics"], saved["metadata"]) == ({r"k\ud800-4329e6": "inf"}, {"why": r"\ud800"})
    assert r"half\xe9\x00" in fabric("show", "@last").stdout


def test_event_files_may_lie_in_a_folder_of_any_name(fabric: Fabric) -> None:
    from tests.learner import event_files as tf

    (fabric.folder / "events").write_bytes(tf.version() + tf.scalars({1: {"accuracy": 0.5}}))
    shown = run(fabric, EVENT_FILE, "--set", "evaluation_metrics.type=tensorboard")

    assert shown["metrics"][r"tr\xe9in-b57bf6/accuracy"] == 0.5
    assert r"tr\xe9in-b57bf6/accuracy" in fabric("metrics", "@last", "--latest").stdout


def test_what_is_left_out_is_counted_where_the_user_looks(fabric: Fabric) -> None:
    shown = run(fabric, REPORT_ALONE)

    assert [(one["level"], one["text"]) for one in shown["notes"]] == [
        ("warning", "2 records could not be understood")
    ]
    assert "2 records could not be understood" in fabric("show", "@last").stdout


def test_files_may_have_any_names(fabric: Fabric) -> None:
    run(fabric, FILE_NAMES)

    files = fabric.json("files", "@last", "results", "--json")["files"]
    names = [os.fsencode(one["path"]) for one in files if one["kind"] == "file"]
    assert names == [b"results/tr\xe9s", b"results/two\nlines"]
    listed = fabric("files", "@last", "results").stdout
    assert r"results/tr\xe9s" in listed
    assert r"results/two\x0alines" in listed
    fabric("download", "@last", "results", "-o", "here")
    fabric("cp", "@last:results", "copied")
    for folder in (fabric.folder / "here" / "results", fabric.folder / "copied"):
        assert sorted(os.fsencode(file.name) for file in folder.iterdir()) == [b"tr\xe9s", b"two\nlines"]


def test_names_of_hyperparameters_drive_no_terminal(fabric: Fabric, home: Home) -> None:
    name = "x\x1b[31m\u202ey"
    with Store.open(home) as store:
        row = add_job(store, "old", State.COMPLETED, params={name: 1})
    assert "x�[31m�y=1" in fabric("show", row.id).stdout
    (fabric.folder / "search.yaml").write_text(
        "name: s\nentrypoint: 'true'\nsearcher: {name: random, metric: l, max_trials: 2}\n"
        'hyperparameters: {"a\\u200db": 1}\n'
    )

    planned = fabric("plan", "search.yaml")

    assert planned.stdout.count("a�b=1") == 2
    assert "\u200d" not in planned.stdout + planned.stderr
