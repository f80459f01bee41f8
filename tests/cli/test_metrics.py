"""``fabric metrics`` shows what was ingested, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_records
from tests.learner.event_files import scalars
from tests.support.command import Fabric, lines_of
from workbench.job import State
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobRow


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "measured", State.COMPLETED)
        folder = folder_of(home, row)
        records = [points([1, 2, 3], loss=[0.5, None, 0.25], accuracy=[0.1, 0.2, 0.3])]
        write_records(folder, row, records, home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass
    return row


def test_the_table_has_a_row_a_step(fabric: Fabric, row: JobRow) -> None:
    heading, first, second, third = lines_of(fabric("metrics", "measured").stdout)

    assert sorted(heading.split()) == ["accuracy", "loss", "step"]
    assert sorted(first.split()) == ["0.1", "0.5", "1"]
    assert "nan" in second
    assert third.split()[0] == "3"


def test_names_are_shown_without_the_folders_that_all_share(fabric: Fabric, home: Home) -> None:
    named: dict[str, list[float | None]] = {"logs/run1/train/loss": [0.5], "logs/run1/val/loss": [0.75]}
    with Store.open(home) as store:
        row = add_job(store, "boarded", State.COMPLETED)
        folder = folder_of(home, row)
        write_records(folder, row, [points([1], **named)], home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass

    shown = fabric("metrics", "boarded")
    assert sorted(lines_of(shown.stdout)[0].split()) == ["step", "train/loss", "val/loss"]
    assert "all names begin with logs/run1/" in shown.stderr
    latest = fabric("metrics", "boarded", "--latest").stdout
    assert [line.split()[0] for line in lines_of(latest)[1:]] == ["train/loss", "val/loss"]
    assert "train/loss=0.5 val/loss=0.75" in fabric("show", "boarded").stdout
    heading = fabric("metrics", "boarded", "--csv").stdout.splitlines()[0]
    assert heading.endswith("logs/run1/train/loss,logs/run1/val/loss")
    assert "train/loss" in fabric("metrics", "boarded", "--plot", "--metric", "train/loss").stdout


def test_what_is_cut_off_is_reported(fabric: Fabric, row: JobRow) -> None:
    ran = fabric("metrics", "measured", "--tail", "1")

    assert len(ran.stdout.splitlines()) == 2
    assert ran.stderr == "showing the last 1 of 3; --all shows the rest\n"


def test_csv_holds_every_value(fabric: Fabric, row: JobRow) -> None:
    rows = list(csv.DictReader(fabric("metrics", "measured", "--csv").stdout.splitlines()))

    assert [each["step"] for each in rows] == ["1", "2", "3"]
    assert [each["loss"] for each in rows] == ["0.5", "nan", "0.25"]
    assert [float(each["accuracy"]) for each in rows] == [0.1, 0.2, 0.3]


def test_no_two_columns_of_csv_have_one_name(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "stepped", State.COMPLETED)
        records = [{**points([1, 2], loss=[0.5, 0.25], time=[7, 8]), "etimes": {"step": [11, 12]}}]
        folder = folder_of(home, row)
        write_records(folder, row, records, home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass

    (head, *_) = fabric("metrics", "stepped", "--csv", "--superseded").stdout.splitlines()
    rows = list(csv.DictReader(fabric("metrics", "stepped", "--csv").stdout.splitlines()))

    assert sorted(head.split(",")) == sorted(set(head.split(",")))
    assert [(each["step"], each["values.step"], each["values.time"]) for each in rows] == [
        ("1", "11.0", "7.0"),
        ("2", "12.0", "8.0"),
    ]


def test_json_holds_series_and_rows(fabric: Fabric, row: JobRow) -> None:
    document = fabric.json("metrics", "measured", "--json")

    assert document["schema"] == "fabric.metrics/1"
    assert [each["values"]["loss"] for each in document["rows"]] == [0.5, None, 0.25]
    assert {each["name"]: each["points"] for each in document["series"]} == {"accuracy": 3, "loss": 3}


def test_json_holds_what_was_reported_in_words(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "spoken", State.COMPLETED)
        folder = folder_of(home, row)
        records = [
            {**points([1, 2], loss=[0.5, 0.25]), "texts": {"phase": ["warm", "hot"], "mood": ["good", "bad"]}}
        ]
        write_records(folder, row, records, home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass

    document = fabric.json("metrics", "spoken", "--json")
    phases = fabric.json("metrics", "spoken", "--columns", "phase", "--json")

    assert [each["texts"] for each in document["rows"]] == [
        {"phase": "warm", "mood": "good"},
        {"phase": "hot", "mood": "bad"},
    ]
    assert (document["columns"], [each["name"] for each in document["series"]]) == (["loss"], ["loss"])
    assert (phases["columns"], phases["series"], phases["rows"]) == ([], [], document["rows"])
    assert fabric.json("show", "spoken", "--json")["texts"] == {"phase": "hot", "mood": "bad"}


def test_latest_says_last_least_and_greatest(fabric: Fabric, row: JobRow) -> None:
    accuracy = next(
        line for line in fabric("metrics", "measured", "--latest").stdout.splitlines() if "acc" in line
    )

    assert accuracy.split() == ["accuracy", "1", "3", "0.3", "0.1", "0.3", "3"]


def test_following_an_ended_job_gives_all_and_ends(fabric: Fabric, row: JobRow) -> None:
    lines = fabric("metrics", "measured", "-f").stdout.splitlines()
    events = [json.loads(line) for line in fabric("metrics", "measured", "-f", "--json").stdout.splitlines()]

    assert len(lines) == 6
    assert [each["value"] for each in events if each["name"] == "loss"] == [0.5, None, 0.25]


def test_show_names_the_last_values(fabric: Fabric, row: JobRow) -> None:
    assert "loss=0.25" in fabric("show", "measured").stdout


def test_a_job_without_metrics_says_how_to_get_some(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "silent")

    ran = fabric("metrics", "silent")

    assert ran.stdout == ""
    assert "evaluation_metrics" in ran.stderr


def take(store: Store, home: Home, row: JobRow, records: list[dict[str, Any]], **which: int) -> None:
    """Let a learner of an attempt have reported records."""
    folder = folder_of(home, row, **which)
    write_records(folder, row, records, home=home_uuid(home))
    while ingest(store, row.id, which.get("attempt", 1), which.get("learner", 1), folder.records):
        pass


@pytest.fixture
def resumed(home: Home) -> JobRow:
    """A job of two learners whose second attempt went on from step 2; what it measures is a function of its step."""
    with Store.open(home) as store:
        row = add_job(store, "resumed", State.COMPLETED, learners=2)
        take(store, home, row, [points([1, 2, 3, 4], loss=[-1.0, -2.0, -300.0, -400.0])], attempt=1)
        take(store, home, row, [points([3, 4, 5], loss=[-3.0, -4.0, -5.0])], attempt=2)
        take(store, home, row, [points([1], loss=[-7.0])], learner=2)
        store.execute("UPDATE jobs SET attempt = 2")
    return row


def test_what_a_later_attempt_went_over_again_is_left_out_with_a_note_and_shown_on_request(
    fabric: Fabric, resumed: JobRow
) -> None:
    table = fabric("metrics", "resumed", "--learner", "1")
    rows = fabric.json("metrics", "resumed", "--superseded", "--json")["rows"]
    first = fabric.json("metrics", "resumed", "--attempt", "1", "--json")["rows"]
    followed = fabric("metrics", "resumed", "-f", "--learner", "1", "--json").stdout.splitlines()
    latest = fabric("metrics", "resumed", "--latest", "--learner", "1").stdout.splitlines()[1].split()

    assert [line.split()[2:] for line in lines_of(table.stdout)[1:]] == [
        ["1", "-1"], ["2", "-2"], ["3", "-3"], ["4", "-4"], ["5", "-5"],
    ]  # fmt: skip
    assert table.stderr == (
        "2 values of earlier attempts that a later one went over again are left out; --superseded shows them\n"
    )
    marked = [(each["attempt"], each["step"]) for each in rows if each["superseded"]]
    assert (len(rows), marked) == (8, [(1, 3), (1, 4)])
    assert [each["step"] for each in first if each["learner"] == 1] == [1, 2, 3, 4]
    assert [json.loads(line)["value"] for line in followed] == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert latest == ["loss", "1", "5", "-5", "-5", "-1", "5"]


def test_the_learner_whose_value_stands_for_a_job_is_named(fabric: Fabric, resumed: JobRow) -> None:
    listed = fabric("list", "--columns", "name,loss,min(loss)", "--where", "min(loss)<-4 loss=-5").stdout

    assert listed.splitlines()[1].split() == ["resumed", "-5", "[1]", "-5", "[1]"]
    assert "loss=-5 [1]" in fabric("show", "resumed").stdout
    assert fabric("list", "--where", "min(loss)<-300", "-q").stdout == ""


def test_a_plot_is_of_one_learner_and_one_course_of_the_training(fabric: Fabric, resumed: JobRow) -> None:
    every = fabric("metrics", "resumed", "--plot").stdout
    first = fabric("metrics", "resumed", "--plot", "--attempt", "1", "--learner", "1").stdout.splitlines()

    assert "loss  learner 1  last -5" in every and "loss  learner 2  last -7" in every
    assert "-400" not in every
    assert first[0] == "loss  learner 1  last -400"
    assert first[-2].split() == ["step", "1", "step", "4"]


def test_values_at_the_end_of_floats_and_beyond_are_drawn_or_counted(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "wild", State.COMPLETED)
        values: list[Any] = [1e308, -1e308, "inf", "-inf", None, 0.5]
        take(store, home, row, [points(range(6), loss=values)])

    drawn = fabric("metrics", "wild", "--plot").stdout.splitlines()

    assert drawn[0] == "loss  last 0.5  (1 is nan, 2 are inf)"
    assert drawn[1].split()[0] == "1e+308" and drawn[-3].split()[0] == "-1e+308"


def test_points_without_a_step_are_in_their_order(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "stepless", State.COMPLETED)
        record = {**points([1, 2, 3], loss=[3.0, 2.0, 1.0]), "steps": [100, None, 5]}
        take(store, home, row, [record])

    assert fabric("metrics", "stepless", "--plot").stdout.splitlines()[-2].split() == ["1", "3"]


def test_names_that_control_a_terminal_are_written_out(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "odd", State.COMPLETED)
        take(store, home, row, [points([1], loss=[1.0])])
        # As an older version stored it.
        store.execute("UPDATE series SET name = ?", ("a\x1b[31m\r\nb\0",))

    shown = "a\\x1b[31m\\x0d\\x0ab\\x00"
    for args in (["--csv"], ["--latest"], ["--plot"], ["-f"], ["-f", "--csv"], []):
        text = fabric("metrics", "odd", *args).stdout
        assert shown in text and not set(text) & set("\x1b\r\0"), args
    csv_text = fabric("sql", "select name from metrics", "--csv").stdout
    assert "a\\x1b[31m\\x0d\nb\\x00" in csv_text
    assert shown in fabric("sql", "select name from metrics").stdout


def test_a_wide_table_folds_to_the_terminal_with_the_loss_first(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        wide = add_job(store, "wide", State.COMPLETED)
        folder = folder_of(home, wide)
        values = {
            "total_flos": [9.0],
            **{f"layer{n}/weight_norm": [float(n)] for n in range(12)},
            "train/loss": [0.5],
        }
        write_records(folder, wide, [points([1], **values)], home=home_uuid(home))
        while ingest(store, wide.id, 1, 1, folder.records):
            pass

    lines = fabric("metrics", "wide", COLUMNS="80").stdout.splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == ["step", "train/loss"]
    assert [line.split()[0] for line in lines if line].count("step") > 1
    assert lines[-2].split()[-1] == "total_flos"


def test_columns_picks_metrics_in_their_order(fabric: Fabric, row: JobRow) -> None:
    assert lines_of(fabric("metrics", "measured", "--columns", "accuracy").stdout)[0].split() == [
        "step",
        "accuracy",
    ]
    csv_text = fabric("metrics", "measured", "--csv", "--columns", "loss,accuracy").stdout
    assert csv_text.splitlines()[0].endswith(",loss,accuracy")

    refused = fabric("metrics", "measured", "--columns", "acuracy", expect=64)

    assert "the job has no metric 'acuracy'" in refused.stderr
    assert "accuracy?" in refused.stderr


def test_what_is_recognised_is_printed_as_a_manifest_that_finds_the_same(
    fabric: Fabric, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"epoch {n} loss: 0.{n} acc: {n}0%\nsaved model {n}\n" for n in range(1, 7)))

    manifest = tmp_path / "manifest.yml"
    manifest.write_text(
        "name: x\nframework: {command: cat train.log}\n"
        + fabric("metrics", "--try", "auto", str(log), "--as-manifest").stdout
    )

    assert "auto calls loss" in manifest.read_text()
    tried = fabric.json("metrics", "--try", str(manifest), str(log), "--json")
    assert [each["values"] for each in tried if each["values"]][1] == {"loss": 0.2, "acc": 20.0, "(epoch)": 2}
    nothing = fabric("metrics", "--try", "auto", str(manifest), "--as-manifest", expect=66)
    assert "no metrics are recognised" in nothing.stderr


def test_the_manifest_of_series_in_files_names_the_files_and_finds_the_same(
    fabric: Fabric, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import json, os\n"
        "os.chdir(os.environ['LOG_DIR'])\n"
        "table, lines = open('metrics.csv', 'w'), open('history.jsonl', 'w')\n"
        "table.write('epoch,step,train_loss\\n')\n"
        "for n in range(1, 7):\n"
        "    table.write(f'{n},{n * 10},{1 / n}\\n')\n"
        "    lines.write(json.dumps({'step': n, 'reward': n * 2.5}) + '\\n')\n"
        "    print(f'step {n} ppl={3 / n:.3f}')\n"
    )
    command = f"{sys.executable} {program}"
    fabric("run", "--runner", "process", "--name", "first", "--", sys.executable, str(program))

    section = fabric("metrics", "first", "--as-manifest").stdout

    assert (
        "# metrics.csv of Lightning: train_loss\n# tables (CSV, JSON lines): reward\n# printed: ppl"
        in section
    )
    manifest = tmp_path / "manifest.yml"
    manifest.write_text(f"name: second\nframework: {{name: custom, command: {command}}}\n{section}")
    fabric("validate", str(manifest))
    fabric("run", "--runner", "process", str(manifest))
    first, second = (fabric.json("metrics", name, "--json")["series"] for name in ("first", "second"))
    kept = ("name", "points", "last")
    assert [[each[key] for key in kept] for each in first] == [[each[key] for key in kept] for each in second]
    assert {"train_loss", "reward", "ppl"} <= {each["name"] for each in first}
    alone = fabric("metrics", "--try", "auto", "first", "--as-manifest").stdout
    assert "regex_extractor" in alone
    assert "reward" not in alone


def test_the_manifest_of_event_files_alone_names_the_extractor_that_reads_nothing_else(
    fabric: Fabric, tmp_path: Path
) -> None:
    (tmp_path / "events").write_bytes(scalars({step: {"loss": 1 / step} for step in range(1, 5)}))
    script = f'cp {tmp_path / "events"} "$LOG_DIR/events.out.tfevents.1.host"'
    fabric("run", "--runner", "process", "--name", "first", "--", "sh", "-c", script)

    section = fabric("metrics", "first", "--as-manifest").stdout

    assert section.startswith(
        "# TensorBoard's event files: loss\n# `type: tensorboard` reads event files alone"
    )


def test_a_run_says_once_which_metrics_are_recognised_and_ends_with_the_loss(fabric: Fabric) -> None:
    program = "for n in range(1, 9): print(f'step {n} loss: 0.{n} flos: {n * 7}', flush=True)"
    ran = fabric("run", "--runner", "process", "--", sys.executable, "-c", program)

    lines = [line for line in ran.stderr.splitlines() if line.startswith("metrics: ")]
    assert sum("from lines like" in line for line in lines) == 1
    assert lines[-1].startswith("metrics: step 8 loss=0.8")
