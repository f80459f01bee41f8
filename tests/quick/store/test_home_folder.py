"""A home knows the folder that it is: a copy only reads, whatever the machine, the boot or the mount."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.stored_jobs import add_job, make_detail
from workbench.errors import HomeNotBound
from workbench.paths import Home
from workbench.services.submit.experiments import archive_experiment, kill_experiment, pause_experiment
from workbench.spec import spec_to_json
from workbench.store.db import home_folder
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.home_folder import Binding, Standing, judge, require_home, standing, why_not
from workbench.store.queries.experiments import ExperimentRow, resolve_experiment
from workbench.store.queries.jobs import job
from workbench.store.queries.requests import add_request
from workbench.store.queries.sql_console import open_views
from workbench.store.updates.experiments import insert_experiment, record_event
from workbench.store.updates.jobs import annotate

BOUND = Binding("/data/fabric", "m1", "b1", 5, 100, 200, "ext4")


def copied(home: Home, name: str = "copy") -> Home:
    copy = Home(home.path.with_name(name))
    shutil.copytree(home.path, copy.path)
    return copy


@pytest.mark.parametrize(
    ("what", "here", "expected"),
    [
        ("nothing changed", BOUND, Standing.HOME),
        ("booted", replace(BOUND, boot="b2"), Standing.HOME),
        ("booted, devices numbered anew", replace(BOUND, boot="b2", device=6), Standing.HOME),
        ("mounted in a container", replace(BOUND, machine="", path="/home"), Standing.HOME),
        ("a volume of another pod", replace(BOUND, machine="", boot="b2", device=9), Standing.HOME),
        ("moved", replace(BOUND, path="/big/fabric"), Standing.MOVED),
        ("moved, then booted", replace(BOUND, path="/big/fabric", boot="b2"), Standing.MOVED),
        ("copied", replace(BOUND, path="/b", inode=101, mark=201), Standing.COPY),
        ("restored in its place", replace(BOUND, inode=101, mark=201), Standing.COPY),
        ("restored as a whole disk", replace(BOUND, boot="b2", mark=201), Standing.COPY),
        ("a snapshot", replace(BOUND, path="/snapshot/fabric", device=6), Standing.COPY),
        ("the same path of another machine", replace(BOUND, machine="m2", boot="b2"), Standing.COPY),
    ],
)
def test_what_a_folder_is_follows_from_all_facts_together(
    what: str, here: Binding, expected: Standing
) -> None:
    assert judge(BOUND, here) is expected, what


def test_a_network_home_is_one_home_on_all_machines() -> None:
    bound = replace(BOUND, filesystem="nfs4")
    there = replace(bound, machine="m2", boot="b2", device=77, path="/net/fabric")

    assert judge(bound, there) is Standing.HOME
    assert judge(bound, replace(there, inode=101, mark=201)) is Standing.COPY


def test_where_inodes_are_numbered_at_each_mount_the_path_counts() -> None:
    bound = replace(BOUND, filesystem="fuse.sshfs")
    mounted = replace(bound, boot="b2", device=8, inode=7, mark=9)

    assert judge(bound, mounted) is Standing.HOME
    assert judge(bound, replace(mounted, path="/b")) is Standing.COPY


def test_a_home_of_today_is_bound_at_its_first_use(home: Home) -> None:
    uuid = home_uuid(home)
    home.binding.unlink()

    with Store.open(home):
        pass

    assert json.loads(home.binding.read_bytes())["path"] == str(home.path)
    assert json.loads(home.identity.read_bytes()) == {"format": 1, "uuid": uuid}
    assert standing(home) is Standing.HOME


def test_a_copy_is_known_and_refused_and_can_be_read(home: Home) -> None:
    with Store.open(home):
        pass
    copy = copied(home)

    with Store.open(copy) as store:
        with pytest.raises(HomeNotBound) as refused:
            add_request(store, "kill", "", {}, "me", "test")
        assert store.rows("SELECT * FROM requests") == []

    assert refused.value.exit_code == 78
    assert f"a copy of the home {home.path}" in str(refused.value)
    assert f"FABRIC_HOME={home.path}" in refused.value.hint
    require_home(home)


@pytest.mark.parametrize(
    "change", [{"tags": ["best"]}, {"note": "mine"}, {"name": "other"}, {"labels": {"a": "b"}}]
)
def test_what_people_say_of_a_job_is_not_changed_in_a_copy(home: Home, change: dict[str, Any]) -> None:
    with Store.open(home) as store:
        before = add_job(store)
    copy = copied(home)
    events = home.job(before.id).events.read_bytes()

    with Store.open(copy) as store:
        with pytest.raises(HomeNotBound, match="a copy of the home"):
            annotate(store, before.id, **change)
        annotate(store, before.id)
        assert job(store, before.id) == before

    assert copy.job(before.id).events.read_bytes() == events
    with Store.open(home) as store:
        annotate(store, before.id, **change)
        assert job(store, before.id) != before


@pytest.mark.parametrize("change", [archive_experiment, pause_experiment, kill_experiment])
def test_a_search_is_not_changed_in_a_copy(
    home: Home, change: Callable[[Store, ExperimentRow], bool]
) -> None:
    document = {
        "spec": {**spec_to_json(make_detail().spec), "search": {"method": "random"}},
        "place": {"backend": "local", "type": "local", "runner": "process"},
    }
    with Store.open(home) as store:
        insert_experiment(store, "experiment-bcdefghjk", document)
        if change is archive_experiment:
            record_event(store, "experiment-bcdefghjk", {"do": "over", "state": "COMPLETED"})
    copy = copied(home)
    events = copy.experiment("experiment-bcdefghjk").events
    before = events.read_bytes()

    with Store.open(copy) as store, pytest.raises(HomeNotBound, match="a copy of the home"):
        change(store, resolve_experiment(store, "experiment-bcdefghjk"))

    assert events.read_bytes() == before


def test_a_copy_by_hard_links_is_not_opened_and_its_original_is(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store)
    linked, copy = Home(home.path.with_name("linked")), Home(home.path.with_name("copy"))
    subprocess.run(["cp", "-al", home.path, linked.path], check=True)
    before = home.database.read_bytes()

    with pytest.raises(HomeNotBound, match="a copy by hard links") as refused:
        Store.open(linked)

    assert refused.value.exit_code == 78
    assert f"`cp -a {linked.path} FOLDER`" in refused.value.hint
    with pytest.raises(HomeNotBound, match="a copy by hard links"), open_views(linked):
        pass
    assert home.database.read_bytes() == before
    with Store.open(home) as store:
        annotate(store, row.id, tags=["best"])
    subprocess.run(["cp", "-a", linked.path, copy.path], check=True)
    with Store.open(copy) as store:
        assert job(store, row.id) is not None


def test_a_link_to_a_home_is_the_home(home: Home, tmp_path: Path) -> None:
    home_uuid(home)
    link = tmp_path / "link"
    link.symlink_to(home.path)

    assert standing(Home(link)) is Standing.HOME


def test_a_home_that_is_mounted_a_second_time_is_the_home(home: Home, tmp_path: Path) -> None:
    home_uuid(home)
    again = tmp_path / "again"
    again.mkdir()
    if subprocess.run(["mount", "--bind", home.path, again], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert standing(Home(again)) is Standing.HOME
    finally:
        subprocess.run(["umount", again], check=True)


def test_a_moved_home_is_distinguished_from_a_copy(home: Home) -> None:
    home_uuid(home)
    moved = Home(home.path.rename(home.path.with_name("moved")))

    assert standing(moved) is Standing.MOVED
    assert why_not(moved) == f"{moved.path} was moved: it is bound to {home.path}"


def test_a_home_that_took_the_place_of_the_original_is_a_copy(home: Home) -> None:
    home_uuid(home)
    old = home.path.rename(home.path.with_name("old"))
    shutil.copytree(old, home.path)

    assert standing(home) is Standing.COPY


def test_a_binding_that_cannot_be_read_steers_nothing(home: Home) -> None:
    home_uuid(home)
    home.binding.write_text("{")

    assert standing(home) is Standing.COPY


def launched(home: Home) -> None:
    """Leave what a learner's launch by an older version left."""
    learner = home.job("training-abcdefghj").attempt(1).learner(1)
    learner.path.mkdir(parents=True)
    learner.launch.write_text(json.dumps({"guard": ["python", "agent.pyz", "guard", str(learner.path)]}))


