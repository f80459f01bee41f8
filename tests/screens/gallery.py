"""Draws every page of the screens at three sizes, dark and light: ``python -m tests.screens.gallery``.

It takes a folder, then pages; with ``--size 80x24`` it draws at that size alone, with ``--theme light`` in that one.

The home is as a month of work leaves it: thirty jobs on two backends with eight GPUs, a sweep, a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

os.environ["TEXTUAL_ANIMATIONS"] = "none"
os.environ["FABRIC_ASCII"] = "0"
os.environ["FABRIC_NO_CONTROLLER"] = "1"
os.environ["TZ"] = "UTC"

import pytest
from textual.content import Content

from backends.contract.host import Finding, Inventory, Node, Slot
from runners.interface import AttemptRef, LaunchPlan, LaunchRequest, LearnerPlan
from screens.backends.page import BackendState
from screens.jobs import list_header
from screens.jobs.compare_screen import CompareScreen
from screens.jobs.files import FoundFile
from screens.jobs.list_header import BackendLine
from screens.jobs.search_screen import SearchScreen
from screens.jobs.table_screen import JobsScreen
from screens.launch.draft import MORE, Draft
from screens.launch.draft_sources import draft_of_file
from screens.launch.form_screen import open_form
from screens.launch.preview_page import RunOptionsReader
from screens.widgets.markup import heading, page, plain
from tests.screens import pictures, seeding, walking
from tests.screens.film import film
from tests.screens.support import SIZES, Shown, opened
from workbench.job import Reason, State
from workbench.manifest import load_text
from workbench.metrics.ingestion import ingest
from workbench.paths import Home
from workbench.services.backends.watch import BackendStatus
from workbench.services.submit.prepare import JobSubmission
from workbench.services.submit.preview import PREVIEW_JOB, SubmissionPreview
from workbench.services.submit.sweeps import expanded
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.experiments import resolve_experiment
from workbench.store.updates.jobs import set_reason

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "gallery"
THEMES: Final = {"dark": "fabric-dark", "light": "fabric-light"}
SHOWN_HOME: Final = "/home/ada/.fabric"
RUNNING: Final = "resnet-wide"
GPU_MEMORY: Final = 80 << 30
GPUBOX: Final[dict[str, Any]] = {"backend": "gpubox", "backend_type": "ssh"}


def main() -> None:
    """Write the pictures."""
    time.tzset()
    sizes = {f"{width}x{height}": (width, height) for width, height in SIZES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    known = [*PAGES, TOUR_PAGE]
    parser.add_argument("pages", nargs="*", choices=[*known, []], help="which; all when none is named")
    parser.add_argument("--size", choices=sizes, action="append", default=[])
    parser.add_argument("--theme", choices=THEMES, action="append", default=[])
    options = parser.parse_args()
    folder, asked = options.folder.resolve(), options.pages or known
    with (
        tempfile.TemporaryDirectory() as root,
        # As long as the path that stands for it in pictures.
        tempfile.TemporaryDirectory(prefix="gal-", dir="/tmp") as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert len(made) == len(SHOWN_HOME)
        os.environ.update(HOME=root, XDG_CONFIG_HOME=f"{root}/config")
        Path(root, "config", "fabric").mkdir(parents=True)
        work = Path(root, "digits")
        work.mkdir()
        (work / "manifest.yml").write_text(MANIFEST)
        home = Home(Path(made))
        with Store.open(home) as store:
            seed(store)
        with walking.pretended(patch, work):
            patch.setattr("backends.registry.load_backend", _Backend)
            answer = seeding.host_queue(home, (29, 30))
            patch.setattr("workbench.services.backends.inventory.HostQuestion.ask", lambda self: answer)
            patch.setattr("screens.launch.preview_page.read_previews", _previews)
            patch.setattr("screens.jobs.files_tab.files_there", _files)
            patch.setattr("screens.jobs.text_pages.native_plan", _native_plan)
            patch.setattr("screens.jobs.list_header.BackendLine.take", _take_line)
            patch.setattr("screens.backends.page.BackendState.take", _take_state)
            for size in options.size or sizes:
                for theme in options.theme or THEMES:
                    asyncio.run(draw(home, folder / f"{size}-{theme}", sizes[size], THEMES[theme], asked))
            if TOUR_PAGE in asked:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{TOUR_PAGE}.svg").write_text(film(asyncio.run(tour(home))), encoding="utf-8")


async def draw(home: Home, folder: Path, size: tuple[int, int], theme: str, asked: Sequence[str]) -> None:
    """Keep every page that was asked for at one size in one theme."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in asked:
        if name == TOUR_PAGE:
            continue
        with Store.open(home) as store:
            seeding.remember_runs(store)
        async with opened(home, size) as shown:
            await shown.until_shown("fabric › jobs", RUNNING[:8])
            shown.app.theme = theme
            await PAGES[name](shown)
            await _rest(shown)
            file = folder / f"{name}.svg"
            await pictures.keep(shown, file)
            file.write_text(_same_everywhere(file.read_text(encoding="utf-8"), home, name), encoding="utf-8")


