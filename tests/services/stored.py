"""Jobs of manifests in a store, in any state, and a home that is a copy; no controller looks after them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cli.jobs import PATHS
from workbench.controller.client.submission import Submission, submit
from workbench.job import Reason, State
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import job
from workbench.store.updates.jobs import step

HERE = TargetRef(backend="local", type="local", runner="process")
BOTH = TargetRef(
    backend="box1+box2",
    type="multinode",
    runner="multinode-process",
    address="ssh://127.0.0.1:1+ssh://box2",
    options={
        "members": [
            {"name": "box1", "type": "ssh", "address": "ssh://127.0.0.1:1", "options": {}},
            {"name": "box2", "type": "ssh", "address": "ssh://box2", "options": {}},
        ]
    },
)
"""Two hosts together; nothing answers at the first one's address."""


def submitted(
    store: Store,
    text: str,
    *,
    state: State = State.QUEUED,
    overrides: Sequence[str] = (),
    target: TargetRef = HERE,
    code_hash: str = "",
    recorded: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> JobRow:
    """Put the job of a manifest into the store, as if it had come to that state."""
    loaded = load_text(text, "manifest.yml", overrides=overrides, environ={}, defaults={})
    submission = Submission(
        spec=loaded.spec,
        manifest_text=loaded.text,
        origins=loaded.origins,
        target=target,
        code_hash=code_hash,
        recorded=recorded or {},
        secrets=secrets or {},
        parent=parent,
    )
    row = submit(store, submission, origin="test")
    for each in PATHS[state]:
        step(store, row.id, 1, each, Reason(""))
    return now(store, row)


def now(store: Store, row: JobRow) -> JobRow:
    """Return a job as it is now."""
    found = job(store, row.id)
    assert found is not None
    return found


def copied(home: Home, to: Path) -> Home:
    """Copy a home: what is there only reads."""
    subprocess.run(["cp", "-a", home.path, to], check=True)
    return Home(to)
