"""A job's files and checkpoints, one of them under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip

from screens.core import actions
from screens.core.app_protocol import JumpTarget
from screens.jobs.files import FoundFile
from screens.style import text
from screens.style.notices import EmptyNotice
from screens.style.themes import overlay, paint_of
from screens.widgets.cursor_list import CursorList
from workbench import formats


class FileList(CursorList):
    """Lines of files under headings; the cursor goes from file to file."""

    PANE: ClassVar = "files"
    BINDINGS: ClassVar = actions.bindings("files")

    HEAD_LINES: ClassVar = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.files: Sequence[FoundFile] = ()
        self.notice = EmptyNotice("loading the list of files")
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

    def show(self, files: Sequence[FoundFile], notice: EmptyNotice, now_us: int) -> None:
        """Take other files; the cursor stays on its own."""
        before = self.file
        self.offer_keys(has_content=bool(files))
        self.files, self.notice, self._now_us = files, notice, now_us
        if before is not None:
            self._at = next((i for i, one in enumerate(files) if one.path == before.path), self._at)
        self._at = max(0, min(self._at, len(files) - 1))
        self.virtual_size = Size(self.room, len(files) + 1)
        self.refresh()

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
