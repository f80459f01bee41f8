"""A job's checkpoints, in the order in which they were made."""

from __future__ import annotations

from pathlib import Path

from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import add_job
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.transfer.checkpoints import list_checkpoints
from workbench.store.db.database import Store


def test_of_checkpoints_of_one_instant_the_one_without_a_step_is_the_last(home: Home, tmp_path: Path) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        records = Records(tmp_path / "records.jsonl")
        for name, step, time_us in (("last.pt", None, 2), ("epoch-10.pt", 10, 2), ("epoch-9.pt", 9, 2)):
            records.add("checkpoint", path=name, step=step, time=time_us)
        records.add("checkpoint", path="latest.pt", time=1)
        ingest(store, row.id, 1, 1, records.file)

        found = [each.name for each in list_checkpoints(store, row)]

    assert found == ["latest.pt", "epoch-9.pt", "epoch-10.pt", "last.pt"]
