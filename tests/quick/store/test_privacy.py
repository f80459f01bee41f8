"""Nobody else gets into a home, however it was made."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.errors import NotAllowed
from workbench.paths import Home, create_private, make_private_folder, write_private
from workbench.store.db.database import Store
from workbench.store.db.privacy import close_home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_new_home_is_closed_whatever_the_umask(tmp_path: Path) -> None:
    home = Home(tmp_path / "on" / "the way" / "home")

    with Store.open(home):
        files = [home.path, home.path.parent, home.path.parent.parent, *home.path.iterdir()]

        assert {path.name for path in files} >= {"home.json", "binding.json", "fabric.db", "fabric.db-wal"}
        assert [path for path in files if mode(path) & 0o077] == []


@pytest.mark.usefixtures("open_umask")
def test_a_home_that_was_made_beforehand_is_closed_when_it_is_first_used(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir(mode=0o755)

    with Store.open(home):
        assert mode(home.path) == 0o700


@pytest.mark.usefixtures("open_umask")
def test_a_home_that_holds_what_fabric_puts_there_before_a_first_job_is_closed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for folder in (home.drafts, home.hosts, home.agents):
        folder.mkdir(parents=True)

    with Store.open(home):
        assert mode(home.path) == 0o700


def test_a_home_of_an_older_version_is_closed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with Store.open(home):
        home.jobs.mkdir()
        database = [home.database, home.path / "fabric.db-wal", home.path / "fabric.db-shm"]
        for path in (home.path, home.jobs):
            path.chmod(0o755)
        for path in database:
            path.chmod(0o644)

        with Store.open(home):
            assert {mode(path) for path in (home.path, home.jobs)} == {0o700}
            assert {mode(path) for path in database} == {0o600}


def test_the_folder_that_a_link_leads_to_is_closed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "home").symlink_to(tmp_path / "target")

    Store.open(Home(tmp_path / "home")).close()

    assert mode(tmp_path / "target") == 0o700
    assert (tmp_path / "home").is_symlink()


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    tmp_path.chmod(0o755)

    with pytest.raises(NotAllowed, match=r"it holds thesis\.txt, which is not") as refused:
        Store.open(Home(tmp_path))

    assert refused.value.exit_code == 77
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_all_users_share_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)

    with pytest.raises(NotAllowed, match="it is shared by all users"):
        Store.open(Home(tmp_path))

    assert mode(tmp_path) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_person_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 12345, 12345)

    with pytest.raises(NotAllowed, match="it belongs to user 12345"):
        Store.open(Home(tmp_path))

    assert mode(tmp_path) == 0o755


def test_a_file_system_without_modes_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)

    close_home(Home(tmp_path))


@pytest.mark.usefixtures("open_umask")
def test_private_files_and_folders_are_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    write_private(tmp_path / "a" / "file", "one")
    (tmp_path / "a" / "file").chmod(0o644)
    write_private(tmp_path / "a" / "file", "two")
    with create_private(tmp_path / "a" / "new") as stream:
        stream.write("three")

    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/file", "a/new")] == [0o700, 0o700, 0o600, 0o600]
    assert (tmp_path / "a" / "file").read_text() == "two"
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "a" / "new")
