"""A second laptop of the same person watches the first one's jobs or takes them over; gc knows whose is whose."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.ssh.seen import printed, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import DEBIAN
from tests.support.kept_agents import lend_agents_to
from tests.support.processes import end_everything
from tests.support.sshd import processes_of
from tests.support.waiting import patience, until
from workbench.job import State
from workbench.paths import Home, config_file
from workbench.services.submit import adoption
from workbench.services.upkeep import machine_checks
from workbench.store.db.database import Store

PRINT = (
    "trap 'echo saved; exit 0' TERM; i=0; "
    "while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; done; echo ready; echo r > $RESULT_DIR/r; "
    "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done; echo end"
)


@pytest.fixture
def first(fabric: Fabric) -> Fabric:
    """The laptop that gives the job."""
    return fabric


@pytest.fixture
def second_home(clean_environment: Path, box: Box) -> Iterator[Home]:
    """The home on the other laptop, which has given the host a job before."""
    home = Home(clean_environment / "second")
    lend_agents_to(box.user, home)
    yield home
    end_everything(home)


def give(first: Fabric, box: Box, home: Home) -> str:
    job = first("run", "-d", "-q", "--backend", box.address, "--", "sh", "-c", PRINT).stdout.strip()
    until(lambda: "ready" in printed(home, job), "the job to run")
    return job


def test_a_job_is_taken_over_by_a_second_laptop_when_the_first_is_gone(
    box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    job = give(first, box, home)
    first("controller", "stop")
    there = str(second_home.path)
    (listed,) = first.json("adopt", box.address, "--json", FABRIC_HOME=there)
    assert (listed["id"], listed["alive"], listed["adopted"]) == (job, True, False)

    first("adopt", box.address, job, FABRIC_HOME=there)
    until(lambda: printed(second_home, job).endswith("ready\n"), "its output")
    assert first("logs", job, FABRIC_HOME=there).stdout == first("logs", job).stdout
    first("halt", job, FABRIC_HOME=there)
    ended = first.json("show", job, "--json", FABRIC_HOME=there)
    assert ended["state"] == "HALTED"
    assert first("logs", job, FABRIC_HOME=there).stdout.endswith("saved\n")
    assert (second_home.job(job).results / "r").read_text() == "r\n"

    first("delete", job, "--yes", FABRIC_HOME=there)
    assert not list(box.user.home.glob(f".fabric/*/*/jobs/{job}"))
    assert not any(b"FABRIC_LEARNER" in _environment(pid) for pid in processes_of(box.user))


def test_a_job_whose_host_has_begun_its_next_attempt_is_taken_over_with_that(
    box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    again = "test -e $RESULT_DIR/once && { echo again; exec sleep 600; }; touch $RESULT_DIR/once; exit 3"
    flags = ("--backend", box.address, "--set", "max_restarts=1")
    job = first("run", "-d", "-q", *flags, "--", "sh", "-c", f"echo ready; sleep 1; {again}").stdout.strip()
    until(lambda: "ready" in printed(home, job), "the job to run")
    first("controller", "stop")
    (folder,) = box.user.home.glob(f".fabric/*/*/jobs/{job}")
    output = folder / "attempt-2" / "learner-1" / "output.log"
    until(lambda: output.exists() and "again" in output.read_text(), "the next attempt")

    there = str(second_home.path)
    (listed,) = first.json("adopt", box.address, "--json", FABRIC_HOME=there)
    assert (listed["attempt"], listed["alive"]) == (2, True)
    first("adopt", box.address, job, FABRIC_HOME=there)
    first("halt", job, FABRIC_HOME=there)

    ended = first.json("show", job, "--json", FABRIC_HOME=there)
    assert (ended["state"], ended["attempt"]) == ("HALTED", 2)


def test_a_job_in_a_container_is_taken_over_as_one_of_processes_is(
    engine_box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    argv = ("run", "-d", "-q", "--backend", engine_box.address, "--runner", "container", "--image", DEBIAN)
    job = first(*argv, "--", "sh", "-c", PRINT).stdout.strip()
    until(lambda: "ready" in printed(home, job), "the job to run")
    first("controller", "stop")
    there = str(second_home.path)
    (listed,) = first.json("adopt", engine_box.address, "--json", FABRIC_HOME=there)
    assert (listed["id"], listed["alive"], listed["adopted"]) == (job, True, False)

    first("adopt", engine_box.address, job, FABRIC_HOME=there)
    until(lambda: printed(second_home, job).endswith("ready\n"), "its output")
    first("halt", job, FABRIC_HOME=there)
    assert first.json("show", job, "--json", FABRIC_HOME=there)["state"] == "HALTED"
    assert first("logs", job, FABRIC_HOME=there).stdout.endswith("saved\n")
    assert (second_home.job(job).results / "r").read_text() == "r\n"

    first("resume", job, FABRIC_HOME=there)
    until(lambda: printed(second_home, job, 2).endswith("ready\n"), "its next attempt")
    first("kill", job, FABRIC_HOME=there)
    first("delete", job, "--yes", FABRIC_HOME=there)
    assert not list(engine_box.user.home.glob(f".fabric/*/*/jobs/{job}"))
    left = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job}"]
    assert subprocess.run(left, check=True, capture_output=True, text=True).stdout == ""


def test_a_job_is_watched_by_both_and_stays_the_first_ones(
    box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    job = give(first, box, home)
    there = str(second_home.path)
    first("adopt", box.address, "--all", "--watch", FABRIC_HOME=there)
    again = first("adopt", box.address, "--all", "--watch", FABRIC_HOME=there)
    assert "adopted 0, 1 here already" in again.stderr
    refused = first("adopt", box.address, job, FABRIC_HOME=there, expect=64)
    assert "is only watched here" in refused.stderr
    first("exec", job, "--", "sh", "-c", "touch $JOB_STATE_DIR/end")
    for laptop in (str(home.path), there):
        first("wait", job, FABRIC_HOME=laptop)
        assert first("logs", job, FABRIC_HOME=laptop).stdout.endswith("ready\nend\n")
    first("delete", job, "--yes", FABRIC_HOME=there)
    assert list(box.user.home.glob(f".fabric/*/*/jobs/{job}"))
    first("delete", job, "--yes")
    assert not list(box.user.home.glob(f".fabric/*/*/jobs/{job}"))


def test_a_job_of_a_foreign_runner_is_found_as_others_are_and_adopted_where_that_runner_is_installed(
    box: Box, first: Fabric, home: Home, second_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = give(first, box, home)
    (submitted,) = box.user.home.glob(f".fabric/*/*/jobs/{job}/submitted.json")
    submitted.write_text(json.dumps({**json.loads(submitted.read_text()), "runner": "moon"}))
    there = str(second_home.path)
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    with Store.open(second_home) as store:
        (found,) = adoption.find(store, box.address)

    assert (found.job_id, found.runner, found.options.options["agent"]) == (job, "moon", "/run/agent.sock")
    refused = first("adopt", box.address, job, FABRIC_HOME=there, expect=64)
    assert "no runner 'moon'" in refused.stderr
    assert first.json("show", job, "--json")["state"] == "PROCESSING"


def test_gc_names_what_is_of_another_laptop_and_leaves_it_alone(
    box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    job = give(first, box, home)
    there = str(second_home.path)
    first("backend", "add", "box", box.address, FABRIC_HOME=there)
    first("run", "-q", "--", "true", FABRIC_HOME=there)
    listed = first.json("gc", "--backend", "box", "--json", FABRIC_HOME=there)
    assert [(one["kind"], one["ours"]) for one in listed] == [("learner", False)]
    first("gc", "--backend", "box", "--yes", FABRIC_HOME=there)
    assert first.json("show", job, "--json")["state"] == "PROCESSING"
    first("kill", job)
    first("wait", job, expect=None)
    until(lambda: not _learners(box), "its agents to end")
    listed = first.json("gc", "--backend", "box", "--json", FABRIC_HOME=there)
    assert [(one["kind"], one["ours"]) for one in listed] == [("folder", False)]
    first("gc", "--backend", "box", "--yes", FABRIC_HOME=there)
    assert list(box.user.home.glob(f".fabric/*/*/jobs/{job}"))


def test_gc_removes_the_folders_of_ones_own_jobs_that_are_gone_and_no_other(
    box: Box, first: Fabric, home: Home
) -> None:
    kept, gone = _given(first, box, 2)
    first("backend", "add", "box", box.address)
    first("controller", "stop")
    (folder,) = box.user.home.glob(f".fabric/*/*/jobs/{gone}")
    copy = folder.with_name("copy")
    folder.rename(copy)
    first("delete", gone, "--yes")
    until(lambda: not home.job(gone).path.exists(), "the job to be gone")
    copy.rename(folder)  # as a laptop leaves it that breaks in the middle of it
    folder.with_name("training-zzzzzzzzz").mkdir()

    listed = first.json("gc", "--backend", "box", "--json")
    assert {(one["kind"], one["name"], one["ours"]) for one in listed} == {
        ("folder", gone.removeprefix("training-"), True),
        ("folder", "zzzzzzzzz", True),
    }
    first("gc", "--backend", "box", "--yes")
    left = {path.name for path in box.user.home.glob(".fabric/*/*/jobs/*")}
    assert left == {kept}
    assert first.json("gc", "--backend", "box", "--json") == []


def test_doctor_asks_all_hosts_at_once_and_says_what_each_lacks(
    box: Box, first: Fabric, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first("backend", "add", "box", box.address)
    first("backend", "add", "again", box.address)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for name in ("mute", "muter"):
            _configure(first, name, f"ssh://me@127.0.0.1:{port}")
        # Time stands until those that answer have answered, and then it is over.
        seconds = iter([0.0, 0.0, 0.0])
        monkeypatch.setattr(machine_checks, "ANSWER_SECONDS", patience())
        monkeypatch.setattr(
            machine_checks, "time", SimpleNamespace(monotonic=lambda: next(seconds, patience()))
        )
        found = list(machine_checks.hosts(home))
        silent.settimeout(patience())
        for _ in range(2):  # both were asked, though the first has not answered
            silent.accept()[0].close()
    findings = {
        name: [one for one in found if one.subject == f"backend {name}"]
        for name in ("box", "again", "mute", "muter")
    }

    for name in ("box", "again"):
        assert box.user.name in findings[name][0].found
        (gpu,) = (one for one in findings[name] if one.found.startswith("gpu: "))
        assert gpu.remedy == "If the machine has one, install NVIDIA's driver."
    for name in ("mute", "muter"):
        assert findings[name][0].level == "lack"
        assert findings[name][0].remedy == f"fabric backend test {name}"


def _configure(laptop: Fabric, name: str, address: str) -> None:
    """Write a backend into the configuration that nobody has reached."""
    file = config_file()
    if f"[backends.{name}]" not in file.read_text():
        with file.open("a") as stream:
            stream.write(f'\n[backends.{name}]\ntype = "ssh"\naddress = "{address}"\n')


def _given(laptop: Fabric, box: Box, count: int) -> list[str]:
    """Return the ids of so many jobs that have run there."""
    argv = ("run", "-d", "--backend", box.address, "--json", "--", "true")
    jobs = [str(laptop.json(*argv)["id"]) for _ in range(count)]
    for job in jobs:
        laptop("wait", job)
    return jobs


def _learners(box: Box) -> list[int]:
    return [pid for pid in processes_of(box.user) if b"FABRIC_LEARNER" in _environment(pid)]


SECRET_PRINT = (
    "echo $SESAME | tr a-z n-za-m; echo ready; while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done; exit 0"
)


def test_secrets_are_found_again_by_the_second_laptop_or_its_restart_is_refused_by_name(
    box: Box, first: Fabric, home: Home, second_home: Home
) -> None:
    args = ("-e", "SESAME", "--set", "max_platform_restarts=2", "--", "sh", "-c", SECRET_PRINT)
    job = first("run", "-d", "-q", "--backend", box.address, *args, SESAME="nopq").stdout.strip()
    until(lambda: printed(home, job) == "abcd\nready\n", "the job to run")
    first("controller", "stop")
    there = str(second_home.path)
    adopted = first("adopt", box.address, job, FABRIC_HOME=there)
    assert "SESAME" in adopted.stderr
    until(lambda: printed(second_home, job) == "abcd\nready\n", "its output")

    _end_agents(box)
    until(lambda: row(second_home, job).state is State.FAILED, "the restart to be refused")
    shown = first.json("show", job, "--json", FABRIC_HOME=there)
    assert shown["reason"] == "The secret SESAME of this job is not on this machine."
    assert "fabric resume" in shown["hint"]
    refused = first("resume", job, FABRIC_HOME=there, expect=66)
    assert "SESAME" in refused.stderr

    first("resume", job, FABRIC_HOME=there, SESAME="nopq")
    until(lambda: row(second_home, job).state is State.PROCESSING, "the job to go on")
    attempt = row(second_home, job).attempt
    until(lambda: printed(second_home, job, attempt).endswith("abcd\nready\n"), "its output")
    first("kill", job, FABRIC_HOME=there)


def _end_agents(box: Box) -> None:
    """Have all that runs there crash at once."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes_of(box.user):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
