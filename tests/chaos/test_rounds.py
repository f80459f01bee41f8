"""Whatever is killed at whatever instant: one learner at a time, none left, every byte and point once, the right end.

Each round runs a real job that counts, kills by its seed, and compares what the store and the journal hold with what
the command itself wrote down about what it printed. ``--chaos-rounds 200`` does as many rounds.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pty
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.harms import FIND, HARMS, Harm, kill
from tests.controller.stuck import stuck
from tests.support.command import EXECUTABLE, Fabric
from tests.support.processes import belonging_to
from tests.support.waiting import until
from workbench.metrics.queries import points, series
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import attempts, job

IN_THE_GATE = ("screen", "scribe", "guard and scribe", "controller and guard", "controller and client")
"""The kinds of harm that the gate does, once each: everybody who is killed alone elsewhere dies in one of them."""
LINES = 240
COUNTER = f"""
import os, time
attempt = len(os.listdir(os.environ["RESULT_DIR"]))
shadow = open(os.path.join(os.environ["RESULT_DIR"], f"printed-{{attempt}}"), "ab", buffering=0)
for step in range({LINES}):
    line = b"step %d loss %.6f\\n" % (step, 1 / (step + 1))
    os.write(1, line)
    shadow.write(line)
    time.sleep(0.005)
shadow.write(b"END")
"""
MANIFEST = """
name: counter
max_platform_restarts: 20
framework: {name: custom, command: python counter.py}
evaluation_metrics:
  type: regex_extractor
  groups:
    train:
      regex: 'step %{INT:step} loss %{FLOAT:loss}'
      scalars: {loss: {type: FLOAT, value: $loss}}
      etimes: {step: {type: INT, value: $step}}
"""


def everything_printed() -> bytes:
    return b"".join(b"step %d loss %.6f\n" % (step, 1 / (step + 1)) for step in range(LINES))


def rounds(
    asked: int | None, few: Sequence[str] = tuple(HARMS), harms: Sequence[str] = tuple(HARMS)
) -> Iterator[tuple[int, str]]:
    """Yield seeds with the harm that they do: one round of each of a few kinds, or as many rounds as asked of all."""
    if asked is None:
        yield from enumerate(few)
    else:
        yield from enumerate(itertools.islice(itertools.cycle(harms), asked))


@contextlib.contextmanager
def screen(folder: Path) -> Iterator[int]:
    """Run ``fabric tui`` in a terminal of its own and give its pid."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", LINES="40", COLUMNS="120")
        os.execv(EXECUTABLE, [str(EXECUTABLE), "tui"])
    os.set_blocking(terminal, False)
    try:
        yield pid
    finally:
        kill(pid)
        os.close(terminal)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def do_harm(
    fabric: Fabric, home: Home, harm: Harm, dice: random.Random, *args: str, longest_seconds: float = 2.2
) -> str:
    """Start a job, kill who is to be killed at random instants, see the job to its end, and return its id."""
    with (fabric.folder.parent / "attached").open("wb") as output, contextlib.ExitStack() as stack:
        client = fabric.start("run", "manifest.yml", *args, stdout=output, stderr=output)
        stack.callback(client.wait)
        stack.callback(client.kill)
        victims = {"client": client.pid}
        if "screen" in harm.victims:
            victims["screen"] = stack.enter_context(screen(fabric.folder))
        until(lambda: home.jobs.is_dir() and any(home.jobs.iterdir()), "the job to be submitted")
        started = time.monotonic()
        (folder,) = home.jobs.iterdir()
        for _ in range(dice.randint(1, 3)):
            instant = started + dice.uniform(0.0, longest_seconds)
            until(lambda instant=instant: time.monotonic() > instant, "the instant")  # type: ignore[misc]
            for victim in harm.victims:
                kill(victims[victim] if victim in victims else FIND[victim](home, folder.name))
        until(lambda: _row(home, folder.name) or client.poll() is not None, "the client to ask, or to end")
        # A command that finds an open job and no controller starts one: wait does, as any user's next command would.
        ending(fabric, home, folder.name, "wait", expect=None)
        return folder.name


