"""Every example of ``--help`` and of the README is run, in a home with jobs of the names that they use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.shown import Session, session
from tests.support.folders import make_folder
from tests.support.forked import FORKS
from tests.support.waiting import ended, patience, until
from workbench.cli.framework import registry
from workbench.cli.framework.declare import Command, Family
from workbench.cli.framework.dispatch import load
from workbench.store.db.home_folder import bind

README = Path(__file__).parents[2] / "README.md"

MANIFEST = """\
name: digits
learners: 2
framework: {name: custom, command: 'echo epoch 1 loss ${params.lr} accuracy 0.95; echo w > $RESULT_DIR/model.pt'}
params: {lr: 0.05, seed: 1}
evaluation_metrics:
  type: regex_extractor
  groups:
    test:
      regex: 'epoch %{INT:epoch} loss %{FLOAT:loss} accuracy %{FLOAT:accuracy}'
      etimes: {epoch: {type: INT, value: $epoch}}
      scalars: {loss: {type: FLOAT, value: $loss}, accuracy: {type: FLOAT, value: $accuracy}}
"""

SEARCH = """\
name: digits
framework: {name: custom, command: 'for i in 1 2 3; do echo step=$i loss=${params.lr}$i; done'}
search: {method: random, metric: loss, max_trials: 2, params: {lr: {uniform: [0, 1]}}}
"""

STAGE = f"""
mkdir -p src .fabric/templates ~/mnist ~/data ~/.zfunc ~/.local/share/man/man1
cat > manifest.yml <<'END'
{MANIFEST}END
cat > search.yml <<'END'
{SEARCH}END
cp manifest.yml src/; echo 'print("trained")' > train.py; echo 'env: {{A: b}}' > .fabric/templates/gpu.yml
printf 'epoch %d loss 0.5 accuracy 0.9\\n' 1 2 3 > train.log; touch ~/mnist/images
printf 'name: train\\nrun: python train.py\\n' > task.yaml
printf '#!/bin/sh\\n#SBATCH -t 5\\npython train.py\\n' > job.sbatch
fabric config set defaults.max_restarts 0 --project --profile ci; fabric config set defaults.gpus 0 --project
fabric config set defaults.backend local; fabric config set retention.older_than 30d
fabric run -q search.yml; fabric experiment wait @last
for name in prepare other a b; do fabric run -d --name $name --label sweep=lr manifest.yml; done
fabric run -d manifest.yml; fabric run -d --name last manifest.yml; fabric tag digits best
for name in nightly weekly; do fabric run -q --name $name manifest.yml --every @yearly; done
fabric wait prepare other a b digits last; touch stop_now
"""

OUTSIDE = re.compile(
    r"gpubox|\blab\b|lab:|cloud|k8s|--gpus [12]|nvidia-smi|image (load|send)|ssh://|served:|store retry"
)
"""What an example needs that no test machine has to have: it must fail with a sentence then."""

ENDLESS = re.compile(r"--watch|store serve|fabric tui|fabric shell|adopt .*--watch|--web")
"""Goes on until it is left."""

CODES = {
    "fabric init": {73},  # there is a manifest.yml
    "fabric doctor": {0, 78},
    "fabric doctor --json": {0, 78},
    "fabric diff digits other": {1},
    "fabric diff digits @last --json": {1},
    "fabric grep 'CUDA out of memory'": {1},
    "fabric grep -F 'Segmentation fault' --where 'state:failed age<7d' --jobs": {1},
    "fabric grep 'nan|inf' --where name:digits --max 3 --json": {1},
    "fabric metrics --try keras @last": {1},
    "fabric metrics digits --as-manifest": {66},  # it printed its numbers once
    # Examples show how ids look; no job has these.
    "fabric delete abcdefghj bcdefghjk --yes --no-wait": {64},
    # Of jobs that have completed there is nothing to resume, and nothing beside them to be run.
    "fabric resume @last": {64},
    "fabric resume digits --attach": {64},
    "fabric resume digits --set params.epochs=20": {64},
    # Each of its trials completed; with more of them it is continued, killed, and may still be ending.
    "fabric experiment continue digits": {64},
    "fabric experiment archive digits": {0, 64},
    "fabric exec digits -L 2 -- cat /proc/1/status": {64, 66, 69, 70, 75},
    # No job of these waits any more, and the search is over.
    **{
        f"fabric queue {words}": {64}
        for words in (
            "set digits priority=70",
            "set digits other priority=20",
            "set digits weight=2",
            "set digits begin=22:00",
            "set digits begin=now",
            "move digits --ahead-of other",
            "move digits --behind-of other",
            "move digits --top",
        )
    },
    # These jobs have saved no checkpoints.
    "fabric checkpoint download digits out --step 400": {64},
    "fabric checkpoint download digits out --best 1": {66},
    "fabric checkpoint delete @last --step 100 --yes": {64},
    "fabric run manifest.yml --from digits@300": {64},
    "fabric cp @last:train.log - -L 2": {0, 66},
    "fabric doctor --rebuild": {64},  # nobody is here to be asked
    "fabric validate --json *.yml": {0, 65},
}
"""What an example ends with, where that is not 0."""


FEWER = {
    "1..5 ": "1..2 ",
    "0.1,0.01,0.001": "0.1,0.01",
    "--at-most 100": "--at-most 2",
    "search.max_trials=20": "search.max_trials=3",
}
"""What many jobs would be made of, and what is run instead."""


def commands() -> list[str]:
    """Return the name of every command that has examples."""
    return [entry.name for entry in registry.ENTRIES]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with jobs; the first worker that wants it makes it, each copies it, and the last one removes it.

    Its folder stays where it was made: its schedules name it.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # which all workers of this run have, and no other run
    with (base / "stage").open("a+") as held:
        while True:
            fcntl.flock(held, fcntl.LOCK_EX)
            held.seek(0)
            root = held.read()
            if not root:
                held.write(str(make_stage()))
                held.flush()
            fcntl.flock(held, fcntl.LOCK_SH)  # which lets go for a moment
            held.seek(0)
            if root := held.read():
                break
        yield Path(root)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(root)
            held.truncate(0)


def make_stage() -> Path:
    """Make the home, let its controller go, and keep what is in it."""
    with session() as made:
        made(STAGE)
        made("fabric controller stop")
        log = made.home.path / "fabric.db-wal"
        # The controller goes a moment after it says so; the database is one file then.
        until(lambda: not log.exists(), "the controller to let go of the database")
        kept = make_folder()
        copy_stage(made.root, kept)
    kept.rename(made.root)
    return made.root


def copy_stage(source: Path, target: Path) -> None:
    """Copy what belongs to a home: no socket of a controller, and no agents, which each session is lent."""
    agents = shutil.ignore_patterns("agents")
    for name in (".local", ".config", "work", "mnist", "data", ".zfunc"):
        if (source / name).exists():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True, symlinks=True, ignore=agents)


@pytest.fixture
def copy(stage: Path) -> Iterator[Session]:
    with copied(stage) as made:
        yield made


@contextmanager
def copied(stage: Path) -> Iterator[Session]:
    """Give a home like the stage's, which may be changed."""
    with session() as made:
        copy_stage(stage, made.root)
        bind(made.home)
        made.environment |= {"WANDB_API_KEY": "secret", "TERM": "dumb"}
        yield made


