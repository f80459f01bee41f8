from __future__ import annotations

import io
import itertools
import math
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.contract.host import Finding, Inventory, Node, Slot
from backends.local.backend import LocalBackend
from screens.backends.page import BackendState, backends_page
from screens.charts.curve import OTHER
from screens.charts.grid import ChartGrid
from screens.jobs.compare_pages import (
    ParameterValues,
    cut_apart,
    differences_page,
    parameter_values,
    values_page,
)
from screens.jobs.compare_screen import CompareScreen
from screens.style.themes import CURVE_COLOURS
from screens.widgets.sparkline import sparkline
from screens.widgets.text_page import ComparePage
from tests.screens import seeding
from tests.screens.support import Shown, journey, opened
from workbench.errors import BackendUnreachable, FabricError
from workbench.paths import Home
from workbench.services.backends.watch import BackendStatus
from workbench.services.inspect import comparison as comparing
from workbench.services.inspect.comparison import ComparedValue, Comparison
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs

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
        assert [one.label for one in curves] == ["lr=0.5", "lr=0.1"]
        assert len({one.colour for one in curves}) == 2
        await shown.until_shown("lr=0.5 0.25", "lr=0.1 0.5")


@journey
async def test_values_are_compared_and_the_best_stands_out(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("right_square_bracket")
        await shown.until_shown("last values", "train/loss", "0.25 ★", "0.8 ★", "● processing")
        await shown.press("v", "v")
        await shown.until_shown("max values", "0.8 ★")
        assert "1 ★" not in shown.text()  # both began with a loss of 1
        await shown.press("s", "s")
        await shown.until_shown("sorted by train/accuracy, larger is better")


@journey
async def test_only_what_differs_is_shown(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("left_square_bracket", "left_square_bracket")
        await shown.until_shown("What differs", "params.lr", "0.5", "0.1", "other values are equal")
        assert "params.same" not in shown.text()
        await shown.press("e")
        await shown.until_shown("What is equal", "all jobs")
        assert "params.same" in shown.app.screen.query_one("#differences", ComparePage).plain


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
        comparison = comparing.compare(store, list_jobs(store))
    lines = [line.split() for line in values_page(comparison, NOW_US).plain.splitlines()]
    smallest = [line.split() for line in values_page(comparison, NOW_US, which="min").plain.splitlines()]

    assert ["fast", "0.2", "★", "0.3"] in lines  # of a learning rate nobody knows which is the best
    assert ["slow", "0.4", "0.3"] in lines
    assert ["slow", "0.4", "0.01"] in smallest


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        ("loss", "0.2"), ("train/loss", "0.2"), ("val_loss", "0.2"), ("word_error_rate", "0.2"), ("wer", "0.2"),
        ("perplexity", "0.2"), ("test/mse", "0.2"), ("eval/rmse", "0.2"), ("accuracy", "0.9"), ("val/acc", "0.9"),
        ("f1", "0.9"), ("roc_auc", "0.9"), ("bleu", "0.9"), ("reward", "0.9"), ("lr", ""),
    ],
)  # fmt: skip
def test_the_best_value_of_a_metric_is_marked_by_its_name(home: Home, metric: str, best: str) -> None:
    with Store.open(home) as store:
        for number, value in enumerate((0.9, 0.2), start=1):
            row = seeding.go(store, seeding.add_job(store, number, f"job-{number}"), *seeding.RUN_UP)
            seeding.report(store, row, {metric: [value]}, group="")
        page = values_page(comparing.compare(store, list_jobs(store)), NOW_US)
    marked = {
        page.plain[span.start : span.end].strip() for span in page.spans if span.style == "$role-completed"
    }

    assert marked == ({f"{best} ★"} if best else set())


def _compared(store: Store) -> Comparison:
    return comparing.compare(store, sorted(list_jobs(store), key=lambda row: row.submitted_us))


def _sweep(home: Home, count: int, **more: Callable[[int], Any]) -> Comparison:
    """Compare so many jobs of a sweep over learning rates, and what else there is of each."""
    with Store.open(home) as store:
        for number in range(count):
            params = {"lr": 0.3 / 2**number, "same": 1, **{name: of(number) for name, of in more.items()}}
            row = seeding.add_job(
                store, number, f"sweep-{number}", params=params, age_seconds=9000 - 60 * number
            )
            row = seeding.go(store, row, *seeding.RUN_UP)
            seeding.report(store, row, {"loss": [1.0, 0.1 + number / 100], "accuracy": [0.1, 0.9]})
        return _compared(store)