def ending(fabric: Fabric, home: Home, identity: str, *args: str, expect: int | None = 0) -> None:
    """Run a command that must come to its end; when it does not, say what everybody was doing."""
    try:
        fabric(args[0], identity, *args[1:], expect=expect)
    except subprocess.TimeoutExpired:
        job_folder = home.job(identity)
        states = [file.read_text() for file in sorted(job_folder.path.glob("attempt-*/learner-*/state.json"))]
        events = job_folder.events.read_text().splitlines()[-12:] if job_folder.events.exists() else []
        report = "\n".join([*events, *states, stuck(home, identity)])
        pytest.fail(f"fabric {' '.join(args)} {identity} did not end:\n{report}")


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_nothing_is_lost_doubled_or_orphaned_whoever_is_killed(
    fabric: Fabric, home: Home, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    done: list[str] = []
    for seed, name in rounds(chaos_rounds, IN_THE_GATE):
        (fabric.folder / "counter.py").write_text(COUNTER)
        (fabric.folder / "manifest.yml").write_text(MANIFEST)
        note_harm(f"{name} killed")
        here = f"round {seed}, {name}"
        identity = do_harm(fabric, home, HARMS[name], random.Random(seed), "--runner", "process")
        done.append(name)
        if not submitted(fabric, home, identity):
            shutil.rmtree(home.job(identity).path)
            continue
        check(home, identity, HARMS[name], here)
        ending(fabric, home, identity, "delete", "--yes")
        until(lambda: not home.job(identity).path.exists(), f"the folder to go: {here}")  # noqa: B023 - called now

    assert set(done) == set(list(HARMS)[:chaos_rounds] if chaos_rounds else IN_THE_GATE)


def submitted(fabric: Fabric, home: Home, identity: str) -> bool:
    """Say whether the client had asked for the job when it was killed; else nothing may have come of it.

    A client that was killed between the history and the row has asked: the next controller takes it from there.
    """
    history = home.job(identity).events
    if not history.exists() or b"\n" not in history.read_bytes():
        assert not list(home.job(identity).path.glob("attempt-*"))
        return False
    if _row(home, identity) is None:
        kill(FIND["controller"](home, identity))
        trivial = fabric.json("run", "--runner", "process", "-d", "--json", "--", "true")
        until(lambda: _row(home, identity) is not None, "the next controller to find the job")
        ending(fabric, home, identity, "wait", expect=None)
        fabric("wait", trivial["id"])
        fabric("delete", trivial["id"], "--yes")
    return True


def _row(home: Home, identity: str) -> JobRow | None:
    with contextlib.closing(Store.open(home)) as store:
        return job(store, identity)


def check(home: Home, identity: str, harm: Harm, here: str) -> None:
    """Compare the end, the output, the points and the processes with what they must be."""
    with contextlib.closing(Store.open(home)) as store:
        row = job(store, identity)
        assert row is not None, here
        history = home.job(identity).events.read_text()
        assert (row.state, row.exit_code) == ("COMPLETED", 0), f"{here}: {row.state} {row.reason}\n{history}"
        if not harm.another_attempt:
            assert row.attempt == 1, f"{here}: {[entry.reason for entry in attempts(store, identity)]}"
        (loss,) = (one for one in series(store, identity) if one.name == "train/loss")
        found = points(store, loss.id)
    shadows = sorted(home.job(identity).results.iterdir(), key=lambda path: int(path.name.split("-")[1]))
    assert len(shadows) <= row.attempt, f"{here}: a learner was started twice"
    journals = [home.job(identity).attempt(number).learner(1).output for number in range(1, row.attempt + 1)]
    outputs = [path.read_bytes() for path in journals if path.exists()]
    ran = [output for output in outputs if output]
    whole = everything_printed()
    assert hashlib.sha256(ran[-1]).digest() == hashlib.sha256(whole).digest(), here
    for output, shadow in zip(ran, [path for path in shadows if path.stat().st_size], strict=False):
        printed = shadow.read_bytes().removesuffix(b"END")
        kept = output.startswith(printed) or (harm.pipe_is_lost and printed.startswith(output))
        assert kept, f"{here}: {len(printed)} bytes were printed, {len(output)} are kept"
        assert whole.startswith(output), here
    steps = [
        [point.step for point in found if point.attempt == number] for number in range(1, row.attempt + 1)
    ]
    for output, numbers in zip(outputs, steps, strict=False):
        wanted = list(range(output.count(b"\n")))
        assert numbers == wanted, f"{here}: {len(numbers)} points of {len(wanted)}"

    def gone() -> bool:
        return not any(f"/{identity}/" in _marker(process.pid) for process in belonging_to(home))

    until(gone, f"every process of the learner to be gone: {here}", seconds=10)


def _marker(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return ""