async def tour(home: Home) -> list[str]:
    """Press keys as somebody does who looks round, and return what is seen."""
    frames = []
    with Store.open(home) as store:
        seeding.remember_runs(store)
    with tempfile.TemporaryDirectory() as root:
        async with opened(home, TOUR_SIZE) as shown:
            await shown.until_shown("fabric › jobs", RUNNING[:8])
            shown.app.theme = THEMES["dark"]
            for number, (keys, words, parts) in enumerate(TOUR):
                for key in keys:
                    await shown.press(key)
                    # Until another list is there, keys act on the jobs that are still seen.
                    await shown.until(partial(_list_is_read, shown))
                await shown.type(words)
                await shown.until_shown(*parts)
                await _rest(shown)
                file = Path(root, "frame.svg")
                await pictures.keep(shown, file)
                frames.append(_same_everywhere(file.read_text(encoding="utf-8"), home, f"tour-{number}"))
    return frames


def _list_is_read(shown: Shown) -> bool:
    """Say whether the jobs that are listed are those that were asked for last."""
    screen = shown.app.screen
    return not isinstance(screen, JobsScreen) or screen.table.listing_in_view == screen.table.listing


async def _rest(shown: Shown) -> None:
    """Wait until the screen stays as it is: what is read comes from several threads, and late on a busy machine."""
    seen = ["", "x"]
    while len(set(seen[-3:])) > 1:
        await shown.pilot.pause(0.3)
        seen.append(shown.text())


def _same_everywhere(drawn: str, home: Home, name: str) -> str:
    """Return a picture with the home of a person in it, and its parts numbered by the page and not by that path."""
    number = str(zlib.crc32(name.encode()))
    return re.sub(r"\bterminal-\d+", f"terminal-{number}", drawn.replace(str(home.path), SHOWN_HOME))


# Pages


def _tab(tab: str, *parts: str) -> Callable[[Shown], Awaitable[None]]:
    async def go(shown: Shown) -> None:
        row = await _row(shown, RUNNING)
        shown.app.open_job(row, tab)
        await shown.until_shown("1 overview", *parts)

    return go


async def _row(shown: Shown, name: str) -> JobRow:
    with Store.open(shown.app.home) as store:
        from workbench.store.queries.resolve import resolve

        return resolve(store, name)


async def _jobs(shown: Shown) -> None:
    await shown.press("j", "j")
    await shown.until_shown("epoch", "best train/loss", "GPUs")


async def _failed(shown: Shown) -> None:
    shown.app.open_job(await _row(shown, "resnet-batch-4096"), "overview")
    await shown.until_shown("exit 137")


async def _filtered(shown: Shown) -> None:
    await shown.press("slash")
    await shown.type("state:completed resnet")
    await shown.press("enter")
    await shown.until_shown("3 of 30 jobs", "state:completed x", "resnet x")
    await shown.press("space", "space", "space")
    await shown.until_shown("3 marked")


async def _search(shown: Shown) -> None:
    with Store.open(shown.app.home) as store:
        found = resolve_experiment(store, "@last")
    screen = SearchScreen(found.id)
    shown.app.push_screen(screen)
    await shown.until(lambda: shown.app.screen is screen and screen.whole)
    await shown.until_shown("trials", "best")


def _compare(tab: str, *parts: str) -> Callable[[Shown], Awaitable[None]]:
    async def go(shown: Shown) -> None:
        rows = [await _row(shown, f"sweep-{number}") for number in range(4)]
        screen = CompareScreen(rows)
        shown.app.push_screen(screen)
        await shown.until(lambda: shown.app.screen is screen and screen.whole)
        screen.show(tab)
        await shown.until_shown(*parts)

    return go


async def _form(shown: Shown) -> None:
    draft = draft_of_file("manifest.yml").changed("max_runtime", "8h").changed("backend", "gpubox")
    open_form(shown.app, draft)
    await shown.until_shown("ready to start", "max_runtime")


async def _sweep(shown: Shown) -> None:
    draft = draft_of_file("manifest.yml").changed(
        MORE, "--set params.lr=0.3,0.1,0.03 --set params.width=64,128"
    )
    open_form(shown.app, draft)
    await shown.until_shown("ready to start 6 jobs", "Starts 6 jobs")


