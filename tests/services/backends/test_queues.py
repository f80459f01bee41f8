"""The queue of a host has the jobs of this home between those of others, also those that wait at other hosts, too."""

from __future__ import annotations

from typing import Any

from tests.services.stored import BOTH, submitted
from workbench.services.backends.inventory import HostAnswer, queues
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import TargetRef
from workbench.store.queries.home_queue import waiting_jobs

BOX = TargetRef("box1", "ssh", "process", address="ssh://127.0.0.1:1")
TEXT = "framework: {name: custom, command: 'true'}\ngpus: 2\n"


def test_a_job_over_several_hosts_is_ones_own_in_the_list_of_each(store: Store) -> None:
    alone = submitted(store, f"name: alone\n{TEXT}", target=BOX)
    both = submitted(store, f"name: both\nlearners: 3\n{TEXT}", target=BOTH)
    ours = home_uuid(store.home)

    def entry(place: int, home: str, job: str, gpus: int) -> dict[str, Any]:
        return {"home": home, "job": job, "owner": "ada", "gpus": gpus, "place": place, "of": 3}

    line = [entry(1, ours, both.id, 4), entry(2, "another", both.id, 1), entry(3, ours, alone.id, 2)]
    answers = {BOX.machine: HostAnswer(line, is_known=True)}
    found = {one.backend: one.document()["waiting"] for one in queues(ours, waiting_jobs(store), answers)}

    there = [(one["name"], one["gpus"], one["rank"]) for one in found["box1"]]
    assert there == [("both", 4, 1), (None, 1, 2), ("alone", 2, 3)]
    assert [(one["name"], one["gpus"], one["rank"]) for one in found["box1+box2"]] == [("both", 6, None)]
