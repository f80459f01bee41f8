"""What a job uses: curves against their limits at every size, the tree of its processes, and what is not known."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.style import Style

from backends.contract.host import Chunk
from runners.interface import LearnerRef
from screens.jobs import usage_chart
from screens.jobs.usage_chart import CHARTS, UsageChart, draw_usage
from screens.jobs.usage_page import UsagePage, lay_out_usage
from screens.style import glyphs
from screens.style.themes import Paint
from tests.screens import seeding
from tests.screens.support import SIZES, Shown, journey, opened
from workbench.errors import BackendUnreachable
from workbench.job import State
from workbench.paths import Home
from workbench.services.backends import learner_access
from workbench.services.inspect import usage_history
from workbench.services.inspect.usage_history import (
    ProcessReader,
    UsageCurves,
    UsageHistory,
    UsageQuery,
    UsageSample,
    parse_processes,
)
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import detail

MIB = 1 << 20
GIB = 1 << 30
SAMPLES = [(2.0 * at, 120.0 + 60 * (at % 10 > 4), (4 + at // 100) * GIB) for at in range(200)]


def machine(learner: int = 1) -> list[UsageChart]:
    return [UsageChart(kind, learner, "", 0) for kind in CHARTS if not kind.is_gpu]


def gpu(number: int, learner: int = 1) -> list[UsageChart]:
    return [UsageChart(kind, learner, f"GPU-{number}", number) for kind in CHARTS if kind.is_gpu]


def add_running(
    home: Home,
    *,
    learners: int = 1,
    gpus: int = 0,
    cpus: float | None = None,
    memory_bytes: int | None = None,
    listed: bool = True,
    state: State | None = None,
    **more: Any,
) -> JobRow:
    """Make a job that runs, with samples of its usage and the lists of its processes."""
    with Store.open(home) as store:
        asked: dict[str, Any] = {"gpus": gpus, "cpus": cpus, "memory_bytes": memory_bytes}
        row = seeding.add_job(store, 1, "resnet", age_seconds=600, learners=learners, **asked)
        row = seeding.go(store, row, *seeding.RUN_UP)
        for learner in range(1, learners + 1):
            seeding.sample(store, row, SAMPLES, learner=learner, gpus=gpus, **more)
            if listed:
                seeding.list_processes(home, row, learner=learner)
        if state is not None:
            row = seeding.go(store, row, State.STORING, state, exit_code=0, exit_by="job")
        seeding.remember_runs(store)
    return row


async def look(shown: Shown, *parts: str) -> str:
    await shown.until_shown("1 overview")
    await shown.press("4")
    await shown.until_shown(*parts)
    return shown.text()


# Where everything stands


@pytest.mark.parametrize(
    ("width", "height", "gpus", "listed", "across"),
    [(79, 21, 0, 6, 2), (119, 37, 2, 6, 4), (199, 57, 2, 6, 4), (199, 57, 0, 6, 2), (66, 12, 0, 0, 1)],
)
def test_charts_fill_the_page(width: int, height: int, gpus: int, listed: int, across: int) -> None:
    groups = [machine(), *(gpu(number) for number in range(gpus))]

    blocks = lay_out_usage([(1, groups, listed)], width, height)

    assert max(len(block.charts) for block in blocks) == across
    end = blocks[-1].top + blocks[-1].height
    assert end == height or (end > height and {block.height for block in blocks if block.charts} == {5})
    assert [block.top for block in blocks] == [
        sum(before.height for before in blocks[:index]) for index in range(len(blocks))
    ]


def test_a_long_list_of_processes_leaves_room_for_the_charts() -> None:
    blocks = lay_out_usage([(1, [machine()], 60)], 119, 37)

    assert sum(block.height for block in blocks if block.charts) >= 20
    assert blocks[-1].top + blocks[-1].height > 60


def test_many_learners_have_charts_of_a_useful_height() -> None:
    parts = [(learner, [machine(learner), gpu(0, learner)], 4) for learner in range(1, 33)]

    blocks = lay_out_usage(parts, 119, 37)

    assert {block.height for block in blocks if block.charts} == {5}
    assert {block.learner for block in blocks} == set(range(1, 33))


def test_below_the_lowest_charts_of_a_learner_stands_the_time() -> None:
    groups = [machine(), gpu(0)[:3]]

    blocks = lay_out_usage([(1, groups, 2), (2, groups, 0)], 119, 60)

    for learner, lists in ((1, [True]), (2, [])):
        own = [block for block in blocks if block.learner == learner]
        (at,) = [index for index, block in enumerate(own) if block.axes]
        assert own[at].axes == len(own[at - 1].charts)
        assert own[at].height == 1
        assert [block.is_list for block in own[at + 1 :]] == lists


# What is shown


@pytest.mark.parametrize("size", SIZES)
def test_curves_limits_and_processes_are_shown(home: Home, size: tuple[int, int]) -> None:
    add_running(home, gpus=1)

    @journey
    async def walk() -> None:
        async with opened(home, size, job="resnet") as shown:
            text = await look(shown, "CPU", "GPU 0 power", "╌╌╌")
            assert "of 80" in text
            assert "of 700" in text
            await shown.press("G")
            await shown.until_shown("pid user", "└─ python train.py", "61.0 GiB")

    walk()


@pytest.mark.parametrize(("size", "memory"), [((80, 24), "5.0G of 8.0G"), ((120, 40), "5.0 GiB of 8.0 GiB")])
def test_what_was_asked_for_is_the_limit_of_cpu_and_memory(
    home: Home, size: tuple[int, int], memory: str
) -> None:
    add_running(home, cpus=4.0, memory_bytes=8 * GIB)

    @journey
    async def walk() -> None:
        async with opened(home, size, job="resnet") as shown:
            text = await look(shown, "CPU  180% of 400%", f"memory  {memory}")
            (line,) = [line for line in text.splitlines() if "400% " in line and "of" not in line]
            assert line.startswith("  400% ╌╌╌") or line.startswith(" 400% ╌╌╌")

    walk()


@journey
async def test_the_machines_network_is_not_shown_as_the_jobs(home: Home) -> None:
    add_running(home, has_network=False)
    async with opened(home, (80, 24), job="resnet") as shown:
        await look(shown, "disk", "the machine's, not its own")


@journey
async def test_slices_of_a_gpu_have_their_memory_alone_side_by_side(home: Home) -> None:
    add_running(home, slices=2)
    async with opened(home, (120, 40), job="resnet") as shown:
        text = await look(shown, "GPU 1 memory")
        (line,) = [line for line in text.splitlines() if "GPU 0 memory" in line]
        assert "GPU 1 memory" in line
        assert "power" not in text
        assert "temperature" not in text


@journey
async def test_a_key_shows_the_last_minutes_alone(home: Home) -> None:
    add_running(home)
    async with opened(home, (120, 40), job="resnet") as shown:
        await look(shown, "the whole job, 6 min 38 s")
        await shown.press("w")
        await shown.until_shown("the last hour")
        await shown.press("w")
        await shown.until_shown("the last 10 minutes")
        await shown.press("w")
        await shown.until_shown("the whole job")


@journey
async def test_an_agent_that_lists_no_processes_is_named(home: Home) -> None:
    add_running(home, listed=False)
    async with opened(home, (80, 24), job="resnet") as shown:
        await look(shown, "no list of its processes")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lists of processes are not read before this is set."""
    drawn, read = threading.Event(), ProcessReader.read

    def read_late(self: ProcessReader, learners: frozenset[int]) -> dict[int, Any]:
        assert drawn.wait(60)
        return dict(read(self, learners))

    monkeypatch.setattr(ProcessReader, "read", read_late)
    return drawn