def _made(*settings: ComparedValue, names: Sequence[str] = ()) -> Comparison:
    """Return a comparison of jobs that have these settings and nothing else."""
    names = names or [f"job-{place}" for place in range(len(settings[0].values))]
    rows = [JobRecordOf(seeding.job_id(number), name) for number, name in enumerate(names)]
    return Comparison(tuple(rows), settings, (), (), ())  # type: ignore[arg-type]  # the rows are all that is asked


class JobRecordOf:
    """A job of a comparison, as far as its name goes."""

    def __init__(self, job_id: str, name: str) -> None:
        self.row = SimpleNamespace(id=job_id, name=name)


def param(name: str, *values: object) -> ComparedValue:
    return ComparedValue(f"params.{name}", values)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([param("lr", 0.1, 0.01), param("seed", 1, 1)], ["lr=0.1", "lr=0.01"]),
        (  # one of two is enough
            [param("lr", 0.1, 0.01, 0.001), param("optimizer", "adam", "sgd", "adam")],
            ["lr=0.1", "lr=0.01", "lr=0.001"],
        ),
        (  # two of three are needed
            [param("lr", 1, 1, 2, 2), param("w", 8, 9, 8, 9), param("name", "a", "a", "b", "b")],
            ["lr=1 w=8", "lr=1 w=9", "lr=2 w=8", "lr=2 w=9"],
        ),
        ([param("lr", 0.1, None)], ["lr=0.1", "no lr"]),
        ([param("lr", 0.1 + 0.2, 0.4)], ["lr=0.3", "lr=0.4"]),
        ([param("lr", 0.1 + 0.2, 0.3)], ["job-0", "job-1"]),  # they differ by noise
        ([param("lr", 1.0000001, 1.0000002)], ["lr=1.0000001", "lr=1.0000002"]),
        ([param("lr", 0.1, 0.1), ComparedValue("gpus", (1, 2))], ["gpus=1", "gpus=2"]),
        (
            [param("a.lr", 1, 2, 2), param("b.lr", 1, 2, 3)],
            ["lr=1", "lr=2", "lr=3"],
        ),
        (
            [param("a.lr", 1, 1, 2), param("b.lr", 1, 2, 2)],
            [f"params.a.lr={a} params.b.lr={b}" for a, b in ((1, 1), (1, 2), (2, 2))],
        ),
        ([param("lr", 0.1, 0.1)], ["job-0", "job-1"]),
        ([param("lr", 0.1, 0.1, 0.2)], ["lr=0.1 job-0", "lr=0.1 job-1", "lr=0.2"]),
    ],
)  # fmt: skip
def test_jobs_are_named_by_the_fewest_params_that_tell_them_apart(
    settings: list[ComparedValue], labels: list[str]
) -> None:
    assert list(_made(*settings).labels()) == labels


def test_jobs_of_one_name_that_do_not_differ_are_named_by_their_ids() -> None:
    labels = _made(param("lr", 1, 1), names=["digits", "digits"]).labels()

    assert len(set(labels)) == 2 and all(label.startswith("digits ") for label in labels)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=2, max_size=40, unique=True))
def test_whatever_differs_tells_jobs_apart(rows: list[tuple[int, ...]]) -> None:
    settings = [param(f"p{place}", *column) for place, column in enumerate(zip(*rows, strict=True))]
    labels = _made(*settings).labels()

    assert len(set(labels)) == len(rows)
    assert all("job-" not in label for label in labels)


@pytest.mark.parametrize("count", [2, 12, 40])
@pytest.mark.parametrize("width", [76, 116, 196])
def test_pages_of_a_comparison_stay_within_their_width(home: Home, count: int, width: int) -> None:
    comparison = _sweep(home, count, optimizer=lambda number: ("adam", "sgd")[number % 2], seed=lambda n: n)
    values = values_page(comparison, NOW_US, width=width).plain.split("\n")
    differences = differences_page(comparison, width=width, equal=True).plain.split("\n")

    assert max(map(len, values)) <= width and max(map(len, differences)) <= width
    assert sum("processing" in line for line in values) == count
    assert any("0.1 ★" in line for line in values)
    lines = [line for line in differences if "adam" in line or "sgd" in line]
    assert len(lines) in (1, count)  # a line for the key, or one for each job


def test_a_value_that_is_not_the_usual_one_is_lit(home: Home) -> None:
    comparison = _sweep(home, 4, width=lambda number: 64 if number else 128)
    page = differences_page(comparison)
    lit = {
        page.plain[span.start : span.end].strip() for span in page.spans if span.style == "bold $role-accent"
    }

    assert lit == {"128"}


