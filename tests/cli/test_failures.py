"""What goes wrong is one sentence on stderr with a hint and sysexits' code, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.support.command import EXECUTABLE, Fabric
from tests.support.waiting import patience
from workbench.errors import UsageError
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store

INTERRUPTED = """
import sys
from workbench.cli.framework.main import main
from workbench.terminal import console

def interrupt(text):
    raise KeyboardInterrupt

console.narrate = interrupt
sys.exit(main(["show", "nothing"]))
"""
"""A command that gets ctrl-c while it prints an error."""


def test_ctrl_c_while_an_error_is_printed_is_no_traceback() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=patience()
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["lst"], "there is no command 'lst'", "did you mean `fabric list`?"),
        (["zzzzzz"], "there is no command 'zzzzzz'", "`fabric --help` lists the commands"),
        (["list", "--jsn"], "list has no option '--jsn'", "did you mean --json?"),
        (["list", "--limit", "many"], "--limit", "`fabric list --help` shows"),
        (["list", "--limit"], "--limit", "`fabric list --help` shows"),
        (["list", "a", "b"], "unexpected extra argument", "`fabric list --help` shows"),
        (["show"], "missing argument 'JOB'", "`fabric show --help` shows"),
        (["backend", "ad"], "backend has no command 'ad'", "did you mean `fabric backend add`?"),
        (["list", "--state", "running"], "there is no state 'running'", "states are queued"),
        (["show", "nothing"], "there is no job 'nothing'", "`fabric run` starts one"),
        (["attach", "x", "--on-interrupt", "cry"], "--on-interrupt takes detach, halt, kill", ""),
        (["metrics", "x", "--csv", "--json"], "--csv and --json exclude each other", ""),
        (["download", "x", "resluts"], "unknown kind 'resluts'", "code, logs"),
        (["completion", "tcsh"], "no completion for the shell 'tcsh'", "bash, zsh, fish"),
        (["run"], "nothing to run", "fabric run MANIFEST"),
        (["run", "--backend", "nowhere", "--", "true"], "nowhere", "local"),
        (["run", "--runner", "magic", "--", "true"], "there is no runner 'magic'", "process"),
        (["run", "-e", "1x=2", "--", "true"], "'1x' is not a valid name of a variable", "-e KEY"),
        (["run", "-e", "NOT_SET_ANYWHERE", "--", "true"], "NOT_SET_ANYWHERE", "export"),
        (["run", "--on-interrupt", "cry", "--", "true"], "--on-interrupt takes", ""),
    ],
)
def test_wrong_words_exit_64_with_a_hint(fabric: Fabric, args: list[str], error: str, hint: str) -> None:
    ran = fabric(*args, expect=64)

    message, *more = ran.stderr.splitlines()
    assert message.startswith("error: ")
    assert error in message
    assert ran.stdout == ""
    if hint:
        assert more[0].startswith("hint: ")
        assert hint in more[0]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "missing.yml"], 66),
        (["run", "folder"], 66),
        (["run", "empty.yml"], 65),
        (["run", "faulty.yml"], 65),
        (["run", "good.yml", "missing-code"], 66),
        (["run", "stores.yml"], 65),
        (["plan", "missing.yml"], 66),
        (["validate", "missing.yml"], 66),
        (["validate", "faulty.yml"], 65),
        (["validate", "good.yml", "faulty.yml"], 65),
    ],
)
def test_bad_manifests_and_code_have_their_codes(fabric: Fabric, args: list[str], code: int) -> None:
    (fabric.folder / "folder").mkdir()
    (fabric.folder / "empty.yml").write_text("")
    (fabric.folder / "faulty.yml").write_text("name: x\nlearners: -1\nframework: {command: 'true'}\n")
    (fabric.folder / "good.yml").write_text("name: x\nframework: {command: 'true'}\n")
    (fabric.folder / "stores.yml").write_text(
        "name: x\nframework: {command: 'true'}\n"
        "data_stores:\n"
        "- {id: a, type: s3_datastore, training_data: {container: b}}\n"
    )

    ran = fabric(*args, expect=code)

    assert ran.stderr.startswith("error: ") or args[0] == "validate"


def test_quiet_keeps_what_fabric_itself_says_of_a_failure(fabric: Fabric) -> None:
    refused = fabric("run", "-q", "missing.yml", expect=66)

    assert refused.stderr.startswith("error: there is no manifest missing.yml")


def test_nothing_is_made_by_a_run_that_is_refused(fabric: Fabric) -> None:
    fabric("run", "missing.yml", expect=66)

    assert fabric.json("list", "--json") == []
    assert list((fabric.folder.parent / "fabric").glob("jobs/*")) == []


@pytest.mark.unmade_home
def test_looking_makes_nothing(fabric: Fabric, clean_environment: Path) -> None:
    for words in ("list", "list --json", "gc", "version", "controller status", "backend list"):
        fabric(*words.split())

    assert not (clean_environment / "fabric").exists()


def test_a_bug_is_reported_in_a_sentence_and_shown_on_demand(fabric: Fabric) -> None:
    (fabric.folder.parent / "config.toml").write_text("[defaults\n")

    quiet = fabric("backend", "list", expect=78)
    loud = subprocess.run(
        [EXECUTABLE, "backend", "list"],
        capture_output=True,
        text=True,
        env={**os.environ, "FABRIC_DEBUG": "1"},
    )

    assert quiet.stderr.startswith("error: ")
    assert "Traceback" in loud.stderr


def test_a_closed_pipe_is_silent(fabric: Fabric) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([EXECUTABLE, "schema"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)

    assert ran.returncode == 141
    assert ran.stderr == b""


def test_a_full_disk_behind_stdout_is_reported(fabric: Fabric) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([EXECUTABLE, "list", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)

    assert ran.returncode == 73
    assert ran.stderr.startswith("error: no space left on device")


def test_missing_streams_are_no_traceback(fabric: Fabric) -> None:
    ran = subprocess.run(["sh", "-c", f'"{EXECUTABLE}" list >&-'], capture_output=True, text=True)

    assert "Traceback" not in ran.stderr


def test_a_home_that_cannot_be_written_exits_73(fabric: Fabric) -> None:
    (fabric.folder / "file").write_text("")

    ran = fabric("run", "--", "true", expect=73, FABRIC_HOME=str(fabric.folder / "file" / "home"))

    assert ran.stderr.startswith("error: ")


def test_a_database_from_a_newer_version_is_refused(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        store.execute("PRAGMA user_version = 9999")

    for args in (["list"], ["run", "--", "true"], ["show", "x"]):
        ran = fabric(*args, expect=78)
        assert ran.stderr.startswith("error: ")
        assert "newer" in ran.stderr


def test_a_command_in_a_job_that_does_not_run_says_what_the_job_does(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "ended", State.COMPLETED)
        add_job(store, "waiting", State.QUEUED)

    over = fabric("exec", "ended", "--", "true", expect=69)
    waiting = fabric("exec", "waiting", "--", "true", expect=69, FABRIC_NO_CONTROLLER="1")

    assert "ended is not running: it has ended (completed)" in over.stderr
    assert "resume" in over.stderr.splitlines()[1]
    assert "waiting is not running: it waits" in waiting.stderr


@pytest.mark.parametrize("between", [" ", "|"])
def test_a_filter_of_thousands_of_words_is_read(fabric: Fabric, home: Home, between: str) -> None:
    with Store.open(home) as store:
        add_job(store, "digits")
    args = [f"word{number}" for number in range(3000)]

    found = fabric("list", "--where", between.join([*args, "digits"]), FABRIC_NO_CONTROLLER="1").stdout

    assert ("digits" in found) is (between == "|")


def test_a_filter_that_is_too_long_is_refused_as_such(home: Home) -> None:
    with Store.open(home) as store, pytest.raises(UsageError, match="too many terms"):
        store.rows("SELECT " + " AND ".join(["1"] * 2000))
