"""A job's configuration: every value with where it came from, its manifest, and its runner's native plan."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from textual.content import Content

from screens.base.job_tab import JobPage, JobTab
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.style import text
from screens.style.notices import EmptyNotice
from screens.widgets.markup import heading, page, plain, table
from screens.widgets.text_page import TextPage
from workbench import formats
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.services.inspect.settings import flatten, origin_of
from workbench.spec import spec_to_json
from workbench.store.db.database import Store
from workbench.store.jobs import detail

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


def config(shown: JobPage, native: Content) -> Content:
    """Return every value that was set with where it came from, the manifest as it was written, and the native plan."""
    if shown.detail is None:
        return plain(str(shown.overview.error), "error")
    rows = [
        (key, _shown(value), plain(origin_of(shown.detail.origins, key), "dim"))
        for key, value in flatten(spec_to_json(shown.detail.spec)).items()
        if origin_of(shown.detail.origins, key) != "default" or value not in (None, "", [], {})
    ]
    return page(
        [heading("Values and their origins"), *table(("key", "value", "from"), rows)],
        [heading("Manifest"), *[plain(f"  {line}") for line in shown.detail.manifest_text.splitlines()]],
        [native],
    )


def _shown(value: Any) -> str:  # any JSON value
    line = (str(value).lower() if isinstance(value, bool) else str(value)).replace("\n", " ")
    return text.shorten(line, 60)


class ConfigTab(TextPage, JobTab):
    """What a job was asked to be."""

    TAB: ClassVar = "config"
    PANE: ClassVar = "config"
    BINDINGS: ClassVar = actions.bindings("config")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.native = plain("loading the native plan", "dim")
        self._native_for = 0
        """The attempt whose plan was asked for."""
        self._page: JobPage | None = None

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Write the page."""
        self._page = page
        self.show(config(page, self.native))

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Show the notice instead."""
        self.job = self._page = None
        self.say(notice)

    def opened(self) -> None:
        """Have the native plan made, once an attempt."""
        if self.job is None or self._native_for == self.job.attempt:
            return

        self._native_for = self.job.attempt
        home, job_id = fabric_app(self).home, self.job.id

        def ask() -> Content:
            try:
                return native_plan(home, job_id)
            except FabricError as error:
                return page([heading("Native plan")], [plain(f"  not available: {error}", "warning")])

        fabric_app(self).background.run(ask, self._take_plan, owner=self, newest="plan")

    def _take_plan(self, shown: Content) -> None:
        self.native = shown
        if self._page is not None:
            self.show(config(self._page, shown))
