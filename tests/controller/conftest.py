"""What tests of the controller share: a loop over a backend in memory, and homes whose jobs run for real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.controller.bench import Bench
from tests.stubs import Gpus
from tests.support.real_jobs import Ground, RenewableGround
from tests.support.waiting import until
from workbench.controller.runtime.connections import SHARED
from workbench.controller.targets.opener import RegistryTarget
from workbench.paths import Home
from workbench.store.queries.jobs import open_jobs

KILLS: Final = 20
"""How often the controller of a search is killed in the soak."""
FEW_KILLS: Final = 3
"""How often in the gate."""


@pytest.fixture
def bench(home: Home) -> Iterator[Bench]:
    """A bench whose loop runs."""
    made = Bench(home)
    made.start()
    yield made
    made.stop()
    made.store.close()
    assert "defect" not in made.log()


@pytest.fixture
def kills(chaos_rounds: int | None, note_harm: Callable[[str], None]) -> int:
    """How often the controller of a search is killed."""
    count = FEW_KILLS if chaos_rounds is None else KILLS
    for _ in range(count):
        note_harm("controller of a search killed")
    return count


@pytest.fixture
def real_bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench whose loop runs real jobs.

    A controller shares connections until its process ends; this process has other homes after this one.
    """
    monkeypatch.setattr("workbench.controller.targets.opener.SHARED", type(SHARED)())
    bench.stop()
    bench.start(open_target=RegistryTarget)
    yield bench
    for row in open_jobs(bench.store):  # of a test that has failed
        bench.ask(row.id, "kill")
    until(lambda: not open_jobs(bench.store), bench.log)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop try again after a moment what it would try after seconds."""
    for name, value in {
        "decide.reconcile.KILL_AGAIN_SECONDS": (0.1, 5.0),
        "decide.restarts.FIRST_DELAY_SECONDS": 0.05,
        "loop.loop.SWEEP_AFTER_SECONDS": 0.1,
        "loop.queue.MEASURE_AGAIN_SECONDS": 0.1,
        "targets.observer.AGAIN_SECONDS": 0.05,
    }.items():
        monkeypatch.setattr(f"workbench.controller.{name}", value)


@pytest.fixture(scope="module")
def kept_ground() -> Iterator[RenewableGround]:
    """The ground of a module's tests."""
    made = RenewableGround()
    yield made
    made.close()


@pytest.fixture
def ground(kept_ground: RenewableGround, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A home whose jobs run for real, in common with other tests of the module; nothing is left of them."""
    yield kept_ground.enter(monkeypatch)
    kept_ground.leave()


@pytest.fixture
def own_ground(home: Home) -> Iterator[Ground]:
    """A home of the test's own whose jobs run for real; nothing is left of them."""
    made = Ground(home)
    yield made
    made.clean_up()


@pytest.fixture
def grounds(gpus: Gpus, home: Home, tmp_path: Path) -> Iterator[tuple[Ground, Ground]]:
    """Two homes on one machine with the GPUs of the module."""
    both = Ground(home), Ground(Home(tmp_path / "theirs"))
    yield both
    for ground in both:
        ground.clean_up()


@pytest.fixture
def end(tmp_path: Path) -> Path:
    """Once this file is there, the first job ends."""
    return tmp_path / "end"


@pytest.fixture
def order(tmp_path: Path) -> Path:
    """The file in which jobs, and attempts, note that they run."""
    return tmp_path / "order"