def test_a_copy_that_was_made_before_homes_were_bound_is_known_by_its_learners(home: Home) -> None:
    home_uuid(home)
    home.binding.unlink()
    launched(home)
    copy = copied(home)

    assert standing(copy) is Standing.COPY
    assert standing(home) is Standing.HOME
    assert f"a copy of the home {home.path}" in (why_not(copy) or "")


def test_a_home_that_was_moved_before_homes_were_bound_is_the_home(home: Home) -> None:
    home_uuid(home)
    home.binding.unlink()
    launched(home)
    moved = Home(home.path.rename(home.path.with_name("moved")))

    assert standing(moved) is Standing.HOME


def test_a_copy_that_was_made_before_homes_were_bound_is_known_by_a_controller(
    home: Home, tmp_path: Path
) -> None:
    home_uuid(home)
    home.binding.unlink()
    address = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        home.controller_lock.write_text(json.dumps({"socket": str(address)}))

        assert standing(home) is Standing.COPY


def test_numbers_that_a_boot_changed_are_noted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home_uuid(home)
    monkeypatch.setattr(home_folder, "_boot", lambda: "another boot")

    home_folder.refresh(home)

    assert json.loads(home.binding.read_bytes())["boot"] == "another boot"
    assert standing(home) is Standing.HOME
