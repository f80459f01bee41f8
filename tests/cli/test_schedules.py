"""``fabric run --every`` and ``fabric schedule``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs

MANIFEST = """\
name: nightly
framework: {name: custom, command: 'echo trained'}
"""


@pytest.fixture
def manifest(fabric: Fabric) -> Path:
    path = fabric.folder / "manifest.yml"
    path.write_text(MANIFEST)
    return path


def change(home: Home, schedule: str, **keys: object) -> None:
    """Change a schedule's file, as a clock or a newer version would."""
    file = home.schedule(schedule).schedule_file
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def test_a_schedule_is_made_listed_paused_resumed_and_deleted(
    fabric: Fabric, home: Home, manifest: Path
) -> None:
    assert fabric.json("schedule", "--json") == []
    assert "there are no schedules" in fabric("schedule").stderr

    made = fabric("run", "manifest.yml", "--every", "0 22 * * *", TZ="Europe/Berlin")

    schedule = made.stdout.strip()
    assert "nightly runs at 0 22 * * * (Europe/Berlin), next at" in made.stderr
    (listed,) = fabric.json("schedule", "list", "--json")
    assert (listed["id"], listed["state"], listed["zone"]) == (schedule, "ACTIVE", "Europe/Berlin")
    assert listed["next"] and not listed["last"] and not fabric.json("list", "--json")
    assert "nightly" in fabric("schedule").stdout

    assert "nightly is paused" in fabric("schedule", "pause", "nightly").stderr
    assert "already paused" in fabric("schedule", "pause", schedule).stderr
    paused = fabric.json("schedule", "show", "nightly", "--json")
    assert (paused["state"], paused["next"]) == ("PAUSED", None)
    assert fabric.json("schedule", "resume", "@last", "--json")["state"] == "ACTIVE"
    assert [run["what"] for run in fabric.json("schedule", "show", "@last", "--json")["runs"]] == [
        "resumed",
        "paused",
    ]

    assert "its jobs stay" in fabric("schedule", "delete", schedule[-9:]).stderr
    assert fabric.json("schedule", "--json") == []
    assert not home.schedule(schedule).path.exists()
    gone = fabric("schedule", "show", "nightly", expect=64)
    assert "there is no schedule 'nightly'" in gone.stderr


def test_a_run_can_be_asked_for_and_takes_the_folder_as_it_is_then(
    fabric: Fabric, manifest: Path, clean_environment: Path
) -> None:
    fabric("run", "manifest.yml", "--every", "@daily", "--label", "team=vision")
    manifest.write_text(MANIFEST.replace("trained", "trained anew"))

    (job,) = fabric("schedule", "run", "nightly").stdout.split()

    assert fabric("attach", job).stdout == "trained anew\n"
    shown = fabric.json("show", job, "--json")
    nine = fabric.json("schedule", "show", "nightly", "--json")["id"].rpartition("-")[2]
    assert shown["labels"] == {"team": "vision", "schedule": nine}
    document = fabric.json("schedule", "show", "nightly", "--json")
    assert document["jobs"] == [job] and document["runs"][0]["due"] is None
    manifest.unlink()
    assert "there is no manifest manifest.yml" in fabric("schedule", "run", "nightly", expect=66).stderr


def test_a_run_is_refused_while_the_one_before_goes_on(fabric: Fabric, manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("echo trained", "sleep 600"))
    fabric("run", "manifest.yml", "--every", "@daily")
    fabric("schedule", "run", "nightly")

    refused = fabric("schedule", "run", "nightly", expect=75)

    assert "of the run before still goes on" in refused.stderr
    assert len(fabric.json("list", "--json")) == 1


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("manifest.yml", "--every", "0 22 * *"), 64, "has 4 fields"),
        (("manifest.yml", "--every", "0 0 30 2 *"), 64, "day-of-month"),
        (("manifest.yml", "--every", "@daily", "--begin", "22:00"), 64, "both say when"),
        (("manifest.yml", "--every", "@daily", "--timeout", "2h"), 64, "nobody follows"),
        (("-", "--every", "@daily"), 64, "standard input"),
        (("gone.yml", "--every", "@daily"), 66, "there is no manifest gone.yml"),
        (("wrong.yml", "--every", "@daily"), 65, "learners"),
        (("search.yml", "--every", "@daily"), 64, "is a search"),
        (("manifest.yml", "--every", "@daily", "--backend", "nowhere"), 64, "nowhere"),
        (("manifest.yml", "--every", "@daily", "--set", "env.password=x"), 64, "keeps no passwords"),
    ],
    ids=lambda args: " ".join(args[:4]) if isinstance(args, tuple) else "",
)
def test_what_no_run_could_be_made_of_is_refused_at_once(
    fabric: Fabric, manifest: Path, args: tuple[str, ...], code: int, what: str
) -> None:
    (fabric.folder / "wrong.yml").write_text(MANIFEST + "learners: none\n")
    search = "search: {method: random, metric: loss, max_trials: 2, params: {lr: {uniform: [0, 1]}}}\n"
    (fabric.folder / "search.yml").write_text(MANIFEST + search)

    refused = fabric("run", *args, input=MANIFEST if "-" in args else None, expect=code)

    assert what in refused.stderr
    assert fabric.json("schedule", "--json") == []


