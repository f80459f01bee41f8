"""Commands that take filters, short options with one meaning, completion, and lists in narrow terminals."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_records
from tests.support.command import EXECUTABLE, Fabric
from workbench.cli.framework import completion, dispatch, registry
from workbench.cli.framework.completion import manifest_keys, runner_names, state_names
from workbench.job import Reason, State, short_id
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid


@pytest.fixture
def three(home: Home) -> tuple[str, ...]:
    with Store.open(home) as store:
        jobs = [add_job(store, name, State.FAILED) for name in ("one", "two", "three")]
    return tuple(short_id(row.id) for row in jobs)


def test_jobs_are_tagged_and_deleted_by_a_filter(fabric: Fabric, three: tuple[str, ...]) -> None:
    tagged = fabric("tag", "--where", "name:one|two", "old", "bad").stdout
    asked = fabric("delete", "--where", "tag:old", expect=64).stderr
    fabric("delete", "--where", "tag:old", "--yes")

    assert [line.partition(":")[0] for line in tagged.splitlines()] == [f"{three[0]} one", f"{three[1]} two"]
    assert "two" in asked and "one" in asked and "three" not in asked
    assert [job["name"] for job in fabric.json("list", "--json")] == ["three"]
    assert fabric("delete", "--where", "tag:old").stderr == "no job matches\n"
    assert fabric("tag", "--where", "name:none", "x").stderr == "no job matches\n"


@pytest.mark.parametrize(
    "verb", ["halt", pytest.param("kill", marks=pytest.mark.soak("a kill; the gate has a halt"))]
)
def test_open_jobs_are_stopped_by_a_filter(fabric: Fabric, verb: str) -> None:
    for name in ("lr-1", "lr-2", "other"):
        fabric("run", "-d", "--name", name, "--", "sleep", "60")

    fabric(verb, "--where", "name:lr")
    missing = fabric(verb, "--where", "name:nothing")
    again = fabric(verb, "--where", "name:lr")

    states = {job["name"]: job["state"] for job in fabric.json("list", "--json")}
    assert (states["lr-1"], states["lr-2"]) == ("HALTED", "HALTED")
    assert states["other"] not in ("HALTED", "FAILED", "COMPLETED")
    assert missing.stderr == again.stderr == "no open job matches\n"


def test_a_short_option_means_one_thing() -> None:
    from typer.main import get_command

    meanings: set[str] = set()
    for entry in registry.ENTRIES:
        command = get_command(dispatch.load(entry).app())
        for each in (command, *getattr(command, "commands", {}).values()):
            meanings |= {max(one.opts, key=len) for one in each.params if "-l" in one.opts}

    assert meanings == {"--label"}


def test_the_former_letter_of_a_learner_still_works_with_a_note(
    fabric: Fabric, three: tuple[str, ...]
) -> None:
    ran = fabric("exec", "one", "-l", "1", "--", "true", expect=69)

    assert ran.stderr.startswith("note: -l is --label in other commands; write -L here")


def test_a_pattern_that_begins_like_a_former_letter_stays_as_it_is() -> None:
    grep = dispatch.load(next(entry for entry in registry.ENTRIES if entry.name == "grep"))

    assert grep.split(["-l", "--", "-loss"]) == (["-j", "--", "-loss"], None)


def test_words_that_are_known_are_completed() -> None:
    assert runner_names("p") == ["pod", "process"]
    assert state_names("failed,com") == ["failed,completed"]
    assert state_names("op") == ["open"]
    assert manifest_keys("par") == ["params."]
    assert manifest_keys("framework.com") == ["framework.command="]
    assert manifest_keys("learn") == ["learners="]


def test_only_open_jobs_are_completed_for_halt(fabric: Fabric, home: Home, three: tuple[str, ...]) -> None:
    with Store.open(home) as store:
        add_job(store, "open-one", State.QUEUED)

    def completed(verb: str) -> str:
        asked = {"_FABRIC_COMPLETE": "complete_bash", "COMP_WORDS": f"fabric {verb} o", "COMP_CWORD": "2"}
        environment = {**os.environ, **asked, "FABRIC_NO_CONTROLLER": "1"}
        return subprocess.run([EXECUTABLE], capture_output=True, text=True, env=environment).stdout

    assert completed("halt").split() == ["open-one"]
    assert sorted(completed("show").split()) == ["one", "open-one"]


def test_of_many_open_jobs_the_newest_are_completed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "LIMIT", 2)
    with Store.open(home) as store:
        for name in ("open-1", "open-2", "open-3"):
            add_job(store, name, State.QUEUED)

    assert [name for name, _ in completion.open_job_names("open")] == ["open-3", "open-2"]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_list_is_as_narrow_as_the_terminal(fabric: Fabric, home: Home, columns: int) -> None:
    with Store.open(home) as store:
        add_job(store, "a-name-of-some-length", State.FAILED, reason=Reason("word " * 30), exit_code=137)

    heading, line = fabric("list", COLUMNS=str(columns)).stdout.splitlines()

    assert max(len(heading), len(line)) <= columns
    assert heading.split()[0] == "ID"
    assert "STATE" in heading


def test_columns_that_are_asked_for_stay_and_a_pipe_gets_them_all(
    fabric: Fabric, three: tuple[str, ...]
) -> None:
    asked = fabric("list", "--columns", "id,gpus,submitted,exit", COLUMNS="20").stdout.splitlines()[0]
    piped = fabric("list").stdout.splitlines()[0]

    assert asked.split() == ["ID", "GPUS", "SUBMITTED", "EXIT"]
    assert len(piped.split()) == 9


def test_etimes_are_no_metrics(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "measured", State.COMPLETED)
        folder = folder_of(home, row)
        record = points([1, 2], accuracy=[0.1, 0.2])
        record = {**record, "etimes": points([1, 2], epoch=[1.0, 2.0])["values"]}
        write_records(folder, row, [record], home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass

    hint = fabric("list", "--columns", "id,nothing", expect=64).stderr
    heading = fabric("metrics", "measured").stdout.splitlines()[0]

    assert "there are accuracy" in hint
    assert "epoch" not in hint
    assert heading.split() == ["step", "(epoch)", "accuracy"]
    assert "epoch" not in fabric("metrics", "measured", "--latest").stdout
    assert fabric.json("list", "--where", "epoch>1", "--json")[0]["name"] == "measured"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("defaults.gpus", "many", "defaults.gpus: found the text"),
        ("defaults.on_interrupt", "cry", "defaults.on_interrupt cannot be 'cry'"),
        ("defaults.timeout", "soon", "defaults.timeout"),
        ("defaults.notify_when", "<3", "is not a condition"),
        ("defaults.memory", "lots", "defaults.memory"),
        ("profiles.ci.defaults.learners", "0.5", "learners"),
        ("retention.older_than", "soon", "retention.older_than"),
    ],
)
def test_a_value_that_no_run_would_take_is_not_set(
    fabric: Fabric, key: str, value: str, problem: str
) -> None:
    refused = fabric("config", "set", key, value, expect=64)

    assert problem in refused.stderr
    assert not (fabric.folder.parent / "config.toml").exists()


def test_values_that_a_run_takes_are_set(fabric: Fabric) -> None:
    for key, value in (
        ("defaults.gpus", "1"),
        ("defaults.memory", "2GB"),
        ("defaults.env.MODE", "fast"),
        ("defaults.on_interrupt", "halt"),
        ("defaults.backend", "local"),
        ("retention.older_than", "30d"),
    ):
        fabric("config", "set", key, value)

        assert fabric("config", "get", key).stdout.strip() == value


def test_a_param_that_the_manifest_does_not_declare_is_refused_with_the_nearest(fabric: Fabric) -> None:
    manifest = "name: x\nparams: {lr: 0.1, depth: 3}\nframework: {command: 'true'}\n"
    (fabric.folder / "m.yml").write_text(manifest)
    (fabric.folder / "t.yml").write_text("params: {width: 2}\n")
    (fabric.folder / "none.yml").write_text("name: x\nframework: {command: 'true'}\n")

    one = fabric("plan", "m.yml", "--set", "params.dept=4", expect=65)
    sweep = fabric("run", "m.yml", "--set", "params.lrr=1,2", expect=65)
    fabric("plan", "m.yml", "--set", "params.depth=4")
    fabric("plan", "m.yml", "--template", "./t.yml", "--set", "params.width=4")
    fabric("plan", "none.yml", "--set", "params.anything=4")

    assert "the manifest has no param 'dept' (did you mean depth? its params are lr, depth)" in one.stderr
    assert "the manifest has no param 'lrr'" in sweep.stderr
