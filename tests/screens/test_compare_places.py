from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from backends.contract.host import Finding, Inventory, Node, Slot
from screens.backends.page import BackendState, backends_page, sparkline
from screens.backends.watch import BackendStatus
from screens.charts.grid import ChartGrid
from screens.jobs.compare_pages import cut_apart, values_page
from screens.jobs.compare_screen import CompareScreen
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.errors import BackendUnreachable
from workbench.paths import Home
from workbench.services.inspect import comparison as comparing
from workbench.store import jobs
from workbench.store.db.database import Store

NOW_US = seeding.NOW_US


@pytest.fixture
def pair(home: Home) -> Home:
    """Two jobs that differ in a few things, and report the same metrics."""
    with Store.open(home) as store:
        for number, (name, lr) in enumerate((("slow", 0.1), ("fast", 0.5)), start=1):
            row = seeding.add_job(
                store, number, name, params={"lr": lr, "same": 1}, code_hash=str(number) * 64
            )
            row = seeding.go(store, row, *seeding.RUN_UP)
            seeding.report(store, row, {"loss": [1.0, 0.5 / number], "accuracy": [0.1, 0.4 * number]})
        seeding.remember_runs(store)
    home.code.mkdir()
    for number, lines in ((1, b"a\nlr = 0.1\n"), (2, b"a\nlr = 0.5\n")):
        with tarfile.open(home.snapshot(str(number) * 64), "w:gz") as archive:
            for name, data in (
                ("train.py", lines),
                (f"only-{number}.txt", b"x"),
                ("image.bin", b"\0" * number),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return home


async def compare(shown: Shown) -> CompareScreen:
    await shown.until_shown("slow", "fast")
    await shown.press("space", "space", "c")
    await shown.until(lambda: isinstance(shown.app.screen, CompareScreen))
    screen = shown.app.screen
    assert isinstance(screen, CompareScreen)
    return screen


@journey
async def test_marked_jobs_are_laid_over_each_other(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        screen = await compare(shown)
        await shown.until_shown("compare 2 jobs", "train/loss")
        curves = screen.query_one(ChartGrid).page.charts["train/loss"].curves
        assert [one.label for one in curves] == ["fast", "slow"]
        assert len({one.colour for one in curves}) == 2
        await shown.until_shown("fast 0.25", "slow 0.5")


@journey
async def test_values_are_compared_and_the_best_stands_out(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("right_square_bracket")
        await shown.until_shown("train/loss", "min", "0.25", "train/accuracy", "max", "0.8", "● processing")


@journey
async def test_only_what_differs_is_shown(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("left_square_bracket", "left_square_bracket")
        await shown.until_shown("What differs", "params.lr", "0.5", "0.1", "other values are equal")
        assert "params.same" not in shown.text()


@journey
async def test_values_that_differ_late_are_shown_from_there(home: Home) -> None:
    path = "/data/speech/librispeech/train-clean-360/features/"
    with Store.open(home) as store:
        for number, name in enumerate(("slow", "fast"), start=1):
            seeding.add_job(store, number, name, params={"data": f"{path}v{number}.npz"})
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        await compare(shown)
        await shown.press("left_square_bracket", "left_square_bracket")
        await shown.until_shown("What differs", "params.data", "…1.npz", "…2.npz")


def test_the_lowest_word_error_rate_is_the_best(home: Home) -> None:
    with Store.open(home) as store:
        for number, (name, rates) in enumerate((("slow", [0.9, 0.4]), ("fast", [0.8, 0.2])), start=1):
            row = seeding.go(store, seeding.add_job(store, number, name), *seeding.RUN_UP)
            seeding.report(store, row, {"wer": rates, "lr": [0.01, 0.3]})
        comparison = comparing.compare(store, jobs.list_jobs(store))
    page = values_page(comparison, NOW_US)
    best = {
        page.plain[span.start : span.end].strip() for span in page.spans if span.style == "$role-completed"
    }
    lines = [line.split() for line in page.plain.splitlines()]

    assert ["min", "0.2", "0.4"] in lines
    assert best == {"0.2"}  # of a learning rate nobody knows which is the best
    assert ["min", "0.01", "0.01"] in lines and ["max", "0.3", "0.3"] in lines


def test_values_are_cut_but_never_so_that_they_look_the_same() -> None:
    same = "x" * 60
    cut = cut_apart([f"{same}1", f"{same}2", f"{same}2{same}a", f"{same}2{same}b", "y"], 40)

    assert len(set(cut.values())) == 5
    assert cut["y"] == "y" and cut[f"{same}1"] == "…1"


@journey
async def test_the_code_is_compared_file_by_file(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("left_square_bracket")
        await shown.until_shown("from fast to slow", "-lr = 0.5", "+lr = 0.1", "- only-2.txt", "+ only-1.txt")
        assert "image.bin: 2 B, then 1 B" in shown.text()
        await shown.press("escape")
        await shown.until_shown("fabric › jobs", "2 marked")


@journey
async def test_one_job_alone_is_not_compared(pair: Home) -> None:
    async with opened(pair) as shown:
        await shown.until_shown("slow")
        await shown.press("c")
        await shown.until_shown("mark at least two jobs")


def slot(index: int, **more: Any) -> Slot:
    told = {
        "memory_used_bytes": 8 << 30, "utilization_percent": 97.0, "temperature_celsius": 65.0,
        "power_watts": 210.0, "power_limit_watts": 300.0,
    }  # fmt: skip
    return Slot(f"GPU-{index}", index, "A100", 40 << 30, **(told | more))


def seen(inventory: Inventory | None, *, ago: float = 0.0, trouble: str = "", **more: Any) -> BackendStatus:
    at = NOW_US - int(ago * 1e6)
    return BackendStatus(
        "gpubox", "ssh", inventory, trouble, more.get("hint", ""), False, 0.012, more.get("findings", ()), at
    )


def box(*slots: Slot) -> Inventory:
    return Inventory(
        (Node("box", 16, 64 << 30, 25.0, 16 << 30, 500 << 30, slots, "driver 550, CUDA 12.4"),), NOW_US
    )


def shown_page(*answers: BackendStatus) -> str:
    state = BackendState("gpubox", "ssh")
    for answer in answers:
        state.take(answer)
    return backends_page([state], NOW_US, 160).plain


def test_machines_and_gpus_are_shown_with_who_uses_them() -> None:
    job = seeding.job_id(1)
    page = shown_page(
        seen(
            box(
                slot(0, holder="ada", holder_job=job),
                slot(1, foreign="python of eve, 12 GiB"),
                slot(2, utilization_percent=0.0),
            )
        )
    )

    for part in (
        "gpubox (ssh)  answers in 12 ms",
        "16 CPUs ██░░░░░░ 25 %",
        "16.0 GiB used",
        "driver 550, CUDA 12.4",
        "GPU 0 A100  ████████  97 %  8.0 GiB of 40.0 GiB  65 °C  210/300 W",
        f"ada {job.removeprefix('training-')}",
        "other process: python of eve",
        "free",
    ):
        assert part in page, page


def test_a_place_that_does_not_answer_keeps_what_was_seen_last_with_its_age() -> None:
    page = shown_page(seen(box(slot(0)), ago=42), seen(None, trouble="connection refused", hint="start sshd"))

    assert "does not answer: connection refused · last seen 42 s ago" in page
    assert "start sshd" in page and "GPU 0 A100" in page


def test_a_place_that_hangs_is_said_to() -> None:
    assert "no answer for 42 s" in shown_page(seen(box(), ago=42))
    assert "connecting" in shown_page()


def test_what_a_place_lacks_is_said_with_its_remedy() -> None:
    lack = Finding("engine", "no Docker", "lack", "no containers", "install it")
    page = shown_page(seen(box(), findings=(lack, Finding("python", "3.11"))))

    assert "engine: no Docker · no containers · install it" in page
    assert "python: 3.11" not in page and "  3.11" in page


def test_a_curve_of_use_is_drawn_to_the_right() -> None:
    assert sparkline([0, 50, 100], 5) == "  ▁▅█"
    assert sparkline([], 3) == "   "


class _Local:
    """This machine, as the test wants it."""

    def __init__(self, options: object) -> None:
        self.options = options

    def open(self) -> _Local:
        return self

    def close(self) -> None:
        """Nothing is held."""

    def inventory_of(self, opened: object) -> Inventory:
        return box(slot(0))

    def probe(self) -> Iterator[Finding]:
        yield Finding("gpu", "1 GPU")


class _Hanging(_Local):
    let_go = threading.Event()

    def inventory_of(self, opened: object) -> Inventory:
        self.let_go.wait(30)
        raise BackendUnreachable("it hung")


@journey
async def test_a_place_that_hangs_keeps_only_itself_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.config.types import Config

    places: dict[str, dict[str, Any]] = {
        name: {"name": name, "type": name, "address": "", "options": {}} for name in ("good", "hanging")
    }
    kinds = {"good": _Local, "hanging": _Hanging}
    monkeypatch.setattr("screens.backends.screen.load_config", lambda: Config(backends=places))
    monkeypatch.setattr("backends.registry.load_backend", lambda options: kinds[options.type](options))
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown(
            "good (good)  answers in", "GPU 0 A100", "hanging (hanging)  connecting", "2 backends"
        )
        _Hanging.let_go.set()
        await shown.until_shown("does not answer: it hung", "1 do not answer")
        await shown.press("escape")
        await shown.until_shown("No jobs yet")


class _SlowToProbe(_Local):
    let_go = threading.Event()

    def probe(self) -> Iterator[Finding]:
        self.let_go.wait(30)
        yield Finding("engine", "no Docker", "lack", "no containers", "install it")


@journey
async def test_what_a_place_has_is_shown_before_it_is_known_what_it_lacks(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.config.types import Config

    places: dict[str, dict[str, Any]] = {
        "slow": {"name": "slow", "type": "slow", "address": "", "options": {}}
    }
    monkeypatch.setattr("screens.backends.screen.load_config", lambda: Config(backends=places))
    monkeypatch.setattr("backends.registry.load_backend", _SlowToProbe)
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("slow (slow)  answers in", "GPU 0 A100")
        assert "no Docker" not in shown.text()
        _SlowToProbe.let_go.set()
        await shown.until_shown("engine: no Docker")


def test_a_machine_that_is_told_of_twice_counts_once_in_its_curve() -> None:
    found, state = box(), BackendState("gpubox", "ssh")
    state.take(seen(found))
    state.take(seen(found, findings=(Finding("python", "3.11"),)))

    assert [len(history) for history in state.histories.values()] == [1]
    assert state.good is not None and state.good.findings


@journey
async def test_this_machine_is_a_place(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("local (local)  answers in", "CPUs", "disk")


@journey
async def test_configuration_that_cannot_be_read_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.paths import config_file

    config_file().write_text("not = [toml")
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("config.toml")


@journey
async def test_a_place_is_tested_by_key(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("local (local)  answers in")
        await shown.press("t")
        await shown.until_shown("fabric backend test local", "local: usable", "python")


def test_on_a_narrow_screen_who_holds_a_gpu_stands_below_it_with_its_curve() -> None:
    state = BackendState("gpubox", "ssh")
    for percent in (0.0, 50.0, 100.0):
        state.take(
            seen(box(slot(0, holder="ada", holder_job=seeding.job_id(1), utilization_percent=percent)))
        )

    lines = backends_page([state], NOW_US, 78).plain.split("\n")

    gpu = next(index for index, line in enumerate(lines) if "GPU 0 A100" in line)
    assert "210/300 W" in lines[gpu] and "▁▅█  ada" in lines[gpu + 1]
    assert all(len(line) <= 78 for line in lines)


def test_which_versions_run_there_is_said() -> None:
    assert "3.11 · docker 27" in shown_page(
        seen(box(), findings=(Finding("python", "3.11"), Finding("engine", "docker 27")))
    )