@pytest.mark.parametrize("given", ["data={secrets: {a: s3cr3t-of-mine}}", " data.secrets.a=s3cr3t-of-mine"])
def test_no_secret_of_an_experiments_data_is_kept(fabric: Fabric, home: Home, given: str) -> None:
    text = "entrypoint: a\nsearcher: {name: single, metric: x}\nresources: {slots_per_trial: 0}\n"
    (fabric.folder / "e.yaml").write_text(text)

    refused = fabric("run", "e.yaml", "--every", "@daily", "--set", given, expect=64)

    assert "a schedule keeps no passwords" in refused.stderr
    assert fabric.json("schedule", "--json") == []


def test_no_secret_is_kept_and_one_of_the_shell_alone_is_refused(
    fabric: Fabric, home: Home, manifest: Path, clean_environment: Path
) -> None:
    value = "s3cr3t-of-the-shell"
    args = ("run", "manifest.yml", "--every", "@daily", "-e", "TOKEN")
    manifest.write_text(MANIFEST.replace("echo trained", "test $TOKEN = s3cr3t-of-the-shell"))

    refused = fabric(*args, TOKEN=value, expect=64)

    assert "secret TOKEN is not set" in refused.stderr and "keeps no values of your shell" in refused.stderr
    file = clean_environment / "secrets.toml"
    file.write_text(f'TOKEN = "{value}"\n')
    file.chmod(0o600)
    schedule = fabric(*args, TOKEN=value, https_proxy=f"http://ada:{value}@proxy").stdout.strip()
    for kept in home.schedule(schedule).path.iterdir():
        assert value not in kept.read_text()
    (job,) = fabric("schedule", "run", schedule).stdout.split()
    fabric("wait", job)


def test_a_real_controller_starts_what_is_due_and_stays_for_the_next_time(
    fabric: Fabric, home: Home, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_LINGER_SECONDS", "0.1")  # without a schedule it would end at once
    schedule = fabric("run", "manifest.yml", "--every", "@daily").stdout.strip()
    fabric("schedule", "pause", schedule)
    change(home, schedule, every="* * * * * *")  # each second, which no user can ask for
    fabric("schedule", "resume", schedule)

    with Store.open(home) as store:
        until(lambda: len(list_jobs(store)) >= 2, "two")
    assert len(fabric.json("list", "--label", f"schedule={schedule[-9:]}", "--json")) >= 2

    # It began none while the one before went on, and none twice.
    runs = fabric.json("schedule", "show", schedule, "--all", "--json")["runs"]
    started = [run for run in runs if run["what"] == "started"]
    assert len({run["due"] for run in started}) == len(started) >= 2
    assert all(len(run["jobs"]) == 1 for run in started)
    before = fabric.json("controller", "--json")["pid"]
    os.kill(before, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(before), "its end")
    many = len(started)
    # Who only reads starts another one where a schedule is active.
    fabric("list", "--json", FABRIC_NO_CONTROLLER="")
    with Store.open(home) as store:
        until(lambda: len(list_jobs(store)) > many + 1, "runs of the next one")
    assert fabric.json("controller", "--json")["pid"] != before


def test_runs_without_a_controller_are_listed_as_missed(fabric: Fabric, home: Home, manifest: Path) -> None:
    schedule = fabric("run", "manifest.yml", "--every", "0 0 * * *", TZ="UTC").stdout.strip()
    fabric("controller", "stop")
    file = home.schedule(schedule).schedule_file
    created = json.loads(file.read_text())["created_us"]
    change(home, schedule, created_us=created - 3 * 86_400_000_000)

    (listed,) = fabric.json("schedule", "--json")

    assert listed["missed"] in (2, 3)  # this may be just after midnight
    assert listed["missed_since"] and "missed: no controller ran" in listed["trouble"]
    assert "no controller ran" in fabric("schedule").stdout
    # The next controller writes it down, and makes up for none.
    fabric("run", "-d", "--", "true")
    until(lambda: "missed" in home.schedule(schedule).events.read_text(), "the controller to write it down")
    assert fabric.json("schedule", "--json")[0]["missed"] == listed["missed"]
