"""Searches in a store, which no controller looks after."""

from __future__ import annotations

from tests.support.stored_jobs import make_detail
from workbench.spec import spec_to_json
from workbench.store.db.database import Store
from workbench.store.updates.experiments import insert_experiment, new_experiment_id


def begin_search(store: Store, *, code_hash: str = "") -> str:
    """Write down a search that is open, and return its id."""
    document = {
        "spec": {**spec_to_json(make_detail().spec), "search": {"method": "random"}},
        "place": {"backend": "local", "type": "local", "runner": "process"},
        "code_hash": code_hash,
    }
    return insert_experiment(store, new_experiment_id(), document).id
