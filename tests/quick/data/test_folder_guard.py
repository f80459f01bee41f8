"""Folders that are never taken as code, or only on explicit request."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree, packed_names
from workbench.data.code import folder_guard
from workbench.data.code.folder_guard import check_chosen
from workbench.data.code.snapshot import SnapshotOptions, take_snapshot
from workbench.errors import FabricError, InputMissing, UsageError
from workbench.learner.platform.beneath import Root
from workbench.paths import Home
from workbench.store.db.database import Store

ANYWAY = SnapshotOptions(anyway=True)
UNASKED = SnapshotOptions()


def identity() -> str:
    return json.dumps({"format": 1, "uuid": str(uuid.uuid4())})


def names(source: Path, home: Home, taking: SnapshotOptions = UNASKED) -> list[str]:
    return packed_names(home.snapshot(take_snapshot(source, home, taking).code_hash))


@pytest.mark.parametrize("below", ["", "code", "jobs/training-x"])
@pytest.mark.parametrize("anyway", [False, True])
def test_our_home_is_refused_as_code_and_so_is_what_is_in_it(home: Home, below: str, anyway: bool) -> None:
    Store.open(home).close()
    folder = home.path / below
    folder.mkdir(parents=True, exist_ok=True)
    before = sorted(home.path.rglob("*"))

    with pytest.raises(UsageError, match=r"a home of fabric.*never taken as code"):
        take_snapshot(folder, home, SnapshotOptions(anyway=anyway))

    assert sorted(home.path.rglob("*")) == before


def test_a_home_that_is_not_there_yet_is_refused_as_code(home: Home) -> None:
    with pytest.raises(UsageError, match="a home of fabric"):
        check_chosen(home.path, home, anyway=True)


def test_our_home_is_refused_by_any_name(home: Home, clean_environment: Path) -> None:
    Store.open(home).close()
    (clean_environment / "link").symlink_to(home.path)

    with pytest.raises(UsageError, match="a home of fabric"):
        take_snapshot(clean_environment / "link" / "jobs" / "..", home)


def test_another_home_is_refused_as_code(home: Home, clean_environment: Path) -> None:
    other = make_tree(clean_environment / "other", {"home.json": identity(), "jobs/x/train.py": ""})

    with pytest.raises(UsageError, match="a home of fabric"):
        take_snapshot(other / "jobs" / "x", home, ANYWAY)


def test_homes_in_the_code_are_left_out_and_named(clean_environment: Path) -> None:
    tree = make_tree(
        clean_environment / "code",
        {"train.py": "", "old/deep/home.json": identity(), "old/deep/fabric.db": "x", "old/kept.py": ""},
    )
    home = Home(tree / ".fabric-home")
    Store.open(home).close()

    snapshot = take_snapshot(tree, home)

    assert packed_names(home.snapshot(snapshot.code_hash)) == ["old/", "old/kept.py", "train.py"]
    (warning,) = snapshot.warnings
    assert warning == "left out of the code as a home of fabric: .fabric-home/, old/deep/"


def test_nothing_of_a_home_in_the_code_is_opened_but_its_name(
    clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Home(make_tree(clean_environment / "code", {"train.py": ""}) / "home")
    Store.open(other).close()
    opened: list[str] = []
    real, real_below = open, Root.open

    def watched(file: str, *args: object, **options: object) -> object:
        opened.append(str(file))
        return real(file, *args, **options)  # type: ignore[call-overload] # whatever open takes

    def watched_below(root: Root, path: str, flags: int, mode: int = 0o600, *, follow: bool = True) -> int:
        opened.append(f"{root.path}/{path}")
        return real_below(root, path, flags, mode, follow=follow)

    monkeypatch.setattr("builtins.open", watched)
    monkeypatch.setattr(Root, "open", watched_below)
    take_snapshot(other.path.parent, home)
    monkeypatch.undo()

    assert f"{other.path.parent}/train.py" in opened
    assert [path for path in opened if path.startswith(f"{other.path}/")] == [
        f"{other.path}/.gitignore",
        f"{other.path}/.fabricignore",
        f"{other.path}/home.json",
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"uuid": 1}', '{"format": 1, "uuid": "x"}', "[" * 5000])
def test_a_file_of_that_name_alone_makes_no_home(clean_environment: Path, home: Home, text: str) -> None:
    tree = make_tree(clean_environment / "code", {"home.json": text})

    assert names(tree, home) == ["home.json"]


@pytest.mark.parametrize("text", ["", '{"format": 1, "uu', "{}", '{"format": 1, "uuid": "x"}'])
@pytest.mark.parametrize("beside", ["fabric.db", "controller.lock", "binding.json"])
def test_a_home_whose_name_is_damaged_is_left_out_and_never_taken(
    clean_environment: Path, home: Home, text: str, beside: str
) -> None:
    tree = make_tree(
        clean_environment / "code",
        {"train.py": "", "old/home.json": text, f"old/{beside}": "x", "old/jobs/a": ""},
    )

    snapshot = take_snapshot(tree, home)

    assert packed_names(home.snapshot(snapshot.code_hash)) == ["train.py"]
    assert snapshot.warnings == ("left out of the code as a home of fabric: old/",)
    with pytest.raises(UsageError, match="a home of fabric"):
        check_chosen(tree / "old" / "jobs", home, anyway=True)


@pytest.mark.parametrize("what", ["", ".."])
def test_the_home_folder_is_refused_by_another_mount_of_it(
    clean_environment: Path, home: Home, tree: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    person, again = (
        make_tree(clean_environment / "people" / "me", {"code/train.py": ""}),
        clean_environment / "b",
    )
    monkeypatch.setenv("HOME", str(person))
    again.mkdir()
    if subprocess.run(["mount", "--bind", person / what, again], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(UsageError, match="above the home folder" if what else "a whole home folder"):
            check_chosen(again, home, anyway=False)
        check_chosen(again, home, anyway=True)
        check_chosen(again / ("me/code" if what else "code"), home, anyway=False)
    finally:
        subprocess.run(["umount", again], check=True)


def test_another_person_s_home_is_known_by_what_lies_there(clean_environment: Path, home: Home) -> None:
    people = clean_environment / "people"
    make_tree(
        people / "ada", {".bashrc": "", ".ssh/": "", ".cache/": "", "code/train.py": "", "code/.bashrc": ""}
    )

    with pytest.raises(UsageError, match="is laid out as a whole home folder") as refused:
        check_chosen(people / "ada", home, anyway=False)
    with pytest.raises(UsageError, match=f"is above {people}/ada, which is laid out as a home folder"):
        check_chosen(people, home, anyway=False)

    assert "--code-anyway" in refused.value.hint
    check_chosen(people, home, anyway=True)
    check_chosen(people / "ada" / "code", home, anyway=False)


def test_a_repository_may_have_a_home_for_its_tests(clean_environment: Path, home: Home) -> None:
    tree = make_tree(
        clean_environment / "code", {".git/HEAD": "", "person/.bashrc": "", "person/.profile": ""}
    )
    make_tree(tree, {"person/.config/x": ""})

    check_chosen(tree, home, anyway=False)


def test_the_homes_of_who_can_log_in_are_refused(
    clean_environment: Path, home: Home, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = clean_environment / "passwd"
    monkeypatch.setattr(folder_guard, "_USERS", str(users))
    line = f"ada:x:1000:1000::{tree}{{}}:{{}}\n"

    users.write_text(line.format("", "/usr/sbin/nologin") + "damaged\n")
    check_chosen(tree, home, anyway=False)
    users.write_text(line.format("", "/bin/bash"))
    with pytest.raises(UsageError, match="a whole home folder"):
        check_chosen(tree, home, anyway=False)
    users.write_text(line.format("/lib", "/bin/zsh"))
    with pytest.raises(UsageError, match="above the home folder"):
        check_chosen(tree, home, anyway=False)


def test_the_home_folder_is_refused_unless_it_is_requested(clean_environment: Path, home: Home) -> None:
    make_tree(clean_environment, {"train.py": ""})

    with pytest.raises(UsageError, match="a whole home folder, which is not taken") as caught:
        take_snapshot(clean_environment, home)

    assert "--code-anyway" in caught.value.hint
    assert "train.py" in names(clean_environment, home, ANYWAY)


def test_what_is_above_the_home_folder_is_refused(clean_environment: Path, home: Home) -> None:
    with pytest.raises(UsageError, match=f"above the home folder {clean_environment}"):
        take_snapshot(clean_environment.parent, home)


def test_the_root_of_all_files_is_refused_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: object) -> None:
        raise AssertionError(f"{folder} was read")

    with monkeypatch.context() as patched, pytest.raises(UsageError, match="the root of all files"):
        patched.setattr(os, "scandir", read)
        take_snapshot(Path("/"), home)


def test_a_file_system_s_root_is_refused_and_a_folder_that_was_mounted_is_not(
    tree: Path, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = clean_environment / "mountinfo"
    monkeypatch.setattr(folder_guard, "_MOUNTS", str(mounts))
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tree))
    monkeypatch.setattr("sys.platform", "linux")
    line = "36 35 98:0 {} {} rw,noatime shared:1 - ext4 /dev/sdb rw\n"

    mounts.write_text(line.format("/", "/other") + line.format("/home/me/project", tree))
    check_chosen(tree, home, anyway=False)
    mounts.write_text(line.format("/", tree))
    with pytest.raises(UsageError, match="the root of a file system"):
        check_chosen(tree, home, anyway=False)
    check_chosen(tree, home, anyway=True)


@pytest.mark.parametrize("name", [".ssh", ".aws/sso", ".config/gcloud/configurations"])
def test_a_folder_of_keys_is_refused_unless_it_is_requested(
    clean_environment: Path, home: Home, name: str
) -> None:
    folder = make_tree(clean_environment / name, {"notes.txt": ""})

    with pytest.raises(UsageError, match="a folder of keys and credentials"):
        take_snapshot(folder, home)

    assert names(folder, home, ANYWAY) == ["notes.txt"]


def test_an_archive_of_a_home_is_refused(clean_environment: Path, home: Home) -> None:
    import shutil

    other = make_tree(clean_environment / "other", {"home.json": identity(), "fabric.db": ""})
    archive = shutil.make_archive(str(clean_environment / "other"), "zip", other)

    with pytest.raises(FabricError, match="holds a home of fabric") as caught:
        take_snapshot(Path(archive), home)

    assert isinstance(caught.value, InputMissing)
    assert list(home.code.iterdir()) == []
