"""All keys of a log: those that move, those that search, and what is done with the line under the cursor."""

from __future__ import annotations

import re

from screens.base import fabric_app
from screens.logs.detail import detail
from screens.widgets.log_search import LogSearch


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

    def action_log_copy(self) -> None:
        """Copy the line under the cursor."""
        view, document = self._view, self._view.document
        if document is not None and document.count:
            row = min(view.state.cursor, document.count - 1)
            fabric_app(self).aside(lambda: detail(document, row), lambda shown: self._copied(shown[1].plain))

    def _copied(self, shown: str) -> None:
        self.app.copy_to_clipboard(shown)
        fabric_app(self).tell("copied the line")
