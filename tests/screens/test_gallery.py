"""The script that draws every page of the screens still draws them."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.screens.film import film
from tests.support.waiting import patience

ROOT = Path(__file__).resolve().parents[2]
SIZES, THEMES = ("120x40", "200x60", "80x24"), ("dark", "light")

SEEN = {
    "jobs": ("▸ sweep", "GPUs"),
    "jobs-filtered": ("state:completed", "3 marked"),
    "overview": ("train/loss", "log of learner 1"),
    "failed": ("exit 137", "memory limit"),
    "logs": ("epoch 13",),
    "charts": ("train/accuracy", "train/grad-norm"),
    "usage": ("GPU 0", "memory"),
    "config": ("resnet-wide.yml:1",),
    "files": ("predictions.csv", "best.pt"),
    "events": ("History", "controller"),
    "compare-charts": ("lr=0.01",),
    "compare-values": ("★", "lr=0.3"),
    "compare-parameters": ("over lr",),
    "compare-differences": ("params.lr",),
    "search": ("trials", "optimizer.kind"),
    "queue": ("resnet-seed-2", "resnet-seed-3"),
    "backends": ("H100", "laptop"),
    "form": ("ready to start", "gpubox"),
    "form-sweep": ("Starts 6 jobs",),
    "help": ("Open the job under the cursor",),
    "palette": ("find a command",),
}
"""Every page, and what is on it."""
ALL_PAGES = pytest.mark.soak(
    "all pages and their film; the gate draws a page of each kind, and looks at the screens in test_pictures.py"
)


def draw(folder: Path, *args: str) -> None:
    argv = [sys.executable, "-m", "tests.screens.gallery", str(folder), *args]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=patience(600))


def words_of(file: Path) -> str:
    """Return the words of a picture: parts of a line that look different are apart in it."""
    return html.unescape(re.sub(r"<[^>]*>", "", file.read_text())).replace("\xa0", " ")


@pytest.mark.timeout(patience(600))
@pytest.mark.parametrize(
    "size",
    [pytest.param(size, marks=ALL_PAGES) for size in ("120x40", "80x24", "200x60")],
)
def test_every_page_is_drawn(tmp_path: Path, size: str) -> None:
    draw(tmp_path, "--size", size, "--theme", "dark")

    assert (tmp_path / "tour.svg").read_text().count('class="frame"') == 10
    drawn = {file.stem: words_of(file) for file in (tmp_path / f"{size}-dark").iterdir()}
    assert set(drawn) == set(SEEN)
    assert missing_of(drawn) == {}


def test_pages_of_each_kind_are_drawn(tmp_path: Path) -> None:
    pages = (
        "jobs-filtered", "charts", "usage", "files", "compare-values", "compare-differences", "search", "queue",
        "backends", "form-sweep", "palette",
    )  # fmt: skip
    draw(tmp_path, *pages, "--size", "120x40", "--theme", "dark")

    drawn = {file.stem: words_of(file) for file in (tmp_path / "120x40-dark").iterdir()}
    assert set(drawn) == set(pages)
    assert missing_of(drawn) == {}


def missing_of(drawn: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the words that must be on a page and are not, by page."""
    missing = {name: [part for part in SEEN[name] if part not in words] for name, words in drawn.items()}
    return {name: parts for name, parts in missing.items() if parts}


def test_every_page_is_kept_at_every_size_dark_and_light() -> None:
    folders = [ROOT / "docs/pictures/gallery" / f"{size}-{theme}" for size in SIZES for theme in THEMES]

    assert [{file.stem for file in folder.iterdir()} for folder in folders] == [set(SEEN)] * 6


def test_a_page_is_drawn_at_every_size_dark_and_light(tmp_path: Path) -> None:
    draw(tmp_path, "overview")

    drawn = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.svg"))
    assert drawn == [f"{size}-{theme}/overview.svg" for size in SIZES for theme in THEMES]
    assert not (tmp_path / "tour.svg").exists()  # one page is no film
    shown = (tmp_path / "200x60-light" / "overview.svg").read_text()
    assert "train/loss" in shown
    assert "/home/ada/.fabric/jobs/training-6j6g6858m" in shown and "/tmp/gal-" not in shown


def test_a_film_shows_each_page_in_its_turn_for_the_same_time() -> None:
    pages = [f'<svg viewBox="0 0 300 200"><text>page {number}</text></svg>' for number in range(4)]

    made = film(pages, seconds=2.0)

    assert [made.count(page) for page in pages] == [1] * 4
    assert [made.index(f"animation-delay:{delay}s") for delay in (0, 2, 4, 6)] == sorted(
        made.index(page)
        - len(f'<g class="frame" style="animation-delay:{delay}s">')
        + len('<g class="frame" style="')
        for page, delay in zip(pages, (0, 2, 4, 6), strict=True)
    )
    assert (
        "animation:frame 8s" in made and "25%{visibility:hidden}" in made and 'viewBox="0 0 300 200"' in made
    )
