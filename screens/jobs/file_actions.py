"""What is done with a job apart from steering it: a shell, its files here and there, its manifest, its note."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from screens.style.status import is_open
from screens.workers.background import TaskReport
from screens.workers.command_runner import command_argv
from screens.workers.transfer_report import transfer_report
from workbench import formats
from workbench.errors import UsageError
from workbench.job import short_id
from workbench.services.control.annotate import Annotations, annotate
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import detail

# What reads files, manifests and what is typed is imported when it is asked for: the table is to be there at once.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import App

    from screens.base.dialogs import Choice
    from screens.core.app_protocol import AppProtocol
    from screens.jobs.files import FoundFile

KINDS: Final = (("r", "results"), ("c", "checkpoints"), ("l", "logs"), ("k", "code"))


@runtime_checkable
class ShowsFiles(Protocol):
    """A widget on which files are chosen."""

    @property
    def file(self) -> FoundFile | None:
        """The file under the cursor."""


class ActsOnJobs(Protocol):
    """A screen, as what is done with its jobs sees it."""

    @property
    def app(self) -> App[object]:
        """The app, as Textual has it."""

    @property
    def fabric(self) -> AppProtocol:
        """The app, as all screens see it."""

    def in_view(self) -> JobRow | None:
        """Return the job that an action concerns which is done with one alone, whichever are marked."""

    def chosen_file(self) -> FoundFile | None:
        """Return the file under the cursor, on a screen that shows files."""

    def manifest_text(self) -> str:
        """Return the manifest of the job in view where it is at hand."""

    def refused(self) -> bool:
        """Say that nothing is changed here, where that is so."""

    def choose(self, title: str, choices: Sequence[Choice], then: Callable[[Choice], Any]) -> None:
        """Offer a few things, and do one."""


class FileActions:
    """What is done with one job of a screen: the one in view."""

    def __init__(self, screen: ActsOnJobs) -> None:
        self.screen = screen

    @property
    def fabric(self) -> AppProtocol:
        """The app."""
        return self.screen.fabric

    def chosen_file(self) -> FoundFile | None:
        """Return the file under the cursor."""
        return self.screen.chosen_file()

    def _target(self) -> JobRow | None:
        job = self.screen.in_view()
        if job is None:
            self.fabric.show_message("no job is under the cursor", "warning")
        return job

    # A shell

    def action_job_shell(self) -> None:
        """Open a shell in a learner's environment; of several learners it is asked which."""
        job = None if self.screen.refused() else self._target()
        if job is None:
            return
        from workbench.services.backends.installed import has_shell

        if not is_open(job):
            self.fabric.show_message(f"{formats.printable(job.name)} is not running", "warning")
        elif not has_shell(job.target.runner):
            self.fabric.show_message(f"the runner {job.target.runner} does not support shells", "warning")
        elif job.learners > 1:
            self.fabric.ask_line("shell in learner", "1", (), partial(self._shell, job))
        else:
            self._shell(job, "1")

    def _shell(self, job: JobRow, learner: str) -> None:
        from screens.base.editor import lend_terminal

        environ = {**os.environ, "FABRIC_HOME": str(self.fabric.home.path)}
        arguments = command_argv(["shell", job.id, "--learner", learner or "1"])
        lend_terminal(self.fabric, arguments, environ=environ, wait_on_failure=True)

    # Files

    def action_job_download(self) -> None:
        """Offer what can be copied here."""
        from screens.base.dialogs import Choice

        job = self._target()
        if job is None:
            return
        file = self.chosen_file()
        this = [Choice("f", "this file", file.path)] if file is not None else []
        choices = [*this, *(Choice(key, kind, f"all {kind} of the job") for key, kind in KINDS)]
        self.screen.choose("Download", choices, partial(self._ask_where, job))

    def _ask_where(self, job: JobRow, choice: Choice) -> None:
        if choice.title == "this file":
            proposed = str(Path.cwd() / Path(choice.value).name)
            self.fabric.ask_line("to the file", proposed, (), partial(self._copy_file, job, choice.value))
        else:
            proposed = str(Path.cwd() / f"{_plain_name(job)}-{short_id(job.id)}")
            self.fabric.ask_line("to the folder", proposed, (), partial(self._download, job, choice.title))

    def _copy_file(self, job: JobRow, path: str, target: str) -> None:
        def copy(report: TaskReport) -> None:
            from workbench.services.transfer.job_copy import WhichLearner, copy_here

            to = str(Path(target).expanduser())
            copy_here(WhichLearner(job.id), path, to, report=transfer_report(report), cancel=report.cancel)

        if target:
            self._do(f"copy {Path(path).name}", copy, f"copied to {target}")

    def _download(self, job: JobRow, kind: str, folder: str) -> None:
        def download(report: TaskReport) -> None:
            from workbench.services.transfer.download import DownloadOptions, download_job

            to, options = str(Path(folder).expanduser()), DownloadOptions(cancel=report.cancel)
            download_job(job.id, [kind], to, options, transfer_report(report))

        if folder:
            title = f"download {kind} of {formats.printable(job.name)}"
            self._do(title, download, f"downloaded {kind} to {folder}")

    def _do(self, title: str, work: Callable[[TaskReport], None], message: str) -> None:
        """Do something that is finished when the screens are left meanwhile, and then say so."""
        self.fabric.background.begin(title, work, lambda _: self.fabric.show_message(message), is_kept=True)

    def action_files_upload(self) -> None:
        """Ask for a file to be copied to where the job finds it."""
        job = None if self.screen.refused() else self._target()
        if job is not None:
            self.fabric.ask_line(
                "upload (FILE, then code/, data/ or results/)", "", (), partial(self._copy_in, job)
            )

    def _copy_in(self, job: JobRow, line: str) -> None:
        from screens.launch.draft import split_arguments

        try:
            arguments = split_arguments(line)
        except UsageError as error:
            self.fabric.show_message(str(error), "warning")
            return
        if not arguments:
            return
        source = Path(arguments[0]).expanduser()
        target = arguments[1] if len(arguments) > 1 else "code/"

        def copy(report: TaskReport) -> None:
            from workbench.services.transfer.job_copy import WhichLearner, copy_there

            copy_there(WhichLearner(job.id), source, target, cancel=report.cancel)

        self._do(f"upload {source.name}", copy, f"copied to {target}")

    def action_files_open(self) -> None:
        """Read the file under the cursor."""
        from screens.jobs.files import read_file

        job, file = self._target(), self.chosen_file()
        if job is not None and file is not None:
            home = self.fabric.home
            self.fabric.background.run(partial(read_file, home, job, file.path), self.fabric.show_text)

    # Its folder, its addresses, its manifest, its note

    def action_job_open(self) -> None:
        """Offer to open the job's folder, or an address that it serves at."""
        if (job := self._target()) is not None:
            home = self.fabric.home

            def look() -> list[int]:
                with Store.open(home) as store:
                    return list(detail(store, job.id).spec.ports)

            self.fabric.background.run(look, partial(self._offer_open, job))

    def _offer_open(self, job: JobRow, ports: list[int]) -> None:
        from screens.base.dialogs import Choice

        folder = Choice("o", "folder", str(self.fabric.home.job(job.id).path))
        served = [
            Choice(str(i), "address", f"http://127.0.0.1:{port}/") for i, port in enumerate(ports[:9], 1)
        ]
        self.screen.choose("Open", [folder, *served], self._open)

    def _open(self, choice: Choice) -> None:
        if choice.title == "address":
            self.screen.app.open_url(choice.value)
        elif (opener := _opener()) is not None:
            subprocess.Popen([opener, choice.value], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            self.screen.app.copy_to_clipboard(choice.value)
            self.fabric.show_message(f"copied {choice.value}: this machine has no program to open it")

    def action_job_editor(self) -> None:
        """Read the manifest in an editor."""
        from screens.base.editor import read_in_editor

        if shown := self.screen.manifest_text():
            read_in_editor(self.fabric, shown)
        elif (job := self._target()) is not None:
            home = self.fabric.home

            def look() -> str:
                with Store.open(home) as store:
                    return detail(store, job.id).manifest_text

            self.fabric.background.run(look, partial(read_in_editor, self.fabric))

    def action_job_note(self) -> None:
        """Ask for a note, and keep it with the job."""
        job = None if self.screen.refused() else self._target()
        if job is not None:
            self.fabric.ask_line(
                f"note of {formats.printable(job.name)}", job.note, (), partial(self._note, job)
            )

    def _note(self, job: JobRow, line: str) -> None:
        def work(store: Store) -> str:
            annotate(store, job, Annotations(note=line), origin="tui")
            return f"{formats.printable(job.name)}: {formats.printable(line) or 'no note'}"

        self.fabric.write("note", work)


def _opener() -> str | None:
    """Return the program that opens a folder in a window, where there is a desktop."""
    if sys.platform == "darwin":
        return "open"
    return (
        shutil.which("xdg-open") if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else None
    )


def _plain_name(job: JobRow) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in job.name)[:40]
