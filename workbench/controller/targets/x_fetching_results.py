"""``fetch_results``: what a job has put into a data store comes into its folder on this machine, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from runners.interface import Runner
from workbench.data.stores.model import stores_of
from workbench.errors import PlaceUnreachable, RunnerError
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.jobs import detail

OURS: Final = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What lies beside a job's results in a store and is no result of its."""

CHECKPOINTS: Final = "_checkpoints"


def fetch_stored(home: Home, job_id: str, runner: Runner) -> None:
    """Copy a job's results and checkpoints from its store, if it wants that; what is here already is left.

    Results in a claim or a container engine's volume are the runner's own business, which brings them home or not.

    Raises:
        FabricError: the store does not give them.
    """
    with Store.open(home) as store:
        spec = detail(store, job_id).spec
    if not spec.fetch_results:
        return
    stored = next((each for each in stores_of(spec) if each.results_container), None)
    if stored is None or stored.is_volume:
        return
    job = home.job(job_id)
    if stored.is_folder:
        runner.bring_folder(stored.results_path(job_id), job.results)
        return
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.data.stores.transfer import Moving

    wanted: list[tuple[str, Path, tuple[str, ...]]] = [(stored.results_path(job_id), job.results, OURS)]
    if not spec.checkpoints.shared:
        wanted.append((stored.results_path(job_id, CHECKPOINTS), job.checkpoints, ()))
    try:
        moving = Moving(stored, read_secrets(home, job_id))
        for path, target, exclude in wanted:
            if moving.files(path):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                moving.get(path, target, exclude=exclude)
    except PlaceUnreachable as error:
        # A place that does not answer is waited for; a store that does not has its own command: fabric download.
        raise RunnerError(error.message, hint=error.hint) from error
