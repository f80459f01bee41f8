"""``fabric doctor``: what has failed somebody once, and what helps."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.cli.jobs import add_job
from tests.support.command import EXECUTABLE, Fabric
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.jobs import set_reason


def findings(fabric: Fabric, **env: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for each in fabric.json("doctor", "--json", expect=None, **env)["findings"]:
        found.setdefault(each["subject"], []).append(each)
    return found


def test_a_variable_that_means_nothing_is_named_with_the_nearest(fabric: Fabric) -> None:
    (found,) = findings(fabric, FABRIC_GPSU="1", FABRIC_GPUS="0")["environment"]

    assert found["found"] == "FABRIC_GPSU means nothing"
    assert found["remedy"] == "did you mean FABRIC_GPUS?"


def test_keys_of_the_configuration_that_mean_nothing_are_named(fabric: Fabric) -> None:
    (fabric.folder / "fabric.toml").write_text("[defualts]\ngpus = 1\n")

    warnings = [each for each in findings(fabric)["configuration"] if each["level"] == "lack"]

    assert "fabric.toml:1: defualts is not a configuration key" in warnings[0]["found"]
    assert warnings[0]["remedy"] == "did you mean defaults?"


def test_jobs_that_wait_with_a_fault_are_named_with_what_helps(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "stuck", State.QUEUED)
        set_reason(store, row.id, Reason("gpubox does not answer", "S200", "is it on?"))

    (found,) = findings(fabric)["jobs"]

    assert "stuck waits: gpubox does not answer" in found["found"]
    assert found["remedy"] == "is it on?"


def test_instances_of_inotify_that_are_used_up_are_noticed(fabric: Fabric) -> None:
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here, and the limit of this user is everybody's")
    assert "inotify" not in findings(fabric)
    limited = 'echo 32 >/proc/sys/user/max_inotify_instances; exec "$@"'

    ran = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", limited, "sh", str(EXECUTABLE), "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )

    (found,) = (each for each in json.loads(ran.stdout)["findings"] if each["subject"] == "inotify")
    assert found["found"].startswith("no more than 32 instances are left")
    assert found["remedy"].startswith("sysctl fs.inotify.max_user_instances=")


def test_retention_is_listed_and_not_done(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "old", State.COMPLETED)
    fabric("config", "set", "retention.older_than", "0")

    (found,) = findings(fabric)["retention"]

    assert (found["found"], found["remedy"]) == ("1 job may go", "fabric prune")
    assert len(fabric.json("list", "--json")) == 1


def test_a_broken_configuration_stops_no_other_check(fabric: Fabric) -> None:
    (fabric.folder / "fabric.toml").write_text("[defaults]\ndetach = 'maybe'\n")

    found = findings(fabric)

    assert any(each["level"] == "wrong" for each in found["configuration"])
    assert {"home", "git", "clock", "interpreter"} <= set(found)


def test_it_says_which_python_jobs_get(fabric: Fabric) -> None:
    assert "for jobs that say python: current" in findings(fabric)["interpreter"][0]["found"]


@pytest.mark.unmade_home
def test_a_home_that_others_can_read_is_closed_and_not_complained_about(fabric: Fabric, home: Home) -> None:
    home.path.mkdir(mode=0o755)
    home.path.chmod(0o755)

    found = findings(fabric)["home"]

    assert [each["level"] for each in found] == ["ok"]
    assert home.path.stat().st_mode & 0o777 == 0o700


def test_the_last_line_says_that_something_is_missing(fabric: Fabric) -> None:
    ran = fabric("doctor", FABRIC_MEANS_NOTHING="1")

    assert any(line.startswith("  lack") for line in ran.stdout.splitlines())
    assert ran.stderr == "no problems found; `lack` marks what is missing, and `do:` shows the remedies\n"