def _some_without_values(home: Home) -> Comparison:
    """Compare jobs of which one reported NaN, and one nothing."""
    with Store.open(home) as store:
        for number, values in enumerate(([0.3], [math.nan], [0.1], None)):
            row = seeding.add_job(
                store, number, f"job-{number}", params={"lr": number}, age_seconds=900 - number
            )
            if values:
                seeding.report(store, seeding.go(store, row, *seeding.RUN_UP), {"loss": values})
        return _compared(store)


def test_jobs_are_sorted_by_the_chosen_metric_with_those_without_it_last(home: Home) -> None:
    page = values_page(_some_without_values(home), NOW_US, metric="train/loss").plain
    metrics = page.split("Jobs")[0]

    assert [line.split()[:2] for line in metrics.splitlines() if "lr=" in line] == [
        ["lr=2", "0.1"], ["lr=0", "0.3"], ["lr=1", "nan"], ["lr=3", "–"],
    ]  # fmt: skip
    assert "smaller is better" in metrics and "train/loss ▼" in metrics


def _drawn(values: ParameterValues, width: int = 80, height: int = 20) -> list[str]:
    return ["".join(text for text, _ in row) for row in values.draw(width, height, marked=False)]


def test_a_metric_is_drawn_over_a_parameter_on_a_logarithmic_axis_where_it_spans_decades(home: Home) -> None:
    comparison = _sweep(home, 6, width=lambda number: 64 + number)
    values = parameter_values(comparison, colours=range(1, 7))
    rows = _drawn(values)

    assert values.title == "train/loss over lr" and "log x axis" in values.facts
    assert sum(row.count("●") for row in rows) == 6
    columns = sorted(row.index("●") for row in rows if "●" in row)
    assert (
        max(b - a for a, b in itertools.pairwise(columns))
        - min(b - a for a, b in itertools.pairwise(columns))
        <= 1
    )
    assert rows[-1].split() == ["0.009375", "0.01875", "0.0375", "0.075", "0.15", "0.3"]
    linear = parameter_values(comparison, colours=range(1, 7), parameter="params.width", logarithmic=True)
    assert "log y axis" in linear.facts and not linear.x.logarithmic


def test_a_parameter_that_is_no_number_has_positions(home: Home) -> None:
    comparison = _sweep(home, 6, optimizer=lambda number: ("adam", "sgd", "lion")[number % 3])
    values = parameter_values(comparison, colours=range(1, 7), parameter="params.optimizer", which="min")
    rows = _drawn(values)

    assert rows[-1].split() == ["adam", "lion", "sgd"]
    assert len({row.index("●") for row in rows if "●" in row}) == 3
    assert "min values" in values.facts


def test_jobs_without_a_value_are_left_out_and_counted(home: Home) -> None:
    comparison = _some_without_values(home)
    values = parameter_values(comparison, colours=range(1, 5))

    assert len(values.points) == 2 and "2 without value left out" in values.facts


def test_what_cannot_be_drawn_says_why(home: Home) -> None:
    with Store.open(home) as store:
        for number in range(2):
            seeding.add_job(store, number, "same")
        comparison = _compared(store)

    assert "metrics" in parameter_values(comparison, colours=[1, 2]).notice.what
    assert "no metrics" in values_page(comparison, NOW_US).plain
    assert "no differences" in differences_page(comparison).plain


@journey
async def test_parameters_and_metrics_of_the_scatter_are_chosen_by_key(home: Home) -> None:
    _sweep(home, 4, width=lambda number: 64 + number)
    with Store.open(home) as store:
        rows = list_jobs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        screen = CompareScreen(rows)
        shown.app.push_screen(screen)
        await shown.until(lambda: shown.app.screen is screen and screen.whole)
        await shown.press("3")
        await shown.until_shown("train/loss over lr", "4 jobs", "●")
        await shown.press("a")
        await shown.until_shown("train/loss over width")
        await shown.press("s")
        await shown.until_shown("train/accuracy over width")
        await shown.press("k", "v", "y")
        await shown.until_shown("train/loss over width", "min values", "log y axis")


@journey
async def test_each_tab_offers_its_own_keys(pair: Home) -> None:
    async with opened(pair, (120, 40)) as shown:
        await compare(shown)
        await shown.press("2")
        await shown.until_shown("s metric", "v last, min, max")
        assert "equal values" not in shown.text() and "a parameter" not in shown.text()
        await shown.press("4")
        await shown.until_shown("e equal values")
        assert "s metric" not in shown.text()


