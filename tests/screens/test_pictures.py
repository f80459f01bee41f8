"""Pictures of every screen in every state and at three sizes, as text. ``--update-screens`` writes them anew."""

from __future__ import annotations

import asyncio

import pytest

from screens.widgets.tabs import TABS
from tests.screens import seeding
from tests.screens.support import SIZES, Shown, check, opened
from workbench.paths import Home
from workbench.store.database import Store

SIZE_NAMES = {size: f"{size[0]}x{size[1]}" for size in SIZES}


def _take(
    home: Home, size: tuple[int, int], shows: str, *keys: str, job: str | None = None, first: str = "fabric"
) -> str:
    """Open the app, wait for what it shows first, press keys, wait for what these show, and return the screen."""

    async def take() -> str:
        async with opened(home, size, job=job) as shown:
            await _settled(shown, first, shows, *keys)
            return shown.text()

    return asyncio.run(take())


async def _settled(shown: Shown, first: str, shows: str, *keys: str) -> None:
    await shown.until_shown("1 overview" if shown.app.asked_job else first)
    for key in keys:
        await shown.press(key)
    await shown.until_shown(shows)
    before = ""

    def still() -> bool:
        nonlocal before
        same, before = shown.text() == before, shown.text()
        return same

    for _ in range(3):
        await shown.pilot.pause()  # until nothing is left to do
        await shown.until(still)


@pytest.mark.parametrize("size", SIZES, ids=SIZE_NAMES.get)
def test_runs_while_there_are_none(home: Home, request: pytest.FixtureRequest, size: tuple[int, int]) -> None:
    check(request, f"runs-empty-{SIZE_NAMES[size]}", _take(home, size, "No runs yet"))


@pytest.mark.parametrize("size", SIZES, ids=SIZE_NAMES.get)
def test_runs_while_the_store_is_being_opened(
    home: Home, request: pytest.FixtureRequest, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.reader.Reader.start", lambda self: None)

    check(request, f"runs-loading-{SIZE_NAMES[size]}", _take(home, size, "loading"))


@pytest.mark.parametrize("size", SIZES, ids=SIZE_NAMES.get)
def test_three_runs(home: Home, request: pytest.FixtureRequest, size: tuple[int, int]) -> None:
    with Store.open(home) as store:
        seeding.three_runs(store)
        remember_runs(store)

    check(request, f"runs-three-{SIZE_NAMES[size]}", _take(home, size, "step 19 loss"))


@pytest.mark.parametrize("size", SIZES, ids=SIZE_NAMES.get)
def test_five_thousand_runs(home: Home, request: pytest.FixtureRequest, size: tuple[int, int]) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 5000)
        remember_runs(store)

    check(request, f"runs-many-{SIZE_NAMES[size]}", _take(home, size, "it printed nothing", "j", "j"))


@pytest.mark.parametrize("size", SIZES, ids=SIZE_NAMES.get)
@pytest.mark.parametrize("tab", TABS)
def test_every_tab_of_a_job(
    home: Home, request: pytest.FixtureRequest, size: tuple[int, int], tab: str
) -> None:
    shows = {
        "overview": "train/loss", "logs": "step 19", "charts": "train/loss", "usage": "180 %",
        "config": "manifest.yml:1", "files": "5.pt", "events": "History",
    }  # fmt: skip
    with Store.open(home) as store:
        running = seeding.three_runs(store)[2]
    number = str(TABS.index(tab) + 1)

    shown = _take(home, size, shows[tab], *(number if tab != "overview" else ()), job=running.id)

    check(request, f"run-{tab}-{SIZE_NAMES[size]}", shown)


def test_a_screen_that_is_too_small_says_so(home: Home, request: pytest.FixtureRequest) -> None:
    check(request, "too-small-50x10", _take(home, (50, 10), "needs 60x15"))


@pytest.mark.parametrize("size", SIZES[:2], ids=SIZE_NAMES.get)
def test_help(home: Home, request: pytest.FixtureRequest, size: tuple[int, int]) -> None:
    check(
        request, f"help-{SIZE_NAMES[size]}", _take(home, size, "Keys", "question_mark", first="No runs yet")
    )


def remember_runs(store: Store) -> None:
    """Have the app open where the table of runs was left."""
    from screens.queries import MEMORY_KEY
    from workbench.store.ui_state import set_state

    set_state(store, MEMORY_KEY, {"screen": "runs"})
