"""The script that draws every page of the screens still draws them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.screens.film import film
from tests.waiting import patience

ROOT = Path(__file__).resolve().parents[2]


def test_a_page_is_drawn_at_every_size_dark_and_light(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.screens.gallery", str(tmp_path), "overview"]

    subprocess.run(argv, cwd=ROOT, check=True, timeout=patience(300))

    drawn = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.svg"))
    assert drawn == [
        f"{size}-{theme}/overview.svg"
        for size in ("120x40", "200x60", "80x24")
        for theme in ("dark", "light")
    ]
    assert not (tmp_path / "tour.svg").exists()  # one page is no film
    shown = (tmp_path / "200x60-light" / "overview.svg").read_text()
    assert "train/loss" in shown
    assert "/home/ada/.fabric/jobs/training-6j6g6858m" in shown and "/tmp/fab-" not in shown


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