def _keys(*keys: str, says: str = "") -> Callable[[Shown], Awaitable[None]]:
    async def go(shown: Shown) -> None:
        await shown.press(*keys)
        await shown.until_shown(says)

    return go


PAGES: Final[dict[str, Callable[[Shown], Awaitable[None]]]] = {
    "jobs": _jobs,
    "jobs-filtered": _filtered,
    "overview": _tab("overview", "train/loss", "1 GPU 0 use", "log of learner 1"),
    "failed": _failed,
    "logs": _tab("logs", "step"),
    "charts": _tab("charts", "min"),
    "usage": _tab("usage", "GPU 0 power"),
    "config": _tab("config", "resnet-wide.yml:1"),
    "files": _tab("files", "predictions.csv", "best.pt"),
    "events": _tab("events", "History", "controller"),
    "compare-charts": _compare("charts", "train/accuracy", "lr=0.01", "⡠"),
    "compare-values": _compare("values", "★"),
    "compare-parameters": _compare("parameters", "over lr"),
    "compare-differences": _compare("differences", "params.lr"),
    "search": _search,
    "queue": _keys("Q", "G", says="3 of 3"),
    "backends": _keys("P", says="H100"),
    "form": _form,
    "form-sweep": _sweep,
    "help": _keys("question_mark", says="Keys"),
    "palette": _keys("ctrl+p", says="help"),
}


TOUR_PAGE: Final = "tour"
TOUR_SIZE: Final = (120, 32)
TOUR: Final[Sequence[tuple[Sequence[str], str, Sequence[str]]]] = (
    # Keys, then words that are typed, and what is there then.
    (("j", "j"), "", ("epoch", "GPUs")),
    (("slash",), "state:completed sweep", ("state:completed sweep",)),
    (("enter", "F", "space", "space", "space"), "", ("3 marked",)),
    (("c",), "", ("compare 3 jobs", "train/loss")),
    (("2",), "", ("★",)),
    (("escape", "escape", "g", "j", "j", "enter"), "", ("1 overview", "train/loss")),
    (("l",), "", ("step 260",)),
    (("m",), "", ("train/grad-norm", "one chart")),
    (("4",), "", ("GPU 0 power",)),
    (("question_mark",), "", ("Keys",)),
)
"""A walk with key presses, as the README shows it."""


# The home


MANIFEST: Final = """name: digits
params: {lr: 0.1, epochs: 20, width: 64}
gpus: 1
memory: 16 GiB
framework: {name: pytorch, version: "2.5", command: python train.py}
"""

RUNNING_MANIFEST: Final = """name: resnet-wide
params: {lr: 0.1, epochs: 20, width: 64}
learners: 2
gpus: 2
framework: {name: pytorch, version: "2.5", command: python train.py --amp}
"""
ORIGINS: Final = {
    "name": "resnet-wide.yml:1",
    "params": "resnet-wide.yml:2",
    "params.width": "--set",
    "learners": "resnet-wide.yml:3",
    "gpus": "resnet-wide.yml:4",
    "framework.name": "resnet-wide.yml:5",
    "framework.version": "resnet-wide.yml:5",
    "framework.command": "resnet-wide.yml:5",
}
FILES: Final = (
    ("checkpoints/5.pt", 146_000_000, 14),
    ("checkpoints/best.pt", 146_000_000, 6),
    ("results/predictions.csv", 1_930_000, 5),
    ("results/confusion.png", 88_400, 5),
    ("results/summary.json", 2_150, 5),
)
"""Files of the job that runs: path, bytes, age in minutes."""


def seed(store: Store) -> None:
    """Make thirty jobs, and a search whose jobs are elsewhere."""
    dice = random.Random(7)
    rate = 0.003
    for number in range(1, 21):
        name = dice.choice(("resnet-baseline", "bert-small", "vit-tiny", "unet-cells", "whisper-nl"))
        age = (32 - number) * 21_000.0
        row = seeding.add_job(
            store, number, f"{name}-{number}", age_seconds=age, gpus=dice.choice((1, 1, 2)),
            **dice.choice(({}, GPUBOX)), tags=("paper",) if number % 4 == 0 else (),
        )  # fmt: skip
        row = seeding.go(store, row, *seeding.RUN_UP)
        seeding.report(store, row, pictures.curves(rate + number / 9_000, dice))
        end, code = (State.FAILED, 1) if number % 7 == 0 else (State.COMPLETED, 0)
        why = Reason("the command failed with exit code 1: ValueError: x", "C201") if code else None
        seeding.go(
            store, row, State.STORING, end, every=dice.randint(900, 9_000), reason=why, exit_code=code, exit_by="job"
        )  # fmt: skip
    _failed_job(store, 21)
    for number in range(6):
        _sweep_job(store, 22 + number, number, dice)
    _running_job(store, 28, dice)
    seeding.search(store, 24, epochs=27, has_jobs=False)
    for number, name in ((29, "resnet-seed-2"), (30, "resnet-seed-3")):
        row = seeding.add_job(store, number, name, age_seconds=(31 - number) * 60, gpus=2, **GPUBOX)
        set_reason(store, row.id, Reason("waits for 2 GPUs: 1 of 8 is free; the next frees about 16:20"))


