"""What a real job on a pretended GPU uses: from the driver's library to the page of the screens."""

from __future__ import annotations

from pathlib import Path

from pytest import MonkeyPatch

from tests.screens.support import journey, opened
from tests.stubs import pretend
from tests.support.command import Fabric
from workbench.clock import now_us
from workbench.paths import Home


@journey
async def test_the_usage_page_has_the_limits_that_the_driver_says(
    fabric: Fabric, home: Home, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1").say("slowdown GPU-1 92")
    (fabric.folder / "wait.sh").write_text("while :; do sleep 0.05; done\n")
    fabric("run", "-d", "--name", "hot", "--gpus", "1", "--", "sh", "wait.sh")

    async with opened(home, (200, 60), job="hot", clock=now_us) as shown:
        await shown.until_shown("1 overview")
        await shown.press("4")
        await shown.until_shown("GPU 0 power  95 W of 300 W", "GPU 0 temperature  41", " of 92", "300W", "92")


def test_gpus_are_listed_with_their_use_as_the_screens_write_it(
    fabric: Fabric, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1", used=3 << 29)

    (line,) = [line for line in fabric("gpus").stdout.splitlines() if "GPU-1" in line]

    assert "  1.5 GiB of 24.0 GiB   7%  " in line
