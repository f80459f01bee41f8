"""Make the README's pictures from the running app: ``python -m tests.screens.pictures docs/pictures``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from screens.app import FabricApp
from tests.screens.seeding import NOW_US, three_runs
from workbench.paths import Home
from workbench.store.database import Store

SIZE = (120, 34)


async def draw(folder: Path) -> None:
    """Open the app on a home with three jobs, and save each of its two first screens."""
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place))
        with Store.open(home) as store:
            three_runs(store)
        app = FabricApp(home, clock=lambda: NOW_US)
        async with app.run_test(size=SIZE) as pilot:
            for name, keys in (("runs", ()), ("run", ("enter", "3"))):
                await pilot.press(*keys)
                await pilot.app.workers.wait_for_complete()
                await pilot.pause(1.0)
                (folder / f"{name}.svg").write_text(app.export_screenshot(title="fabric tui"))


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1])))
