"""A folder that a home was moved to becomes the home; a copy of one that is still there does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.services.stored import copied
from tests.support.controllers import answers, controller, end_all
from workbench.errors import HomeNotBound, InputMissing
from workbench.job import State
from workbench.paths import Home
from workbench.services.upkeep.bind_home import Bound, Found, bind_home, look_at_home
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.home_folder import Standing, is_home, standing


@pytest.fixture
def filled(home: Home) -> Home:
    """A home with an open job and one that is over."""
    with Store.open(home) as store:
        add_job(store, "over", State.COMPLETED)
        add_job(store, "open")
    standing(home)
    return home


@pytest.fixture
def elsewhere(home: Home) -> Iterator[Home]:
    yield Home(home.path.with_name("elsewhere"))
    end_all(home)


def moved(home: Home, to: Home) -> Home:
    home.path.rename(to.path)
    return to


@pytest.mark.unmade_home
def test_where_no_home_is_there_is_nothing_to_bind(home: Home) -> None:
    with pytest.raises(InputMissing, match="is not a home yet") as refused:
        look_at_home(home)

    assert refused.value.hint == "the first job makes it, and binds it"


def test_a_home_where_it_lies_stays_as_it_is(filled: Home, woken: list[Home]) -> None:
    found = look_at_home(filled)

    assert found == Found(filled, home_uuid(filled), Standing.HOME, str(filled.path), False)
    assert bind_home(found) == Bound(str(filled.path), found.uuid, "home", None, 1)
    assert woken == [filled]


def test_a_home_that_was_moved_is_bound_and_its_old_path_leads_to_it(
    filled: Home, elsewhere: Home, woken: list[Home]
) -> None:
    there = moved(filled, elsewhere)
    found = look_at_home(there)

    bound = bind_home(found)

    assert (found.was, found.before, found.is_elsewhere) == (Standing.MOVED, str(filled.path), False)
    assert bound == Bound(str(there.path), found.uuid, "moved", str(filled.path), 1, str(filled.path))
    assert filled.path.is_symlink() and filled.path.samefile(there.path)
    assert is_home(there)
    assert woken == [there]


@pytest.mark.parametrize("is_empty", [True, False])
def test_only_an_empty_folder_at_its_old_path_gives_way(
    filled: Home, elsewhere: Home, woken: list[Home], is_empty: bool
) -> None:
    there = moved(filled, elsewhere)
    filled.path.mkdir()
    if not is_empty:
        (filled.path / "mine").write_text("")

    bound = bind_home(look_at_home(there))

    assert bound.link == (str(filled.path) if is_empty else None)
    assert ("File exists" in bound.trouble) == (not is_empty)
    assert filled.path.is_symlink() == is_empty
    assert is_home(there)


def test_without_open_jobs_no_link_is_needed_and_nobody_is_woken(
    home: Home, elsewhere: Home, woken: list[Home]
) -> None:
    with Store.open(home) as store:
        add_job(store, "over", State.COMPLETED)
    standing(home)

    bound = bind_home(look_at_home(moved(home, elsewhere)))

    assert (bound.was, bound.open_jobs, bound.link, bound.trouble) == ("moved", 0, None, "")
    assert not home.path.exists()
    assert woken == []


def test_a_copy_of_a_home_that_is_still_there_is_not_bound(filled: Home, elsewhere: Home) -> None:
    copy = copied(filled, elsewhere.path)

    with pytest.raises(HomeNotBound, match="is still there: both would steer the same learners") as refused:
        look_at_home(copy)

    assert f"FABRIC_HOME={filled.path} steers its jobs" in refused.value.hint
    assert not is_home(copy)


def test_a_copy_is_bound_once_the_home_is_removed(filled: Home, elsewhere: Home, woken: list[Home]) -> None:
    copy = copied(filled, elsewhere.path)
    shutil.rmtree(filled.path)

    bound = bind_home(look_at_home(copy))

    assert (bound.was, bound.open_jobs) == ("copy", 1)
    assert is_home(copy)


def test_a_home_of_another_machine_says_so(filled: Home, woken: list[Home]) -> None:
    bound = json.loads(filled.binding.read_bytes())
    filled.binding.write_text(json.dumps({**bound, "machine": "another", "boot": "another", "inode": 1}))

    found = look_at_home(filled)

    assert (found.was, found.is_elsewhere) == (Standing.COPY, True)
    assert bind_home(found).link is None
    assert is_home(filled)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": 3}'])
def test_a_binding_that_cannot_be_read_is_written_anew(filled: Home, woken: list[Home], text: str) -> None:
    filled.binding.write_text(text)

    found = look_at_home(filled)

    assert (found.was, found.before) == (Standing.COPY, "")
    assert bind_home(found).before is None
    assert is_home(filled)


def test_a_home_whose_controller_runs_under_another_path_is_not_bound_to_a_copy(
    filled: Home, elsewhere: Home, tmp_path: Path
) -> None:
    controller(filled)
    answers(filled)
    copy = copied(filled, elsewhere.path)
    bound = json.loads(copy.binding.read_bytes())
    copy.binding.write_text(json.dumps({**bound, "path": str(tmp_path / "gone")}))

    with pytest.raises(HomeNotBound, match=f"is a copy of {filled.path}, which is still there"):
        look_at_home(copy)
