"""Guard and scribe are killed at random instants: what was printed is there once, and the end is recorded truthfully.

``--chaos-rounds N`` does N rounds of each harm; seeds are the rounds' numbers, so that a round can be done again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill
from tests.learner.collecting import points_of
from tests.support.waiting import until
from workbench.learner.platform import system

Make = Callable[..., Learner]

METRICS = {
    "type": "regex_extractor",
    "groups": {
        "train": {
            "regex": "loss=%{FLOAT:loss} step=%{INT:step}",
            "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
            "etimes": {"step": {"type": "INT", "value": "$step"}},
        }
    },
}

# After each block that was taken it says so elsewhere: what is missing in the journal was never printed.
PROGRAM = """
import os, random, sys, time
chance = random.Random(int(sys.argv[1]))
reports = os.open(os.environ["WORK"] + "/reports", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
step = 0
for block in range(int(sys.argv[2])):
    data = b""
    for _ in range(chance.choice((1, 1, 1, 30, 300))):
        step += 1
        data += b"loss=%d.5 step=%d\\n" % (step, step) + b"." * chance.choice((0, 10, 500)) + b"\\n"
    if chance.random() < 0.1:
        data += chance.randbytes(5000).replace(b"loss", b"") + b"\\n"
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
    os.write(reports, b"%d\\n" % len(data))
    time.sleep(chance.choice((0, 0, 0.001, 0.01)))
"""


def expected(seed: int, blocks: int, work: Path) -> tuple[bytes, list[int]]:
    """Let the program print into a file; return its output, and where its blocks end."""
    (work / "peer").mkdir()
    output = subprocess.run(
        ["python3", "-c", PROGRAM.replace("time.sleep", "(lambda _: None)"), str(seed), str(blocks)],
        env={**os.environ, "WORK": str(work / "peer")},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    ends = [0]
    for line in (work / "peer" / "reports").read_text().split():
        ends.append(ends[-1] + int(line))
    return output, ends


FEW = 1
"""How many rounds of each harm the gate does."""


def rounds(asked: int | None) -> range:
    return range(FEW if asked is None else asked)


def check_points(one: Learner, output: bytes) -> None:
    """Every point of the output is a record, once."""
    wanted = [int(line.split(b"=")[-1]) for line in output.split(b"\n")[:-1] if line.startswith(b"loss=")]
    points: Any = points_of(one.records("metrics"))
    found = points.get(("train", "", "loss"), [])
    assert [step for step, _ in found] == wanted
    assert all(value == step + 0.5 for step, value in found)
    numbers = [record["seq"] for record in one.records()]
    assert numbers == list(range(1, len(numbers) + 1))


def until_dead(pid: int | None) -> None:
    until(lambda: not pid or not system.start_ticks(pid))


def started(learner: Make, seed: int, blocks: int) -> Learner:
    one = learner("", grace_seconds=1.0, usage_seconds=0.05, metrics=METRICS)
    (one.work / "program.py").write_text(PROGRAM)
    one.rewrite(command=f'exec "$PYTHON" "$WORK/program.py" {seed} {blocks}')
    one.start()
    return one


@pytest.mark.chaos
def test_scribes_are_killed_at_random_instants(
    learner: Make, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    for seed in rounds(chaos_rounds):
        note_harm("scribe killed, up to twelve times")
        chance = random.Random(seed)
        one = started(learner, seed, 120)
        assert one.process is not None
        for _ in range(12):
            time.sleep(chance.choice((0.02, 0.3)) * chance.random())  # the random instant
            if one.process.poll() is None and one.scribe():
                kill(one.scribe())
        state = one.wait()

        output, _ = expected(seed, 120, one.work)
        assert (state["exit_code"], state["reason"]) == (0, None), seed
        assert hashlib.sha256(one.output()).digest() == hashlib.sha256(output).digest(), seed
        check_points(one, output)
        assert one.left() == []


@pytest.mark.chaos
@pytest.mark.parametrize("both", [False, True], ids=["the guard", "guard and scribe"])
def test_guards_are_killed_at_random_instants(
    learner: Make, chaos_rounds: int | None, note_harm: Callable[[str], None], both: bool
) -> None:
    """After each, agents are started again, as a controller does that does not know how far it came."""
    for seed in rounds(chaos_rounds):
        note_harm("guard and scribe killed" if both else "guard killed")
        chance = random.Random(seed)
        one = started(learner, seed, 60)
        time.sleep(chance.random() * 0.4)  # the random instant
        state = one.state()
        assert one.process is not None
        one.process.kill()
        if both and state.get("scribe_pid"):
            kill(state["scribe_pid"])
        one.process.wait()
        until(one.run_again)
        until_dead(state.get("scribe_pid"))

        final = one.state()
        assert one.left() == [], seed
        output, ends = expected(seed, 60, one.work)
        reports_file = one.work / "reports"
        reports = len(reports_file.read_text().splitlines()) if reports_file.exists() else 0
        kept = one.output()
        assert output.startswith(kept), seed
        if final["reason"] is None:
            assert (final["exit_code"], kept) == (0, output), seed
        elif final["reason"]["code"] == "S206":  # its end is known, and what it printed last may be missing
            assert (both, final["exit_code"]) == (True, 0), (seed, final)
        else:
            assert final["reason"]["code"] == "S202", (seed, final)
        if not both:  # with both dead, what waited in the pipe goes with its last holder
            assert ends[reports] <= len(kept) <= ends[min(reports + 1, 60)], seed
        check_points(one, kept)


def traced(one: Learner, *options: str) -> list[str]:
    """Let strace watch an agent, and kill it where the options say; return what it wrote down."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace: agents are killed at random instants only")
    trace = one.work / "trace"
    trace.unlink(missing_ok=True)
    subprocess.run(
        ["strace", "-o", str(trace), *options, *one.argv()], stderr=subprocess.DEVNULL, check=False
    )
    if not trace.exists() or not trace.read_bytes():
        pytest.skip("strace may not trace here: agents are killed at random instants only")
    return trace.read_text(errors="replace").splitlines()


