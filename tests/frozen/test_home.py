"""A home of that day is opened by the present code: what runs goes on, what waits gets its turn, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.frozen.sandbox import Sandbox, end_processes, sandbox
from tests.frozen.unpacking import start_guard
from tests.support.waiting import patience, until

USER_VERSION = 1
RUNNING = ("to-halt", "to-finish", "grid-1")
TABLES = (
    "jobs", "attempts", "learners", "transitions", "requests", "series", "points", "rollups", "texts",
    "checkpoints", "progress", "notes",
)  # fmt: skip
NUMBERED = ("series", "points", "rollups", "texts")
MOVING = ("seen_us", "revision")


@pytest.fixture
def running(live: Sandbox) -> Iterator[Sandbox]:
    """The home whose jobs run, where the agents of that day keep them."""
    folders = [live.home / "jobs" / job / "attempt-1" / "learner-1" for job in _ids(live, RUNNING)]
    guards = [start_guard(folder, env=live.session) for folder in folders]
    until(lambda: all(_phase(folder) == "running" for folder in folders), "the learners to run")
    yield live
    end_processes(live.root)
    for guard in guards:
        guard.wait(patience())


def _ids(box: Sandbox, names: tuple[str, ...]) -> list[str]:
    """Return ids by name, out of the folders: a command would start a controller."""
    found = {
        json.loads(file.read_bytes())["name"]: file.parent.name for file in box.home.glob("jobs/*/job.json")
    }
    return [found[name] for name in names]


def _phase(folder: Path) -> str:
    try:
        return str(json.loads((folder / "state.json").read_bytes())["phase"])
    except (OSError, ValueError):
        return ""


def shown(box: Sandbox, job: str) -> dict[str, Any]:
    return dict(box.json("show", job, "--json"))


def ends(box: Sandbox, job: str, state: str) -> dict[str, Any]:
    until(
        lambda: shown(box, job)["state"] == state,
        lambda: f"{job} to be {state}: {shown(box, job)}",
        seconds=60,
    )
    return shown(box, job)


def test_what_ran_is_seen_read_on_and_halted_and_what_waited_for_it_gets_its_turn(running: Sandbox) -> None:
    (job,) = _ids(running, ("to-halt",))
    running("wait", "to-halt", "--timeout", "1", expect=124)  # which starts a controller; reading starts none
    states = {**dict.fromkeys(RUNNING, "PROCESSING"), "next": "QUEUED", "grid-2": "QUEUED"}
    # What comes after another is PENDING while it is prepared for this machine, which starts it.
    until(lambda: _states(running) == states, lambda: str(_states(running)))
    folder = running.learner("to-halt")
    guard = json.loads((folder / "state.json").read_bytes())["pid"]
    text = f"attempt of {job} begins\n" + "".join(f"step {i} loss 0.{i}\n" for i in range(1, 6)) + "ready\n"

    # Once it was printed while the home was frozen, and once again by the command that was started there now.
    until(lambda: running("logs", "to-halt").stdout == 2 * text, lambda: running("logs", "to-halt").stdout)
    until(lambda: _points(running, "to-halt", "train/loss") == 10, "its new metrics")
    assert running("exec", "to-halt", "--", "sh", "-c", "echo $TRAINING_ID").stdout.strip() == job
    assert shown(running, "next")["started"] is None

    running("halt", "to-halt")
    halted = ends(running, "to-halt", "HALTED")
    turn = ends(running, "next", "COMPLETED")

    assert (halted["exit_code"], halted["exit_by"], halted["attempt"]) == (143, "halt", 1)
    assert running("attach", "to-halt", expect=143).stdout.startswith(2 * text)
    assert running("logs", "to-halt").stdout.endswith("saved\n")
    assert json.loads((folder / "state.json").read_bytes())["pid"] == guard, "another agent was started"
    assert (turn["exit_code"], running("logs", "next").stdout) == (0, "its turn\n")


def test_what_ran_is_taken_over_by_the_next_controller_and_completes(running: Sandbox) -> None:
    with (running.root / "attached").open("wb") as output:
        client = running.start("attach", "to-finish", "-q", stdout=output, stderr=None, env=full(running))
    until(lambda: running.json("controller", "status", "--json")["running"], "a controller")
    first = running.json("controller", "status", "--json")["pid"]
    os.kill(first, signal.SIGKILL)
    until(
        lambda: running.json("controller", "status", "--json")["pid"] not in (None, first),
        "another one",
        seconds=60,
    )
    (Path(shown(running, "to-finish")["results"]) / "go").touch()

    code = client.wait(patience())
    job = shown(running, "to-finish")

    assert (code, job["state"], job["exit_code"], job["exit_by"], job["attempt"]) == (
        0,
        "COMPLETED",
        0,
        "job",
        1,
    )
    assert running("logs", "to-finish").stdout.endswith("ready\nwent on\n")
    assert (running.root / "attached").read_text() == running("logs", "to-finish").stdout
    assert _points(running, "to-finish", "accuracy") == 1, (
        "what training code reports to the agent of that day"
    )


def full(box: Sandbox) -> dict[str, str]:
    """Return the variables of a command that is started."""
    return box.variables


def test_the_next_job_of_a_sweep_runs_when_the_one_before_it_has_ended(running: Sandbox) -> None:
    running("wait", "grid-2", "--timeout", "1", expect=124)
    assert shown(running, "grid-2")["started"] is None
    (Path(shown(running, "grid-1")["results"]) / "go").touch()
    ends(running, "grid-1", "COMPLETED")
    until(lambda: "ready" in running("logs", "grid-2").stdout, "its turn")
    (Path(shown(running, "grid-2")["results"]) / "go").touch()
    job = ends(running, "grid-2", "COMPLETED")

    assert (job["exit_code"], job["spec"]["params"]) == (0, {"x": 2})


def test_a_learner_that_is_killed_at_once_ends_with_137(running: Sandbox) -> None:
    running("kill", "to-halt")

    assert (shown(running, "to-halt")["exit_code"], shown(running, "to-halt")["exit_by"]) == (137, "kill")


def test_a_learner_that_is_gone_is_lost_and_its_job_starts_again(live: Sandbox) -> None:
    """Nothing of the frozen learners runs: as after a reboot."""
    (job,) = _ids(live, ("to-finish",))
    (live.home / "jobs" / job / "results").mkdir(exist_ok=True)
    (live.home / "jobs" / job / "results" / "go").touch()
    live("wait", "to-finish", "--timeout", "60", expect=0)
    ended = ends(live, "to-finish", "COMPLETED")

    assert [each["state"] for each in ended["attempts"]] == ["FAILED", "COMPLETED"]
    assert ended["attempts"][0]["reason_code"].startswith("S")
    assert (ended["platform_restarts"], ended["restarts"]) == (1, 0)


def test_a_halted_job_is_resumed_from_its_checkpoints_and_a_done_one_runs_again(changing: Sandbox) -> None:
    changing("resume", "stopped")
    until(lambda: shown(changing, "stopped")["state"] == "PROCESSING", "it to go on")
    until(lambda: changing("logs", "stopped").stdout == "ready\n", "it to print")
    changing("halt", "stopped")
    again = changing("rerun", "grid-2")
    secret = changing("rerun", "retry")

    job = ends(changing, "stopped", "HALTED")
    assert (job["attempt"], job["exit_code"]) == (2, 143)
    assert changing("logs", "stopped", "--attempt", "1").stdout.startswith("ready\n")
    assert again.stdout == "x is 2\n"
    # Its secret is in the home: in a file of that day.
    assert f"token {'*' * len('frozen-token-value')}\nsecond try\n" in secret.stdout


def test_results_and_checkpoints_come_out_as_they_went_in(changing: Sandbox) -> None:
    changing("download", "steps", "results", "checkpoints", "out")
    changing("download", "steps", "code", "--to", "fetched")

    out = changing.folder / "out"
    assert sorted(out.rglob("model.txt"))[0].read_text() == "weights of 40 steps\n"
    assert {path.parent.name: path.read_text() for path in out.rglob("weights")} == {
        str(step): "w" * step for step in (10, 20, 30, 40)
    }
    (readme,) = (changing.folder / "fetched").rglob("README")
    assert readme.read_text() == "not committed\n"


def test_the_python_api_reads_it(ended: Sandbox) -> None:
    program = (
        "import fabric_workbench as fabric, json\n"
        "job = fabric.job('steps')\n"
        "loss = job.metrics()['train/loss']\n"
        "print(json.dumps([job.state, job.exit_code, job.params, loss.last, len(loss.values), job.logs(tail=1),\n"
        "                  [each.name for each in fabric.jobs('state:failed')], job.describe()['id']]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=full(ended),
        timeout=patience(),
    )

    failed = ["limited", "broken"]
    params = {"lr": 0.05, "optimizer": "adam"}
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["COMPLETED", 0, params, 0.6667, 40, "done", failed, ended.job("steps")]


def test_a_database_of_that_day_is_that_of_a_new_home(changing: Sandbox) -> None:
    before = schema(changing.home)
    changing("tag", "steps", "opened")
    with sandbox() as fresh:
        fresh("run", "-q", "--", "true")
        assert before == schema(changing.home) == schema(fresh.home)

    assert before["version"] == USER_VERSION
    assert "opened" in shown(changing, "steps")["tags"]


def test_a_lost_database_is_made_again_of_the_job_folders(changing: Sandbox) -> None:
    before = rows(changing.home)
    for file in changing.home.glob("fabric.db*"):
        file.unlink()
    report = changing.json("doctor", "--rebuild", "--yes", "--json")

    assert rows(changing.home) == before
    assert (report["jobs"], report["deleted"], report["open_jobs"], report["problems"]) == (10, 1, 0, [])
    assert before["jobs"] and before["points"] and before["checkpoints"]


def test_jobs_go_on_while_a_lost_database_is_made_again(running: Sandbox) -> None:
    for file in running.home.glob("fabric.db*"):
        file.unlink()
    report = running.json("doctor", "--rebuild", "--yes", "--json")
    states = {**dict.fromkeys(RUNNING, "PROCESSING"), "next": "QUEUED", "grid-2": "QUEUED"}
    until(lambda: _states(running) == states, lambda: str(_states(running)))
    running("halt", "to-halt")

    assert (report["jobs"], report["open_jobs"], report["problems"]) == (5, 5, [])
    assert ends(running, "next", "COMPLETED")["exit_code"] == 0
    assert shown(running, "to-halt")["exit_code"] == 143


def test_a_copy_of_it_names_no_folder_of_another_machine(ended: Sandbox) -> None:
    """The archive is unpacked to where the test wants it: nothing is left of the folder that it was made in."""
    held = [path for path in ended.root.rglob("*") if path.is_file() and b"/frozen/" in path.read_bytes()]

    assert held == []


def _states(box: Sandbox) -> dict[str, str]:
    return {each["name"]: each["state"] for each in box.json("list", "--json")}


def _points(box: Sandbox, job: str, name: str) -> int:
    series = {one["name"]: one["points"] for one in box.json("metrics", job, "--json")["series"]}
    return int(series.get(name, 0))


def rows(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that the job folders can give back; a series by its name, since its number is the order of arrival."""
    with closing(_opened(home)) as database:
        series = {
            number: "/".join(str(word) for word in named)
            for number, *named in database.execute("SELECT id, job_id, learner, kind, name FROM series")
        }
        return {table: _rows(database, table, series) for table in TABLES}


def _rows(database: sqlite3.Connection, table: str, series: dict[int, str]) -> list[tuple[Any, ...]]:
    columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})") if name not in MOVING]
    at = columns.index("id" if table == "series" else "series") if table in NUMBERED else -1
    found = database.execute(f"SELECT {', '.join(columns)} FROM {table}")
    return sorted(
        (tuple(series[value] if i == at else value for i, value in enumerate(row)) for row in found), key=repr
    )


def schema(home: Path) -> dict[str, Any]:
    """Return how a home's database is made."""
    with closing(_opened(home)) as database:
        return {
            "version": database.execute("PRAGMA user_version").fetchone()[0],
            "made": sorted(database.execute("SELECT type, name, sql FROM sqlite_master")),
            "steps": database.execute("SELECT migration_set, name FROM _sqlite_migrations").fetchall(),
        }


def _opened(home: Path) -> sqlite3.Connection:
    """Open a home's database for reading."""
    database = sqlite3.connect(f"file:{home / 'fabric.db'}?mode=ro", uri=True)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return database
