"""A job's life from the command line: halted, resumed, killed, deleted, run again, kept through harm."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stores.small_disks import small_disks
from tests.support.command import Fabric, until_runs
from tests.support.processes import belonging_to
from tests.support.waiting import patience, until
from workbench.controller.client.connect import status
from workbench.job import short_id
from workbench.paths import Home
from workbench.services.follow.keeper import Keeper

STEPS = """\
import os, signal, sys, time
place = os.environ["CHECKPOINT_DIR"] + "/step"
step = int(open(place).read()) if os.path.exists(place) else 0
print("from", step, flush=True)
def stop(*_):
    open(place, "w").write(str(step))
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
while step < 5 or not os.path.exists(os.environ["RESULT_DIR"] + "/go"):
    step += 1
    time.sleep(0.01)
print("done", flush=True)
"""


@pytest.fixture
def training(fabric: Fabric) -> dict[str, Any]:
    """A job that goes on until its result folder holds ``go``, with checkpoints."""
    (fabric.folder / "steps.py").write_text(STEPS)
    job = dict(fabric.json("run", "-d", "--json", "--name", "steps", "--", "python3", "steps.py"))
    output = fabric.jobs_home.job(job["id"]).attempt(1).learner(1).output
    until(lambda: output.exists() and "from" in output.read_text(), "the job to print")
    until_runs(fabric, "steps")
    return job


def shown(fabric: Fabric, name: str = "steps") -> dict[str, Any]:
    return dict(fabric.json("show", name, "--json"))


def test_halt_keeps_everything_and_resume_goes_on(fabric: Fabric, training: dict[str, Any]) -> None:
    fabric("halt", "steps")
    halted = shown(fabric)
    (Path(halted["results"]) / "go").write_text("")

    fabric("resume", "steps")
    ended = fabric("attach", "steps")

    assert (halted["state"], halted["exit_code"], halted["exit_by"]) == ("HALTED", 143, "halt")
    assert int(ended.stdout.split()[1]) > 0
    assert ended.stdout.endswith("done\n")
    again = shown(fabric)
    assert (again["state"], again["attempt"], again["exit_code"]) == ("COMPLETED", 2, 0)
    assert [each["state"] for each in again["attempts"]] == ["HALTED", "COMPLETED"]
    assert fabric("logs", "steps", "--attempt", "1").stdout == "from 0\n"


def test_kill_stops_at_once_and_says_who(fabric: Fabric, training: dict[str, Any]) -> None:
    stopped = fabric.json("kill", "steps", "--json")[0]

    assert (stopped["state"], stopped["exit_code"], stopped["exit_by"]) == ("HALTED", 137, "kill")
    assert "kill" in stopped["reason"]
    assert "@" in stopped["reason"]


def test_stopping_what_has_ended_is_no_failure(fabric: Fabric) -> None:
    fabric("run", "--name", "over", "--", "true")

    assert "has already ended: completed" in fabric("halt", "over").stderr
    assert "completed; there is nothing to resume" in fabric("resume", "over", expect=64).stderr


def test_delete_leaves_nothing(fabric: Fabric, training: dict[str, Any], home: Home) -> None:
    refused = fabric("delete", "steps", expect=64)
    deleted = fabric("delete", "steps", "--yes")

    assert "--yes" in refused.stderr
    assert "with results and checkpoints? It runs: it is stopped first." in refused.stderr
    assert "steps: runs, and is stopped first" in deleted.stderr
    assert fabric.json("list", "--json") == []
    assert not home.job(training["id"]).path.exists()
    fabric("controller", "stop")
    until(lambda: not belonging_to(home), "every process to be gone")


def test_rerun_uses_what_was_recorded_and_names_what_differs(fabric: Fabric, home: Home) -> None:
    (fabric.folder / "say.py").write_text("import os; print('one', os.environ['FABRIC_SEED'])\n")
    (fabric.folder / "m.yml").write_text("name: say\nseed: 7\nframework: {command: python3 say.py}\n")
    first = fabric("run", "m.yml")
    (fabric.folder / "say.py").write_text("print('two')\n")
    old = shown(fabric, "@last")

    again = fabric("rerun", "@last")
    new = shown(fabric, "@last")
    file = home.job(new["id"]).job_file
    document = json.loads(file.read_text())
    document["recorded"]["packages"].append("gone==1.0")
    document["recorded"]["fabric"] = "0.0.1"
    file.write_text(json.dumps(document))
    other = fabric("rerun", "@last")

    assert first.stdout == again.stdout == other.stdout == "one 7\n"
    assert new["code_hash"] == old["code_hash"]
    assert new["recorded"]["rerun_of"] == old["id"]
    assert f"no known differences from {short_id(old['id'])}" in again.stderr
    assert "gone 1.0 was removed" in other.stderr
    assert "was 0.0.1" in other.stderr


def test_rerun_has_the_secrets_of_the_first_job(fabric: Fabric) -> None:
    command = ["printf %s $MY_TOKEN | wc -c"]
    fabric("run", "-e", "MY_TOKEN", "--", *command, MY_TOKEN="0123456789")

    assert fabric("rerun", "@last").stdout.strip() == "10"
    assert fabric("rerun", "@last", MY_TOKEN="012345").stdout.strip() == "6"


def test_an_attached_client_starts_another_controller(
    fabric: Fabric, home: Home, training: dict[str, Any]
) -> None:
    client = fabric.start("attach", "steps")
    assert client.stdout is not None
    client.stdout.readline()
    first = status(home)
    assert first is not None

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: (now := status(home)) and now.pid != first.pid, "another controller")
    (Path(shown(fabric)["results"]) / "go").write_text("")
    client.communicate(timeout=patience())

    assert client.returncode == 0
    assert Keeper.EVERY_SECONDS <= 1.0  # how long a start takes depends on what else the machine does
    assert shown(fabric)["attempt"] == 1


def test_a_client_that_is_killed_stops_nothing(fabric: Fabric, training: dict[str, Any]) -> None:
    client = fabric.start("attach", "steps")
    assert client.stdout is not None
    client.stdout.readline()
    client.kill()
    client.communicate()

    (Path(shown(fabric)["results"]) / "go").write_text("")
    assert fabric("attach", "steps").stdout == "from 0\ndone\n"


def test_the_controller_is_shown_and_stopped(fabric: Fabric, training: dict[str, Any]) -> None:
    running = fabric.json("controller", "status", "--json")
    fabric("controller", "stop")
    until(lambda: not fabric.json("controller", "--json")["running"], "the controller to end")

    assert running["running"] is True
    assert running["open_jobs"] == 1
    assert "lack" in fabric("doctor").stdout
    (Path(shown(fabric)["results"]) / "go").write_text("")
    assert fabric("attach", "steps").stdout == "from 0\ndone\n"


def test_a_lost_database_is_rebuilt_while_the_job_goes_on(
    fabric: Fabric, training: dict[str, Any], home: Home
) -> None:
    fabric("controller", "stop")
    for file in home.path.glob("fabric.db*"):
        file.unlink()
    lost = fabric("doctor", expect=78)
    unknown = fabric("show", "steps", expect=66)

    fabric("doctor", "--rebuild")
    (Path(shown(fabric)["results"]) / "go").write_text("")

    assert "lost, with 1 job folder" in lost.stdout
    assert "doctor --rebuild" in unknown.stderr
    assert fabric("attach", "steps").stdout == "from 0\ndone\n"
    assert shown(fabric)["attempt"] == 1


def test_gc_lists_what_belongs_to_nobody_and_removes_it_on_request(fabric: Fabric, home: Home) -> None:
    fabric("run", "--name", "kept", "--", "true")
    (home.jobs / "training-zzzzzzzzz").mkdir()
    (home.jobs / "training-zzzzzzzzz" / "half").write_text("half-made")

    listed = fabric.json("gc", "--json")
    asked = fabric("gc")
    fabric("gc", "--yes")

    ours = [each for each in listed if each["ours"]]
    assert [(each["kind"], each["name"], each["removed"]) for each in ours] == [
        ("folder", "training-zzzzzzzzz", False)
    ]
    assert "training-zzzzzzzzz" in asked.stdout
    assert "--yes removes" in asked.stderr
    assert [each for each in fabric.json("gc", "--json") if each["ours"]] == []
    assert fabric("rerun", "kept").returncode == 0


def test_gc_removes_the_others_where_one_thing_cannot_be_and_says_which_stays(
    fabric: Fabric, home: Home
) -> None:
    fabric("run", "-q", "--", "true")
    with small_disks() as mount:
        kept = mount(home.jobs / "training-yyyyyyyyy" / "disk", 1)
        (kept.parent / "half").write_text("half-made")
        (home.jobs / "training-zzzzzzzzz").mkdir()

        removed = fabric("gc", "--json", "--yes", expect=73)

        ours = [each for each in json.loads(removed.stdout) if each["ours"]]
        assert [(each["name"], each["removed"]) for each in ours] == [
            ("training-yyyyyyyyy", False), ("training-zzzzzzzzz", True)
        ]  # fmt: skip
        assert "folder training-yyyyyyyyy stays" in removed.stderr
        assert str(kept) in removed.stderr
        assert not (kept.parent / "half").exists()
        assert not (home.jobs / "training-zzzzzzzzz").exists()
        assert "nothing was removed" in fabric("gc", "--yes", expect=73).stderr
    assert "removed 1 item" in fabric("gc", "--yes").stderr


def test_gc_of_one_backend_that_cannot_be_asked_is_a_failure(fabric: Fabric) -> None:
    fabric("run", "-q", "--", "true")

    refused = fabric("gc", "--backend", "ssh://me@127.0.0.1:1", "--yes", expect=69)
    assert "127.0.0.1" in refused.stderr


def test_wait_gives_up_in_time(fabric: Fabric, training: dict[str, Any]) -> None:
    gave_up = fabric("wait", "steps", "--timeout", "0.2", expect=None)

    assert gave_up.returncode == 124
    assert fabric.json("show", "steps", "--json")["state"] not in ("COMPLETED", "FAILED", "HALTED")


def test_wait_for_any(fabric: Fabric, training: dict[str, Any]) -> None:
    fabric("run", "-d", "--name", "quick", "--", "exit 9")

    waited = fabric("wait", "--any", "steps", "quick", expect=None)

    assert waited.returncode == 9
    assert fabric.json("show", "quick", "--json")["state"] == "FAILED"
    assert fabric.json("show", "steps", "--json")["state"] != "FAILED"


def test_followed_logs_go_over_attempts_to_the_end(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(
        "name: again\nmax_restarts: 1\nframework:\n"
        f"  command: echo try; until test -e {fabric.folder}/seen; do sleep 0.2; done;"
        " test -e $CHECKPOINT_DIR/x || { touch $CHECKPOINT_DIR/x; exit 3; }\n"
    )
    fabric("run", "-d", "m.yml")

    with fabric.start("logs", "again", "-f") as followed:
        assert followed.stdout is not None
        assert followed.stdout.readline() == b"try\n"
        (fabric.folder / "seen").touch()
        assert followed.stdout.read() == b"try\n"
    assert followed.returncode == 0


def test_a_line_is_there_before_the_next_is_printed(fabric: Fabric) -> None:
    answer = fabric.folder / "answer"
    code = (
        "import os, time\n"
        "for number in range(3):\n"
        "    print(number, flush=True)\n"
        f"    while not os.path.exists({str(answer)!r} + str(number)): time.sleep(0.005)\n"
    )

    with fabric.start("run", "-q", "--", sys.executable, "-c", code) as attached:
        assert attached.stdout is not None
        for number in range(3):
            assert attached.stdout.readline() == b"%d\n" % number
            answer.with_name(f"answer{number}").touch()

    assert attached.returncode == 0


def test_the_reason_why_a_job_waits_is_shown(fabric: Fabric) -> None:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in ("first", "second"):
        (fabric.folder / f"{name}.yml").write_text(
            f"name: {name}\ncpus: {cpus}\nframework:\n  command: while [ ! -e $RESULT_DIR/go ]; do sleep 0.2; done\n"
        )
    fabric("run", "-d", "first.yml")
    fabric("run", "-d", "second.yml")

    def waits() -> bool:
        found = shown(fabric, "second")
        return "CPU" in found["reason"] and found["state"] == "QUEUED"  # not while it is being prepared

    until(waits, "a reason that names CPUs")
    fabric("kill", "first", "second")