@journey
async def test_of_more_jobs_than_colours_the_best_have_one_in_every_chart(home: Home) -> None:
    _sweep(home, 40)
    with Store.open(home) as store:
        rows = list_jobs(store)
        seeding.remember_runs(store)
    async with opened(home, (120, 40)) as shown:
        screen = CompareScreen(rows)
        shown.app.push_screen(screen)
        await shown.until(lambda: shown.app.screen is screen and screen.whole)
        await shown.until_shown("compare 40 jobs", "lr=0.3 0.1", "+")
        charts = screen.query_one(ChartGrid).page.charts
        coloured = [{one.label for one in chart.curves if one.colour != OTHER} for chart in charts.values()]
        assert len(coloured) == 2 and coloured[0] == coloured[1]
        assert len(coloured[0]) == CURVE_COLOURS and "lr=0.3" in coloured[0]


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
        await shown.until_shown(
            "from lr=0.5 to lr=0.1", "-lr = 0.5", "+lr = 0.1", "- only-2.txt", "+ only-1.txt"
        )
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
    fields = {
        "memory_used_bytes": 8 << 30, "utilization_percent": 97.0, "temperature_celsius": 65.0,
        "power_watts": 210.0, "power_limit_watts": 300.0,
    }  # fmt: skip
    return Slot(f"GPU-{index}", index, "A100", 40 << 30, **(fields | more))


def seen(inventory: Inventory | None, *, ago: float = 0.0, trouble: str = "", **more: Any) -> BackendStatus:
    at = NOW_US - int(ago * 1e6)
    error = FabricError(trouble, hint=more.get("hint", "")) if trouble else None
    return BackendStatus("gpubox", "ssh", inventory, error, 0.012, more.get("findings", ()), at)


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
                slot(1, foreign="python of eve"),
                slot(2, utilization_percent=0.0, memory_used_bytes=0),
                slot(3, utilization_percent=0.0, holder="eve", holder_job=job, idle=True),
            )
        )
    )

    for part in (
        "gpubox (ssh)  answers in 12 ms",
        "16 CPUs ██░░░░░░ 25%",
        "16.0 GiB used",
        "driver 550, CUDA 12.4",
        "GPU 0 A100  ████████  97%  8.0 GiB of 40.0 GiB  65 °C  210/300 W",
        f"ada {job.removeprefix('training-')}",
        f"eve {job.removeprefix('training-')} (idle)",
        "other process: python of eve",
        "free",
    ):
        assert part in page, page


def test_a_backend_that_does_not_answer_keeps_what_was_seen_last_with_its_age() -> None:
    page = shown_page(seen(box(slot(0)), ago=42), seen(None, trouble="connection refused", hint="start sshd"))

    assert "does not answer: connection refused · last seen 42 s ago" in page
    assert "start sshd" in page and "GPU 0 A100" in page


def test_a_backend_that_hangs_is_shown_as_hanging() -> None:
    assert "no answer for 42 s" in shown_page(seen(box(), ago=42))
    assert "connecting" in shown_page()


def test_a_backend_that_is_waited_for_says_how_old_its_last_answer_is() -> None:
    state = BackendState("gpubox", "ssh")
    state.take(seen(box(), ago=6))
    state.asked_us = NOW_US - 4_000_000

    page = backends_page([state], NOW_US, 160).plain

    assert "answered in 12 ms 6.0 s ago · no answer for 4.0 s" in page
    assert "answers in" not in page
    state.take(seen(box()))
    assert "answers in 12 ms" in backends_page([state], NOW_US, 160).plain


def test_a_question_that_was_only_just_asked_is_no_news() -> None:
    state = BackendState("gpubox", "ssh")
    state.take(seen(box(), ago=2))
    state.asked_us = NOW_US - 500_000

    assert "answers in 12 ms" in backends_page([state], NOW_US, 160).plain


@pytest.mark.parametrize("more", [{"utilization_percent": 0.0}, {"memory_used_bytes": 0}])
def test_a_gpu_that_somebody_uses_unseen_is_not_called_free(more: dict[str, Any]) -> None:
    assert "used, and by no job" in shown_page(seen(box(slot(0, **more))))
    idle = slot(0, utilization_percent=0.0, memory_used_bytes=4 << 20)
    page = shown_page(seen(box(idle)))
    assert "  free" in page
    assert "by no job" not in page


