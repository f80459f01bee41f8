from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree
from workbench.data.code import git as module
from workbench.data.code.git import describe

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *args], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(clean_environment: Path) -> Path:
    folder = make_tree(clean_environment / "code", {"train.py": "a\nb\n", "sub/x.py": "x\n"})
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_repository_is_its_commit(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://me:secret@example.com/a.git")

    assert describe(repository) == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "trunk",
        "dirty": False,
        "remote": "https://example.com/a.git",
        "diff": "",
    }


def test_what_is_not_committed_is_a_diff_that_applies(repository: Path, clean_environment: Path) -> None:
    (repository / "train.py").write_text("a\nc\n")
    git(repository, "add", "train.py")
    (repository / "sub" / "x.py").write_bytes(b"\x00binary")
    (repository / "new.py").write_text("new")

    found = describe(repository)

    assert found["dirty"] is True
    git(repository, "stash", "-q")
    patch = clean_environment / "patch"
    patch.write_text(found["diff"])
    git(repository, "apply", str(patch))
    assert (repository / "train.py").read_text() == "a\nc\n"
    assert (repository / "sub" / "x.py").read_bytes() == b"\x00binary"


def test_changes_of_credentials_are_not_in_the_diff(repository: Path) -> None:
    (repository / "conf").mkdir()
    for name in (".env", "conf/secrets.pem", "notes.txt"):
        (repository / name).write_text("before\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "second")
    (repository / ".env").write_text("TOKEN=canary-hush\n")
    (repository / "conf/secrets.pem").write_text("-----BEGIN PRIVATE KEY-----\ncanary-hush\n")
    (repository / "notes.txt").write_text("after\n")

    described = describe(repository)

    assert described["diff_without"] == [".env", "conf/secrets.pem"]
    assert "+after" in described["diff"]
    assert "canary" not in described["diff"]


def test_files_that_the_caller_leaves_out_are_not_in_the_diff(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.py", "sub/x.py"):
        (repository / name).write_text("after\n")
    monkeypatch.chdir(repository)
    (repository.parent / "link").symlink_to(repository)

    described = describe(Path("../link"), without=[Path("sub/x.py"), Path("absent.py")])

    assert described["diff_without"] == ["sub/x.py"]
    assert described["diff"].count("+after") == 1


def test_a_folder_of_a_repository_has_its_own_diff(repository: Path) -> None:
    (repository / "train.py").write_text("changed")

    found = describe(repository / "sub")

    assert (found["dirty"], found["diff"]) == (False, "")
    assert found["commit"]


def test_new_files_make_it_dirty_without_a_diff(repository: Path) -> None:
    (repository / "new.py").write_text("new")

    found = describe(repository)

    assert (found["dirty"], found["diff"]) == (True, "")


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")

    assert describe(repository)["branch"] == ""


def test_a_repository_without_a_commit_has_none(clean_environment: Path) -> None:
    folder = make_tree(clean_environment / "code", {"a.py": ""})
    git(folder, "init", "-q", "-b", "trunk")

    found = describe(folder)

    assert (found["commit"], found["branch"], found["dirty"], found["diff"]) == ("", "trunk", True, "")


def test_a_long_diff_is_cut_and_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIFF_BYTES_MAX", 20)
    (repository / "train.py").write_text("changed")

    found = describe(repository)

    assert (len(found["diff"]), found["diff_cut"]) == (20, True)


def test_outside_of_git_there_is_nothing(clean_environment: Path) -> None:
    assert describe(make_tree(clean_environment / "code", {"a.py": ""})) == {}
    assert describe(clean_environment / "absent") == {}


def test_without_git_there_is_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))

    assert describe(repository) == {}


def test_a_git_that_hangs_is_left_behind(
    repository: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = clean_environment / "bin" / "git"
    stuck.parent.mkdir()
    stuck.write_text("#!/bin/sh\nexec sleep 3600\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stuck.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.3)

    assert describe(repository) == {}


def test_git_is_asked_two_things_at_a_time(
    repository: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these fails unless the other one runs meanwhile."""
    folder = clean_environment / "bin"
    folder.mkdir()
    script = f"""#!/bin/sh
meet() {{
    touch "{folder}/$1"
    tries=0
    until [ -e "{folder}/$2" ]; do
        tries=$((tries + 1)); [ $tries -lt 500 ] || exit 1
        sleep 0.01
    done
}}
case "$*" in
    *--get*) meet remote status ;;
    *status*) meet status remote ;;
    *--name-only*) meet names changes ;;
    *--binary*) meet changes names ;;
esac
exec {shutil.which("git")} "$@"
"""
    (folder / "git").write_text(script)
    (folder / "git").chmod(0o755)
    git(repository, "remote", "add", "origin", "https://example.com/a.git")
    (repository / "train.py").write_text("a\nc\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    found = describe(repository)

    assert found["remote"] == "https://example.com/a.git"
    assert "+c" in found["diff"]


@pytest.mark.timeout(20)
def test_a_tracked_file_that_is_a_pipe_now_is_not_waited_for(repository: Path) -> None:
    (repository / "train.py").unlink()
    os.mkfifo(repository / "train.py")

    assert describe(repository)["dirty"] is True