@pytest.mark.chaos
def test_a_guard_is_killed_at_any_of_its_system_calls(
    learner: Make, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    command = 'echo ran >> "$WORK/runs"; echo one; sleep 0.05; echo two; exit 3'
    calls = len(traced(learner(command)))
    for seed in rounds(chaos_rounds):
        note_harm("guard killed at one of its system calls")
        one = learner(command, grace_seconds=0.2)
        number = calls - random.Random(seed).randint(0, 100)  # imports come before
        traced(one, "-e", f"inject=all:signal=SIGKILL:when={number}")
        until(one.run_again)

        state, output = one.state(), one.output()
        runs = (one.work / "runs").read_text() if (one.work / "runs").exists() else ""
        assert runs in ("", "ran\n"), number
        assert b"one\ntwo\n".startswith(output) and output == (one.folder / "output.log").read_bytes(), number
        if state["exit_code"] is None:
            assert state["reason"]["code"] == "S202", number
        else:
            assert (state["exit_code"], output, runs) == (3, b"one\ntwo\n", "ran\n"), number


@pytest.mark.chaos
@pytest.mark.parametrize(
    "harm",
    [
        "pwrite64:signal=SIGKILL:when=2",
        pytest.param(
            "pwrite64:signal=SIGKILL:when=3",
            marks=pytest.mark.soak("the gate kills it at the write before this one"),
        ),
        "splice:signal=SIGKILL:when=2",
        "pwrite64:error=ENOSPC:when=2+2",
        "splice:error=ENOSPC:when=2+2",
        "splice:error=EINVAL:when=2",
    ],
)
def test_every_scribe_is_harmed_at_the_same_write(
    learner: Make, note_harm: Callable[[str], None], harm: str
) -> None:
    """Each gets one or two writes done, to the index or to the records, before its harm."""
    note_harm("scribe killed at a write" if "SIGKILL" in harm else "a write of the scribe failed")
    one = learner('for n in 1 2 3 4 5 6 7 8; do echo "loss=$n.5 step=$n"; sleep 0.02; done', metrics=METRICS)

    traced(one, "-f", "-e", "trace=pwrite64,splice", "-e", f"inject={harm}")

    output = b"".join(b"loss=%d.5 step=%d\n" % (n, n) for n in range(1, 9))
    assert (one.state()["exit_code"], one.output()) == (0, output)
    check_points(one, output)
