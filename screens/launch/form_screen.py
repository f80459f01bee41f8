"""A new job: a form of the manifest's keys, checked while one types, next to what it would start and the command."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Protocol, cast

from textual import on
from textual.containers import Container
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from screens.base.base import BaseScreen
from screens.core import actions
from screens.core.app_protocol import AppProtocol
from screens.launch.draft import COMMAND, CheckedDraft, Draft, Field, check, draft_to_json, fields_of
from screens.launch.draft_sources import Offer, draft_of_file, draft_of_job, draft_to_edit, offers
from screens.launch.draft_start import start_draft
from screens.launch.field_list import FieldList
from screens.launch.preview_page import DraftPlan, RunOptionsReader, faults_page, preview_page
from screens.widgets.markup import plain
from screens.widgets.prompt import Prompt
from screens.widgets.text_page import PlanPage
from workbench import formats
from workbench.config import load_config
from workbench.errors import FabricError

DRAFT_MEMORY: Final = "draft"
"""The name by which a form that has changes is remembered."""
FIND: Final = "find a key"
"""What is typed to search the form."""
PAUSE_SECONDS: Final = 0.4
"""The plan is asked for when nothing was changed for so long."""


class FormApp(AppProtocol, Protocol):
    """The app, as the form sees it."""

    read_run_options: RunOptionsReader


def open_form(app: AppProtocol, draft: Draft) -> None:
    """Open the form with a draft; a form that is open takes the draft."""
    if app.readonly:
        app.show_message("read-only: the screens were started with --readonly", "warning")
    elif isinstance(app.screen, LaunchScreen):
        app.screen.set_draft(draft)
    else:
        app.push_screen(LaunchScreen(draft))


class LaunchScreen(BaseScreen):
    """The form; what is typed into it is a draft, which stays until it is started."""

    BINDINGS: ClassVar = actions.early_bindings("launch")

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self.draft = draft
        self.checked = CheckedDraft({}, {})
        self._typed: tuple[str, str] | None = None
        """Key and value that are being typed: tried, but not taken yet."""
        self._waiting: Timer | None = None
        self._cancel = threading.Event()
        """Ends the preview that is being made."""
        self._backends: Mapping[str, Mapping[str, Any]] = {}
        self._plan: DraftPlan | None = None
        """What the draft as it stands comes to; None while that is being found out."""

    def body(self) -> Iterator[Widget]:
        """Make form and plan."""
        with Container(id="launch-body"):
            yield FieldList(id="form")
            yield PlanPage(id="plan")
        yield Static("", id="launch-hint", markup=False)
        yield Static("", id="launch-command", markup=False)
        yield Prompt(id="launch-prompt")

    def on_mount(self) -> None:
        """Show the draft, and have it checked."""
        self.form.focus()
        self.fabric.background.run(lambda: load_config().backends, self._take_backends, owner=self)
        self._show()
        if not self.draft.manifest:
            self.form.go_to(COMMAND)
        self._check()

    @property
    def form(self) -> FieldList:
        """The form."""
        return self.query_one(FieldList)

    def _take_backends(self, backends: Mapping[str, Mapping[str, Any]]) -> None:
        self._backends = backends
        self._say_hint()

    @property
    def _form_app(self) -> FormApp:
        return cast("FormApp", self.fabric)

    # Checking

    def set_draft(self, draft: Draft) -> None:
        """Show another draft."""
        self.draft, self._typed = draft, None
        self._remember()
        self._check()

    def _remember(self) -> None:
        """Have the draft survive the screens, whatever ends them, with the line that is being typed."""
        draft = self._tried()
        self.fabric.memory.put(DRAFT_MEMORY, draft_to_json(draft) if draft.changes else {})

    def _tried(self) -> Draft:
        return self.draft.changed(*self._typed) if self._typed else self.draft

    def _check(self) -> None:
        """Have the draft checked at once and planned soon; an answer to what is no longer there is dropped."""
        draft, background = self._tried(), self.fabric.background
        self._plan = None
        self._cancel_preview()
        background.run(lambda: check(draft), self._take_checked, owner=self, newest="check")
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = self.set_timer(PAUSE_SECONDS, partial(self._make_plan, draft))

    def _take_checked(self, checked: CheckedDraft) -> None:
        self.checked = checked
        if checked.faults:
            self._plan = faults_page(checked.faults)
        self._show()

    def _make_plan(self, draft: Draft) -> None:
        self._cancel_preview()
        make = partial(preview_page, self.fabric.home, self._form_app.read_run_options, draft, self._cancel)
        self.fabric.background.run(make, self._take_plan, owner=self, newest="plan")

    def _cancel_preview(self) -> None:
        """End the preview that is being made: nobody waits for it any longer."""
        self._cancel.set()
        self._cancel = threading.Event()
        self.fabric.background.cancel(self, "plan")

    def on_unmount(self) -> None:
        """End the preview with the form."""
        self._cancel.set()

    def _take_plan(self, plan: DraftPlan) -> None:
        self._plan = plan
        self._show()

    # Showing

    def _show(self) -> None:
        if not self.whole:
            return
        draft, checked = self._tried(), self.checked
        self.form.show(fields_of(draft, checked.values), checked.values, draft.changes, checked.faults)
        self.query_one(PlanPage).show(self._plan.shown if self._plan else plain("checking", "dim"))
        self._say_hint()
        try:
            line = plain(f"$ {draft.line()}", "key")
        except FabricError as error:
            line = plain(str(error), "error")
        self.query_one("#launch-command", Static).update(line)
        self.refresh_head()

    @on(FieldList.Moved)
    def _say_hint(self) -> None:
        """Say what the line under the cursor means, or what is wrong with it."""
        if not self.whole:
            return
        self.refresh_keys()
        one, group = self.form.field, self.form.group
        if group is not None:
            keys = ", ".join(field.key for field in self.form.fields if field.key in group.keys)
            self.query_one("#launch-hint", Static).update(plain(f"{group.meaning} {keys}", "dim"))
            return
        if one is None:
            self.query_one("#launch-hint", Static).update("")
            return
        whole = self.checked.faults.get("")
        if fault := self.checked.faults.get(one.key) or whole:
            hint = plain(fault, "error")
        else:
            example = f" For example {one.example}." if one.example else ""
            among = f" One of {', '.join(self._known(one))}." if self._known(one) else ""
            hint = plain(f"{one.meaning}{among}{self._of_backend(one)}{example}", "dim")
        self.query_one("#launch-hint", Static).update(hint)

    def can_do(self, action_id: str) -> bool:
        """Offer to start what is ready, to undo what was changed, to fold what is in a group."""
        form = self.form
        match action_id:
            case "form.start":
                return self._plan is not None and self._plan.ready
            case "form.reset":
                return form.field is not None and form.field.key in self.draft.changes
            case "form.fold":
                return not form.view.search and form.is_in_group
            case _:
                return True

    def _of_backend(self, one: Field) -> str:
        """Say what the configuration has of the backend that is chosen: its type, address and options."""
        name = self._tried().changes.get("backend") or self.checked.values.get("backend", "local")
        settings = self._backends.get(name)
        if one.key != "backend" or settings is None:
            return ""
        options = [f"{key} {value}" for key, value in dict(settings.get("options") or {}).items()]
        facts = [str(settings["type"]), str(settings.get("address") or ""), *options]
        return f" {name}: {', '.join(filter(None, facts))}."

    def _known(self, one: Field) -> tuple[str, ...]:
        if one.key == "backend":
            return tuple(self._backends)
        if one.key == "runner":
            from workbench.services.backends.installed import runner_names

            return tuple(runner_names())
        return one.choices

    def refresh_head(self) -> None:
        """Say what it is from, and whether it can be started, by the verdict that the plan has."""
        plan, faults = self._plan, len(self.checked.faults)
        if plan is None:
            verdict = ("checking", "dim")
        elif plan.ready:
            verdict = ("ready to start" + (f" {plan.jobs:,} jobs" if plan.jobs > 1 else ""), "completed")
        else:
            verdict = (formats.count(faults, "fault") if faults else "not ready", "error")
        view = self.form.view
        found = f"{self.form.found} of {len(self.form.fields)} keys: {formats.printable(view.search)}"
        search = ((found, "accent"),) if view.search else ()
        self.head(("new job", f"from {formats.printable(self.draft.origin)}"), (*search, verdict))

    # Filling in

    @on(FieldList.Chosen)
    def action_form_edit(self) -> None:
        """Type another value; on the title of a group, open or fold it."""
        one = self.form.field
        if self.form.group is not None:
            self.form.toggle_group()
        elif one is not None:
            value = self.draft.changes.get(one.key, self.checked.values.get(one.key, ""))
            history = self.fabric.memory.texts(f"form {one.key}")
            self.query_one(Prompt).ask(one.key, value, [*self._known(one), *history])

    def action_form_reset(self) -> None:
        """Take a change back."""
        one = self.form.field
        if one is not None and one.key in self.draft.changes:
            self.set_draft(self.draft.changed(one.key, None))

    def action_form_fold(self) -> None:
        """Open or fold the group that the cursor is in."""
        self.form.toggle_group()

    def action_form_fold_all(self) -> None:
        """Open all groups, or fold all."""
        self.form.toggle_all()

    def action_form_find(self) -> None:
        """Type what a key is called or about."""
        self.query_one(Prompt).ask(FIND, self.form.view.search)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        if typed.purpose == FIND:
            self._search(typed.value)
            return
        self._typed = typed.purpose, typed.value
        self._remember()
        self._check()

    def _search(self, words: str) -> None:
        self.form.search(words)
        self.refresh_head()

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        key, value = entered.purpose, entered.value.strip()
        if key == FIND:
            self.query_one(Prompt).close()
            self._search(value)
            self.form.focus()
            return
        same = value == self.checked.values.get(key, "")
        if value:
            self.fabric.memory.add_to_history(f"form {key}", value)
        self.query_one(Prompt).close()
        self.set_draft(self.draft.changed(key, None if same else value))
        self.form.focus()

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        if left.purpose == FIND:
            self._search(left.before)
        else:
            self.set_draft(self.draft)
        self.form.focus()

    # Where it is from

    def action_form_source(self) -> None:
        """Offer what a job can be made from."""
        home = self.fabric.home
        self.fabric.background.run(lambda: offers(home), self._choose, owner=self)

    def _choose(self, offered: list[Offer]) -> None:
        from screens.base.dialogs import Pick

        def picked(index: int | None) -> None:
            if index is not None:
                self.begin(offered[index])

        lines = [f"{kind:<8} {'  '.join(filter(None, (name, about)))}" for kind, name, about in offered]
        self.app.push_screen(Pick("Start from", lines), picked)

    def begin(self, offer: Offer) -> None:
        """Begin again from an offer."""
        kind, name, _ = offer
        home = self.fabric.home
        if kind == "command":
            self.set_draft(Draft())
        elif kind == "job":
            self.fabric.background.run(
                lambda: draft_of_job(home, name), self.set_draft, owner=self, newest="source"
            )
        else:
            self.fabric.background.run(
                lambda: draft_of_file(name), self.set_draft, owner=self, newest="source"
            )

    def action_form_editor(self) -> None:
        """Edit the manifest itself; what is saved is a copy."""
        from screens.base.editor import edit

        home, draft = self.fabric.home, self.draft

        def open_editor(copy: Draft) -> None:
            edit(self.fabric, home.drafts / "edited.yml", partial(read_again, copy))

        def read_again(copy: Draft) -> None:
            self.fabric.background.run(lambda: draft_of_file(copy.manifest), partial(take, copy))

        def take(copy: Draft, read: Draft) -> None:
            origin = f"{draft.origin}, edited".replace(", edited, edited", ", edited")
            self.set_draft(Draft(copy.manifest, read.text, copy.code, "", origin, copy.changes))

        self.fabric.background.run(lambda: draft_to_edit(home, draft), open_editor)

    # Starting

    def action_form_start(self) -> None:
        """Start it."""
        if self.fabric.readonly:
            self.fabric.show_message("read-only: the screens were started with --readonly", "warning")
            return
        if self.checked.faults:
            key, fault = next(iter(self.checked.faults.items()))
            self.form.go_to(key)
            self.fabric.show_message(f"{key}: {fault}" if key else fault, "warning")
            return
        work = partial(start_draft, self.draft, self._form_app.read_run_options)
        self.fabric.background.begin("start a job", work, self._started, is_kept=True)

    def _started(self, ids: list[str]) -> None:
        self.fabric.memory.put(DRAFT_MEMORY, {})
        self.fabric.show_message(f"started {ids[0] if len(ids) == 1 else formats.count(len(ids), 'job')}")
        if self.app.screen is self:
            self.app.pop_screen()

    def back(self) -> bool:
        """End a search; else leave: what was changed is there when the form is opened again."""
        if not self.form.view.search:
            return False
        self._search("")
        return True