def run(made: Session, example: str) -> tuple[int, str]:
    """Run an example as somebody would type it; one that never ends is left once it has printed something."""
    if ENDLESS.search(example):
        return leave(made, example)
    if re.search("[|<>$&;*]", re.sub(r"'[^']*'|\"[^\"]*\"", "", example)) or not FORKS.can_run(
        made.environment
    ):
        words = ["bash", "-c", example]
        ran = subprocess.run(
            words, cwd=made.work, env=made.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=patience(),
        )  # fmt: skip
        return ran.returncode, ran.stdout
    home = made.environment["HOME"]
    words = [re.sub("^~", home, word) for word in shlex.split(example)]
    ran = FORKS.run(words, cwd=made.work, env=made.environment, input=None, timeout=patience())
    return ran.returncode, ran.stdout + ran.stderr


def leave(made: Session, example: str) -> tuple[int, str]:
    """Run an example until it has printed something, and interrupt it then."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {example}"],
        cwd=made.work,
        env=made.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        ready, _, _ = select.select([process.stdout], [], [], patience())
        assert ready, f"{example} says nothing"
        output = os.read(process.stdout.fileno(), 65536)
        if b"error: " not in output:  # else it ends by itself
            if port := re.search(r"127\.0\.0\.1:(\d+)", example):  # it says where it serves before it does
                until(lambda: answers(int(port[1])) or process.poll() is not None, f"{example} to answer")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        while select.select([process.stdout], [], [], patience())[0] and (
            part := os.read(process.stdout.fileno(), 65536)
        ):
            output += part
        state = _state(process.pid)
    ended(process, f"{example} to end; it printed {output!r}, and was {state}", seconds=1.0)
    return 0, output.decode(errors="replace")


def _state(pid: int) -> str:
    """Say what a process waits for, what it does with signals, and who its children are."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        waits_in = Path(f"/proc/{pid}/wchan").read_text()
    except OSError as error:
        return str(error)
    lines = [line for line in status.splitlines() if line.startswith(("State", "Sig", "Shd", "Threads"))]
    return f"{lines}, in {waits_in}, with the children {children}"


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def check(example: str, code: int, output: str) -> None:
    message = f"{example}\n{output[-3000:]}"
    assert "Traceback" not in output, message
    assert "fabric itself failed" not in output, message
    assert "has no option" not in output, message
    if OUTSIDE.search(example) or ENDLESS.search(example):
        assert code == 0 or re.search("error: |failed|cannot be used", output), message
        return
    assert code in CODES.get(example, {0}), f"exit code {code}: {message}"


