"""What a draft would start: prepared and planned as the command does it, and written as a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from textual.content import Content

from screens.launch.draft import Draft, check
from screens.widgets.markup import facts, heading, page, plain
from workbench import formats
from workbench.errors import FabricError
from workbench.paths import Home

if TYPE_CHECKING:
    from workbench.services.submit.options import RunOptions
    from workbench.services.submit.preview import SubmissionPreview

LINES: Final = 600
"""So many lines of what is native to the runner are shown."""

RunOptionsReader = Callable[[Sequence[str]], tuple["RunOptions", str]]
"""Reads the arguments of ``fabric run`` as the command does; returns the options and the profile."""


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

    options, profile_name = read_options(draft.arguments()[1:])
    with profile(profile_name):
        return preview_batch(read_batch(options), home, cancel=cancel)


def _preview_again(home: Home, job_id: str, cancel: threading.Event) -> SubmissionPreview:
    from workbench.services.submit.preview import preview
    from workbench.services.submit.rerun import prepare_rerun
    from workbench.store.db.database import Store
    from workbench.store.jobs import detail

    with Store.open(home) as store:
        submission = prepare_rerun(store, detail(store, job_id), name="", argv=())
    return preview(submission, home, cancel=cancel)


def preview_page(
    home: Home, read_options: RunOptionsReader, draft: Draft, cancel: threading.Event
) -> Content:
    """Return the page of a draft: what is wrong with it, else what it would start."""
    if not draft.is_exactly_again and (faults := check(draft).faults):
        lines = [plain(f"{key}: {fault}" if key else fault, "error") for key, fault in faults.items()]
        return page([heading("Not ready")], lines)
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
        return page(again, [plain(str(error), "error"), *hint])
    titles = [[heading(f"Job {number} of {len(previews)}")] for number in range(1, len(previews) + 1)]
    parts = [
        part
        for title, preview in zip(titles, previews, strict=True)
        for part in (*([title] if len(previews) > 1 else []), *_parts(preview))
    ]
    return page(again, *parts)


def _parts(preview: SubmissionPreview) -> list[list[Content]]:
    others = [
        plain(f"  not as {each.runner}: {each.reason}" + (f" ({each.hint})" if each.hint else ""), "dim")
        for each in preview.passed_over
    ]
    remarks = [
        *(plain(f"  {text}", "warning") for text in preview.warnings),
        *(plain(f"  {text}", "dim") for text in preview.notes),
    ]
    return [[*facts(preview.facts), *others], remarks, _native(preview)]


def _native(preview: SubmissionPreview) -> list[Content]:
    """Write what the runner sends: a cluster's objects, or the document of the first learner."""
    plan = preview.plan
    learners = [] if plan.objects else plan.learners[:1]
    documents = [dict(one) for one in plan.objects] or [dict(one.native) for one in learners]
    lines = [
        line
        for one in documents
        for line in json.dumps(one, indent=2, ensure_ascii=False, sort_keys=True).split("\n")
    ]
    more = len(lines) - LINES
    return [
        heading(f"Sent to {preview.target.backend}"),
        *(plain(f"  {line}") for line in lines[:LINES]),
        *([plain(f"  and {formats.count(more, 'more line')}", "dim")] if more > 0 else []),
        *(
            [plain(f"  and {formats.count(len(plan.learners) - 1, 'more learner')} like it", "dim")]
            if learners and len(plan.learners) > 1
            else []
        ),
    ]
