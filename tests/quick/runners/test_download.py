"""What comes home or is copied stays in its folder, whatever links the host sends."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.shared.download import download_folder
from workbench.learner.host.trees import list_tree
from workbench.services.transfer.extract import receive_folder

CHAINS = [
    {"a/b/c": "../..", "l": "a/b/c/.."},
    {"deep/d": "..", "x": "deep/d/.."},
    {"a/l": "../b/c", "b/c": "..", "x": "a/l/.."},
]


@pytest.mark.parametrize("links", CHAINS)
def test_links_that_lead_out_together_do_not_come_home(tmp_path: Path, links: Mapping[str, str]) -> None:
    _make(tmp_path / "there", {**links, "kept": "file"})

    download_folder(LocalHost(), str(tmp_path / "there"), tmp_path / "home" / "results")

    _lead_nowhere_out(tmp_path / "home" / "results")
    assert (tmp_path / "home" / "results" / "kept").read_text() == "content"


def test_a_link_does_not_lead_out_by_one_that_came_home_before(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "home" / "results"
    _make(there, {"p/q/b": "../.."})
    download_folder(LocalHost(), str(there), here)
    assert (here / "p" / "q" / "b").is_symlink()
    (there / "p" / "q" / "b").unlink()
    _make(there, {"x": "p/q/b/.."})

    download_folder(LocalHost(), str(there), here)

    _lead_nowhere_out(here)


def test_a_folder_that_became_a_link_out_of_what_a_container_has_brings_nothing_home(tmp_path: Path) -> None:
    state, theirs = tmp_path / "job", tmp_path / "theirs"
    for folder in (state, theirs):
        folder.mkdir()
    (theirs / "f").write_text("secret")
    (state / "logs").symlink_to(theirs)

    download_folder(LocalHost(), str(state / "logs"), tmp_path / "home", within=str(state))

    assert list((tmp_path / "home").iterdir()) == []
    assert list_tree(str(state / "logs"), str(state)) == {}


@pytest.mark.parametrize("links", CHAINS)
def test_links_that_lead_out_together_are_left_out_of_what_is_received(
    tmp_path: Path, links: Mapping[str, str]
) -> None:
    (tmp_path / "got").mkdir()

    received = receive_folder(_tar({**links, "kept": "file"}), tmp_path / "got")

    _lead_nowhere_out(tmp_path / "got")
    assert received.left_out
    assert (tmp_path / "got" / "kept").is_symlink()


def _make(folder: Path, links: Mapping[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("content")
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)


def _tar(links: Mapping[str, str]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    stream.seek(0)
    return stream


def _lead_nowhere_out(folder: Path) -> None:
    """Assert that no link of a folder leads out of it."""
    root = os.path.realpath(folder)
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *names)):
            real = os.path.realpath(path)
            assert real == root or real.startswith(f"{root}/"), f"{path} leads to {real}"


def test_a_host_of_an_older_version_is_not_asked_with_arguments_that_it_does_not_know(tmp_path: Path) -> None:
    class OlderHost(LocalHost):
        def call(self, operation: str, **arguments: Any) -> Any:
            assert operation != "list_tree" or set(arguments) == {"folder"}
            return super().call(operation, **arguments)

    _make(tmp_path / "there", {"kept": "file"})

    download_folder(OlderHost(), str(tmp_path / "there"), tmp_path / "here")

    assert (tmp_path / "here" / "kept").read_text() == "content"


def test_of_a_file_and_a_folder_with_one_name_that_stays_which_is_here(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for path in (
        there / "a" / "deep" / "inside",
        there / "b",
        there / "c",
        here / "a",
        here / "b" / "inside",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.parts[len(tmp_path.parts)])
    os.utime(there / "a", (1, 1))

    download_folder(LocalHost(), str(there), here, keep_newer=True)

    assert (here / "a").read_text() == "here"
    assert (here / "b" / "inside").read_text() == "here"
    assert (here / "c").read_text() == "there"