@pytest.mark.parametrize("width", [78, 118, 158])
def test_gpus_stand_in_columns(width: int) -> None:
    state = BackendState("gpubox", "ssh")
    slots = (
        slot(
            0, holder="ada", holder_job=seeding.job_id(1), utilization_percent=5.0, memory_used_bytes=1 << 20
        ),
        slot(11, foreign="python (pid 41234) of eve", temperature_celsius=101.0, power_watts=4.0),
        slot(2, utilization_percent=None, temperature_celsius=None, power_watts=None, memory_used_bytes=0),
    )
    for percent in (0.0, 50.0, 100.0):
        del percent
        state.take(seen(box(*slots)))
    lines = backends_page([state], NOW_US, width).plain.split("\n")
    gpus = [line for line in lines if line.lstrip().startswith("GPU ")]

    assert len(gpus) == 3
    assert len({line.index(" of 40.0 GiB") for line in gpus}) == 1
    assert len({line.index("ada") - line.index("▁") for line in lines if "ada" in line}) == 1
    starts = [
        line.index(part)
        for part in ("ada ", "other process", "free")
        for line in lines
        if "▁" in line and part in line
    ]
    assert len(set(starts)) == 1, lines
    assert all(len(line) <= width for line in lines)


def test_what_a_backend_lacks_is_shown_with_its_remedy() -> None:
    lack = Finding("engine", "no Docker", "lack", "no containers", "install it")
    page = shown_page(seen(box(), findings=(lack, Finding("python", "3.11"))))

    assert "engine: no Docker · no containers · install it" in page
    assert "python: 3.11" not in page and "  Python 3.11" in page


def test_a_curve_of_use_is_drawn_to_the_right() -> None:
    assert sparkline([0, 0.5, 1], 5) == "  ▁▅█"
    assert sparkline([], 3) == "   "


def test_a_curve_of_use_shows_gaps_and_the_greatest_of_what_shares_a_cell() -> None:
    assert sparkline([0, None, 1], 3) == "▁ █"
    assert sparkline([0, 1, 0, 0, None, None], 3) == "█▁ "


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
async def test_a_backend_that_hangs_keeps_only_itself_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.config.types import Config

    inventories: dict[str, dict[str, Any]] = {
        name: {"name": name, "type": name, "address": "", "options": {}} for name in ("good", "hanging")
    }
    kinds = {"good": _Local, "hanging": _Hanging}
    monkeypatch.setattr("screens.backends.screen.load_config", lambda: Config(backends=inventories))
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
async def test_what_a_backend_has_is_shown_before_it_is_known_what_it_lacks(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.config.types import Config

    inventories: dict[str, dict[str, Any]] = {
        "slow": {"name": "slow", "type": "slow", "address": "", "options": {}}
    }
    monkeypatch.setattr("screens.backends.screen.load_config", lambda: Config(backends=inventories))
    monkeypatch.setattr("backends.registry.load_backend", _SlowToProbe)
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("slow (slow)  answers in", "GPU 0 A100")
        assert "no Docker" not in shown.text()
        _SlowToProbe.let_go.set()
        await shown.until_shown("engine: no Docker")


def test_a_machine_that_is_recorded_twice_counts_once_in_its_curve() -> None:
    found, state = box(), BackendState("gpubox", "ssh")
    state.take(seen(found))
    state.take(seen(found, findings=(Finding("python", "3.11"),)))

    assert [len(history) for history in state.histories.values()] == [1]
    assert state.good is not None and state.good.findings


@journey
async def test_this_machine_is_a_backend(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("local (local)  answers in", "CPUs", "disk")


@journey
async def test_configuration_that_cannot_be_read_is_reported(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.paths import config_file

    config_file().write_text("not = [toml")
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("config.toml")


@journey
async def test_a_backend_is_tested_by_key(home: Home) -> None:
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("local (local)  answers in")
        await shown.press("t")
        await shown.until_shown("fabric backend test local", "local: usable", "python")


@journey
async def test_the_test_of_a_backend_that_cannot_be_used_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(self: LocalBackend) -> Iterator[Finding]:
        yield Finding("rights", "none", "wrong", "no job can run there", "ask for them")

    monkeypatch.setattr("backends.local.backend.LocalBackend.probe", probe)
    async with opened(home, (160, 40)) as shown:
        await shown.until_shown("No jobs yet")
        await shown.press("P")
        await shown.until_shown("local (local)  answers in")
        await shown.press("t")
        await shown.until_shown("local: cannot be used", "so: no job can run there", "do: ask for them")


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


def test_which_versions_run_there_is_shown() -> None:
    assert "Python 3.11 · engine docker 27" in shown_page(
        seen(box(), findings=(Finding("python", "3.11"), Finding("engine", "docker 27")))
    )
