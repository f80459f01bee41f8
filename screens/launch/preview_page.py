"""What a draft would start: prepared and planned as the command does it, and written as a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from textual.content import Content

from screens.launch.draft import Draft, check
from screens.widgets.markup import facts, heading, page, plain, table
from workbench import formats
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.services.submit.options import RunRequest
    from workbench.services.submit.preview import SubmissionPreview

LINES: Final = 600
"""So many lines of what is native to the runner are shown."""
JOBS: Final = 4
"""So many jobs of a sweep are listed."""

SAMPLES: Final = 3
"""Of the trials of a search so many are shown."""

RunOptionsReader = Callable[[Sequence[str]], "RunRequest"]
"""Reads the arguments of ``fabric run`` as the command does."""


def read_previews(
    home: Home, read_options: RunOptionsReader, draft: Draft, cancel: threading.Event
) -> tuple[SubmissionPreview, ...]:
    """Prepare what a draft would start and ask its backend for the plan; nothing is started or kept.

    Raises:
        Cancelled: ``cancel`` was set.
        FabricError: it could not be started like that, or the backend does not answer.
    """
    if draft.is_exactly_again:
        return (_preview_again(home, draft.again, cancel),)
    from workbench.config import profile
    from workbench.services.submit.batch import read_batch
    from workbench.services.submit.preview import preview_batch

    request = read_options(draft.arguments()[1:])
    with profile(request.profile):
        return preview_batch(read_batch(request.options), home, cancel=cancel)


def _preview_again(home: Home, job_id: str, cancel: threading.Event) -> SubmissionPreview:
    from workbench.services.submit.preview import preview
    from workbench.services.submit.rerun import prepare_rerun
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import detail

    with Store.open(home) as store:
        submission = prepare_rerun(store, detail(store, job_id), name="", argv=())
    return preview(submission, home, cancel=cancel)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What a draft comes to: the page, and the verdict that heading and page share."""

    shown: Content
    ready: bool = False
    jobs: int = 0
    """How many it starts."""


def faults_page(faults: Mapping[str, str]) -> DraftPlan:
    """Return the plan of a draft that cannot be read."""
    lines = [plain(f"{key}: {fault}" if key else fault, "error") for key, fault in faults.items()]
    return DraftPlan(page([heading("Not ready")], lines))


def preview_page(
    home: Home, read_options: RunOptionsReader, draft: Draft, cancel: threading.Event
) -> DraftPlan:
    """Return the plan of a draft: what is wrong with it, else what it would start."""
    if faults := check(draft).faults:
        return faults_page(faults)
    again = (
        [
            plain(f"runs {draft.origin} again,"),
            plain("with exactly its code, settings and interpreter"),
        ]
        if draft.is_exactly_again
        else []
    )
    try:
        previews = read_previews(home, read_options, draft, cancel)
    except FabricError as error:
        hint = [plain(error.hint)] if error.hint else []
        return DraftPlan(page([heading("Not ready")], again, [plain(str(error), "error"), *hint]))
    natives = [_native(preview, at, len(previews)) for at, preview in enumerate(previews, 1)]
    shown = page(
        again, _jobs(previews), _search(previews[0]), _summary(previews), _remarks(previews), *natives
    )
    return DraftPlan(shown, ready=True, jobs=len(previews))


def _jobs(previews: Sequence[SubmissionPreview]) -> list[Content]:
    """Say how many jobs a sweep or a chain starts, and list the first with what they differ in."""
    if len(previews) == 1:
        return []
    from workbench.services.submit.preview import differing_params

    names = differing_params(previews)
    specs = [preview.submission.loaded.spec for preview in previews[:JOBS]]
    if names:
        shown = table(
            ("", *names),
            [
                (f"{at}", *(str(spec.params.get(name, "")) for name in names))
                for at, spec in enumerate(specs, 1)
            ],
        )
    else:  # a chain: each has its own command
        shown = table(
            ("", "job", "command"),
            [(f"{at}", one.name, one.framework.command) for at, one in enumerate(specs, 1)],
        )
    more = len(previews) - len(specs)
    rest = [plain(f"  and {formats.count(more, 'more job')}", "dim")] if more > 0 else []
    return [heading(f"Starts {formats.count(len(previews), 'job')}"), *shown, *rest]


def _search(preview: SubmissionPreview) -> list[Content]:
    """List what the first trials of a search try; how many get how far is among the facts."""
    if preview.searched is None:
        return []
    from workbench.services.submit.search_preview import sample_text, search_preview

    found = search_preview(preview.searched, samples=SAMPLES)["samples"]
    samples = [plain(f"  {formats.printable(sample_text(each['hparams']))}", "dim") for each in found]
    return [heading("First trials"), *samples] if samples else []


def _summary(previews: Sequence[SubmissionPreview]) -> list[Content]:
    """Write what is started in a few lines; of jobs that are started together, the first."""
    from workbench.services.submit.preview import differing_params

    preview, is_sweep = previews[0], bool(differing_params(previews))
    title = "Plan" if len(previews) == 1 else "Plan of each" if is_sweep else "Plan of the first"
    pairs = [(name, value) for name, value in preview.summary if not (is_sweep and name in ("job", "params"))]
    others = [
        plain(f"  not as {each.runner}: {each.reason}" + (f" ({each.hint})" if each.hint else ""), "dim")
        for each in preview.passed_over
    ]
    return [heading(title), *facts(pairs), *others]


def _remarks(previews: Sequence[SubmissionPreview]) -> list[Content]:
    """Write warnings and notes of all jobs, each once."""
    warnings = dict.fromkeys(text for preview in previews for text in preview.warnings)
    notes = dict.fromkeys(text for preview in previews for text in preview.notes)
    return [
        *(plain(f"  {text}", "warning") for text in warnings),
        *(plain(f"  {text}", "dim") for text in notes),
    ]


def _native(preview: SubmissionPreview, at: int, jobs: int) -> list[Content]:
    """Write what the runner sends of a job: a cluster's objects, or the document of the first learner."""
    plan = preview.plan
    learners = [] if plan.objects else plan.learners[:1]
    documents = [dict(one) for one in plan.objects] or [dict(one.native) for one in learners]
    lines = [
        line
        for one in documents
        for line in json.dumps(one, indent=2, ensure_ascii=False, sort_keys=True).split("\n")
    ]
    most = max(1, LINES // jobs)
    more = len(lines) - most
    return [
        heading(f"Sent to {preview.target.backend}" + (f": job {at} of {jobs}" if jobs > 1 else "")),
        *(plain(f"  {line}") for line in lines[:most]),
        *([plain(f"  and {formats.count(more, 'more line')}", "dim")] if more > 0 else []),
        *(
            [plain(f"  and {formats.count(len(plan.learners) - 1, 'more learner')} like it", "dim")]
            if learners and len(plan.learners) > 1
            else []
        ),
    ]
