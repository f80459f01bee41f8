"""Files below a root: links are followed within it and never out of it, by the kernel's walk and by ours."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.processes import open_descriptors
from tests.support.waiting import until
from workbench.learner.platform import beneath, open_files
from workbench.learner.platform.beneath import Outside, Root, WrongKind


def _no_openat2(*_: object) -> NoReturn:
    raise OSError(errno.ENOSYS, "no openat2 here")


@pytest.fixture(params=["kernel", "part by part", "without O_PATH"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    """A root, walked in every way that there is."""
    if request.param != "kernel":
        monkeypatch.setattr(beneath, "openat2", _no_openat2)
    if request.param == "without O_PATH":
        monkeypatch.setattr(beneath, "_STEP", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("theirs")
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "f").write_text("ours")
    with Root(str(folder)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("l", "a/f"),
        ("a/b/l", "../f"),
        ("a/b/l", "../../a/./f"),
        ("l", "{root}/a/f"),
        ("a/l", "b/../../a/f"),
    ],
)
def test_links_that_stay_are_followed(root: Root, name: str, says: str) -> None:
    Path(root.path, name).symlink_to(says.format(root=root.path))

    assert root.read(name) == b"ours"
    assert root.real(name) == "a/f"
    assert root.stat(name).st_size == 4


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("l", "/etc/passwd"),
        ("l", "../outside/f"),
        ("l", "{root}/../outside/f"),
        ("a/b/l", "../../../outside/f"),
        ("l", "a/../../root/a/f"),
    ],
)
def test_links_that_lead_out_are_not(root: Root, name: str, says: str) -> None:
    Path(root.path, name).symlink_to(says.format(root=root.path))

    with pytest.raises(Outside):
        root.read(name)
    with pytest.raises(Outside):
        root.real(name)
    with pytest.raises(OSError, match=r"."):
        root.open(name, os.O_WRONLY | os.O_CREAT)


def test_what_lies_behind_a_folder_that_leads_out_is_out_of_reach(root: Root, tmp_path: Path) -> None:
    (Path(root.path) / "out").symlink_to(tmp_path / "outside")

    for act in (
        lambda: root.read("out/f"),
        lambda: root.write("out/g", b"x"),
        lambda: root.create("out/g"),
        lambda: root.unlink("out/f"),
        lambda: root.remove("out/f"),
        lambda: root.make_folder("out/g"),
        lambda: root.make_folder("out/g/h"),
        lambda: root.open_folder("out"),
    ):
        with pytest.raises(Outside):
            act()

    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["f"]
    assert [path for path, *_ in root.walk()] == ["", "a", "a/b"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside/f", "a/../../outside/f", "a\0b"])
def test_a_path_that_leads_out_by_itself_is_refused(root: Root, path: str) -> None:
    with pytest.raises((Outside, ValueError)):
        root.read(path)


def test_a_root_that_became_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").symlink_to("outside")

    with pytest.raises(OSError, match=r"."):
        Root(str(tmp_path / "root"))
    with Root(f"{tmp_path}/root/.") as named, Root(str(tmp_path / "root"), follow=True) as known:
        assert named.walk()
        assert known.walk()


def test_only_what_is_asked_for_is_opened_and_nothing_is_waited_for(root: Root) -> None:
    os.mkfifo(Path(root.path, "pipe"))
    Path(root.path, "to-pipe").symlink_to("pipe")
    Path(root.path, "to-folder").symlink_to("a")

    with pytest.raises(WrongKind):
        root.read("pipe")
    with pytest.raises(WrongKind):
        root.read("to-folder")
    with pytest.raises(WrongKind):
        root.open_pipe("a/f", os.O_RDONLY)
    with pytest.raises(OSError, match=r"."):
        root.open_pipe("to-pipe", os.O_RDONLY)
    os.close(root.open_pipe("pipe", os.O_RDONLY))


def test_what_is_there_is_not_made_again_and_links_are_not_made_through(root: Root, tmp_path: Path) -> None:
    for name, says in (("gone", "../outside/new"), ("here", "a/new")):
        Path(root.path, name).symlink_to(says)
        assert not root.create(name)
    os.mkfifo(Path(root.path, "pipe"))

    assert not root.create("pipe")
    assert root.create("new")
    assert not (tmp_path / "outside" / "new").exists()
    assert not (Path(root.path) / "a" / "new").exists()


def test_a_file_replaces_a_link_and_not_what_it_leads_to(root: Root, tmp_path: Path) -> None:
    (Path(root.path) / "l").symlink_to(tmp_path / "outside" / "f")

    root.write("l", b"new")

    assert (Path(root.path) / "l").read_text() == "new"
    assert not (Path(root.path) / "l").is_symlink()
    assert (tmp_path / "outside" / "f").read_text() == "theirs"


def test_a_tree_is_removed_and_what_its_links_lead_to_is_not(root: Root, tmp_path: Path) -> None:
    (Path(root.path) / "a" / "b" / "l").symlink_to(tmp_path / "outside")

    root.remove("a")
    root.remove("nothing")
    for itself in ("", "."):
        with pytest.raises(Outside):
            root.remove(itself)

    assert list(Path(root.path).iterdir()) == []
    assert (tmp_path / "outside" / "f").exists()


def test_modes_are_added_to_no_file_behind_a_link(root: Root, tmp_path: Path) -> None:
    outside, own = tmp_path / "outside" / "f", Path(root.path) / "a" / "f"
    (Path(root.path) / "l").symlink_to(outside)
    outside.chmod(0o600)
    own.chmod(0o200)

    for folder, name in ((root.descriptor, "l"), (root.open_folder("a"), "f")):
        open_files.add_mode(folder, name, 0o666)

    assert outside.stat().st_mode & 0o777 == 0o600
    assert own.stat().st_mode & 0o777 == 0o666


def test_a_folder_that_is_swapped_all_the_time_never_leads_out(root: Root, tmp_path: Path) -> None:
    here, ended = Path(root.path), threading.Event()
    (here / "link").symlink_to(tmp_path / "outside")

    def swap() -> None:
        while not ended.is_set():
            for name, other in (("a", "kept"), ("link", "a"), ("a", "link"), ("kept", "a")):
                (here / name).rename(here / other)

    found: set[bytes] = set()

    def finds_ours() -> bool:
        try:
            found.add(root.read("a/f"))
        except OSError:
            found.add(b"")
        return b"ours" in found

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(3000):
            finds_ours()
        # Two threads in step may meet the link each time.
        until(finds_ours, "a look at the folder's own file")
    finally:
        ended.set()
        swapper.join()

    assert b"theirs" not in found


def test_circles_and_long_chains_of_links_end(root: Root) -> None:
    here = Path(root.path)
    (here / "circle").symlink_to("circle")
    (here / "l0").symlink_to("a/f")
    for number in range(1, 60):
        (here / f"l{number}").symlink_to(f"l{number - 1}")

    assert root.read("l20") == b"ours"
    for name in ("circle", "l59"):
        with pytest.raises(OSError, match="symbolic links"):
            root.read(name)


def test_a_tree_is_copied_with_its_links_as_links_and_no_pipes(root: Root, tmp_path: Path) -> None:
    here = Path(root.path)
    (here / "a" / "l").symlink_to(tmp_path / "outside")
    os.mkfifo(here / "a" / "pipe")
    (here / "a" / "f").chmod(0o755)
    (tmp_path / "copy").mkdir()

    with Root(str(tmp_path / "copy")) as copy:
        beneath.copy_tree(root, "a", copy, "to")

    copied = tmp_path / "copy" / "to"
    assert (copied / "f").read_text() == "ours"
    assert os.access(copied / "f", os.X_OK)
    assert (copied / "f").stat().st_mtime_ns == (here / "a" / "f").stat().st_mtime_ns
    assert (copied / "l").readlink() == tmp_path / "outside"
    assert (copied / "b").is_dir()
    assert not (copied / "pipe").exists()


def test_no_descriptor_is_left_open(root: Root) -> None:
    before = open_descriptors()
    Path(root.path, "out").symlink_to("/etc")

    for path in ("a/f", "out/passwd", "a", "nothing", "a/../a/f", "../x"):
        for act in (root.read, root.stat, root.real, root.remove):
            try:
                act(path)
            except OSError:
                continue

    assert open_descriptors() - before == set()


def test_a_path_belongs_to_the_outermost_root() -> None:
    roots = ["/job/state/logs", "/job/state", "/bucket/."]

    assert beneath.root_of("/job/state/logs/f", roots) == "/job/state"
    assert beneath.root_of("/bucket/training", roots) == "/bucket/."
    assert beneath.root_of("/job/state-2/f", roots) == ""
    assert beneath.root_of("/job/state/../other", roots) == ""
    assert beneath.relative("/bucket/training/f", "/bucket/.") == "training/f"


def test_a_folder_that_another_launch_makes_meanwhile_is_taken(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def beaten(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        make(path, mode, dir_fd=dir_fd)
        make(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", beaten)
    os.close(root.make_folder("new/inner"))

    assert Path(root.path, "new", "inner").is_dir()


def test_a_folder_is_not_made_where_a_file_comes_meanwhile(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def beaten(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        Path(root.path, path).write_text("")
        make(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", beaten)

    with pytest.raises(FileExistsError):
        root.make_folder("new")
