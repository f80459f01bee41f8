"""Every place that is configured: whether it answers, what it has, who uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.widget import Widget

from screens import actions, text
from screens.base import BaseScreen
from screens.pages.places import PlaceState, places_page
from screens.pages.writing import plain
from screens.place_watch import PlaceAnswer, PlaceWatch
from screens.widgets.text_page import PlacesPage
from workbench.config import Config, load_config


class PlacesScreen(BaseScreen):
    """The places, asked again and again while one looks at them."""

    BINDINGS: ClassVar = actions.early_bindings("places")

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, PlaceState] = {}
        self._watch: PlaceWatch | None = None

    def body(self) -> Iterator[Widget]:
        """Make the page."""
        yield PlacesPage(id="places")

    def on_mount(self) -> None:
        """Read the configuration, then ask."""
        self.query_one(PlacesPage).focus()
        self.query_one(PlacesPage).show(plain("asking every place", "dim"))
        self.fabric.aside(load_config, self._start)
        self.refresh_head()

    def _start(self, config: Config) -> None:
        if not self.whole:
            return
        places = dict(config.backends)
        self._states = {name: PlaceState(name, str(told["type"])) for name, told in places.items()}
        self._watch = PlaceWatch(self)
        self._watch.start(places)
        self._write()

    def on_unmount(self) -> None:
        """Ask no more."""
        if self._watch is not None:
            self._watch.close()

    def on_place_answer(self, answer: PlaceAnswer) -> None:
        """Take an answer."""
        state = self._states.get(answer.seen.name)
        if state is not None and not self.fabric.reader.paused:
            state.take(answer.seen)
            self._write()

    def tick(self, now_us: int) -> None:
        """Let what is stale be seen to be."""
        del now_us
        self._write()

    def _write(self) -> None:
        if self.whole and self._states:
            shown = places_page(list(self._states.values()), self.fabric.clock(), self.size.width)
            self.query_one(PlacesPage).show(shown)
            self.refresh_head()

    def refresh_head(self) -> None:
        """Say how many places there are, and how many do not answer."""
        down = sum(state.last is not None and bool(state.last.trouble) for state in self._states.values())
        count = text.count(len(self._states), "place")
        self.head(("places",), ((f"{down} do not answer" if down else "", "error"), (count, "dim")))