def _failed_job(store: Store, number: int) -> None:
    why = Reason(
        "over its memory limit: 8.2 GiB of 8.0 GiB", "C203", "ask for more memory, or a smaller batch"
    )
    row = seeding.add_job(
        store, number, "resnet-batch-4096", age_seconds=7_200, gpus=1, params={"batch": 4096}
    )
    row = seeding.go(store, row, *seeding.RUN_UP)
    writer = seeding.journal(store.home, row)
    writer.write(b"loading 50,000 images\nWARNING: batch of 4096 is large\n")
    writer.write(seeding.TRACEBACK)
    writer.ended()
    seeding.go(store, row, State.STORING, State.FAILED, every=400, reason=why, exit_code=137, exit_by="job")


def _sweep_job(store: Store, number: int, index: int, dice: random.Random) -> None:
    rate = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)[index]
    row = seeding.add_job(
        store, number, f"sweep-{index}", age_seconds=5_400 - index * 60, gpus=1, **GPUBOX,
        params={"lr": rate, "epochs": 20}, tags=("sweep",), sweep="lr-first",
    )  # fmt: skip
    row = seeding.go(store, row, *seeding.RUN_UP)
    seeding.report(store, row, pictures.curves(0.002 + 0.003 * math.sqrt(rate), dice))
    if index < 4:
        seeding.go(store, row, State.STORING, State.COMPLETED, every=1_200, exit_code=0, exit_by="job")


def _running_job(store: Store, number: int, dice: random.Random) -> None:
    row = seeding.add_job(
        store, number, RUNNING, age_seconds=1_500, learners=2, gpus=2, **GPUBOX,
        params={"lr": 0.1, "epochs": 20, "width": 128}, command="python train.py --amp",
        manifest=RUNNING_MANIFEST, origins=ORIGINS,
    )  # fmt: skip
    row = seeding.go(store, row, *seeding.RUN_UP)
    values = pictures.curves(0.0080, dice)
    values = {name: column[:270] for name, column in values.items()}
    seeding.report(store, row, values)
    seeding.report(store, row, {"loss": values["loss"], "accuracy": values["accuracy"]}, group="val")
    for learner in (1, 2):
        samples = [
            (
                5.0 * at,
                300 + 80 * math.sin(at / 9) + dice.uniform(-20, 20),
                int((10 + min(4, at / 30)) * (1 << 30)),
            )
            for at in range(297)
        ]
        seeding.sample(store, row, samples, learner=learner, gpus=2)
        seeding.list_processes(store.home, row, learner=learner)
    _report_progress(store, row, 0.675, "epoch 14/20")
    for learner in (1, 2):
        writer = seeding.journal(store.home, row, learner=learner)
        writer.write(b"loading 50,000 images\nmodel: 36.5 M parameters, 2 GPUs\n")
        for step in range(10, 270, 10):
            loss, accuracy = values["loss"][step], values["accuracy"][step]
            line = f"epoch {step // 20 + 1} step {step} loss {loss} accuracy {accuracy}\n"
            writer.write(line.encode(), seconds=40)
            if step == 240 and learner == 1:
                writer.write(b"WARNING: 3 images could not be read and were left out\n")
            if step == 250 and learner == 1:
                writer.write(b"ERROR: the cache at /tmp/images is full, going on without\n")


def _report_progress(store: Store, row: JobRow, fraction: float, text: str) -> None:
    records = store.home.job(row.id).attempt(row.attempt).learner(1).records
    last = json.loads(records.read_bytes().splitlines()[-1])["seq"]
    record: dict[str, Any] = {
        "seq": last + 1, "time": seeding.NOW_US - 10 * seeding.SECOND_US, "kind": "progress", "fraction": fraction,
        "text": text,
    }  # fmt: skip
    with records.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    while ingest(store, row.id, row.attempt, 1, records):
        pass


