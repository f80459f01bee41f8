"""The keys of actions as the user wants them: the table's own, or those of ``[keys]`` in ``config.toml``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from screens.core import actions
from screens.core.actions import Action
from workbench.values import dataclass

_NAMES: Final = {shown: name for name, shown in actions.KEY_NAMES.items()}
_MODIFIERS: Final = ("ctrl", "alt", "shift")
_LONG: Final = frozenset(
    {"enter", "space", "tab", "escape", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"}
    | {"up", "down", "left", "right"}
    | {f"f{number}" for number in range(1, 25)}
)


@dataclass(frozen=True, slots=True)
class KeyMap:
    """Which keys an action has."""

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Textual's names of keys, by action; those that are not here have the table's."""
    faults: tuple[str, ...] = ()
    """What of the configuration has no effect, a sentence each."""

    def keys(self, action: Action) -> tuple[str, ...]:
        """Return the keys of an action; none where it lost them to another."""
        return self.own.get(action.id, action.keys)

    def leaves_free(self, key: str, action_id: str) -> bool:
        """Say whether no action but the one that is named was given that key."""
        return not any(key in keys for name, keys in self.own.items() if name != action_id)

    def shown(self, action: Action) -> str:
        """Name the keys of an action as help, palette and docs do: ``j, down``; ``1-9`` for digits."""
        if actions.takes_number(action):
            return f"{action.keys[0]}-{action.keys[-1]}"
        return ", ".join(actions.key_name(key) for key in self.keys(action))

    def for_textual(self) -> dict[str, str]:
        """Return what Textual gets: the keys of each binding by its id."""
        return {
            identity: ",".join(keys)
            for name, keys in self.own.items()
            for identity in (name, actions.EARLY + name)
        }


def key_map(configured: Mapping[str, Sequence[str]]) -> KeyMap:
    """Check the keys that a user has configured: what is wrong is a fault, and its action keeps its keys."""
    faults: list[str] = []
    own: dict[str, tuple[str, ...]] = {}
    for name, keys in configured.items():
        checked, wrong = _checked(name, keys)
        faults += [f"keys.{name}: {fault}" for fault in wrong]
        if not wrong:
            own[name] = checked
    while clash := next(_clashes(own), None):
        name, key, other = clash
        faults.append(
            f"keys.{name}: {actions.key_name(key)} is already {other}; give that action another key first"
        )
        del own[name]
    return KeyMap(own, tuple(faults))


def _checked(name: str, keys: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return an action's keys by Textual's names, and everything that is wrong with them."""
    from workbench.manifest.yaml.faults import nearest

    action = actions.BY_ID.get(name)
    if action is None:
        close = nearest(name, actions.BY_ID)
        return (), ["unknown action" + (f"; did you mean {close}?" if close else "")]
    if actions.takes_number(action):
        return (), ["its keys are digits and cannot be changed"]
    known, faults = [], []
    for key in keys:
        try:
            known.append(_textual_name(key))
        except ValueError as error:
            faults.append(str(error))
    return tuple(known), faults


def _textual_name(key: str) -> str:
    """Return a key by Textual's name: ``?`` is ``question_mark``, ``F5`` is ``f5``."""
    modifiers, name = _parts(key)
    name = _NAMES.get(name, name)
    if len(name) > 1 and name.lower() in _LONG:
        name = name.lower()
    known = (len(name) == 1 and name.isalnum()) or name in _LONG or name in actions.KEY_NAMES
    if not known or any(each not in _MODIFIERS for each in modifiers):
        raise ValueError(f"unknown key {key!r}; examples: x, ctrl+x, f5, ?")
    return "+".join((*modifiers, name))


def _parts(key: str) -> tuple[list[str], str]:
    if key == "+":
        return [], key
    *modifiers, name = key.strip().split("+")
    return [each.lower() for each in modifiers], name


def _clashes(own: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """Yield what the user gave a key that another action has in the same pane: its name, the key, the other."""
    keys = KeyMap(own)
    for pane in actions.TITLES:
        there = [(key, action.id) for action in actions.of_pane(pane) for key in keys.keys(action)]
        times = Counter(key for key, _ in there)
        for key, name in there:
            if times[key] > 1 and name in own:
                others = [other for same, other in there if same == key and other != name]
                yield name, key, others[0] if others else name
