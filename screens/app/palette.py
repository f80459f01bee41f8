"""The palette: every action of the focused pane by its name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from screens.base.base import BaseScreen
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.core.keymap import KeyMap


class ActionProvider(Provider):
    """Offers what can be done on the screen that the palette was opened on."""

    def _offered(self) -> Iterator[actions.Action]:
        screen = self.screen
        if not isinstance(screen, BaseScreen):
            return
        readonly = fabric_app(screen).readonly
        panes = {screen.pane, *screen.panes()}
        for action in actions.ACTIONS:
            if action.id.startswith("move.") or actions.takes_number(action):
                continue
            if panes.intersection(action.panes) and not (action.changes and readonly):
                yield action

    async def discover(self) -> Hits:
        """Offer everything while nothing is typed."""
        for action in self._offered():
            yield DiscoveryHit(self._title(action), partial(self._do, action), help=action.help)

    async def search(self, query: str) -> Hits:
        """Offer what fits."""
        matcher = self.matcher(query)
        for action in self._offered():
            score = max(matcher.match(self._title(action)), 0.8 * matcher.match(action.help))
            if score > 0:
                yield Hit(
                    score, matcher.highlight(self._title(action)), partial(self._do, action), help=action.help
                )

    async def _do(self, action: actions.Action) -> None:
        await fabric_app(self.screen).action_perform(action.id)

    def _title(self, action: actions.Action) -> str:
        keys = fabric_app(self.screen).key_map.shown(action)
        return f"{action.title}  ({keys})" if keys else action.title


_KEYS_WIDTH = 16


def help_text(pane: str, keys: KeyMap, *, readonly: bool = False) -> Content:
    """Return a line for each action of a pane: its keys, and what they do."""
    lines = [Content("")]
    own_first = sorted(actions.of_pane(pane), key=lambda action: action.panes == actions.ALL_PANES)
    for action in own_first:
        shown = Content.styled(f" {keys.shown(action):<{_KEYS_WIDTH}}", "bold $role-key")
        off = " (off: read-only)" if action.changes and readonly else ""
        lines.append(shown + Content(action.help) + Content.styled(off, "$role-warning"))
    return Content("\n").join(lines[1:])
