"""A tab of a job's screen: what the screen asks of the widget, and what it has read of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget

from workbench.values import dataclass

if TYPE_CHECKING:
    from screens.style.notices import EmptyNotice
    from workbench.services.inspect.job_overview import JobOverview
    from workbench.store.db.rows import JobDetail, JobRow, RequestRow, TransitionRow


@dataclass(frozen=True, slots=True)
class JobPage:
    """All that one job's screen shows as text."""

    overview: JobOverview
    transitions: tuple[TransitionRow, ...]
    requests: tuple[RequestRow, ...]

    @property
    def row(self) -> JobRow:
        """The job."""
        return self.overview.row

    @property
    def detail(self) -> JobDetail | None:
        """What ``job.json`` holds; None where it is damaged."""
        return self.overview.detail


class JobTab(Widget):
    """A tab: its ``PANE`` and ``BINDINGS`` are its keys; it reads by itself what the screen has not read.

    Named behind the widget whose looks the tab has. What is typed for it at the foot of the screen it asks for itself
    (``Prompt.ask``).
    """

    TAB: ClassVar[str]
    """Its name in the bar of tabs, by which commands and keys open it, and the widget's id."""
    BESIDE: ClassVar[str] = ""
    """The tab that is shown next to it where there is room."""

    job: JobRow | None = None
    """The job as it was read last; None once it was deleted."""

    def take_job(self, job: JobRow) -> None:
        """Take the job: when the screen opens, and after each change, whether or not the tab is in view."""
        self.job = job

    def opened(self) -> None:
        """Begin to read: the tab came into view."""

    def show_job(self, page: JobPage, now_us: int) -> None:
        """Show what was read of the job, while the tab is in view: after each change, and each second."""

    def rest(self) -> None:
        """Read no more: the tab is out of view."""

    def job_deleted(self, notice: EmptyNotice) -> None:
        """Say that the job was deleted."""

    def can_do(self, action_id: str) -> bool | None:
        """Say whether an action would do anything now; None for one that is not the tab's."""
        del action_id
        return None

    def back(self) -> bool:
        """Undo the innermost thing that narrows the view; return whether there was one."""
        return False

    def on_unmount(self) -> None:
        """Read no more."""
        self.rest()
