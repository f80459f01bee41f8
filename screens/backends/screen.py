"""Every configured backend: whether it answers, what it has, who uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from textual.widget import Widget

from screens.backends.page import BackendState, backends_page
from screens.backends.watch import BackendAnswer, BackendAsked, watch_backends
from screens.base.base import BaseScreen
from screens.core import actions
from screens.style.notices import EmptyNotice
from screens.widgets.markup import plain
from screens.widgets.text_page import BackendsPage
from screens.workers.background import TaskReport
from workbench import formats
from workbench.config import Config, load_config
from workbench.services.backends.placement import backend_options, entry_options


class BackendsScreen(BaseScreen):
    """The backends, asked again and again while the screen is open."""

    BINDINGS: ClassVar = actions.early_bindings("places")

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, BackendState] = {}
        self._backends: Mapping[str, Mapping[str, Any]] = {}

    def body(self) -> Iterator[Widget]:
        """Make the page."""
        yield BackendsPage(id="places")

    def on_mount(self) -> None:
        """Read the configuration, then ask."""
        self.query_one(BackendsPage).focus()
        self.query_one(BackendsPage).say(EmptyNotice("connecting to the backends"))
        self.fabric.background.run(load_config, self._start, owner=self)
        self.refresh_head()

    def _start(self, config: Config) -> None:
        if not self.whole:
            return
        self._backends = backends = dict(config.backends)
        self._states = {
            name: BackendState(name, str(settings["type"])) for name, settings in backends.items()
        }
        watch_backends(self, backends)
        self._write()

    def on_backend_asked(self, asked: BackendAsked) -> None:
        """Note since when a backend is waited for."""
        if asked.name in self._states:
            self._states[asked.name].asked_us = asked.time_us

    def on_backend_answer(self, answer: BackendAnswer) -> None:
        """Take an answer."""
        state = self._states.get(answer.status.name)
        if state is not None and not self.fabric.reader.paused:
            state.take(answer.status)
            self._write()
            if answer.status.needs_login:
                self.fabric.logins.offer(entry_options(self._backends[answer.status.name]))

    def tick(self, now_us: int) -> None:
        """Show what is stale as stale."""
        del now_us
        self._write()

    def _write(self) -> None:
        if self.whole and self._states:
            page = self.query_one(BackendsPage)
            width = page.scrollable_content_region.width
            page.show(backends_page(list(self._states.values()), self.fabric.clock(), width))
            self.refresh_head()

    def can_do(self, action_id: str) -> bool:
        """Offer to log in where a backend asks for it."""
        if action_id == "places.login":
            return any(state.last is not None and state.last.needs_login for state in self._states.values())
        return bool(self._states) or action_id != "places.test"

    # What is done with one backend

    def _which(self, then: Callable[[str], None]) -> None:
        """Ask which backend is meant, where there are several."""
        from screens.base.dialogs import Pick

        names = list(self._states)

        def picked(index: int | None) -> None:
            if index is not None:
                then(names[index])

        if len(names) == 1:
            then(names[0])
        elif names:
            self.app.push_screen(
                Pick("Which backend?", [f"{name}  {self._states[name].type}" for name in names]), picked
            )

    def action_places_test(self) -> None:
        """Test a backend: what it offers and what is missing."""
        self._which(self._test)

    def _test(self, name: str) -> None:
        def work(report: TaskReport) -> str:
            from workbench.services.backends.probe import finding_lines, probe

            found = probe(backend_options(name), cancel=report.cancel)
            return "\n".join([found.verdict(name), *finding_lines(found.findings)])

        self.fabric.background.begin(f"test {name}", work, partial(self._tested, name))

    def _tested(self, name: str, found: str) -> None:
        self.fabric.show_text((f"fabric backend test {name}", plain(found)))

    def action_places_login(self) -> None:
        """Log in to a backend that asks for credentials."""
        self._which(lambda name: self.fabric.logins.begin(entry_options(self._backends[name])))

    def refresh_head(self) -> None:
        """Show how many backends there are, and how many do not answer."""
        down = sum(state.last is not None and bool(state.last.trouble) for state in self._states.values())
        count = formats.count(len(self._states), "backend")
        self.head(("backends",), ((f"{down} do not answer" if down else "", "error"), (count, "dim")))
