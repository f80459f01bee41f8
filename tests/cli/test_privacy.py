"""What a user's commands make in a home is nobody else's, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Fabric, until_runs
from workbench.paths import Home

SHARED = ("agents/*.pyz", "jobs/*/attempt-*/learner-*/model-code/*", "jobs/*/results/*")
"""Containers read these as their own users, through mounts, and jobs write results with their submitter's umask; the
folders around them are closed."""


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.unmade_home
def test_commands_leave_nothing_in_a_home_that_others_could_read(fabric: Fabric, home: Home) -> None:
    (fabric.folder / "train.py").write_text("print('loss 1')")
    home.path.mkdir(mode=0o777)
    home.path.chmod(0o755)

    fabric("run", "-q", "-e", "TOKEN", "--", "python3 train.py; touch $RESULT_DIR/model", TOKEN="x" * 20)
    fabric("run", "-q", "-d", "--", "sleep 60")
    until_runs(fabric)
    fabric("rerun", "train", "-q", expect=None)
    fabric("tag", "@last", "keep")
    fabric("delete", "sleep", "--yes")
    fabric("doctor", expect=None)

    open_to_others = {path for path in [home.path, *home.path.rglob("*")] if is_open(path)}
    shared = {path for pattern in SHARED for path in home.path.glob(pattern)}
    assert sorted(open_to_others - shared) == []
    assert home.snapshot(fabric.json("show", "@last", "--json")["code_hash"]).exists()


def is_open(path: Path) -> bool:
    try:
        return not path.is_symlink() and bool(path.stat().st_mode & 0o077)
    except FileNotFoundError:  # the controller works on
        return False
