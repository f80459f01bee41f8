from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.learner.agent import Learner
from tests.support.naps import NAP
from tests.support.waiting import ended, until
from workbench.learner.platform import system

SIGNALS = "grep SigIgn /proc/self/status"
Make = Callable[..., Learner]


def test_a_command_runs_and_its_end_is_recorded(learner: Make, python: str) -> None:
    one = learner("echo out; echo err >&2", python=python)
    before_us = system.now_us()

    state = one.run()

    assert one.output() == b"out\nerr\n"
    assert (state["exit_code"], state["signal"], state["reason"], state["stopped"]) == (0, None, None, "")
    assert before_us <= state["started_us"] <= state["ended_us"] <= system.now_us()
    assert (state["home"], state["job"], state["learner"]) == (one.launch["home"], one.launch["job"], 1)
    assert state["boot_id"] == system.boot_id()
    assert state["decided"] is True


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("echo ValueError: bad; exit 3", "C201", "the command failed with exit code 3: ValueError: bad"),
        ("no-such-command", "C202", "no-such-command: command not found"),
        ("touch f; ./f", "C202", "./f: Permission denied"),
    ],
)
def test_a_command_that_fails_says_why(learner: Make, command: str, code: str, text: str) -> None:
    state = learner(command).run()

    assert state["exit_code"] == {"C201": 3}.get(code, 127 if "such" in text else 126)
    assert state["reason"]["code"] == code
    assert text in state["reason"]["text"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_command_that_a_signal_ended_is_recorded_with_it(learner: Make, number: signal.Signals) -> None:
    state = learner(f"kill -{number.value} $$").run()

    assert (state["exit_code"], state["signal"]) == (None, number)
    assert number.name in state["reason"]["text"]
    assert state["reason"]["code"] == "C201"


def test_a_command_without_output_leaves_an_empty_journal(learner: Make) -> None:
    one = learner("true")

    assert one.run()["exit_code"] == 0
    assert one.output() == b"" and one.entries() == []
    assert one.records() == []
    header = json.loads((one.folder / "records.jsonl").read_text().splitlines()[0])
    assert (header["format"], header["job"]) == (1, one.launch["job"])


def test_a_command_that_reads_its_input_finds_none(learner: Make) -> None:
    one = learner('read line || echo "nothing to read"')

    one.run()

    assert one.output() == b"nothing to read\n"


@pytest.mark.parametrize("setup", ["", "true"])
def test_a_command_ignores_no_signal_whatever_started_its_agent(learner: Make, setup: str) -> None:
    one = learner(f"{SIGNALS}; sh -c '{SIGNALS} & wait'; ({SIGNALS})", setup=setup)
    deaf = "for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}):"
    one.start_with("import signal", deaf, "    signal.signal(number, signal.SIG_IGN)")
    one.wait()

    command, behind, below = [line.split()[1] for line in one.output().decode().splitlines()]
    assert (int(command, 16), int(below, 16)) == (0, 0)
    # What a shell without job control starts by `&` ignores these two, by POSIX.
    assert int(behind, 16) == 1 << signal.SIGINT - 1 | 1 << signal.SIGQUIT - 1


def test_a_command_sees_its_environment_and_marker_and_nothing_else(
    learner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAK", "1")
    one = learner("env; pwd; ls /proc/self/fd", env={"PATH": os.environ["PATH"], "COLOUR": "red"})

    one.run()

    lines = one.output().decode().split()
    assert "COLOUR=red" in lines and str(one.work) in lines
    assert f"FABRIC_LEARNER={one.marker}" in lines
    assert not any(line.startswith("LEAK") for line in lines)
    assert [line for line in lines if line.isdigit()] == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_signals_are_as_a_shell_would_have_them(learner: Make, python: str) -> None:
    one = learner(
        "grep -E 'Sig(Ign|Blk)' /proc/self/status; yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}",
        python=python,
    )

    one.run()

    lines = one.output().decode().split("\n")
    assert [line.split()[1] for line in lines if line.startswith("Sig")] == ["0" * 16] * 2
    assert lines[-2] == str(128 + signal.SIGPIPE)


def test_a_command_runs_under_sh_where_bash_is_missing_and_a_note_says_so(learner: Make) -> None:
    one = learner("echo $0", shell="no-such-shell")

    assert one.run()["exit_code"] == 0
    assert one.output() == b"sh\n"
    assert "no-such-shell is not here" in one.records("note")[0]["text"]


def test_a_script_that_is_too_long_for_an_argument_runs(learner: Make) -> None:
    one = learner("# " + "x" * 200_000 + "\necho done")

    assert one.run()["exit_code"] == 0
    assert one.output() == b"done\n"


def test_a_working_folder_that_is_not_there_is_the_platforms_fault(learner: Make) -> None:
    state = learner("echo never", cwd="/no/such/folder").run()

    assert state["reason"]["code"] == "S101"
    assert "/no/such/folder" in state["reason"]["text"]


def test_a_second_agent_for_a_living_learner_starts_nothing(learner: Make, python: str) -> None:
    one = learner(NAP + 'echo ran >> "$WORK/runs"; until [ -e "$WORK/go" ]; do nap 0.01; done', python=python)
    one.start()
    until(lambda: (one.work / "runs").exists())

    assert subprocess.run(one.argv(), check=False).returncode == 0

    (one.work / "go").touch()
    one.wait()
    assert (one.work / "runs").read_text() == "ran\n"


def test_an_agent_for_a_learner_that_has_ended_starts_nothing(learner: Make) -> None:
    one = learner('echo ran >> "$WORK/runs"')
    state = one.run()

    assert one.run() == state
    assert (one.work / "runs").read_text() == "ran\n"


def test_an_agent_for_a_learner_that_has_ended_needs_no_secrets(learner: Make) -> None:
    one = learner("echo $TOKEN")
    secrets = one.work / "secrets.json"
    secrets.write_text('{"TOKEN": "open-sesame"}')
    one.rewrite(secrets_file=str(secrets))
    state = one.run()
    secrets.unlink()

    assert one.run() == state


def test_a_command_whose_secrets_are_missing_is_not_started(learner: Make) -> None:
    one = learner('touch "$WORK/ran"', secrets_file="/no/such/file")

    assert ended(one.start()) == 66

    state = one.state()
    assert (state["phase"], state["reason"]["code"]) == ("exited", "S101")
    assert "/no/such/file" in state["reason"]["text"]
    assert not (one.work / "ran").exists()


def test_many_agents_at_once_start_a_command_once(learner: Make) -> None:
    one = learner('echo ran >> "$WORK/runs"; sleep 0.1')
    agents = [subprocess.Popen(one.argv()) for _ in range(6)]

    assert [ended(agent) for agent in agents] == [0] * 6

    assert one.state()["phase"] == "exited"
    assert (one.work / "runs").read_text() == "ran\n"


def test_a_guard_waits_for_somebody_who_looks_whether_the_lock_is_held(learner: Make) -> None:
    import fcntl

    one = learner("echo ran")
    with (one.folder / "agent.lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        one.start()
    assert one.wait()["exit_code"] == 0


def test_the_lock_is_held_until_the_end_and_not_by_the_command(learner: Make) -> None:
    import fcntl

    one = learner(
        'echo started; until [ -e "$WORK/go" ]; do sleep 0.01; done; ls -l /proc/self/fd | grep -c lock'
    )
    one.start()
    one.until_printed(b"started")

    with (one.folder / "agent.lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (one.work / "go").touch()
        one.wait()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert one.output() == b"started\n0\n"


def test_what_the_guard_was_handed_ends_with_it_and_is_not_the_commands(learner: Make) -> None:
    """A lease's descriptor is inherited by the guard: guard and scribe hold it, never the command."""
    import fcntl

    one = learner('ls /proc/self/fd | wc -l; echo started; until [ -e "$WORK/go" ]; do sleep 0.01; done')
    lease = one.work / "lease"
    with lease.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = subprocess.Popen(one.argv(), pass_fds=[held.fileno()])
    one.process = process
    one.until_printed(b"started")

    with lease.open() as again:
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (one.work / "go").touch()
        one.wait()
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert one.output().split()[0] == b"4"


def test_affinity_is_the_commands(learner: Make) -> None:
    cpu = min(os.sched_getaffinity(0))
    one = learner('"$PYTHON" -c "import os; print(sorted(os.sched_getaffinity(0)))"', cpus=[cpu, 4000])

    one.run()

    assert one.output() == f"[{cpu}]\n".encode()


def test_what_the_whole_tree_uses_is_recorded(learner: Make, python: str) -> None:
    code = "x = b'x' * 50_000_000; print('held', flush=True); import time; time.sleep(60)"
    one = learner(f'"$PYTHON" -c "{code}"; :', usage_seconds=0.1, python=python)
    one.start()
    one.until_printed(b"held")

    usage = until(lambda: [found for found in one.records("usage") if found["memory_bytes"] > 50_000_000])[0]

    assert usage["processes"] == 2  # the shell and its child, and nothing of ours
    assert usage["gpus"] == [] and usage["cpu_percent"] >= 0
    one.stop("kill")
    one.wait()


def test_a_driver_that_hangs_holds_no_output_up(learner: Make) -> None:
    one = learner(NAP + 'echo one; until [ -e "$WORK/go" ]; do nap 0.01; done; echo two', usage_seconds=0.01)
    one.start_with(
        "import threading",
        "from workbench.learner.scribe import usage",
        f"usage.Meter.sample = lambda *_: (open({str(one.work / 'asked')!r}, 'w').close(), threading.Event().wait())",
    )
    until(lambda: (one.work / "asked").exists())

    (one.work / "go").touch()

    assert one.wait()["exit_code"] == 0
    assert one.output() == b"one\ntwo\n"


def test_a_launch_document_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    from workbench.learner.main import main

    (tmp_path / "launch.json").write_text("{")
    assert main(["guard", str(tmp_path)]) == 66
    assert not (tmp_path / "state.json").exists()
    assert main(["guard", str(tmp_path / "missing")]) == 66


def test_other_words_are_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    from workbench.learner.main import main

    assert main(["guard"]) == 64
    assert "usage" in capfd.readouterr().err


def test_the_version_is_the_distributions(capfd: pytest.CaptureFixture[str]) -> None:
    import tomllib

    from workbench.learner.main import main

    assert main(["version"]) == 0
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert capfd.readouterr().out.strip() == project["project"]["version"]


def test_a_short_learner_is_quick(learner: Make) -> None:
    """Its agents wait for one another, and never for a time to be over that a person would notice."""
    one = learner("true")
    one.start_noting_waits()

    assert one.wait()["exit_code"] == 0
    assert one.waits()
    assert sum(seconds for seconds, is_over in one.waits() if is_over) < 0.2, one.waits()


def test_a_stores_credential_is_masked_and_no_variable_of_the_command(learner: Make) -> None:
    one = learner('env -0 | tr "\\0" "\\n" | grep -c connection; echo hidden-from-all; echo $TOKEN')
    secrets = one.work / "secrets.json"
    secrets.write_text('{"TOKEN": "open-sesame", "data_stores.0.connection.password": "hidden-from-all"}')
    one.rewrite(secrets_file=str(secrets))

    one.run()

    assert one.output() == b"0\n" + b"*" * 15 + b"\n" + b"*" * 11 + b"\n"


def test_a_folder_that_changes_as_an_agent_ends_does_not_fail_it(learner: Make) -> None:
    one = learner("sleep 0.1")
    one.start_with(
        "import os, signal",
        "class Last:",
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGIO): kill(pid, number)",
        "last = Last()  # it goes when Python has given its handlers up",
    )

    assert one.wait()["exit_code"] == 0
