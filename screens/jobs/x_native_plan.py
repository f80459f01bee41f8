"""What a job's runner sends for it: the native plan, asked of the runner anew. To be called from a thread."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Final

from textual.content import Content

from screens.style import text
from screens.widgets.markup import heading, page, plain
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid
from workbench.store.jobs import detail

LINES: Final = 600
"""So many lines of a plan are shown."""


def native_plan(home: Home, job_id: str) -> Content:
    """Return the plan of a job's last attempt as it is sent to its place; its first learner's in full.

    Raises:
        FabricError: the place does not answer, or refuses the job now.
    """
    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from runners.registry import load_runner
    from workbench.controller.runtime.session_borrower import load_place

    with Store.open(home) as store:
        job = detail(store, job_id)
    uuid, place = home_uuid(home), job.row.place
    request = LaunchRequest(
        attempt=AttemptRef(uuid, job.row.id, job.row.attempt, job.spec.learners),
        spec=job.spec,
        owner=job.row.owner,
        code_hash=job.code_hash,
        code_file=str(home.snapshot(job.code_hash)) if job.code_hash else "",
        recorded=job.recorded,
    )
    options = BackendOptions(place.backend, place.type, place.address, place.options)
    with closing(load_place(options).open()) as reached:
        runner = load_runner(place.runner)(reached, home_uuid=uuid)
        with closing(runner):
            made = runner.plan(request)
    learners = made.learners[:1]
    more = len(made.learners) - len(learners)
    lines = [
        line
        for one in learners
        for line in json.dumps(dict(one.native), indent=2, sort_keys=True).split("\n")
    ]
    return page(
        [
            heading(f"Native plan: {made.runner} at {place.backend}"),
            *[plain(f"  {said}", "warning") for said in made.warnings],
        ],
        [plain(f"  {line}") for line in lines[:LINES]],
        [plain(f"  and {text.count(more, 'more learner')} alike", "dim")] if more else [],
    )