@journey
async def test_that_there_is_no_list_is_shown_after_it_was_looked_for(
    home: Home, drawn: threading.Event
) -> None:
    add_running(home, listed=False)
    async with opened(home, (80, 24), job="resnet") as shown:
        await look(shown, "its processes are being read")
        drawn.set()
        await shown.until_shown("no list of its processes")


@pytest.mark.parametrize("size", SIZES)
def test_charts_make_room_for_the_processes_at_once(
    home: Home, drawn: threading.Event, size: tuple[int, int]
) -> None:
    add_running(home)

    @journey
    async def walk() -> None:
        async with opened(home, size, job="resnet") as shown:
            await look(shown, "CPU", "its processes are being read")
            drawn.set()
            await shown.until_shown("pid user")
            page = shown.app.screen.query_one(UsagePage)
            seen = [line.strip() for line in shown.text().splitlines()[2:-1]]
            assert seen == [line.strip() for line in page.plain.splitlines()][: len(seen)]

    walk()


@journey
async def test_a_job_that_has_ended_has_curves_and_no_processes(home: Home) -> None:
    add_running(home, state=State.COMPLETED)
    async with opened(home, (80, 24), job="resnet") as shown:
        text = await look(shown, "CPU", "max 180")
        assert "pid user" not in text
        assert "ago" not in text


