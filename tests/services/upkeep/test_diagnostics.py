"""What doctor finds: each check a finding with what helps, and none stops the others."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from backends.contract.host import Finding
from tests.cli.jobs import add_job
from tests.cli.journals import folder_of
from tests.services.stored import copied
from workbench.job import State
from workbench.paths import Home
from workbench.services.backends.placement import backend_options
from workbench.services.upkeep.diagnostics import EARLIEST, cluster_finding, diagnose
from workbench.store.db.database import Store


def findings(home: Home, *subjects: str) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = defaultdict(list)
    for each in diagnose(home):
        if not subjects or each.subject in subjects:
            found[each.subject].append(each)
    return found


def one(home: Home, subject: str) -> Finding:
    (found,) = findings(home)[subject]
    return found


@pytest.mark.unmade_home
def test_a_home_that_is_not_there_lacks_nothing_and_is_not_made(home: Home) -> None:
    found = findings(home, "home", "database", "controller", "clock")

    assert [each.found for each in found["home"]] == [f"{home.path} is not there yet; the first job makes it"]
    assert [each.found for each in found["database"]] == ["not there yet; the first job makes it"]
    assert {each.level for many in found.values() for each in many} == {"ok"}
    assert not home.path.exists()


def test_a_home_in_order_is_counted(store: Store) -> None:
    add_job(store, "over", State.COMPLETED)
    add_job(store, "open")

    found = findings(store.home)

    assert [each.found for each in found["home"]] == [str(store.home.path)]
    assert [each.found for each in found["database"]] == ["2 jobs, 1 of them open"]
    assert {"git", "clock", "terminal", "sockets", "configuration", "rclone"} <= found.keys()


def test_open_jobs_without_a_controller_lack_one(store: Store) -> None:
    assert one(store.home, "controller").found == "not running; nothing needs it"
    add_job(store, "open")

    found = one(store.home, "controller")

    assert (found.found, found.level, found.consequence) == (
        "not running, with 1 open job", "lack", "they do not move on",
    )  # fmt: skip


def test_a_lost_database_names_the_remedy(home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "a")
    for file in home.path.glob("fabric.db*"):
        file.unlink()

    found = one(home, "database")

    assert (found.found, found.level, found.remedy) == (
        "lost, with 1 job folder", "wrong", "fabric doctor --rebuild",
    )  # fmt: skip
    assert not home.database.exists()


@pytest.mark.parametrize("is_whole", [False, True], ids=["its pages", "all of it"])
def test_a_damaged_database_is_a_finding_and_stops_no_other_check(home: Home, is_whole: bool) -> None:
    with Store.open(home) as store:
        for number in range(20):
            add_job(store, f"n{number}")
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(home.database.read_bytes())
    for offset in range(0 if is_whole else 8192, len(data), 4096):
        data[offset : offset + 200] = b"\xff" * 200
    home.database.write_bytes(data)

    found = findings(home)

    (database,) = found["database"]
    assert database.level == "wrong"
    assert "fabric doctor --rebuild" in database.remedy
    assert {"home", "git", "clock", "configuration"} <= found.keys()


def test_a_copy_of_a_home_is_wrong_and_says_how_it_is_bound(store: Store) -> None:
    copy = copied(store.home, store.home.path.with_name("copy"))

    found = findings(copy)

    assert [(each.level, each.remedy) for each in found["home"]] == [("wrong", "fabric doctor --bind-home")]
    assert found["controller"] == []


def test_a_configuration_that_cannot_be_read_is_wrong_and_stops_no_other_check(
    store: Store, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text("not toml [")

    found = findings(store.home)

    assert any(each.level == "wrong" for each in found["configuration"])
    assert {"home", "database", "git", "clock"} <= found.keys()


def test_a_long_path_of_sockets_is_noticed(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert one(store.home, "sockets").level == "ok"
    long = tmp_path / ("x" * 90)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))

    found = one(store.home, "sockets")

    assert (found.level, found.remedy) == ("lack", "a shorter TMPDIR")


def test_without_git_the_commit_is_not_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    found = one(store.home, "git")

    assert (found.level, found.remedy) == ("lack", "install git")


def test_a_clock_that_is_behind_the_last_write_is_noticed(store: Store) -> None:
    then = store.home.database.stat().st_mtime + 7200
    os.utime(store.home.database, (then, then))

    found = one(store.home, "clock")

    assert (found.level, found.remedy) == ("lack", "set the clock")
    assert " ahead" in found.found
    assert then > EARLIEST


def test_folders_of_pythons_path_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(store.home)["PYTHONPATH"] == []
    monkeypatch.setenv("PYTHONPATH", "/mine")

    assert one(store.home, "PYTHONPATH").found.startswith("/mine; ")


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o640, "lack"), (0o604, "lack")])
def test_a_file_of_secrets_that_others_may_read_is_named(
    store: Store, clean_environment: Path, mode: int, level: str
) -> None:
    assert findings(store.home)["secrets"] == []
    file = clean_environment / "secrets.toml"
    file.write_text('KEY = "x"\n')
    file.chmod(mode)

    found = one(store.home, "secrets")

    assert (found.level, found.remedy) == (level, "" if level == "ok" else f"chmod 600 {file}")


def test_a_missing_rclone_says_what_installs_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_RCLONE", "/no/such/rclone")

    found = findings(store.home)["rclone"][0]

    assert (found.level, found.consequence) == ("lack", "jobs with data stores cannot run here")
    assert "fabric-workbench[data]" in found.remedy


def test_a_cluster_without_a_kubeconfig_is_a_finding() -> None:
    found = cluster_finding(backend_options("k8s://lab"))

    assert found.level == "lack"
    assert found.consequence == "no job can run there now"


def test_who_has_seen_enough_has_no_further_check_begun(store: Store) -> None:
    cancel = threading.Event()
    found = diagnose(store.home, cancel=cancel)
    first = next(found)
    cancel.set()

    assert first.subject == "home"
    assert list(found) == []
    assert not folder_of(store.home, add_job(store, "a")).output.exists()