class _Code(NamedTuple):
    code_hash: str = ""
    files: int = 7
    size_bytes: int = 43_000
    cached: bool = True
    warnings: Sequence[str] = ()


def _previews(
    home: Home, read: RunOptionsReader, draft: Draft, cancel: object
) -> tuple[SubmissionPreview, ...]:
    """Preview what a draft starts, on backends that are not there."""
    options = read(draft.arguments()[1:]).options
    backend = draft.changes.get("backend", "local")
    if backend == "local":
        target = TargetRef("local", "local", "process")
    else:
        target = TargetRef(backend, "ssh", "container", "ssh://ada@gpubox")
    previews = []
    for overrides in expanded(options.overrides):
        loaded = load_text(draft.text, draft.manifest, overrides=overrides)
        recorded = {"python": "/home/ada/venv/bin/python", "code": {"source": "/home/ada/digits"}}
        submission = JobSubmission(loaded, target, _Code(), recorded, {})
        request = LaunchRequest(AttemptRef("", PREVIEW_JOB, 1, 1), loaded.spec, "ada", "", "", {})
        env = {f"FABRIC_PARAM_{name.upper()}": str(value) for name, value in loaded.spec.params.items()}
        native = {"command": loaded.spec.framework.command, "env": env}
        plan = LaunchPlan(
            request,
            target.runner,
            (LearnerPlan(1, "learner-1", native),),
            loaded.spec.gpus,
            loaded.spec.cpus or 0.0,
        )
        previews.append(SubmissionPreview(submission, plan))
    return tuple(previews)


def _files(job_id: str) -> list[FoundFile]:
    minute_us = 60 * seeding.SECOND_US
    return [FoundFile(path, size, seeding.NOW_US - age * minute_us) for path, size, age in FILES]


def _native_plan(home: Home, job_id: str) -> Content:
    env = {"FABRIC_PARAM_EPOCHS": "20", "FABRIC_PARAM_LR": "0.1", "FABRIC_PARAM_WIDTH": "128"}
    native = json.dumps({"command": "python train.py --amp", "env": env}, indent=2)
    return page(
        [heading("Native plan: process at gpubox")],
        [plain(f"  {line}") for line in native.split("\n")],
        [plain("  and 1 more learner like it", "dim")],
    )


def _history(last: float, cells: int) -> list[float]:
    """Return how a use went that is ``last`` now."""
    before = [last * (0.75 + 0.25 * math.sin(at / 2.0)) for at in range(cells - 1)]
    return [*before, last]


def _take_line(line: BackendLine, status: BackendStatus) -> None:
    """Take an answer as one after many others."""
    TAKE_LINE(line, status)
    for uses in (line.gpu_use, line.cpu_use):
        if len(uses) == 1 and uses[0] is not None:
            uses[:] = _history(uses[0], list_header.HISTORY)


def _take_state(state: BackendState, status: BackendStatus) -> None:
    """Take an answer as one after many others."""
    TAKE_STATE(state, status)
    for uses in state.histories.values():
        if len(uses) == 1:
            uses[:] = _history(uses[0], 20)


TAKE_LINE: Final = BackendLine.take
TAKE_STATE: Final = BackendState.take


class _Backend(walking._PretendedBackend):
    """The laptop, or a machine with eight GPUs."""

    def probe(self) -> Iterator[Finding]:
        yield Finding("python", "/usr/bin/python3 (3.11.9)")
        if self.options.type == "local":
            yield Finding("engine", "none", "lack", "images are not used", "install Docker")
        else:
            yield Finding("engine", "docker (27.3.1)")

    def inventory_of(self, opened: object) -> Inventory:
        if self.options.type == "local":
            return Inventory((Node("laptop", 8, 16 << 30, 12.0, 4 << 30, 100 << 30),), 0)
        slots = tuple(
            Slot(
                f"GPU-{number}", number, "H100", GPU_MEMORY, (70 - 8 * number) << 30 if number < 7 else 0,
                (97.0, 95.0, 88.0, 91.0, 64.0, 12.0, 99.0, 0.0)[number], 66.0 - number, 640.0 - 70 * number, 700.0,
                "ada" if number < 6 else "", "training-abcdefghi" if number < 6 else "",
                "python (pid 40712) of eve" if number == 6 else "",
            )
            for number in range(8)
        )  # fmt: skip
        return Inventory(
            (Node("gpubox", 128, 1 << 40, 38.0, 300 << 30, 6 << 40, slots, "driver 550, CUDA 12.4"),), 0
        )


if __name__ == "__main__":
    main()