@journey
async def test_only_learners_in_view_are_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[frozenset[int]] = []

    class Noted(UsageQuery):
        def __init__(self, *arguments: Any, learners: Any, **more: Any) -> None:
            read.append(learners)
            super().__init__(*arguments, learners=learners, **more)

    monkeypatch.setattr("screens.jobs.usage_page.UsageQuery", Noted)
    add_running(home, learners=12)
    async with opened(home, (80, 24), job="resnet") as shown:
        await look(shown, "learner 1")
        assert max(map(len, read)) <= 2
        await shown.press("G")
        await shown.until_shown("learner 12", "python train.py")
        await shown.until(lambda: 12 in read[-1])
        assert 1 not in read[-1]


@journey
async def test_a_chart_is_drawn_again_only_after_a_change(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_running(home)
    drawn: list[str] = []

    def draw(chart: UsageChart, *rest: Any) -> Any:
        drawn.append(chart.title)
        return draw_usage(chart, *rest)

    monkeypatch.setattr("screens.jobs.usage_page.draw_usage", draw)
    async with opened(home, (120, 40), job="resnet") as shown:
        await look(shown, "python train.py")
        await shown.pilot.pause(0.2)
        before = len(drawn)
        page = shown.app.screen.query_one(UsagePage)
        for _ in range(20):
            page.refresh()
            await shown.pilot.pause()
        assert len(drawn) == before


# Processes


def process(pid: int, parent: int, **more: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "parent": parent,
        "user": "ada",
        "cpu_percent": 1.0,
        "memory_bytes": 5,
        "command": "c",
        **more,
    }


def listed(*rows: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"format": 1, "time": 7, "processes": rows, **more}).encode() + b"\n"


def test_the_tree_has_parents_before_their_children() -> None:
    found = parse_processes(listed(process(12, 10), process(10, 1), process(13, 12), process(11, 10)))

    assert found is not None
    assert [(one.pid, branch) for branch, one in found.tree()] == [
        (10, ()),
        (11, (False,)),
        (12, (True,)),
        (13, (True, True)),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]\n",
        b'{"time": 1}\n',
        b'{"time": "x", "processes": []}\n',
        b'{"time": 1, "processes": [7]}\n',
        b'{"time": 1, "processes": [{"pid": 1e999, "parent": 1}]}\n',
    ],
)
def test_a_list_that_makes_no_sense_is_none(data: bytes) -> None:
    assert parse_processes(data) is None


def test_a_hostile_list_neither_goes_round_nor_drives_the_terminal() -> None:
    rows = [process(1, 2), process(2, 1), process(3, 3, command="\x1b[2Jrm\nx", user="\x1b]0;x\a")]
    found = parse_processes(listed(*rows, *(process(100 + n, 3) for n in range(500)), omitted=-4))

    assert found is not None
    shown = [one for _, one in found.tree()]
    assert shown[0].pid == 3
    assert {one.pid for one in shown}.isdisjoint({1, 2})
    assert len(found.processes) <= usage_history.MOST_ROWS
    assert found.omitted == 0
    assert all(one.command.isprintable() and one.user.isprintable() for one in shown)


