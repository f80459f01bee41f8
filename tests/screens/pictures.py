"""Makes the pictures of the documentation from the running app: ``python -m tests.screens.pictures [FOLDER]``."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

os.environ["TEXTUAL_ANIMATIONS"] = "none"
os.environ["FABRIC_ASCII"] = "0"
os.environ["TZ"] = "UTC"
os.environ["FABRIC_NO_CONTROLLER"] = "1"

from screens.launch.draft_sources import draft_of_file
from screens.launch.form_screen import open_form
from tests.examples.libraries import environment_folder, is_made
from tests.screens import seeding
from tests.screens.support import Shown, opened
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.jobs import set_reason

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
STEPS: Final = 400


def main() -> None:
    """Write every picture."""
    time.tzset()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        home = Home(Path(root) / "fabric")
        with Store.open(home) as store:
            seed(store)
            seeding.remember_runs(store)
        asyncio.run(draw(home, folder))
    if is_made(environment_folder()):
        with tempfile.TemporaryDirectory(prefix="fab-") as root:
            asyncio.run(draw_library(Path(root), folder / "library.svg"))
    else:
        print("library.svg is as it was: python3 -m tests.examples.libraries makes what it needs")


async def draw(home: Home, folder: Path) -> None:
    """Walk through the screens and keep what is seen."""
    async with opened(home, (124, 32)) as shown:
        await shown.until_shown("resnet-wide")
        await shown.press("j")
        await shown.until_shown("held-out", "train/loss")
        await keep(shown, folder / "runs.svg")
    async with opened(home, (164, 40), job="resnet-wide") as shown:
        await shown.until_shown("1 overview")
        await shown.press("l")
        await shown.until_shown("held-out accuracy", "train/loss")
        await shown.press("tab", "tilde", "tilde")
        await shown.until_shown("smooth 0.9")
        await keep(shown, folder / "run.svg")
    async with opened(home, (124, 32)) as shown:
        await shown.until_shown("2 logs")  # where it was left
        await shown.press("escape")
        await shown.until_shown("7 jobs")
        await shown.press("j", "space", "space", "space", "c")
        await shown.until_shown("compare 3 jobs", "train/loss")
        await shown.press("tilde", "tilde")
        await shown.until_shown("smooth 0.9")
        await keep(shown, folder / "compare.svg")
        await shown.press("escape", "escape")
        await shown.until_shown("fabric › jobs")
        await shown.press("n")
        await shown.until_shown("new job")
        open_form(shown.app, draft_of_file("examples/digits/manifest.yml").changed("params.epochs", "80"))
        await shown.until_shown("params.epochs=80", "ready to start")
        await keep(shown, folder / "form.svg")


async def draw_library(root: Path, file: Path) -> None:
    """Run an example of a library as a user does, with nothing configured, and keep what a job's dashboard shows."""
    (root / "run").mkdir(mode=0o700)
    environment = {
        "HOME": str(root),
        "FABRIC_HOME": str(root / "fabric"),
        "FABRIC_LEASES": str(root / "leases"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "DOCKER_HOST": f"unix://{root}/none.sock",
        "PATH": f"{environment_folder() / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    fabric, example = (
        Path(sys.executable).with_name("fabric"),
        FOLDER.parents[1] / "examples/libraries/lightning",
    )
    words = [str(fabric), "run", "-d", "--", "python", "train.py"]
    job = subprocess.run(
        words, cwd=example, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run([fabric, "wait", job], env=environment, check=True, capture_output=True)
    subprocess.run([fabric, "controller", "stop"], env=environment, check=False, capture_output=True)
    now_us = time.time_ns() // 1000
    async with opened(Home(root / "fabric"), (124, 36), job=job, clock=lambda: now_us) as shown:
        await shown.until_shown("1 overview", "train_loss", "val_accuracy")
        await keep(shown, file)
    # A warning names the folder, which is another one for everybody who makes this.
    drawn = file.read_text(encoding="utf-8").replace(str(environment_folder()), "~/.cache/libraries")
    file.write_text(re.sub(r' textLength="[\d.]+"(?=[^<>]*>~/)', "", drawn), encoding="utf-8")


async def keep(shown: Shown, file: Path) -> None:
    """Write the screen to a file once nothing is left to do."""
    await shown.pilot.pause(0.3)
    drawn = re.sub(r"@font-face\s*{[^}]*}", "", shown.app.export_screenshot(title="fabric tui"))
    # No font is fetched from anywhere: whatever monospaced one is there serves.
    drawn = drawn.replace("Fira Code", "Fira Code, DejaVu Sans Mono, Menlo, Consolas")
    file.write_text(drawn, encoding="utf-8")


def seed(store: Store) -> None:
    """Make jobs as a week of work leaves them."""
    dice = random.Random(4)
    done(store, 1, "resnet-baseline", 9_000, 0.0030, dice)
    why = Reason(
        "over its memory limit: 8.2 GiB of 8.0 GiB", "C203", "ask for more memory, or a smaller batch"
    )
    failed = seeding.add_job(store, 2, "resnet-batch-4096", age_seconds=7_200, gpus=1)
    seeding.go(store, failed, *seeding.RUN_UP, State.STORING, State.FAILED, reason=why, exit_code=137)
    halted = seeding.add_job(store, 3, "bert-small", age_seconds=5_400)
    why = Reason("halted by ada@box")
    seeding.go(store, halted, *seeding.RUN_UP, State.STORING, State.HALTED, reason=why, exit_code=143)
    done(store, 4, "resnet-lr-0.01", 3_900, 0.0045, dice)
    done(store, 5, "resnet-lr-0.1", 2_700, 0.0060, dice)
    running(store, 6, dice)
    waiting = seeding.add_job(store, 7, "resnet-seed-2", age_seconds=60, gpus=2)
    set_reason(store, waiting.id, Reason("waits for 2 GPUs: 1 of 2 is free, the other is ada's resnet-wide"))


def done(store: Store, number: int, name: str, age: float, rate: float, dice: random.Random) -> None:
    """Make a job that has ended well."""
    row = seeding.go(store, seeding.add_job(store, number, name, age_seconds=age, gpus=1), *seeding.RUN_UP)
    seeding.report(store, row, curves(rate, dice))
    seeding.go(store, row, State.STORING, State.COMPLETED, every=900, exit_code=0, exit_by="job")


def curves(rate: float, dice: random.Random) -> dict[str, list[float | None]]:
    """Return loss and accuracy as training gives them."""
    loss = [2.3 * math.exp(-rate * step) + 0.25 * abs(dice.gauss(0, 0.4)) for step in range(STEPS)]
    return {
        "loss": [round(value, 4) for value in loss],
        "accuracy": [round(min(0.99, 1 - value / 2.6), 4) for value in loss],
        "lr": [round(0.05 * (1 + math.cos(math.pi * step / STEPS)), 5) for step in range(STEPS)],
        "grad-norm": [
            round(abs(dice.gauss(1.0, 0.2)) + 4 * math.exp(-step / 40), 3) for step in range(STEPS)
        ],
    }


def running(store: Store, number: int, dice: random.Random) -> JobRow:
    """Make the job that runs."""
    row = seeding.add_job(store, number, "resnet-wide", age_seconds=1_500, gpus=1)
    row = seeding.go(store, row, *seeding.RUN_UP)
    values = curves(0.0080, dice)
    seeding.report(store, row, values)
    writer = seeding.journal(store.home, row)
    writer.write(b"loading 50,000 images\nmodel: 36.5 M parameters, 1 GPU\n")
    for step in range(10, STEPS, 10):
        line = f"epoch {step // 50 + 1} step {step} loss {values['loss'][step]} accuracy {values['accuracy'][step]}\n"
        writer.write(line.encode(), seconds=3)
        if step % 50 == 0:
            held_out = f"\x1b[36mepoch {step // 50} held-out accuracy {values['accuracy'][step]}\x1b[0m\n"
            writer.write(held_out.encode(), seconds=2)
        if step == 270:
            writer.write(b"WARNING: 3 images could not be read and were left out\n")
    writer.write(b"saved checkpoints/epoch-8.pt\n")
    return row


if __name__ == "__main__":
    main()
