"""Trees are opened to a container's user, whatever another launch does in them at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.learner.platform import files


def test_a_file_that_goes_while_its_tree_is_opened_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        for parent, folders, names in really_walk(path):
            yield parent, ["gone", *folders], [".command.sh.x.part", *names]

    really_walk = os.walk
    monkeypatch.setattr(os, "walk", walk)
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "file").write_text("")
    (tmp_path / "sub" / "file").chmod(0o600)

    files.open_to_all([str(tmp_path)], [])

    assert (tmp_path / "sub").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "sub" / "file").stat().st_mode & 0o777 == 0o666


def test_a_tree_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open_to_all([str(tmp_path / "nothing")], [])