def fewer(example: str) -> str:
    """Return an example with fewer jobs: how many there are is not what it shows."""
    for many, few in FEWER.items():
        example = re.sub(re.escape(many.strip()) + r"(?!\S)", few.strip(), example)
    return example


@pytest.mark.parametrize("name", commands())
def test_every_example_of_help_runs(stage: Path, copy: Session, name: str) -> None:
    entry = registry.find(name)
    assert entry is not None
    target: Command | Family = load(entry)
    for example in target.examples:
        if entry.starts_jobs:
            # Its jobs have the names of those that are there: the next example would not know which is meant.
            with copied(stage) as own:
                own("sed -i s/learners:.2/learners: 1/ manifest.yml")  # what several do is tried by others
                check(example, *run(own, fewer(example).split(" | ")[0]))
            continue
        copy("rm -rf training-*")  # a copy of a job's files is made once
        check(example, *run(copy, fewer(example).split(" | ")[0]))


def test_every_example_of_the_overview_and_of_the_readme_runs(copy: Session) -> None:
    lines = [line.strip() for line in registry.overview().splitlines() if line.startswith("  fabric ")]
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh)?\n(.*?)```", text, re.DOTALL)
    lines += [line.strip() for block in blocks for line in block.splitlines() if line.startswith("fabric ")]
    # A verb alone is named in a sentence, and no example.
    lines += re.findall(r"`(fabric [^\s`]+ [^`]+)`", text)
    shown = [re.split(r"\s{2,}|\s+#", line)[0] for line in lines]

    assert len(shown) > 8
    # Others name a job that a second run would make ambiguous.
    for example in sorted(dict.fromkeys(shown), key=lambda example: "fabric run" in example):
        if "COMMAND" in example or "TOPIC" in example or "HOST" in example:
            continue
        check(example, *run(copy, example.replace("python train.py", "python3 train.py")))
