"""``import fabric_workbench``: the same jobs by the same code, typed, and at home in a notebook."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import fabric_workbench
from backends.contract.prompts import LoginPrompt
from tests.cli.jobs import add_job
from tests.support.command import Fabric
from tests.support.waiting import patience, until
from workbench.api.progress import NotebookView, wait_for
from workbench.job import State
from workbench.paths import Home
from workbench.services.backends import prompts
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job as stored

MANIFEST = {
    "name": "digits",
    "framework": {
        "command": "echo epoch 1 loss 0.5; echo epoch 2 loss ${params.loss}; echo model > $RESULT_DIR/m"
    },
    "params": {"loss": 0.25},
    "evaluation_metrics": {
        "type": "regex_extractor",
        "groups": {
            "train": {
                "regex": "epoch %{INT:epoch} loss %{FLOAT:loss}",
                "etimes": {"epoch": {"type": "INT", "value": "$epoch"}},
                "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
            }
        },
    },
}


@pytest.fixture
def here(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    monkeypatch.chdir(fabric.folder)
    return fabric


def test_a_dictionary_runs_and_gives_logs_metrics_and_results(
    here: Fabric, capfd: pytest.CaptureFixture[str]
) -> None:
    job = fabric_workbench.run(MANIFEST, params={"loss": 0.125}, labels={"from": "python"}, wait=True)

    assert (job.state, job.exit_code, job.name, job.params) == ("COMPLETED", 0, "digits", {"loss": 0.125})
    assert job.logs() == "epoch 1 loss 0.5\nepoch 2 loss 0.125"
    assert job.logs(tail=1) == "epoch 2 loss 0.125"
    loss = next(series for name, series in job.metrics().items() if name.endswith("loss"))
    assert (loss.steps, loss.values, loss.last) == ((1, 2), (0.5, 0.125), 0.125)
    assert (job.results() / "m").read_text() == "model\n"
    assert f"{job.id.removeprefix('training-')} digits completed" in capfd.readouterr().err
    assert job.describe()["labels"] == {"from": "python"}


def test_the_command_line_sees_the_same_job_and_where_it_came_from(here: Fabric) -> None:
    job = fabric_workbench.run(["echo", "two words"], name="words", wait=True, show=False).tag("good")

    shown = here.json("show", "words", "--json")
    assert shown["id"] == job.id
    assert shown["tags"] == ["good"]
    assert {each["origin"] for each in shown["history"] if each["kind"] == "request"} == {"python"}
    assert fabric_workbench.job("words") == job
    assert job.logs() == "two words"


def test_jobs_are_listed_by_filter_and_order(here: Fabric) -> None:
    low, high = (
        fabric_workbench.run(MANIFEST, params={"loss": loss}, wait=True, show=False) for loss in (0.1, 0.9)
    )

    assert fabric_workbench.jobs(sort="loss") == [low, high]
    assert fabric_workbench.jobs("loss>0.5") == [high]
    assert fabric_workbench.jobs("(params.loss < 0.5 or state = failed) and submitted:today") == [low]
    assert fabric_workbench.jobs(limit=1) == [high]
    with pytest.raises(fabric_workbench.FabricError, match="no job has a metric 'lsos'"):
        fabric_workbench.jobs("lsos<1")


def test_a_job_is_halted_resumed_and_waited_for_in_time(here: Fabric) -> None:
    job = fabric_workbench.run(
        ["sh", "-c", "test -e $CHECKPOINT_DIR/x && exit 5; echo on; exec sleep 600"], show=False
    )
    assert next(job.lines(follow=True)) == "on"
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.1)

    assert job.halt().state == "HALTED"
    assert job.halt().is_over
    (Path(job.describe()["folder"]) / "checkpoints" / "x").touch()
    job.resume()

    with pytest.raises(fabric_workbench.JobFailed, match="exit code 5") as caught:
        job.wait(show=False, check=True)
    assert caught.value.job == job
    assert "failed" in repr(job)


def test_a_job_goes_on_with_other_params(here: Fabric) -> None:
    job = fabric_workbench.run(
        {"name": "more", "params": {"epochs": 3}, "framework": {"command": "test ${params.epochs} -gt 5"}},
        wait=True,
        show=False,
    )
    assert job.state == "FAILED"

    job.resume(params={"epochs": 20}).wait(show=False, check=True)

    assert job.params == {"epochs": 20}
    with pytest.raises(fabric_workbench.FabricError, match="nothing to resume"):
        job.resume()


def test_lines_are_followed_to_the_end(here: Fabric) -> None:
    job = fabric_workbench.run(
        ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done; printf end"], show=False
    )

    assert list(job.lines(follow=True)) == ["1", "2", "3", "end"]


def test_what_is_wrong_raises_and_starts_nothing(here: Fabric) -> None:
    with pytest.raises(fabric_workbench.FabricError, match="gpsu"):
        fabric_workbench.run(MANIFEST, set={"gpsu": 1})
    with pytest.raises(fabric_workbench.FabricError, match="there is no manifest"):
        fabric_workbench.run("gone.yml")
    with pytest.raises(fabric_workbench.FabricError, match="there is no job 'gone'"):
        fabric_workbench.job("gone")
    with pytest.raises(AttributeError, match="no attribute 'submit'"):
        fabric_workbench.submit  # noqa: B018 - that is what is tested
    assert fabric_workbench.jobs() == []


def test_one_job_comes_after_another(here: Fabric) -> None:
    first = fabric_workbench.run(["true"], name="first", show=False)
    second = fabric_workbench.run(["true"], name="second", after=[first], show=False)

    second.wait(show=False)

    assert first.state == "COMPLETED"


def test_a_notebook_is_drawn_in_place_and_its_html_is_harmless(here: Fabric, home: Home) -> None:
    drawn: list[str] = []
    job = fabric_workbench.run(
        ["sh", "-c", "echo '<script>alert(1)</script>'; sleep 0.5"], name="<b>", show=False
    )
    from workbench.services.follow.follower import follow

    with Store.open(home) as store:
        row = stored(store, job.id)
        assert row is not None
        view = NotebookView(drawn.append)
        for event in follow(store, row):
            view.take(event)

    assert "completed" in drawn[-1]
    assert "&lt;script&gt;" in drawn[-1]
    assert "<script>" not in "".join(drawn)
    assert "&lt;b&gt;" in drawn[-1]


def test_a_wait_that_shows_nothing_says_whether_it_was_in_time(here: Fabric, home: Home) -> None:
    job = fabric_workbench.run(["sleep", "600"], show=False)
    with Store.open(home) as store:
        row = stored(store, job.id)
        assert row is not None
        assert not wait_for(store, row, timeout=0.05, show=False)
    job.kill()
    until(lambda: job.is_over, "the job to end")


def test_a_folder_of_our_packages_name_beside_a_script_does_no_harm(here: Fabric) -> None:
    (here.folder / "runners").mkdir()
    (here.folder / "runners" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    script = here.folder / "script.py"
    script.write_text(
        "import fabric_workbench as f, sys\n"
        "print(f.run(['true'], show=False, wait=True).state)\n"
        "print(sys.path[0])\n"
    )

    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=dict(os.environ), timeout=patience()
    )

    assert ran.stdout.splitlines() == ["COMPLETED", str(here.folder)], ran.stderr


def test_importing_it_loads_nothing() -> None:
    code = (
        "import sys, fabric_workbench\n"
        "print([name for name in sys.modules if name.startswith(('workbench', 'typer', 'yaml'))])"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience())

    assert ran.stdout == "[]\n"


def test_all_that_is_offered_is_there_and_typed() -> None:
    for name in fabric_workbench.API:
        offered = getattr(fabric_workbench, name)
        assert offered.__doc__
    assert set(fabric_workbench.API) <= set(dir(fabric_workbench))


def test_data_and_results_are_named_as_on_the_command_line(here: Fabric) -> None:
    (here.folder / "mnist").mkdir()
    (here.folder / "mnist" / "images").write_text("seven")

    job = fabric_workbench.run(
        ["sh", "-c", "cat $DATA_DIR/images; echo m > $RESULT_DIR/m"],
        data="mnist",
        results=str(here.folder / "out"),
        wait=True,
        show=False,
    )

    assert job.logs() == "seven"
    assert (here.folder / "out" / job.id / "m").read_text() == "m\n"


def test_a_function_answers_what_backends_ask(here: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def ask(text: str) -> str | None:
        questions.append(text)
        return "secret"

    fabric_workbench.answer_by(ask)
    try:
        assert fabric_workbench.jobs() == []
        assert prompts.answer(LoginPrompt("Password of me@gpubox")) == "secret"
    finally:
        fabric_workbench.answer_by(None)

    assert questions == ["Password of me@gpubox"]
    assert prompts.answer(LoginPrompt("Password of me@gpubox")) is None  # no terminal


def test_a_metric_is_found_by_the_last_part_of_its_name(here: Fabric) -> None:
    metrics = fabric_workbench.run(MANIFEST, wait=True, show=False).metrics()

    assert list(metrics) == ["train/loss"]
    assert metrics["loss"] is metrics["LOSS"] is metrics["train/loss"] is metrics.get("loss")
    assert (metrics["loss"].min, metrics["loss"].max) == (0.25, 0.5)
    assert "loss" in metrics and "oss" not in metrics and metrics.get("oss") is None
    with pytest.raises(KeyError, match="did you mean loss"):
        metrics["los"]


def test_a_sweep_starts_a_job_for_each_combination(here: Fabric) -> None:
    manifest = {
        "name": "sweep",
        "params": {"lr": 1, "text": "", "seed": 0},
        "framework": {"command": "true"},
    }

    jobs = fabric_workbench.sweep(
        manifest,
        params={"lr": [0.1, 1e-5], "text": ['a\\"b,c', "1..3"], "seed": 7},
        at_most=2,
        wait=True,
        show=False,
    )

    assert [job.params for job in jobs] == [
        {"lr": lr, "text": text, "seed": 7} for lr in (0.1, 1e-5) for text in ('a\\"b,c', "1..3")
    ]
    assert [job.name for job in jobs] == [f"sweep-{number}" for number in (1, 2, 3, 4)]
    assert {job.state for job in jobs} == {"COMPLETED"}
    (label,) = {job.describe()["labels"]["sweep"] for job in jobs}
    assert fabric_workbench.jobs(f"label=sweep={label}", sort="name") == jobs


def test_a_sweep_takes_ranges_and_a_label_of_ones_own(here: Fabric) -> None:
    manifest = {"name": "mine", "params": {"seed": 0}, "framework": {"command": "true"}}

    jobs = fabric_workbench.sweep(manifest, params={"seed": range(2)}, labels={"sweep": "mine"}, show=False)

    assert [job.params for job in jobs] == [{"seed": 0}, {"seed": 1}]
    assert jobs[0].describe()["labels"] == {"sweep": "mine"}
    with pytest.raises(fabric_workbench.FabricError, match=r"params\.lr has no values"):
        fabric_workbench.sweep(manifest, params={"lr": []}, show=False)
    with pytest.raises(fabric_workbench.FabricError, match="1,001 jobs; at most 1,000 are started at once"):
        fabric_workbench.sweep(manifest, params={"seed": range(1001)}, show=False)
    for job in jobs:
        job.wait(show=False)


def test_a_chain_of_dictionaries_runs_one_after_another(here: Fabric, tmp_path: Path) -> None:
    order = tmp_path / "order"
    manifests = [
        {"name": "prepare", "framework": {"command": f"sleep 0.5; echo prepared >> {order}"}},
        {"name": "train", "framework": {"command": f"echo trained >> {order}"}},
        {"name": "report", "framework": {"command": "echo $P"}, "after": ["prepare"], "env": {"P": "drawn"}},
    ]

    jobs = fabric_workbench.chain(manifests, labels={"night": "1"}, wait=True, show=False)

    by_name = {job.name: job for job in jobs}
    assert {name: job.state for name, job in by_name.items()} == dict.fromkeys(by_name, "COMPLETED")
    assert order.read_text() == "prepared\ntrained\n"
    assert by_name["report"].logs() == "drawn"
    assert len(fabric_workbench.jobs("label=night=1")) == 3


def test_a_chain_in_a_file_starts_whole_or_not_at_all(here: Fabric, tmp_path: Path) -> None:
    file = tmp_path / "chain.yml"
    file.write_text(
        "name: one\nframework: {command: 'exit 3'}\n---\nname: two\nframework: {command: echo two}\n"
    )

    first, second = fabric_workbench.chain(file, wait=True, show=False)

    assert (first.state, first.exit_code, second.state) == ("FAILED", 3, "FAILED")
    file.write_text("name: one\nframework: {command: echo}\n---\nname: two\nframwork: {}\n")
    with pytest.raises(fabric_workbench.FabricError, match="framework: is missing"):
        fabric_workbench.chain(file, show=False)
    with pytest.raises(fabric_workbench.FabricError, match="no manifests"):
        fabric_workbench.chain([], show=False)
    assert len(fabric_workbench.jobs()) == 2


class FakePandas(types.ModuleType):
    """Stands for pandas, which is not a dependency: keeps what a data frame would be made of."""

    @staticmethod
    def DataFrame(rows: list[dict[str, Any]], columns: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
        return rows, columns


def test_jobs_and_points_are_tables(here: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    job = fabric_workbench.run(MANIFEST, labels={"team": "a"}, wait=True, show=False)
    monkeypatch.setitem(sys.modules, "pandas", FakePandas("pandas"))

    ((row,), columns) = fabric_workbench.frame("loss<1")
    points, point_columns = job.metrics().frame()

    assert (row["id"], row["state"], row["params.loss"], row["label.team"], row["train/loss"]) == (
        job.id, "COMPLETED", 0.25, "a", 0.25,
    )  # fmt: skip
    assert columns == list(row)
    assert row["ended"] >= row["started"] >= row["submitted"] > 1.6e9
    assert point_columns == ["metric", "step", "value", "time", "attempt", "learner"]
    assert [(each["metric"], each["step"], each["value"]) for each in points] == [
        ("train/loss", 1, 0.5),
        ("train/loss", 2, 0.25),
    ]
    assert fabric_workbench.records([job]) == fabric_workbench.records() == [row]


def test_a_metric_that_is_named_as_a_column_has_one_of_its_own(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        first, second = (add_job(store, name, State.COMPLETED) for name in ("a", "b"))
        for number, (row, metric) in enumerate(((first, "seconds"), (first, "id"), (second, "val/loss"))):
            sql = (
                "INSERT INTO series (id, job_id, learner, name, kind, last) VALUES (?, ?, 1, ?, 'value', 0.5)"
            )
            store.execute(sql, (number, row.id, metric))
    if importlib.util.find_spec("pandas") is None:
        monkeypatch.setitem(sys.modules, "pandas", FakePandas("pandas"))

    found = fabric_workbench.frame()

    columns = found[1] if isinstance(found, tuple) else list(found.columns)
    assert {"id", "seconds", "metrics.id", "metrics.seconds", "val/loss"} <= set(columns)
    assert [each["id"] for each in fabric_workbench.records()] == [second.id, first.id]


def test_without_pandas_a_frame_says_what_to_install(here: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(fabric_workbench.FabricError, match="needs pandas") as caught:
        fabric_workbench.frame()
    assert "pip install pandas" in caught.value.hint


def test_a_failed_job_has_the_exit_code_that_run_would_end_with(here: Fabric) -> None:
    with pytest.raises(fabric_workbench.JobFailed) as caught:
        fabric_workbench.run(["sh", "-c", "exit 3"], show=False).wait(show=False, check=True)

    assert caught.value.exit_code == 3
    with pytest.raises(fabric_workbench.JobFailed) as caught:
        fabric_workbench.run(["sleep", "600"], show=False).halt().wait(show=False, check=True)
    assert caught.value.exit_code == 143


def test_checkpoints_results_and_logs_are_downloaded_and_the_job_deleted(here: Fabric) -> None:
    job = fabric_workbench.run(
        [
            sys.executable,
            "-c",
            "import os, pathlib, fabric_learner as f\n"
            "for step in (1, 2):\n"
            "    path = pathlib.Path(os.environ['CHECKPOINT_DIR'], f'{step}.pt')\n"
            "    path.write_text(str(step))\n"
            "    f.checkpoint(str(path), step, loss=0.5)\n"
            "pathlib.Path(os.environ['RESULT_DIR'], 'model').write_text('m')\n"
            "print('printed')",
        ],
        wait=True,
        show=False,
    )

    assert [(each.name, each.step, each.where) for each in job.checkpoints()] == [
        ("1.pt", 1, ("here",)),
        ("2.pt", 2, ("here",)),
    ]
    results = job.download(into=here.folder / "out")
    picked = job.download("checkpoints", here.folder / "out", steps=[2])
    assert results == here.folder / "out" / "results"
    assert (results / "model").read_text() == "m"
    assert sorted(each.name for each in picked.glob("*.pt")) == ["2.pt"]
    assert (job.download("logs") / "learner-1.log").read_text() == "printed\n"
    assert (here.folder / job.id / "logs").is_dir()
    with pytest.raises(fabric_workbench.FabricError, match="unknown kind 'weights'"):
        job.download("weights")
    with pytest.raises(fabric_workbench.FabricError, match="no checkpoint of step 3"):
        job.download("checkpoints", steps=[3])

    folder = Path(job.describe()["folder"])
    job.delete()
    assert not folder.exists()
    assert fabric_workbench.jobs() == []
    with pytest.raises(fabric_workbench.FabricError, match="there is no job"):
        job.state  # noqa: B018 - that it raises is what is tested
