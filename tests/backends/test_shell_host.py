"""A place with nothing but a shell: what is read in two steps is told as if it had been read in one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from backends.ssh.sh_client import Piece, ShellClient
from backends.ssh.sh_operations import ShellOperations
from tests.store.small_disk import FILES, fill_files, small_disk
from workbench.errors import CannotWrite
from workbench.learner.journal.state import keep_spares, read_stop

FOLDER = "/place/learner"
BOOT = "boot"


class LearnerThatEnds:
    """A shell at a place where an agent records its exit and ends after its state was first read."""

    def __init__(self) -> None:
        self.over = False

    def lines(self, script: str) -> list[str]:
        if "machine-id" in script:
            return ["machine", BOOT, "box", "me", "Linux", "x86_64", "1"]
        self.over = True
        return ["gone"]

    def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[Piece | None]:
        state: dict[str, Any] = {"phase": "running", "pid": 7, "start_ticks": 1, "boot_id": BOOT}
        if self.over:
            state |= {"phase": "exited", "exit_code": 0}
        content = json.dumps(state).encode()
        return [Piece(content, len(content)) if path.endswith("state.json") else None for path, *_ in wanted]


def test_a_learner_that_ends_while_it_is_looked_at_is_not_taken_for_dead() -> None:
    place = ShellOperations(cast(ShellClient, LearnerThatEnds()))

    facts = place.learner(FOLDER)

    assert (facts["state"]["phase"], facts["state"]["exit_code"]) == ("exited", 0)


class ShellHere:
    """A shell of this machine, as the pipe to one."""

    def __init__(self, path: str) -> None:
        env = {**os.environ, "PATH": path}
        self._process = subprocess.Popen(
            ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self.reader = cast(BinaryIO, self._process.stdout)
        self.writer = cast(BinaryIO, self._process.stdin)

    def explain(self) -> str:
        return ""

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def df(tmp_path: Path) -> Path:
    """A df that is found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder / "df"


@pytest.fixture
def shell(df: Path) -> Iterator[ShellClient]:
    pipe = ShellHere(f"{df.parent}:{os.environ['PATH']}")
    yield ShellClient(pipe)
    pipe.close()


DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 9437184 1048576 8388608 {} /home\n"


@pytest.mark.parametrize(
    ("script", "free_bytes"),
    [
        (f"cat <<'E'\n{DF.format('12%')}E", 8 << 30),
        (f"cat <<'E'\n{DF.format('-')}E", 8 << 30),
        ("echo df: no file systems >&2; exit 1", None),
        ("echo Filesystem 1024-blocks Used Available Capacity Mounted on", None),
    ],
)
def test_a_df_that_fails_says_nothing_of_the_space_that_is_left(
    shell: ShellClient, df: Path, script: str, free_bytes: int | None
) -> None:
    df.write_text(f"#!/bin/sh\n{script}\n")
    df.chmod(0o755)

    found = ShellOperations(shell).prospects()

    assert (found["home_free_bytes"], found["machine"]["disk_free_bytes"]) == (free_bytes, free_bytes)


def test_requests_to_stop_are_written_without_inodes(shell: ShellClient, tmp_path: Path) -> None:
    operations = ShellOperations(shell)
    with small_disk(tmp_path / "few", options=FILES) as folder:
        keep_spares(str(folder))
        fill_files(folder)

        for kind in ("halt", "kill", "halt"):
            operations.ask_to_stop(str(folder), {"kind": kind, "by": "me's \\"})
            assert read_stop(str(folder)) == {"kind": kind, "by": "me's \\"}


def test_a_request_that_cannot_be_written_is_refused_and_with_room_leaves_nothing_else(
    shell: ShellClient, tmp_path: Path
) -> None:
    operations = ShellOperations(shell)
    with small_disk(tmp_path / "few", options=FILES) as folder:
        fill_files(folder)
        with pytest.raises(CannotWrite, match=f"{folder}/stop.json cannot be written there"):
            operations.ask_to_stop(str(folder), {"kind": "halt"})
        (folder / "files" / "1").unlink()

        operations.ask_to_stop(str(folder), {"kind": "halt"})

        assert read_stop(str(folder)) == {"kind": "halt"}
        assert sorted(path.name for path in folder.iterdir()) == ["files", "stop.json"]