def test_half_of_a_newer_list_behind_a_shorter_one_is_not_read(home: Home) -> None:
    assert parse_processes(listed(process(1, 0)) + b'"rest of the one before"}]}\n') is not None


class FakeRunner:
    """Has the list of one learner."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self._error = error

    def journal(self, ref: LearnerRef, offsets: dict[str, int]) -> dict[str, Chunk]:
        assert offsets == {"processes": 0}
        self.asked.append((ref.attempt, ref.learner))
        if self._error is not None:
            raise self._error
        return {"processes": Chunk(listed(process(10, 1)), 0, 1)} if ref.learner == 2 else {}


def remote(home: Home, monkeypatch: pytest.MonkeyPatch, runner: FakeRunner) -> tuple[JobRow, list[str]]:
    """Make a job at an SSH host whose learners are reached by a runner; note when the host is reached and left."""
    with Store.open(home) as store:
        row = seeding.go(
            store,
            seeding.add_job(store, 1, "far", backend="gpubox", backend_type="ssh", learners=2),
            *seeding.RUN_UP,
        )
    steps: list[str] = []

    @contextmanager
    def reached(job: str, learner: int, **_more: Any) -> Any:
        steps.append("reached")
        yield SimpleNamespace(runner=runner, ref=LearnerRef("home", job, row.attempt, learner))
        steps.append("left")

    monkeypatch.setattr(learner_access, "reached", reached)
    return row, steps


def test_processes_at_a_host_are_read_over_one_connection(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner()
    row, steps = remote(home, monkeypatch, runner)
    reader = ProcessReader(home, row)

    for _ in range(3):
        found = reader.read([1, 2])
    reader.close()

    assert found[1] is None
    assert found[2] is not None
    assert found[2].processes[0].pid == 10
    assert runner.asked == [(row.attempt, 1), (row.attempt, 2)] * 3
    assert steps == ["reached", "left"]


@journey
async def test_a_backend_that_does_not_answer_is_named_with_the_processes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _ = remote(home, monkeypatch, FakeRunner(BackendUnreachable("gpubox does not answer")))
    with Store.open(home) as store:
        seeding.sample(store, row, SAMPLES)
        seeding.remember_runs(store)
    async with opened(home, (120, 40), job="far") as shown:
        await look(shown, "its processes cannot be read: gpubox does not answer", "CPU")


# What is read


def test_a_value_holds_until_the_next_sample_and_a_gap_is_one(home: Home) -> None:
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, "slow"), *seeding.RUN_UP)
        seeding.sample(store, row, [(0.0, 10, 1), (30.0, 20, 1), (400.0, 30, 1)])
        read = UsageQuery(row.id, None, width=40, learners={1})(store)

    values = read.curves[1, "", "cpu_percent"].values
    assert values[:3] == (10.0, 10.0, 10.0)
    assert values[3] == 20.0
    assert set(values[4:-1]) == {None}
    assert values[-1] == 30.0


def test_limits_are_what_was_asked_for_and_what_gpus_have(home: Home) -> None:
    row = add_running(home, gpus=1, cpus=4.0, memory_bytes=8 * GIB)
    with Store.open(home) as store:
        spec = detail(store, row.id).spec
        read = UsageQuery(row.id, spec, width=40, learners={1})(store)

    limits = {key[1:]: one.limit for key, one in read.curves.items()}
    assert limits["GPU-0", "memory_bytes"] == 80 * GIB
    assert limits["GPU-0", "power_watts"] == 700.0
    assert limits["GPU-0", "temperature_celsius"] == 92.0
    assert limits["GPU-0", "utilization_percent"] == 100.0
    assert limits["", "cpu_percent"] == 400.0
    assert limits["", "memory_bytes"] == 8 * GIB
    assert read.measures[1]["GPU-0"] == (
        "memory_bytes",
        "power_watts",
        "temperature_celsius",
        "utilization_percent",
    )


def test_what_was_not_asked_for_is_no_limit(home: Home) -> None:
    row = add_running(home)
    with Store.open(home) as store:
        read = UsageQuery(row.id, detail(store, row.id).spec, width=40, learners={1})(store)

    assert {one.limit for key, one in read.curves.items() if not key[1]} == {None}


def test_a_series_is_read_again_only_when_that_would_be_seen(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.metrics import chart_axis

    row = add_running(home)
    read: list[str] = []
    chart_points = chart_axis.chart_points

    def noted(store: Store, one: Any, *rest: Any, **more: Any) -> Any:
        read.append(one.name)
        return chart_points(store, one, *rest, **more)

    monkeypatch.setattr(chart_axis, "chart_points", noted)
    with Store.open(home) as store:
        query = UsageQuery(row.id, None, width=40, learners={1})
        query(store)
        first = len(read)
        seeding.sample(store, row, [(402.0, 500, GIB)], gpus=0)
        after = query(store)
        assert len(read) == first
        assert after.curves[1, "", "cpu_percent"].values[-1] == 500.0
        seeding.sample(store, row, [(404.0 + 2 * at, 50, GIB) for at in range(20)], gpus=0)
        query(store)
        assert len(read) == 2 * first


# How a chart is drawn


def curves(values: list[float | None], limit: float | None, measure: str = "cpu_percent") -> UsageCurves:
    one = UsageHistory(1, "", measure, values[-1] or 0.0, 0, limit, tuple(values))
    return UsageCurves({1: {"": (measure,)}}, {1: UsageSample(0, 1)}, {(1, "", measure): one}, 0, 1)


def lines(read: UsageCurves, kind: str, size: tuple[int, int] = (50, 5)) -> list[str]:
    (found,) = [one for one in machine() if one.kind.title == kind]
    return [strip.text for strip in draw_usage(found, read, size, Paint({}, coloured=False), Style())]


@pytest.mark.parametrize("unicode", [True, False])
def test_the_limit_is_a_line_above_what_is_used(monkeypatch: pytest.MonkeyPatch, unicode: bool) -> None:
    monkeypatch.setattr(usage_chart, "glyphs", lambda: glyphs.UNICODE if unicode else glyphs.ASCII)
    title, *rows = lines(curves([100.0] * 20, 400.0), "CPU")

    assert "100% of 400%" in title
    assert "max 100%" in title
    assert rows[0].strip().startswith("400%")
    assert rows[0].count("╌" if unicode else "-") > 40
    assert rows[1].strip() == ""
    assert rows[-1].strip().startswith("0 ")
    assert unicode or "".join(rows).isascii()


def test_more_than_was_asked_for_is_above_the_line() -> None:
    rows = lines(curves([100.0, 400.0] * 10, 200.0), "CPU", (50, 9))[1:]

    assert rows[0].strip().startswith("500%")
    (at,) = [index for index, row in enumerate(rows) if row.strip().startswith("200%")]
    assert 0 < at < len(rows) - 1
    assert "⣿" in rows[at - 1] or "⡇" in rows[at - 1] or "⢸" in rows[at - 1]


def test_where_nothing_was_sampled_nothing_is_drawn() -> None:
    row = lines(curves([50.0] * 10 + [None] * 10 + [50.0] * 10, None), "CPU", (66, 3))[-1]

    plot = row[6:]
    assert plot[22:38].strip() == ""
    assert plot[:18].strip() and plot[42:].strip()


def test_values_are_written_short_where_charts_are_narrow() -> None:
    title = lines(curves([6.0 * GIB] * 4, 8.0 * GIB, "memory_bytes"), "memory", (30, 4))[0]

    assert title.rstrip() == "memory  6.0G of 8.0G  max 6.0G"


def test_memory_near_its_limit_is_marked() -> None:
    read = curves([7.9 * GIB] * 4, 8.0 * GIB, "memory_bytes")
    (found,) = [one for one in machine() if one.kind.title == "memory"]
    paint = Paint({"role-warning": "#ff0000", "role-curve-5": "#00ff00"}, coloured=True)
    title = draw_usage(found, read, (50, 4), paint, Style())[0]

    value = next(segment for segment in title if "7.9 GiB" in segment.text)
    assert value.style is not None
    assert value.style.color == paint.style("warning").color


def traffic_lines(title: str, up: list[float | None], down: list[float | None]) -> list[str]:
    """Draw what comes and what goes, the disk's or the network's, into 50 x 7 cells."""
    (found,) = [one for one in machine() if one.kind.title == title]
    both = {
        (1, "", measure): UsageHistory(1, "", measure, values[-1] or 0.0, 0, None, tuple(values))
        for measure, values in zip(found.kind.measures, (up, down), strict=True)
    }
    read = UsageCurves({1: {"": found.kind.measures}}, {1: UsageSample(0, 1)}, both, 0, 1)
    return [strip.text for strip in draw_usage(found, read, (50, 7), Paint({}, coloured=False), Style())]


@pytest.mark.parametrize(("title", "names"), [("disk", ("read", "write")), ("network", ("in", "out"))])
@pytest.mark.parametrize(
    ("unicode", "full", "half"), [(True, "⣿" * 44, "⠛" * 44), (False, "#" * 44, "'" * 44)]
)
def test_what_comes_is_drawn_upwards_and_what_goes_downwards(
    monkeypatch: pytest.MonkeyPatch, title: str, names: tuple[str, str], unicode: bool, full: str, half: str
) -> None:
    monkeypatch.setattr(usage_chart, "glyphs", lambda: glyphs.UNICODE if unicode else glyphs.ASCII)

    head, *rows = traffic_lines(title, [20.0 * MIB] * 44, [10.0 * MIB] * 44)

    assert head.startswith(f"{title}  {names[0]} 20.0 MiB/s {names[1]} 10.0 MiB/s")
    assert rows == [
        f"  20M {full}", f"      {full}", f"    0 {full}",
        f"      {full}", f"      {half}", f"  20M {' ' * 44}",
    ]  # fmt: skip


def test_what_comes_and_what_goes_have_curves_of_their_own() -> None:
    rows = traffic_lines("disk", [None] * 22 + [5.0 * MIB] * 22, [5.0 * MIB] * 22 + [None] * 22)[1:]

    assert [row[6:28].strip("⣿") for row in rows] == [" " * 22] * 3 + [""] * 3
    assert [row[28:].strip("⣿") for row in rows] == [""] * 3 + [" " * 22] * 3


def test_traffic_in_a_narrow_chart_is_short() -> None:
    (found,) = [one for one in machine() if one.kind.title == "disk"]
    both = {
        (1, "", measure): UsageHistory(1, "", measure, value, 0, None, (value,))
        for measure, value in zip(found.kind.measures, (20.0 * MIB, 1536.0), strict=True)
    }
    read = UsageCurves({1: {"": found.kind.measures}}, {1: UsageSample(0, 1)}, both, 0, 1)

    title = draw_usage(found, read, (42, 5), Paint({}, coloured=False), Style())[0].text

    assert title == "disk/s  read 20M write 1.5K   max 20M 1.5K"


def gpu_lines(
    measure: str, values: list[float | None], limit: float | None, size: tuple[int, int] = (50, 7)
) -> list[str]:
    """Draw a measure of the first GPU."""
    (found,) = [one for one in gpu(0) if measure in one.kind.measures]
    one = UsageHistory(1, "GPU-0", measure, values[-1] or 0.0, 0, limit, tuple(values))
    read = UsageCurves({1: {"GPU-0": (measure,)}}, {1: UsageSample(0, 1)}, {(1, "GPU-0", measure): one}, 0, 1)
    return [strip.text for strip in draw_usage(found, read, size, Paint({}, coloured=False), Style())]


def test_the_heat_at_which_a_gpu_slows_itself_down_is_a_line() -> None:
    title, *rows = gpu_lines("temperature_celsius", [46.0] * 20, 92.0)

    assert title.startswith("GPU 0 temperature  46 °C of 92 °C ")
    assert rows[0].startswith(" 92°C ╌╌╌")
    assert [row[6:].strip("⣿") for row in rows[3:]] == [""] * 3
    assert rows[1][6:].strip() == ""


def test_where_that_heat_is_not_known_there_is_no_line() -> None:
    title, *rows = gpu_lines("temperature_celsius", [46.0] * 20, None)

    assert title.startswith("GPU 0 temperature  46 °C   ")
    assert rows[0].startswith("100°C ")
    assert "╌" not in "".join(rows)


@pytest.mark.parametrize(("unicode", "half", "degree"), [(True, "⣤", "°"), (False, ".", "")])
def test_use_and_temperature_have_a_scale_to_a_hundred(
    monkeypatch: pytest.MonkeyPatch, unicode: bool, half: str, degree: str
) -> None:
    monkeypatch.setattr(usage_chart, "glyphs", lambda: glyphs.UNICODE if unicode else glyphs.ASCII)
    use = gpu_lines("utilization_percent", [50.0] * 44, 100.0, (50, 6))
    heat = gpu_lines("temperature_celsius", [50.0] * 44, None, (50, 6))

    assert use[0].startswith("GPU 0 use  50%  ")
    assert heat[0].startswith(f"GPU 0 temperature  50 {degree}C  ")
    assert use[1].startswith(" 100% ")
    assert heat[1].startswith(f"100{degree}C ".rjust(6))
    for _, *rows in (use, heat):
        assert [row[6:].strip() for row in rows] == ["", "", half * 44, rows[3][6] * 44, rows[3][6] * 44]
        assert rows[3][6] == ("⣿" if unicode else "#")


def test_a_narrow_title_has_no_part_of_a_limit() -> None:
    title = gpu_lines("temperature_celsius", [46.0] * 20, 92.0, (28, 4))[0]

    assert title.rstrip() == "GPU 0 temperature  46 °C"


@pytest.mark.parametrize(
    ("measure", "last", "limit", "tight"),
    [
        ("memory_bytes", 90.0, 100.0, True),
        ("memory_bytes", 89.0, 100.0, False),
        ("memory_bytes", 1e12, None, False),
        ("temperature_celsius", 92.0, 92.0, True),
        ("temperature_celsius", 91.0, 92.0, False),
        ("power_watts", 700.0, 700.0, False),  # a GPU at work takes what it may
        ("utilization_percent", 100.0, 100.0, False),
        ("cpu_percent", 800.0, 400.0, False),
    ],
)
def test_what_is_near_its_limit_is_a_warning_where_that_does_harm(
    measure: str, last: float, limit: float | None, tight: bool
) -> None:
    assert usage_chart.is_tight(UsageHistory(1, "", measure, last, 0, limit, (last,))) is tight


@journey
async def test_records_of_an_agent_that_does_not_know_how_hot_a_gpu_may_get_are_drawn(home: Home) -> None:
    row = add_running(home, gpus=1, hottest=None)
    with Store.open(home) as store:
        read = UsageQuery(row.id, None, width=40, learners={1})(store)
    assert read.curves[1, "GPU-0", "temperature_celsius"].limit is None
    assert read.curves[1, "GPU-0", "power_watts"].limit == 700.0
    async with opened(home, (200, 60), job="resnet") as shown:
        text = await look(shown, "GPU 0 temperature  58 °C  ", "of 700 W")
        assert "100°C" in text


@pytest.mark.parametrize(("unicode", "upright"), [(True, "┊"), (False, ":")])
def test_the_grid_stands_over_the_labels_of_the_time(
    monkeypatch: pytest.MonkeyPatch, unicode: bool, upright: str
) -> None:
    monkeypatch.setattr(usage_chart, "glyphs", lambda: glyphs.UNICODE if unicode else glyphs.ASCII)
    read = curves([100.0] * 40, 400.0)
    x = usage_chart.time_axis(replace(read, from_us=60_000_000, to_us=540_000_000), 60_000_000)
    assert x is not None
    paint = Paint({}, coloured=False)

    time = usage_chart.draw_time(x, 50, paint, Style()).text
    rows = [strip.text for strip in draw_usage(machine()[0], read, (50, 7), paint, Style(), x)]

    assert time.split("  ")[0] == " time 0 s"
    labels = [(found.start() + found.end()) // 2 for found in re.finditer(r"\d+ min", time)]
    assert len(labels) >= 3
    at = [index for index, sign in enumerate(rows[3]) if sign == upright]
    assert at[0] == 6
    assert all(abs(label - column) <= 1 for label, column in zip(labels[:-1], at[1:], strict=False))
    assert [index for index, sign in enumerate(rows[2]) if sign == upright] == at
    assert upright not in rows[1]  # the limit's line
    assert upright not in rows[-1]  # all of it is used


def test_before_a_job_began_there_is_no_time() -> None:
    read = replace(curves([100.0] * 40, None), from_us=0, to_us=3_600_000_000)
    x = usage_chart.time_axis(read, 3_000_000_000)
    assert x is not None

    time = usage_chart.draw_time(x, 66, Paint({}, coloured=False), Style()).text

    assert time[5:50].strip() == ""
    assert "0 s" in time[50:]


def test_one_sample_alone_has_no_time_axis() -> None:
    assert usage_chart.time_axis(curves([100.0], None), 0) is None
    assert usage_chart.draw_time(None, 30, Paint({}, coloured=False), Style()).text == " " * 30


def test_a_tall_chart_has_a_label_half_way_up() -> None:
    rows = lines(curves([100.0] * 20, 400.0), "CPU", (50, 9))[1:]

    assert [row[:6].strip() for row in rows] == ["400%", "", "", "", "200%", "", "", "0"]


@pytest.mark.parametrize("size", SIZES)
def test_the_time_stands_below_the_charts_of_the_page(home: Home, size: tuple[int, int]) -> None:
    add_running(home, gpus=1)

    @journey
    async def walk() -> None:
        async with opened(home, size, job="resnet") as shown:
            await look(shown, "CPU")
            page = shown.app.screen.query_one(UsagePage)
            await shown.until(lambda: " time 0 s" in page.plain)
            rows = page.plain.splitlines()
            (at,) = [index for index, row in enumerate(rows) if row.startswith(" time ")]
            assert rows[at - 1].startswith("    0 ")
            starts = [found.start() for found in re.finditer(r" time 0 s ", rows[at])]
            assert starts == [found.start() for found in re.finditer(r"    0 ", rows[at - 1])]
            axes = {rows[at][start:end].rstrip() for start, end in pairwise([*starts, len(rows[at])])}
            assert len(axes) == 1
            assert rows[at + 1].lstrip().startswith("pid user")

    walk()


def test_the_file_of_processes_has_one_name() -> None:
    from workbench.learner.host.journals import FILES
    from workbench.learner.journal.output import PROCESSES_FILE
    from workbench.paths import LearnerFolder

    assert FILES["processes"] == PROCESSES_FILE == LearnerFolder(Path("x")).processes.name


def test_a_stretch_that_is_shown_alone_begins_where_it_says(home: Home) -> None:
    row = add_running(home)
    with Store.open(home) as store:
        read = UsageQuery(row.id, None, width=40, learners={1}, window_us=100_000_000)(store)

    assert read.to_us - read.from_us == 100_000_000
    assert None not in read.curves[1, "", "cpu_percent"].values[1:]
    assert usage_history.HELD_US > 30_000_000
