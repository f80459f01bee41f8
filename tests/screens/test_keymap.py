"""Keys as the user wants them: read from the configuration, checked, shown, and obeyed."""

from __future__ import annotations

import pytest

from screens.core.actions import BY_ID
from screens.core.keymap import key_map
from screens.jobs.table_screen import JobsScreen
from tests.screens import seeding
from tests.screens.support import journey, opened
from workbench.config import load_config
from workbench.errors import ConfigError
from workbench.paths import Home, config_file
from workbench.store.db.database import Store


def test_the_configuration_gives_actions_other_keys() -> None:
    config_file().write_text('[keys]\n"job.halt" = "H"\njob.kill = ["ctrl+x", "F8"]\n')

    keys = load_config().keys

    assert keys == {"job.halt": ("H",), "job.kill": ("ctrl+x", "F8")}
    assert key_map(keys).own == {"job.halt": ("H",), "job.kill": ("ctrl+x", "f8")}
    assert load_config().warnings == ()


@pytest.mark.parametrize("value", ["3", "[]", "[1]", "true"])
def test_keys_that_are_no_texts_are_refused_with_their_line(value: str) -> None:
    config_file().write_text(f"[keys]\njob.halt = {value}\n")

    with pytest.raises(ConfigError, match=r"config\.toml:2: keys\.job\.halt must be a key"):
        load_config()


def test_signs_are_understood_as_people_write_them() -> None:
    keys = key_map({"app.help": ["f1", "&"], "runs.filter": [","]})

    assert keys.own == {"runs.filter": ("comma",)}
    assert keys.faults == ("keys.app.help: unknown key '&'; examples: x, ctrl+x, f5, ?",)


@pytest.mark.parametrize(
    ("configured", "fault"),
    [
        ({"job.hlt": ["H"]}, "unknown action; did you mean job.halt?"),
        ({"job.halt": ["l"]}, "keys.job.halt: l is already job.logs"),
        ({"job.halt": ["hyper+x"]}, "unknown key 'hyper+x'"),
        ({"run.tab": ["x"]}, "its keys are digits"),
    ],
)
def test_what_cannot_be_is_reported_and_has_no_effect(configured: dict[str, list[str]], fault: str) -> None:
    keys = key_map(configured)

    assert fault in keys.faults[0]
    assert keys.own == {}


def test_two_actions_may_change_keys() -> None:
    keys = key_map({"job.halt": ["X"], "job.kill": ["x"]})

    assert not keys.faults
    assert (keys.shown(BY_ID["job.halt"]), keys.shown(BY_ID["job.kill"])) == ("X", "x")


@journey
async def test_other_keys_are_shown_and_obeyed_and_the_old_ones_do_nothing(home: Home) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40), keys={"runs.problems": ["ctrl+y"], "nothing": ["x"]}) as shown:
        await shown.until_shown("mnist-big", "ctrl+y problems", "keys.nothing: unknown action")
        await shown.press("exclamation_mark")
        assert isinstance(shown.app.screen, JobsScreen) and not shown.app.screen.problems_only
        await shown.press("ctrl+y")
        await shown.until_shown("only problems x", "1 of 3")
        await shown.press("question_mark")
        await shown.until_shown("Keys", "ctrl+y")


@journey
async def test_all_faults_of_the_keys_are_reported(home: Home) -> None:
    configured = {"job.hlt": ["H"], "job.halt": ["hyper+x", "%%"], "job.kill": ["l"], "run.tab": ["x"]}

    assert len(key_map(configured).faults) == 5
    with Store.open(home) as store:
        seeding.three_runs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40), keys=configured) as shown:
        await shown.until_shown(
            "keys.job.hlt", "hyper+x", "%%", "keys.job.kill: l is already", "keys.run.tab"
        )
