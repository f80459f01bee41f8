"""A job's files and checkpoints, read here or asked for at its backend; one of them is under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from textual import on
from textual.geometry import Size
from textual.strip import Strip

from screens.base.job_tab import JobPage, JobTab
from screens.core import actions
from screens.core.app_protocol import JumpTarget, fabric_app
from screens.jobs.files import FoundFile, files_there, found_files, refusal, with_checkpoints
from screens.style import text
from screens.style.notices import EmptyNotice, no_files
from screens.style.themes import overlay, paint_of
from screens.widgets.cursor_list import CursorList
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.errors import FabricError
from workbench.metrics.queries import CheckpointRow
from workbench.store.db.database import Store


class FilesTab(CursorList, JobTab):
    """Lines of files under headings; the cursor goes from file to file."""

    TAB: ClassVar = "files"
    PANE: ClassVar = "files"
    BINDINGS: ClassVar = actions.bindings("files")

    HEAD_LINES: ClassVar = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.files: Sequence[FoundFile] = ()
        self.notice = EmptyNotice("loading the list of files")
        self._found: list[FoundFile] = []
        self._checkpoints: Sequence[CheckpointRow] = ()
        self._unread: EmptyNotice | None = self.notice
        """Why no files were found yet; None once they were looked for."""
        self._now_us = 0

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self.files)

    @property
    def file(self) -> FoundFile | None:
        """The one under the cursor."""
        return self.files[self._at] if self._at < len(self.files) else None

    @property
    def plain(self) -> str:
        """What is shown, as text."""
        return "\n".join(self._line(one)[0] for one in self.files) or str(self.notice)

    def can_do(self, action_id: str) -> bool | None:
        """Offer to read the file under the cursor, and to copy one into the job while there is one."""
        match action_id:
            case "files.open":
                return self.file is not None
            case "files.upload":
                return self.job is not None
            case _:
                return None

    # Reading

    def opened(self) -> None:
        """Read what is here; what is elsewhere is asked for once, and again by opening the tab again."""
        job, home = self.job, fabric_app(self).home
        if job is None:
            return
        folder = home.job(job.id)
        if job.target.type == "local":
            fabric_app(self).reader.watch(
                self, "files", found_files(folder), counters=None, every_seconds=3.0
            )
            return
        self._found, self._unread = [], EmptyNotice("loading the list of files from the backend")

        def look() -> list[FoundFile] | str:
            try:
                return files_there(job.id)
            except FabricError as error:
                with Store.open(home) as store:
                    return found_files(folder)(store) or refusal(error)

        fabric_app(self).background.run(look, self._take, owner=self, newest="files")

    def rest(self) -> None:
        """Read no more."""
        fabric_app(self).reader.forget(self)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        self._take(answer.value)

    def _take(self, found: list[FoundFile] | str) -> None:
        """Take what was found, or why nothing was."""
        if isinstance(found, str):
            self._found, self._unread = [], EmptyNotice("the files cannot be listed", found)
        else:
            self._found, self._unread = found, None
        self._show()

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Show the checkpoints that the job has reported by now with what was found."""
        self._checkpoints, self._now_us = page.overview.checkpoints, now_us
        self._show()

    def _show(self) -> None:
        if self.job is not None:
            files = with_checkpoints(self._found, self._checkpoints)
            self.show(files, self._unread or no_files(self.job))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show no files any more."""
        self.job = None
        self.show((), notice)

    def show(self, files: Sequence[FoundFile], notice: EmptyNotice) -> None:
        """Take other files; the cursor stays on its own."""
        before = self.file
        self.offer_keys(has_content=bool(files))
        self.files, self.notice = files, notice
        if before is not None:
            self._at = next((i for i, one in enumerate(files) if one.path == before.path), self._at)
        self._at = max(0, min(self._at, len(files) - 1))
        self.virtual_size = Size(self.room, len(files) + 1)
        self.refresh()

    @on(CursorList.Chosen)
    async def _read_chosen(self) -> None:
        await fabric_app(self).action_perform("files.open")

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name the files in view."""
        top = self.scroll_offset.y
        for at in range(top, min(len(self.files), top + self.size.height - 1)):
            yield JumpTarget(self.region.x + 1, self.region.y + 1 + at - top, partial(self._move, at))

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw the heading, a file, or why there are none."""
        width, base, paint = self.room, self.base, paint_of(self)
        if not self.files:
            return self.notice_strip(self.notice, y, (width, self.size.height))
        if y == 0:
            head = f" {'size':>10}  {'changed':<16}  {'step':>8}  path"
            return Strip([Segment(head, base + paint.style("dim"))]).adjust_cell_length(width, base)
        at = self.scroll_offset.y + y - 1
        if at >= len(self.files):
            return Strip.blank(width, base)
        shown, role = self._line(self.files[at])
        strip = Strip([Segment(text.shorten(shown, width), base + paint.style(role))]).adjust_cell_length(
            width, base
        )
        return overlay(strip, paint.cursor(focused=self.has_focus)) if at == self._at else strip

    def _line(self, one: FoundFile) -> tuple[str, str]:
        size = "" if one.size is None else formats.size(one.size)
        step = "" if one.step is None else f"{one.step:,}"
        changed = formats.clock_time(one.changed_us, now_us=self._now_us)
        facts = f"  {one.facts}" if one.facts else ""
        line = (
            f" {size:>10}  {changed:<16}  {step:>8}  {formats.printable(one.path)}{formats.printable(facts)}"
        )
        return line, "key" if one.is_checkpoint else "text"
