"""Journals come in turns, their logs written down as they come; each byte once, in order, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.interface import AttemptRef, LearnerRef
from runners.process.runner import ProcessRunner
from tests.controller.mirrored import bring_all
from tests.controller.test_mirroring import Elsewhere, Journal
from workbench.controller.targets.mirror import Mirrors, learners_of
from workbench.errors import CannotWrite
from workbench.learner.host.journals import SHARE_BYTES
from workbench.paths import Home

ATTEMPT = AttemptRef("there", "training-aaaaaaaaa", 1, 1)
REF = learners_of([ATTEMPT])[0]


@pytest.fixture
def elsewhere(home: Home, tmp_path: Path) -> Iterator[Elsewhere]:
    """A host in another folder of this machine, and a job."""
    made = Elsewhere(home, tmp_path / "elsewhere")
    home.job(ATTEMPT.job_id).path.mkdir(parents=True)
    yield made
    for host in made.hosts:
        host.close()


@pytest.fixture
def runner(elsewhere: Elsewhere) -> ProcessRunner:
    """A runner there."""
    return elsewhere.runner()


@pytest.fixture
def journal(elsewhere: Elsewhere, runner: ProcessRunner) -> Journal:
    """A journal there of several turns, which has ended."""
    made = Journal(elsewhere.folder(runner, REF))
    draw = random.Random(5)
    for _ in range(3):
        made.prints(draw.randbytes(SHARE_BYTES))
    made.prints(draw.randbytes(100_000))
    made.exits()
    return made


def folder_here(elsewhere: Elsewhere) -> Path:
    """Return where the journal is mirrored."""
    return elsewhere.home.job(REF.job_id).attempt(1).learner(1).path


def test_all_of_a_long_journal_comes_in_turns_and_its_end_last(
    elsewhere: Elsewhere, runner: ProcessRunner, journal: Journal
) -> None:
    mirrors, state = Mirrors(elsewhere.home), folder_here(elsewhere) / "state.json"
    came = 0
    while mirrors.turn(runner, [REF], 0.0):
        came += 1
        if state.exists():
            assert (folder_here(elsewhere) / "output.log").stat().st_size == len(journal.written)

    assert came >= 4
    assert (folder_here(elsewhere) / "output.log").read_bytes() == journal.written
    assert (folder_here(elsewhere) / "output.idx").read_bytes() == journal.index.read_bytes()
    assert state.exists()


def test_what_could_not_be_written_is_reported_and_asked_for_again(
    elsewhere: Elsewhere, runner: ProcessRunner, journal: Journal
) -> None:
    mirrors, output = Mirrors(elsewhere.home), folder_here(elsewhere) / "output.log"
    output.mkdir(parents=True)
    with pytest.raises(CannotWrite):
        mirrors.turn(runner, [REF], 0.0)
    assert not (output.parent / "state.json").exists()
    output.rmdir()
    while mirrors.turn(runner, [REF], 0.0):
        pass

    assert output.read_bytes() == journal.written
    assert (output.parent / "state.json").exists()


def test_what_one_brings_home_nobody_else_asks_for(
    elsewhere: Elsewhere, runner: ProcessRunner, journal: Journal
) -> None:
    mirrors, other = Mirrors(elsewhere.home), LearnerRef("there", "training-bbbbbbbbb", 1, 1)
    seen: list[list[LearnerRef]] = []
    bring_all(mirrors, runner, ATTEMPT, elsewhere.home, lambda: seen.append(mirrors.unclaimed([REF, other])))

    assert seen
    assert all(refs == [other] for refs in seen)
    assert mirrors.unclaimed([REF, other]) == [REF, other]
