from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import Counter

import pytest
from textual.binding import Binding
from textual.widget import Widget

import screens
from screens.app import docs
from screens.app.app import FabricApp
from screens.app.help import groups_of, help_page
from screens.backends.screen import BackendsScreen
from screens.core import actions
from screens.core.keymap import KeyMap
from screens.jobs.actions import JobActions, Steering
from screens.jobs.compare_screen import CompareScreen
from screens.jobs.file_actions import FileActions
from screens.jobs.job_screen import JobScreen
from screens.jobs.queue_screen import QueueScreen
from screens.jobs.search_screen import SearchScreen
from screens.jobs.table_screen import JobsScreen
from screens.launch.form_screen import LaunchScreen


def _pane_classes() -> dict[str, type[Widget]]:
    found: dict[str, type[Widget]] = {}
    for module in pkgutil.walk_packages(screens.__path__, "screens."):
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and issubclass(value, Widget) and "PANE" in vars(value):
                found[vars(value)["PANE"]] = value
    return found


PANES = _pane_classes()


def test_every_pane_of_the_table_is_a_widget_and_the_other_way_round() -> None:
    assert set(PANES) == set(actions.ALL_PANES) == set(actions.TITLES)


@pytest.mark.parametrize("pane", actions.ALL_PANES)
def test_no_key_is_bound_twice_while_a_pane_has_the_focus(pane: str) -> None:
    keys = Counter(key for action in actions.of_pane(pane) for key in action.keys)

    assert [key for key, times in keys.items() if times > 1] == []


@pytest.mark.parametrize("pane", actions.ALL_PANES)
def test_a_panes_bindings_are_those_of_the_table_and_no_others(pane: str) -> None:
    bound = {b.key for b in Binding.make_bindings(PANES[pane].BINDINGS)}

    assert bound == {key for action in actions.of_pane(pane) for key in action.keys}


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda action: action.id)
def test_every_action_can_be_carried_out_where_it_is_offered(action: actions.Action) -> None:
    method = f"action_{action.method}"
    for pane in action.panes:
        if action.owner == "app":
            assert hasattr(FabricApp, method)
        elif action.owner == "pane":
            assert hasattr(PANES[pane], method)
        elif action.owner == "jobs":
            assert issubclass(SCREENS[pane], JobActions)
            assert hasattr(Steering, method) != hasattr(FileActions, method)
        else:
            screen = SCREENS[pane]
            assert hasattr(screen, method), f"{screen.__name__} of {pane}"


SCREENS = {
    **dict.fromkeys(actions.RUNS_PANES, JobsScreen),
    **dict.fromkeys(actions.RUN_PANES, JobScreen),
    "compare": CompareScreen,
    "search": SearchScreen,
    "queue": QueueScreen,
    "places": BackendsScreen,
    **dict.fromkeys(actions.FORM_PANES, LaunchScreen),
}


def test_ids_are_unique() -> None:
    assert len(actions.BY_ID) == len(actions.ACTIONS)


@pytest.mark.parametrize("pane", actions.ALL_PANES)
def test_help_names_every_action_of_a_pane_with_its_keys(pane: str) -> None:
    shown = " ".join(help_page(pane, KeyMap(), 60).plain.split())

    for action in actions.of_pane(pane):
        assert f"{actions.keys_shown(action)} {action.help}" in shown, action.id


def test_help_is_grouped_and_the_panes_own_keys_come_first() -> None:
    groups = list(groups_of("logs", KeyMap()))

    assert groups[0] in ("Log", "Job")
    assert groups[-3:] == ["Tabs", "Moving", "Everywhere"]
    assert sum(map(len, groups_of("logs", KeyMap()).values())) == len(list(actions.of_pane("logs")))


@pytest.mark.parametrize(("width", "columns"), [(70, 1), (106, 2), (166, 3)])
def test_help_is_in_as_many_columns_as_there_is_room_for(width: int, columns: int) -> None:
    lines = help_page("runs", KeyMap(), width).plain.split("\n")
    titles = [line for line in lines if line.startswith("List of jobs")]

    assert max(map(len, lines)) <= width
    assert len(re.split(r" {3,}", titles[0])) == min(columns, 3)


def test_further_lines_of_help_hang_below_the_first() -> None:
    lines = help_page("runs", KeyMap(), 60).plain.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("  /"))

    assert lines[at].index("Show only") == len(lines[at + 1]) - len(lines[at + 1].lstrip())


def test_help_is_narrowed_by_words() -> None:
    found = help_page("logs", KeyMap(), 120, "traceback next").plain

    assert "next error" in found.lower()
    assert "Wrap" not in found
    assert "no key is about 'zzz'" in help_page("logs", KeyMap(), 120, "zzz").plain


def test_help_says_what_readonly_turns_off() -> None:
    shown = help_page("runs", KeyMap(), 400, readonly=True).plain

    assert shown.count("read-only") == sum(action.changes for action in actions.of_pane("runs")) > 0


def test_docs_name_every_action_and_are_current() -> None:
    page = docs.page()

    for action in actions.ACTIONS:
        assert re.search(rf"\| {re.escape(action.id)}( ✎)? \|", page), action.id
    assert docs.main(["--check"]) == 0


def test_docs_refuse_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--wirte"]) == 64
    assert "usage" in capsys.readouterr().err


def test_digits_and_the_letters_of_tabs_mean_the_same_on_every_page_of_a_job() -> None:
    for key, action, but in (
        ("1", "run.tab", ""),
        ("7", "run.tab", ""),
        ("l", "job.logs", "logs"),
        ("m", "job.charts", "charts"),
    ):
        for pane in actions.RUN_PANES:
            meant = [each.id for each in actions.of_pane(pane) if key in each.keys]
            assert meant == ([] if pane == but else [action]), (pane, key)


def test_keys_are_named_as_people_name_them() -> None:
    assert actions.key_name("question_mark") == "?"
    assert actions.key_name("ctrl+backslash") == "ctrl+\\"
    assert actions.keys_shown(actions.BY_ID["run.tab"]) == "1-7"
    assert actions.keys_shown(actions.BY_ID["move.down"]) == "j, down"
