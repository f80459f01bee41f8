"""The ``sh`` agent keeps what it promises, under every shell there is, without Python.

The tests of the Python agent that state a promise of the ``sh`` agent's too run here a second time, where Python is
hidden; those that state none are named, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner import (
    event_files as tf,
)
from tests.learner.agent import Learner, kill
from tests.learner.collecting import points_of
from tests.learner.sh_agent import ShellMachine, ShLearner
from tests.learner.sh_agent_again import AGAIN, EVERYWHERE, MACHINES, NOT_PROMISED, WITH_LOCKS
from tests.support.disks import FILES, fill_files, small_disk
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.boot import sh_launch
from workbench.learner.platform import system

Make = Callable[..., Learner]

for _module, _names in AGAIN.items():
    globals().update({name: getattr(_module, name) for name in _names})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        name = metafunc.function.__name__
        own = metafunc.function.__module__ == __name__
        turn = sum(name.encode()) % len(MACHINES)
        chosen = ["dash", "bash", "busybox alone"] if own or name in EVERYWHERE else [list(MACHINES)[turn]]
        if name in WITH_LOCKS:
            chosen = ["dash", "bash"]
        twice = pytest.mark.soak(
            "another shell; the gate has it in dash, and what shells may differ in in a busybox alone too"
        )
        left = {"bash"} if name in EVERYWHERE else set(chosen) - {"dash"} if own else set()
        machines = [pytest.param(one, marks=twice if one in left else ()) for one in chosen]
        metafunc.parametrize("machine", machines, indirect=True)


@pytest.fixture
def machine(request: pytest.FixtureRequest, clean_environment: Path) -> ShellMachine:
    """A machine without Python."""
    shell, without = MACHINES[request.param]
    lack = ShellMachine.lacks(shell)
    if lack:
        pytest.skip(f"{lack}: the sh agent is not tested with it")
    return ShellMachine(clean_environment / "machine", shell, without=without)


@pytest.fixture
def python() -> str:
    """The Python that there is not."""
    return "/no/python"


@pytest.fixture
def learner(attempt: Path, machine: ShellMachine) -> Iterator[Callable[..., ShLearner]]:
    """Make learners that the ``sh`` agent keeps; nothing may be left running of them."""
    made: list[ShLearner] = []

    def make(command: str, **document: Any) -> ShLearner:
        one = ShLearner(attempt, command, learner=len(made) + 1, **document)
        one.machine = machine
        made.append(one)
        return one

    yield make
    left = {one.marker: one.clear() for one in made}
    assert not any(left.values()), left


def test_every_test_of_the_python_agent_is_run_again_or_listed_as_left_out() -> None:
    for module, again in AGAIN.items():
        named = {name for name in vars(module) if name.startswith("test_")}
        assert named - set(NOT_PROMISED) == set(again)
        assert not set(again) & set(NOT_PROMISED)


def test_a_command_runs_and_its_end_is_recorded(learner: Make) -> None:
    one = learner("echo out; echo err >&2")
    before_us = system.now_us()

    state = one.run()

    assert one.output() == b"out\nerr\n"
    assert (state["exit_code"], state["signal"], state["reason"], state["stopped"]) == (0, None, None, "")
    # Where date knows seconds only, so does the state.
    assert before_us // 10**6 * 10**6 <= state["started_us"] <= state["ended_us"] <= system.now_us()
    assert (state["home"], state["job"], state["learner"]) == (one.launch["home"], one.launch["job"], 1)
    assert state["boot_id"] == system.boot_id()
    assert state["decided"] is True


def test_a_process_that_shows_no_variables_in_the_midst_of_an_exec_is_ended(learner: Make) -> None:
    """The child has none until the agent looks for what is left; its session and its parent say nothing."""
    one = learner(
        NAP + '(env -i "$(command -v setsid)" "$(command -v sh)" "$WORK/child" &);'
        ' until [ -e "$WORK/began" ]; do nap 0.01; done'
    )
    (one.work / "child").write_text(
        f"touch {one.work}/began\n"
        f"until grep -q 'stopping' {one.folder}/state.json; do sleep 0.01; done\n"
        "sleep 0.1\n"
        f"FABRIC_LEARNER={one.marker} exec sleep 1000\n"
    )

    assert one.run()["exit_code"] == 0

    assert one.left() == []


def test_ten_megabytes_with_nul_bytes_are_kept_exactly(learner: Make) -> None:
    one = learner(
        "i=0; while [ $i -lt 40 ]; do head -c 250000 /dev/urandom | tee -a \"$WORK/sent\"; printf '\\0\\n';"
        " printf '\\0\\n' >> \"$WORK/sent\"; i=$((i + 1)); done"
    )

    assert one.run()["exit_code"] == 0

    sent = (one.work / "sent").read_bytes()
    assert len(sent) == 10_000_080
    assert hashlib.sha256(one.output()).digest() == hashlib.sha256(sent).digest()


def test_the_command_sees_its_environment_and_nothing_of_the_agents(learner: Make) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "QUOTED": 'it\'s "$HOME" `id` \\ größe\n second line',
        "with.dot": "kept too",
        "EMPTY": "",
    }
    one = learner(
        'env -0; cat "$FABRIC_STOP_FILE" 2>/dev/null; ls /proc/self/fd | wc -l >&2', env=environment
    )

    one.run()

    *entries, descriptors = one.output().split(b"\0")
    seen = dict(entry.split(b"=", 1) for entry in entries)
    assert {name: seen[name.encode()].decode() for name in environment} == environment
    assert seen[b"FABRIC_LEARNER"].decode() == one.marker
    assert seen[b"FABRIC_REPORT"].decode() == str(one.folder / "report.jsonl")
    ours = {name.encode() for name in environment}
    assert set(seen) - ours <= {
        b"FABRIC_LEARNER",
        b"FABRIC_REPORT",
        b"FABRIC_STOP_FILE",
        b"PWD",
        b"SHLVL",
        b"_",
    }
    assert descriptors.strip() == b"4"  # the listing's own among them


def test_no_signal_is_ignored_that_a_shell_can_help(learner: Make, machine: ShellMachine) -> None:
    one = learner(
        "grep -E 'Sig(Ign|Blk)' /proc/self/status; yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}"
    )
    one.run()

    lines = one.output().decode().split("\n")
    ignored = [int(line.split()[1], 16) for line in lines if line.startswith("Sig")]
    quiet = 1 << signal.SIGINT - 1 | 1 << signal.SIGQUIT - 1
    assert ignored == [0, 0 if machine.shell[0].endswith("bash") or has_gnu_env(machine) else quiet]
    assert lines[-2] == str(128 + signal.SIGPIPE)


def test_no_signal_is_ignored_though_the_agent_is_started_as_a_shell_starts_one(
    learner: Make, machine: ShellMachine
) -> None:
    one = learner("grep SigIgn /proc/self/status")
    start = "trap '' HUP USR1; \"$@\" </dev/null & wait"

    subprocess.run(["/bin/sh", "-c", start, "sh", *one.argv()], env={"PATH": str(machine.tools)}, check=True)

    if has_gnu_env(machine):
        assert one.output().split()[1] == b"0" * 16
    assert one.state()["exit_code"] == 0


def has_gnu_env(machine: ShellMachine) -> bool:
    argv = [str(machine.tools / "env"), "--default-signal", "/bin/true"]
    return subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0


def test_secrets_reach_the_command_and_neither_a_command_line_nor_what_is_read(learner: Make) -> None:
    secret = "correct 'horse' $battery"
    one = learner(
        NAP + 'echo "the token is $TOKEN"; echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; exit 9',
        secrets_file="set below",
    )
    path = one.work / "secrets.json"
    path.write_text(json.dumps({"TOKEN": secret}))
    one.launch["secrets_file"] = str(path)
    (one.folder / "launch.json").write_text(json.dumps(one.launch))
    one.start()
    one.until_printed(b"ready\n")

    command_lines = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert secret.encode() not in command_lines
    (one.work / "go").touch()
    state = one.wait()

    assert state["exit_code"] == 9
    assert b"the token is " + b"*" * len(secret) + b"\n" in one.output()
    for file in one.folder.iterdir():
        assert secret.encode() not in file.read_bytes(), file


def test_a_killed_reader_loses_a_block_at_most_and_is_replaced(learner: Make) -> None:
    one = learner(
        'n=0; until [ -e "$WORK/go" ]; do n=$((n+1)); echo "line $n"; done; echo "$n" > "$WORK/count"'
    )
    one.start()
    one.until_printed(b"line 100\n")

    for _ in range(3):
        pid = one.scribe()
        kill(pid)
        until(lambda pid=pid: one.scribe() not in (0, pid))  # type: ignore[misc] # a default binds the pid
    (one.work / "go").touch()
    state = one.wait()

    count = int((one.work / "count").read_text())
    expected = b"".join(b"line %d\n" % (n + 1) for n in range(count))
    output = one.output()
    assert state["exit_code"] == 0
    assert len(expected) - 3 * 4096 <= len(output) <= len(expected)
    assert output.endswith(b"line %d\n" % count)


def test_a_command_whose_secrets_are_missing_is_not_started(learner: Make) -> None:
    one = learner('touch "$WORK/ran"')
    secrets = one.work / "secrets.json"
    secrets.write_text('{"TOKEN": "open-sesame"}')
    one.launch["secrets_file"] = str(secrets)
    argv = one.argv()
    (one.work / "secrets.sh").unlink()

    assert subprocess.run(argv, check=False).returncode == 66
    state = one.state()
    assert (state["phase"], state["reason"]["code"]) == ("exited", "S101")
    assert str(one.work / "secrets.sh") in state["reason"]["text"]
    assert not (one.work / "ran").exists()
    assert (
        subprocess.run(argv, check=False).returncode == 0
    )  # its end is recorded: nothing is needed any more


def test_the_reader_extracts_records_from_its_files(learner: Make) -> None:
    one = learner(
        'echo "epoch 1 loss=0.5"; echo "epoch 2 loss=0.25"',
        metrics={
            "type": "regex_extractor",
            "groups": {
                "train": {
                    "regex": "epoch %{INT:epoch} loss=%{FLOAT:loss}",
                    "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
                    "etimes": {"epoch": {"type": "INT", "value": "$epoch"}},
                }
            },
        },
    )
    one.run()

    assert points_of(one.records("metrics"))["train", "", "loss"] == [(1, 0.5), (2, 0.25)]


def test_the_reader_reads_event_files_that_were_left(learner: Make) -> None:
    one = learner('mkdir "$LOG_DIR/tb"; cp "$WORK/events" "$LOG_DIR/tb/events.out.tfevents.1"')
    one.launch["env"]["LOG_DIR"] = one.launch["log_dir"]
    one.launch["metrics"] = {"type": "tensorboard"}
    (one.work / "events").write_bytes(tf.version() + tf.scalars({1: {"loss": 0.5}, 2: {"loss": 0.25}}))
    one.run()

    assert points_of(one.records("metrics"))["tb", "", "loss"] == [(1, 0.5), (2, 0.25)]


def test_a_full_disk_is_reported_and_the_command_waits_for_it(learner: Make, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a file system of its own size can be mounted by root only")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted on this machine")
    one = learner(NAP + 'echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; seq 100000; echo done >&2')
    try:
        filler = disk / "filler"
        folder = disk / "learner-1"
        folder.mkdir()
        (folder / "launch.json").write_text(json.dumps(one.launch))
        one.folder = folder
        one.start()
        until(lambda: (folder / "output.log").exists() and b"ready" in (folder / "output.log").read_bytes())
        filler.write_bytes(b"x" * (1700 << 10))
        (one.work / "go").touch()
        until(lambda: one.state().get("stall"))
        assert "the disk is full" in one.state()["stall"]
        assert one.process is not None and one.process.poll() is None
        filler.unlink()
        state = one.wait()
        raw = (folder / "output.log").read_bytes()
    finally:
        one.clear()
        subprocess.run(["umount", "-l", str(disk)], check=True)

    expected = b"ready\n" + b"".join(b"%d\n" % (n + 1) for n in range(100_000)) + b"done\n"
    assert (state["exit_code"], state["stall"]) == (0, "")
    assert raw.endswith(b"100000\ndone\n")
    assert len(expected) - 16 * 4096 <= len(raw) <= len(expected)


@pytest.mark.parametrize(("kind", "code"), [("halt", 7), ("kill", None), ("", 3)])
def test_a_learner_ends_without_inodes(learner: Make, tmp_path: Path, kind: str, code: int | None) -> None:
    one = learner(NAP + 'trap "exit 7" TERM; echo ready; until [ -e "$WORK/go" ]; do nap 0.02; done; exit 3')
    with small_disk(tmp_path / "few", options=FILES) as disk:
        one.folder = disk / "attempt-1" / "learner-1"
        one.folder.mkdir(parents=True)
        one.rewrite(attempt_dir=str(one.folder.parent))
        try:
            one.start()
            until(lambda: (log := one.folder / "output.log").exists() and b"ready" in log.read_bytes())
            fill_files(disk)
            if kind:
                one.stop(kind)
            else:
                (one.work / "go").touch()
            state = one.wait()
            left = sorted(one.folder.glob("*.json.*"))
        finally:
            one.clear()

    assert (state["stopped"], state["exit_code"], state["decided"]) == (kind, code, not kind)
    assert left == []


def test_when_guard_and_reader_are_killed_the_next_guard_ends_what_is_left(learner: Make) -> None:
    one = learner('echo ran >> "$WORK/runs"; echo ready; sleep 1000')
    one.start()
    one.until_printed(b"ready\n")
    assert one.process is not None
    state = one.state()
    kill(state["pid"])
    kill(state["scribe_pid"])
    one.process.wait()
    until(lambda: not system.start_ticks(state["scribe_pid"]))

    again = one.run()

    assert (again["reason"]["code"], again["exit_code"], again["started_us"]) == (
        "S202",
        None,
        state["started_us"],
    )
    assert one.left() == []
    assert (one.work / "runs").read_text() == "ran\n"


@pytest.mark.parametrize("exit_code", [0, 7])
def test_an_agent_killed_before_all_output_was_saved_admits_it_and_changes_no_end(
    learner: Make, exit_code: int
) -> None:
    one = learner(f"echo ready; exit {exit_code}")
    before = {**one.run(), "phase": "stopping", "decided": False, "reason": None}
    (one.folder / "state.json").write_text(json.dumps(before) + "\n")
    (one.folder.parent / "decision.json").unlink()

    state = one.run()

    assert (state["exit_code"], state["reason"]["code"], state["decided"]) == (exit_code, "S206", True)
    assert "may be missing" in state["reason"]["text"]
    decision = json.loads((one.folder.parent / "decision.json").read_text())
    assert decision["failed"] is (exit_code != 0)


def test_state_is_json_whatever_is_printed_and_asked(learner: Make) -> None:
    one = learner("printf 'quote \" backslash \\\\ \\033[31mred\\033[0m gr\\303\\266\\377\\n'; exit 3")
    state = one.run()
    assert state["reason"]["text"].startswith('the command failed with exit code 3: quote " backslash \\')

    other = learner("echo ready; sleep 1000")
    other.start()
    other.until_printed(b"ready\n")
    other.stop("halt", by='ada "the\\first" größe\n{"kind": "kill"}')
    assert other.wait()["reason"]["text"] == 'halted by ada "the\\first" größe\n{"kind": "kill"}'


def test_a_machine_without_flock_says_so_and_a_dead_agents_claim_does_not_count(
    learner: Make, machine: ShellMachine
) -> None:
    one = learner("echo ran")
    lockless = not (machine.tools / "flock").exists()
    if lockless:
        (one.folder / "agent.held").mkdir()
        (one.folder / "agent.held" / "by").write_text(f"{os.getpid()} 1 {system.boot_id()}\n")
    state = one.run()

    assert state["lockless"] is lockless
    assert one.output() == b"ran\n"


def test_words_that_it_does_not_know_are_a_usage_error(machine: ShellMachine, tmp_path: Path) -> None:
    def code(*args: str) -> int:
        argv = [*machine.shell, str(machine.agent), *args]
        return subprocess.run(
            argv, capture_output=True, check=False, env={"PATH": str(machine.tools)}
        ).returncode

    assert [code(), code("guard"), code("host"), code("version")] == [64, 64, 64, 0]
    assert code("guard", str(tmp_path)) == 66


def test_launch_sh_holds_any_text_and_refuses_what_no_shell_can_hold(tmp_path: Path) -> None:
    odd = "a'b\"c$d`e\\f\ng é"
    text = sh_launch.render({"command": odd, "env": {"X": odd, "x.y": odd}}, learner_dir=str(tmp_path))
    (tmp_path / "launch.sh").write_text(text)
    script = '. "$0"; launch_export; printf "%s\\0%s\\0" "$launch_command" "$X"; launch_exec env -0'
    ran = subprocess.run(["sh", "-c", script, str(tmp_path / "launch.sh")], capture_output=True, check=True)

    command, value, *entries = ran.stdout.decode().split("\0")
    assert (command, value) == (odd, odd)
    assert f"x.y={odd}" in entries
    with pytest.raises(ValueError, match="NUL"):
        sh_launch.render({"command": "a\0b"}, learner_dir="/")
    with pytest.raises(ValueError, match="cannot be named a-b"):
        sh_launch.render_secrets({"a-b": "x"})
    assert "hush" not in sh_launch.render_secrets({"data_stores.0.connection.password": "hush", "A": "x"})
