"""The lines of backends above the list of jobs: what they say, how many there are, and that none is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.contract.host import Inventory, Node, Slot
from screens.backends.page import BackendState, backends_page
from screens.backends.screen import BackendsScreen
from screens.jobs.list_header import BackendLine, BackendLines, backend_parts
from screens.jobs.table_screen import JobsScreen
from screens.style import text
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from tests.screens.walking import _PretendedBackend
from workbench import formats
from workbench.errors import BackendUnreachable, FabricError
from workbench.paths import Home, config_file
from workbench.services.backends.watch import BackendStatus
from workbench.store.db.database import Store

BOX = Node(
    "box", 64, 256 << 30, 40.0, 64 << 30, 900 << 30,
    (
        Slot("GPU-0", 0, "A100", 40 << 30, 30 << 30, 90.0, holder="ada", holder_job="training-abcdefghi"),
        Slot("GPU-1", 1, "A100", 40 << 30, 8 << 30, 30.0, foreign="python of eve"),
        Slot("GPU-2", 2, "A100", 40 << 30, 0, 0.0),
    ),
)  # fmt: skip
LAPTOP = Node("laptop", 8, 16 << 30, 12.0)


def answer(name: str, *nodes: Node, trouble: str = "", seen_us: int = seeding.NOW_US) -> BackendStatus:
    inventory = None if trouble else Inventory(nodes, 0)
    return BackendStatus(name, "ssh", inventory, FabricError(trouble) if trouble else None, 0.01, (), seen_us)


def line(name: str, *answers: BackendStatus) -> BackendLine:
    made = BackendLine(name)
    for each in answers:
        made.take(each)
    return made


def shown_lines(lines: list[BackendLine], width: int) -> list[str]:
    return ["".join(part for part, _, _ in parts) for parts in backend_parts(lines, seeding.NOW_US, width)]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_gpus_held_and_cpus_busy_are_bars_with_their_history_and_stand_under_each_other(width: int) -> None:
    busier = replace(BOX, cpu_percent=80.0)
    box, laptop = shown_lines(
        [line("box", answer("box", BOX), answer("box", busier)), line("laptop", answer("laptop", LAPTOP))],
        width,
    )

    assert "2 of 3" in box and "40%" in box and "80%" in box
    assert "▄▇" in box.partition("CPUs")[2]
    assert "no GPU" in laptop and "12%" in laptop
    assert box.index("CPUs") == laptop.index("CPUs")
    assert max(text.cells(box), text.cells(laptop)) <= width


def test_the_page_says_who_holds_a_gpu_and_since_when() -> None:
    held = replace(BOX.slots[0], held_since_us=seeding.NOW_US - 40 * 60_000_000, holder_name="digits")
    state = BackendState("box", "ssh")
    state.take(answer("box", replace(BOX, slots=(held, *BOX.slots[1:]))))

    shown = backends_page([state], seeding.NOW_US, 160).plain

    since = formats.clock_time(seeding.NOW_US - 40 * 60_000_000, now_us=seeding.NOW_US)
    assert f"ada abcdefghi digits since {since}" in shown


@pytest.mark.parametrize(
    ("use", "memory_bytes", "counts"), [(97.0, 0, True), (0.0, 8 << 30, True), (3.0, 4 << 20, False)]
)
def test_a_gpu_that_somebody_uses_unseen_counts_as_its_page_calls_it(
    use: float, memory_bytes: int, counts: bool
) -> None:
    unseen = replace(BOX.slots[2], utilization_percent=use, memory_used_bytes=memory_bytes)
    asked = answer("box", replace(BOX, slots=(*BOX.slots[:2], unseen)))
    state = BackendState("box", "ssh")
    state.take(asked)

    page = backends_page([state], seeding.NOW_US, 120).plain

    assert ("used, and by no job" in page, "  free" in page) == (counts, not counts)
    assert f"{3 if counts else 2} of 3" in shown_lines([line("box", asked)], 120)[0]


def test_what_a_probe_adds_to_the_same_inventory_is_no_new_sample() -> None:
    once = answer("box", BOX)
    assert len(line("box", once, replace(once)).gpu_use) == 1


def test_a_backend_that_does_not_answer_says_so_and_when_it_was_seen() -> None:
    before = answer("box", BOX, seen_us=seeding.NOW_US - 180 * seeding.SECOND_US)
    never, since = (
        line("box", answer("box", trouble="box does not answer: no route")),
        line("box", before, answer("box", trouble="connection refused")),
    )

    assert shown_lines([never], 80) == [" box  does not answer: no route"]
    assert shown_lines([since], 80) == [" box  does not answer: connection refused · last seen 3m ago"]


def test_an_old_answer_is_dim_and_says_its_age() -> None:
    old = line("box", answer("box", BOX, seen_us=seeding.NOW_US - 300 * seeding.SECOND_US))
    parts = backend_parts([old], seeding.NOW_US, 80)[0]
    assert {role for _, role, _ in parts} == {"dim"}
    assert parts[-1][0] == "  5m ago"


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_backend_that_is_waited_for_is_dim_and_says_for_how_long(width: int) -> None:
    gpubox = replace(answer("gpubox-of-ada", BOX), seen_us=seeding.NOW_US - 14 * seeding.SECOND_US)
    hung = line("gpubox-of-ada", gpubox)
    hung.asked_us = seeding.NOW_US - 12 * seeding.SECOND_US

    (parts,) = backend_parts([hung], seeding.NOW_US, width)
    shown = "".join(part for part, _, _ in parts)

    assert {role for _, role, _ in parts} == {"dim"}
    assert shown.endswith("  no answer for 12 s") and "2 of 3" in shown
    assert text.cells(shown) <= width
    hung.take(answer("gpubox-of-ada", BOX))
    assert "no answer" not in shown_lines([hung], width)[0]


def test_a_question_that_is_open_for_a_moment_is_no_news() -> None:
    asked = line("box", replace(answer("box", BOX), seen_us=seeding.NOW_US - 30 * seeding.SECOND_US))
    asked.asked_us = seeding.NOW_US - 2 * seeding.SECOND_US

    assert "no answer" not in shown_lines([asked], 120)[0]


def test_a_backend_that_never_answered_says_for_how_long_it_is_waited_for() -> None:
    never = BackendLine("box")
    assert shown_lines([never], 80) == [" box  asked, no answer yet"]
    for seconds, shown in ((12, "12 s"), (59.9, "59 s"), (200, "3m")):
        never.asked_us = seeding.NOW_US - round(seconds * seeding.SECOND_US)
        assert shown_lines([never], 80) == [f" box  no answer for {shown}"]


class _Hangs(_PretendedBackend):
    """A backend that never answers, and others that do."""

    opened = threading.Event()
    released = threading.Event()

    def open(self) -> _Hangs:
        if self.options.name == "hangs":
            self.opened.set()
            self.released.wait(60)
            raise BackendUnreachable("hangs does not answer")
        return self


@pytest.fixture
def hanging(three: Home, monkeypatch: pytest.MonkeyPatch, clean_environment: Path) -> Iterator[Home]:
    """A home with a backend that hangs, one that answers, and three more."""
    names = ("hangs", "box", "c3", "c4", "c5")
    entries = "".join(f'[backends.{name}]\naddress = "ssh://ada@{name}"\n' for name in names)
    config_file().write_text(entries)
    _Hangs.opened, _Hangs.released = threading.Event(), threading.Event()
    monkeypatch.setattr("backends.registry.load_backend", _Hangs)
    monkeypatch.setattr("screens.backends.watch.now_us", lambda: seeding.NOW_US)
    monkeypatch.setattr("workbench.services.backends.watch.now_us", lambda: seeding.NOW_US)
    yield three
    _Hangs.released.set()


def lines_of(shown: Shown) -> BackendLines:
    return shown.app.screen_stack[1].query_one(BackendLines)


@journey
async def test_a_backend_that_hangs_keeps_neither_the_list_nor_the_others_waiting(hanging: Home) -> None:
    now_us = [seeding.NOW_US]
    async with opened(hanging, (120, 40), clock=lambda: now_us[0]) as shown:
        await shown.until_shown("2 of 3", "asked, no answer yet")
        assert _Hangs.opened.is_set()
        now_us[0] += 12 * seeding.SECOND_US
        await shown.until_shown("hangs  no answer for 12 s")
        await shown.press("j")
        await shown.until_shown("RuntimeError: CUDA out of memory")
        _Hangs.released.set()
        await shown.until_shown("hangs  does not answer")


@journey
async def test_many_backends_do_not_push_the_list_off_the_screen(hanging: Home) -> None:
    async with opened(hanging) as shown:
        await shown.until(lambda: len(lines_of(shown).lines) == 6)
        await shown.until_shown("+ 4 more")
        assert lines_of(shown).size.height == 2
        await shown.pilot.resize_terminal(120, 60)
        await shown.until(lambda: lines_of(shown).size.height == 6)
        assert "more" not in shown.text().splitlines()[6]
        # What they are is known the next time from the start.
    async with opened(hanging) as shown:
        await shown.until(lambda: len(lines_of(shown).lines) == 6)


@journey
async def test_a_click_on_a_backend_opens_their_page(hanging: Home) -> None:
    async with opened(hanging) as shown:
        await shown.until_shown("+ 4 more")
        await shown.pilot.click(BackendLines, offset=(3, 0))
        await shown.until(lambda: isinstance(shown.app.screen, BackendsScreen))


@journey
async def test_while_nothing_is_open_backends_are_asked_again_only_when_the_list_is_used(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    wanted: list[bool] = []
    wants = JobsScreen._wants_backends

    class _Counting(_PretendedBackend):
        def inventory_of(self, opened: object) -> Inventory:
            asked.append(opened)
            return super().inventory_of(opened)

    def counted(screen: JobsScreen, asked_at: float) -> bool:
        wanted.append(wants(screen, asked_at))
        return wanted[-1]

    monkeypatch.setattr("backends.registry.load_backend", _Counting)
    monkeypatch.setattr("screens.backends.watch.EVERY_SECONDS", 0.01)
    monkeypatch.setattr("screens.backends.watch._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(JobsScreen, "_wants_backends", counted)
    with Store.open(home) as store:
        seeding.many_runs(store, 5)
        seeding.remember_runs(store)
    async with opened(home) as shown:
        await shown.until_shown("sweep-00004", "CPUs")
        await shown.until(lambda: len(wanted) >= 20 and not any(wanted[-20:]))
        before = len(asked)
        await shown.press("j")
        await shown.until(lambda: len(asked) > before)
        with Store.open(home) as store:
            seeding.add_job(store, 7, "open")
        await shown.until_shown("open")
        before = len(asked)
        await shown.until(lambda: len(asked) > before + 5)
