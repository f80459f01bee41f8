"""The store that a job's results are in, as this machine reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.stores.model import JobDataStore
    from workbench.data.stores.transfer import StoreTransfer
    from workbench.paths import Home
    from workbench.spec import JobSpec

CHECKPOINTS = "_checkpoints"
SHARED_CHECKPOINTS = "_wml_checkpoints"


@dataclass(frozen=True, slots=True)
class ResultStore:
    """Where a job's results are."""

    store: JobDataStore
    job_id: str
    shared_checkpoints: bool

    @property
    def results(self) -> str:
        """The job's own folder, container first."""
        return self.store.results_path(self.job_id)

    @property
    def checkpoints(self) -> str:
        """The folder with its checkpoints."""
        if self.shared_checkpoints:
            return self.store.results_path(SHARED_CHECKPOINTS)
        return self.store.results_path(self.job_id, CHECKPOINTS)

    @property
    def location(self) -> str:
        """The store's address and the folder in it, for people."""
        return self.results if self.store.is_folder else f"{self.store.address} {self.results}"

    def transfer(self, home: Home) -> StoreTransfer:
        """Return the copies to and from it.

        Raises:
            FabricError: its credentials are not kept any more, or rclone is missing.
        """
        from workbench.controller.runtime.secrets import read_secrets
        from workbench.data.stores.transfer import StoreTransfer

        return StoreTransfer(self.store, read_secrets(home, self.job_id))


def result_store(spec: JobSpec, job_id: str) -> ResultStore | None:
    """Return the store of a job's results; None where they stay with the job or lie in a volume."""
    if not any(store.training_results for store in spec.data_stores):
        return None
    from workbench.data.stores.model import stores_of

    store = next(each for each in stores_of(spec) if each.results_container)
    return None if store.is_volume else ResultStore(store, job_id, spec.checkpoints.shared)
