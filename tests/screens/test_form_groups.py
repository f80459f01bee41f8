"""The form's groups: what everyone sets first, the rest folded, opened by a value, by key, by mouse and by a search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from screens.launch.draft import MORE, Draft, Field, draft_from_json, fields, fields_of
from screens.launch.draft_sources import draft_of_file
from screens.launch.field_list import GROUPS, FormView, GroupLine, best_match, matches
from screens.launch.form_screen import LaunchScreen, open_form
from screens.widgets.text_page import PlanPage
from tests.screens.support import Shown, journey, opened
from tests.support.processes import end_everything
from workbench.clock import now_us
from workbench.paths import Home

MANIFEST = """name: hello
params: {lr: 0.1, width: 64}
max_runtime: 8h
framework: {name: custom, command: python train.py}
"""


@pytest.fixture
def folder(clean_environment: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    work = clean_environment / "work"
    work.mkdir()
    (work / "manifest.yml").write_text(MANIFEST)
    (work / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(work)
    yield work
    end_everything(home)


@asynccontextmanager
async def form(
    home: Home, draft: Draft, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Shown, LaunchScreen]]:
    async with opened(home, size, clock=now_us) as shown:
        await shown.until_shown("No jobs yet")
        open_form(shown.app, draft)
        await shown.until(lambda: isinstance(shown.app.screen, LaunchScreen) and shown.app.screen.whole)
        screen = shown.app.screen
        assert isinstance(screen, LaunchScreen)
        await shown.until(lambda: screen.form.line is not None)
        yield shown, screen


def open_groups(view: FormView, keys: set[str]) -> list[str]:
    return [
        line.group.name for line in view.lines(fields(), keys) if isinstance(line, GroupLine) and line.open
    ]


def test_every_key_of_the_manifest_is_in_one_group() -> None:
    grouped = [key for group in GROUPS for key in group.keys]

    assert sorted(grouped) == sorted(one.key for one in fields())


def test_what_everyone_sets_comes_first_and_the_rest_is_folded() -> None:
    lines = FormView().lines(fields(), set())

    first = [line.key for line in lines if isinstance(line, Field)]
    assert first == ["name", "framework.command", "backend", "gpus", "cpus", "memory", "params"]
    assert open_groups(FormView(), set()) == []


def test_a_group_that_holds_a_value_is_open_unless_it_was_folded() -> None:
    assert open_groups(FormView(), {"max_runtime"}) == ["time and restarts"]
    assert open_groups(FormView(folds={"time and restarts": False}), {"max_runtime"}) == []


def test_a_key_is_found_by_its_name_and_by_its_meaning() -> None:
    found = [one.key for one in fields() if matches(one, ["restarts"])]
    by_meaning = [one.key for one in fields() if matches(one, ["prints"])]

    assert {"max_restarts", "max_platform_restarts"} <= set(found)
    assert by_meaning == ["evaluation_metrics"]
    assert best_match(fields(), "max run") == "max_runtime"
    assert best_match(fields(), "no such key") == ""


def test_hyper_parameters_stand_below_the_line_of_all() -> None:
    draft = Draft("m.yml", MANIFEST)
    keys = [one.key for one in fields_of(draft, {"params.lr": "0.1", "params.width": "64"})]

    lines = FormView().lines(fields_of(draft, {"params.lr": "0.1", "params.width": "64"}), set())
    shown = [line.key for line in lines if isinstance(line, Field)]
    assert "params.width" in keys
    assert shown[-3:] == ["params", "params.lr", "params.width"]


@journey
async def test_a_manifests_values_open_their_groups(folder: Path, home: Home) -> None:
    async with form(home, draft_of_file("manifest.yml")) as (shown, _):
        await shown.until_shown("▾ time and restarts", "max_runtime", "8h", "▸ image and Python")
        assert "framework.version " not in shown.text()  # `custom` is what is taken anyway


@journey
async def test_a_key_is_searched_edited_and_the_search_ended(folder: Path, home: Home) -> None:
    async with form(home, draft_of_file("manifest.yml"), (80, 24)) as (shown, screen):
        await shown.press("slash")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("priority")
        await shown.until_shown("of", "keys: priority", "▾ queue")
        assert "memory" not in shown.text()
        await shown.press("enter")
        await shown.until(lambda: shown.app.focused is screen.form)
        assert screen.form.field is not None and screen.form.field.key == "priority"
        await shown.press("enter")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("7")
        await shown.press("enter")
        await shown.until_shown("--set priority=7")
        await shown.press("escape")
        await shown.until_shown("memory")
        assert screen.form.field.key == "priority"  # the cursor stays on what was found
        assert shown.app.screen is screen


@journey
async def test_a_search_without_a_hit_says_so(folder: Path, home: Home) -> None:
    async with form(home, Draft()) as (shown, screen):
        await shown.press("slash")
        await shown.until(lambda: isinstance(shown.app.focused, Input))
        await shown.type("zzz")
        await shown.until_shown("no key is about 'zzz'; esc shows all")
        await shown.press("escape")
        await shown.until_shown("▸ queue")
        assert shown.app.screen is screen


@journey
async def test_groups_open_by_key_and_by_mouse(folder: Path, home: Home) -> None:
    async with form(home, Draft()) as (shown, screen):
        await shown.until_shown("▸ queue", "after, priority, at_most")
        while screen.form.group is None or screen.form.group.name != "queue":
            await shown.press("j")
        await shown.until_shown("What the job waits for")  # the hint says what the group is about
        await shown.press("enter")
        await shown.until_shown("▾ queue", "at_most")
        await shown.press("j", "space")
        await shown.until_shown("▸ queue")
        assert screen.form.group is not None and screen.form.group.name == "queue"
        await shown.press("a")
        await shown.until_shown("▾ queue", "▾ learners", "launcher")
        await shown.press("a")
        await shown.until_shown("▸ queue", "▸ learners")

        row = next(i for i, line in enumerate(shown.text().splitlines()) if "▸ learners" in line)
        await shown.pilot.click(offset=(4, row))
        await shown.until_shown("▾ learners", "launcher")


@journey
async def test_a_fault_opens_its_group(folder: Path, home: Home) -> None:
    async with form(home, draft_of_file("manifest.yml").changed("ends_when", "sometimes")) as (shown, screen):
        await shown.until_shown("1 fault", "▾ learners", "!  ends_when")
        await shown.press("ctrl+r")
        await shown.until(lambda: screen.form.field is not None and screen.form.field.key == "ends_when")


@journey
async def test_the_plan_is_a_few_lines(folder: Path, home: Home) -> None:
    draft = draft_of_file("manifest.yml").changed("runner", "process").changed("priority", "5")
    async with form(home, draft, (160, 50)) as (shown, screen):
        await shown.until_shown("ready to start")
        plan = screen.query_one(PlanPage).plain.split("Sent to")[0]
        fields = {line[2:16].strip(): line[17:] for line in plan.splitlines() if line.startswith("  ")}
        assert fields["where"] == "local, as process"
        assert fields["command"] == "python train.py"
        assert "python" in fields["Python"]
        assert fields["code"].startswith("2 files, ") and str(folder) in fields["code"]
        assert fields["GPUs"] == "none"
        assert fields["params"] == "lr=0.1, width=64"
        assert fields["waits for"] == "nothing (priority 5)"
        assert fields["ends after"] == "at most 8 h 00 min"


@journey
async def test_a_sweep_says_how_many_jobs_and_what_differs(folder: Path, home: Home) -> None:
    draft = (
        draft_of_file("manifest.yml").changed("runner", "process").changed(MORE, "--set params.lr=1,2,3,4,5")
    )
    async with form(home, draft, (160, 50)) as (shown, screen):
        await shown.until_shown("ready to start 5 jobs", "Starts 5 jobs", "and 1 more job", "Plan of each")
        table = screen.query_one(PlanPage).plain.split("Plan of each")[0]
        assert [line.split() for line in table.splitlines()[1:6]] == [
            ["lr"], ["1", "1"], ["2", "2"], ["3", "3"], ["4", "4"],
        ]  # fmt: skip
        assert "width" not in table  # it is the same for all


def test_a_draft_that_is_not_one_is_not_taken() -> None:
    assert draft_from_json({"manifest": 1}) is None
