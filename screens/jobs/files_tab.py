"""The tabs of a job that ask more than the store: its files, here or at its backend, and its runner's native plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from textual.content import Content

from screens.jobs.actions import JobActions
from screens.jobs.file_list import FileList
from screens.jobs.files import FoundFile, files_there, found_files, refusal, with_checkpoints
from screens.style.notices import EmptyNotice, no_files
from screens.widgets.markup import heading, page, plain
from workbench import formats
from workbench.errors import FabricError
from workbench.metrics.queries import CheckpointRow
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import detail

LINES: Final = 600
"""So many lines of a plan are shown."""


def native_plan(home: Home, job_id: str) -> Content:
    """Return the plan of a job's last attempt as it is sent to its backend; its first learner's in full.

    Raises:
        FabricError: the backend does not answer, or refuses the job now.
    """
    from workbench.services.submit.preview import plan_of

    with Store.open(home) as store:
        job = detail(store, job_id)
    made = plan_of(job, home)
    learners = made.learners[:1]
    more = len(made.learners) - len(learners)
    lines = [
        line
        for one in learners
        for line in json.dumps(dict(one.native), indent=2, sort_keys=True).split("\n")
    ]
    return page(
        [
            heading(f"Native plan: {made.runner} at {job.row.target.backend}"),
            *[plain(f"  {warning}", "warning") for warning in made.warnings],
        ],
        [plain(f"  {line}") for line in lines[:LINES]],
        [plain(f"  and {formats.count(more, 'more learner')} like it", "dim")] if more else [],
    )


class FilesTab(JobActions):
    """What a job's screen knows of files and plan."""

    def __init__(self, job: JobRow) -> None:
        super().__init__()
        self.job: JobRow | None = job
        """None when it was deleted while its screen is open."""
        self.job_id = job.id
        self.native = plain("loading the native plan", "dim")
        self._native_for = 0
        self._files: list[FoundFile] | None = None
        self._no_files: EmptyNotice | None = EmptyNotice("loading the list of files")

    def write_pages(self) -> None:
        """Write the page that is in view."""

    def read_files(self) -> None:
        """Read what is here; what is elsewhere is asked for once, and again by opening the tab again."""
        folder = self.fabric.home.job(self.job_id)
        if self.job is not None and self.job.target.type == "local":
            self.fabric.reader.watch(self, "files", found_files(folder), counters=None, every_seconds=3.0)
            return
        home, job_id = self.fabric.home, self.job_id
        self._files, self._no_files = None, EmptyNotice("loading the list of files from the backend")

        def look() -> list[FoundFile] | str:
            try:
                return files_there(home, job_id)
            except FabricError as error:
                with Store.open(home) as store:
                    return found_files(folder)(store) or refusal(error)

        self.fabric.background.run(look, self.take_files, owner=self, newest="files")

    def take_files(self, found: list[FoundFile] | str) -> None:
        """Take what was found, or why nothing was."""
        if isinstance(found, str):
            self._files, self._no_files = [], EmptyNotice("the files cannot be listed", found)
        else:
            self._files, self._no_files = found, None
        if self.whole:
            self.write_pages()

    def show_files(self, checkpoints: Sequence[CheckpointRow], now_us: int) -> None:
        """Show what was found, and the checkpoints that the job reported."""
        found = with_checkpoints(self._files or [], checkpoints)
        assert self.job is not None
        self.query_one(FileList).show(found, self._no_files or no_files(self.job), now_us)

    def ask_plan(self) -> None:
        """Have the native plan made, once an attempt."""
        if self.job is None or self._native_for == self.job.attempt:
            return

        self._native_for = self.job.attempt
        home, job_id = self.fabric.home, self.job_id

        def ask() -> Content:
            try:
                return native_plan(home, job_id)
            except FabricError as error:
                return page([heading("Native plan")], [plain(f"  not available: {error}", "warning")])

        self.fabric.background.run(ask, self._take_plan, owner=self, newest="plan")

    def _take_plan(self, shown: Content) -> None:
        self.native = shown
        if self.whole:
            self.write_pages()
