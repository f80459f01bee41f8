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
from screens.app.palette import help_text
from screens.backends.screen import BackendsScreen
from screens.core import actions
from screens.core.keymap import KeyMap
from screens.jobs.compare_screen import CompareScreen
from screens.jobs.job_screen import JobScreen
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
        else:
            screen = SCREENS[pane]
            assert hasattr(screen, method), f"{screen.__name__} of {pane}"


SCREENS = {
    **dict.fromkeys(actions.RUNS_PANES, JobsScreen),
    **dict.fromkeys(actions.RUN_PANES, JobScreen),
    "compare": CompareScreen,
    "places": BackendsScreen,
    **dict.fromkeys(actions.FORM_PANES, LaunchScreen),
}


def test_ids_are_unique() -> None:
    assert len(actions.BY_ID) == len(actions.ACTIONS)


@pytest.mark.parametrize("pane", actions.ALL_PANES)
def test_help_names_every_action_of_a_pane_with_its_keys(pane: str) -> None:
    lines = help_text(pane, KeyMap()).plain.split("\n")

    for action in actions.of_pane(pane):
        assert any(
            line.strip().startswith(actions.keys_shown(action)) and action.help in line for line in lines
        ), action.id


def test_help_says_what_readonly_turns_off() -> None:
    off = [
        line for line in help_text("runs", KeyMap(), readonly=True).plain.split("\n") if "read-only" in line
    ]

    assert len(off) == sum(action.changes for action in actions.of_pane("runs")) > 0


def test_docs_name_every_action_and_are_current() -> None:
    page = docs.page()

    for action in actions.ACTIONS:
        assert re.search(rf"\| {re.escape(action.id)}( ✎)? \|", page), action.id
    assert docs.main(["--check"]) == 0


def test_docs_refuse_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--wirte"]) == 64
    assert "usage" in capsys.readouterr().err


def test_keys_are_named_as_people_name_them() -> None:
    assert actions.key_name("question_mark") == "?"
    assert actions.key_name("ctrl+backslash") == "ctrl+\\"
    assert actions.keys_shown(actions.BY_ID["chart.columns"]) == "1-9"
    assert actions.keys_shown(actions.BY_ID["move.down"]) == "j, down"
