"""All keys of a log: those that move, those that search, and what is done with the line under the cursor."""

from __future__ import annotations

import re
from typing import Final

from screens.core.app_protocol import fabric_app
from screens.logs.detail import detail, texts
from screens.logs.search import LogSearch

COPIED_MOST: Final = 2000
"""So many lines are copied at most: terminals take no more than some 70 kB of text."""


class LogKeys(LogSearch):
    """The keys of a log viewer."""

    def action_log_save(self) -> None:
        """Ask where to save."""
        job = self._view.state.job
        name = re.sub(r"[^\w.-]+", "-", job.name) if job else "job"
        self.post_message(self.PromptWanted("save to", f"{name}.log"))

    # The line under the cursor, and all of them

    def action_log_detail(self) -> None:
        """Show the whole line, or the whole traceback that it belongs to."""
        view, document = self._view, self._view.document
        if document is not None and document.count:
            row = min(view.state.cursor, document.count - 1)
            fabric_app(self).aside(lambda: detail(document, row), fabric_app(self).show_text)

    def action_log_select(self) -> None:
        """Begin a selection at the cursor, or give it up."""
        state = self._view.state
        self.stop_following()
        state.selected_from = state.cursor if state.selected_from is None else None
        self._view.redraw()

    def action_log_copy(self) -> None:
        """Copy the lines that are selected, else the one under the cursor."""
        state, document = self._view.state, self._view.document
        if document is None or not document.count:
            return
        rows = state.selection or range(min(state.cursor, document.count - 1), document.count)[:1]
        if state.selected_from is None:
            row = rows[0]
            fabric_app(self).aside(lambda: [detail(document, row)[1].plain], self._copied)
        else:
            chosen = rows[:COPIED_MOST]
            state.selected_from = None
            fabric_app(self).aside(lambda: texts(document, chosen), self._copied)
        self._view.redraw()

    def _copied(self, lines: list[str]) -> None:
        self.app.copy_to_clipboard("\n".join(lines))
        what = "the line" if len(lines) == 1 else f"{len(lines):,} lines"
        fabric_app(self).tell(f"copied {what}")
