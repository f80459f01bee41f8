"""The lines of a form: what everyone sets first, the other keys in groups that fold, and a search among all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from screens.core import actions
from screens.launch.draft import COMMAND, MORE, Field
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.cursor_list import CursorList
from workbench import formats
from workbench.values import dataclass

FIRST_GROUP: Final = ""
"""The name of the group that has no title and is always open."""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Keys that belong together."""

    name: str
    meaning: str
    keys: tuple[str, ...]


GROUPS: Final = (
    FieldGroup(FIRST_GROUP, "", ("name", COMMAND, "backend", "gpus", "cpus", "memory", "params")),
    FieldGroup(
        "learners", "How many copies run, on what, and when the job is over.",
        ("learners", "launcher", "gpu_type", "runner", "fit", "shm_size", "ports", "ends_when", "settle_seconds"),
    ),
    FieldGroup(
        "image and Python", "What the command runs in.",
        (
            "framework.name", "framework.version", "framework.image_tag", "framework.image_location", "image_pull",
            "build", "python", "requirements", "setup", "bind_mounts",
        ),
    ),
    FieldGroup(
        "code and environment", "What is sent with the job, and which variables it sees.",
        ("code", "code_anyway", "env", "secrets", "seed"),
    ),
    FieldGroup(
        "data and results", "Where data comes from, where results and metrics go.",
        ("data_stores", "checkpoints", "upload_seconds", "fetch_results", "storage", "evaluation_metrics"),
    ),
    FieldGroup(
        "queue", "What the job waits for, and who goes first.",
        ("after", "priority", "at_most", "begin", "weight", "preemptible", "preemption_timeout"),
    ),
    FieldGroup(
        "time and restarts", "How long it may run, and how often it is started again.",
        ("max_runtime", "grace_seconds", "max_restarts", "max_platform_restarts", "stop_when", "log_policies"),
    ),
    FieldGroup(
        "description", "To find the job by later.", ("description", "version", "labels"),
    ),
    FieldGroup(
        "other", "What only a cluster needs, and further options of the command.", ("kubernetes", "search", MORE),
    ),
)  # fmt: skip
_GROUP_OF: Final = {key: group for group in GROUPS for key in group.keys}


def group_of(key: str) -> FieldGroup:
    """Return the group of a key; a hyper-parameter is in that of ``params``, an unknown key in the last."""
    return _GROUP_OF.get("params" if key.startswith("params.") else key, GROUPS[-1])


@dataclass(frozen=True, slots=True)
class GroupLine:
    """The title of a group."""

    group: FieldGroup
    open: bool
    keys: tuple[str, ...]
    """The keys in it."""


FormLine = Field | GroupLine


@dataclass(frozen=True, slots=True)
class FormView:
    """How much of the form is shown."""

    search: str = ""
    """Words: only keys whose name, meaning or group has all of them are shown."""
    folds: Mapping[str, bool] | None = None
    """The groups that a person opened (True) or folded (False)."""

    def lines(self, fields: Sequence[Field], set_keys: Collection[str]) -> list[FormLine]:
        """Return the lines to draw; a group with one of ``set_keys`` is open unless a person folded it."""
        words = self.search.lower().split()
        lines: list[FormLine] = []
        for group in GROUPS:
            members = sorted((one for one in fields if group_of(one.key) is group), key=_place)
            shown = [one for one in members if matches(one, words)] if words else members
            if not shown:
                continue
            is_open = bool(words) or self._is_open(group, shown, set_keys)
            if group.name != FIRST_GROUP:
                lines.append(GroupLine(group, is_open, tuple(one.key for one in members)))
            lines += shown if is_open else []
        return lines

    def _is_open(self, group: FieldGroup, members: Sequence[Field], set_keys: Collection[str]) -> bool:
        if group.name == FIRST_GROUP:
            return True
        chosen = (self.folds or {}).get(group.name)
        return any(one.key in set_keys for one in members) if chosen is None else chosen


def _place(one: Field) -> int:
    keys = group_of(one.key).keys
    key = "params" if one.key.startswith("params.") else one.key
    return keys.index(key) if key in keys else len(keys)


def matches(one: Field, words: Sequence[str]) -> bool:
    """Say whether a key's name, meaning or group has all of these words, in small letters."""
    text = f"{one.key} {one.meaning} {group_of(one.key).name}".lower()
    return all(word in text for word in words)


def best_match(fields: Sequence[Field], search: str) -> str:
    """Return the key that a search means most likely: one that begins with it, has it in its name, or has it at all."""
    words = search.lower().split()
    found = [one.key for one in fields if matches(one, words)]
    typed = "_".join(words)
    ranked = sorted(found, key=lambda key: (not key.startswith(typed), typed not in key))
    return ranked[0] if ranked else ""


NAME_WIDTH: Final = 28


class FieldList(CursorList):
    """A form of which one line is under the cursor; it is filled in by who owns it."""

    PANE: ClassVar = "launch"
    BINDINGS: ClassVar = actions.bindings("launch")

    class Moved(Message):
        """Another line is under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fields: Sequence[Field] = ()
        """Every key, also those that are folded away."""
        self.view = FormView(folds={})
        self._lines: Sequence[FormLine] = ()
        self._values: Mapping[str, str] = {}
        self._changes: Mapping[str, str] = {}
        self._faults: Mapping[str, str] = {}

    @property
    def line(self) -> FormLine | None:
        """The line under the cursor."""
        return self._lines[self._at] if self._at < len(self._lines) else None

    @property
    def field(self) -> Field | None:
        """The key under the cursor; None on the title of a group."""
        line = self.line
        return None if isinstance(line, GroupLine) else line

    @property
    def group(self) -> FieldGroup | None:
        """The group whose title is under the cursor."""
        line = self.line
        return line.group if isinstance(line, GroupLine) else None

    @property
    def is_in_group(self) -> bool:
        """Whether the cursor is on a group's title, or on a key in a group that folds."""
        line = self.line
        return isinstance(line, GroupLine) or (line is not None and bool(group_of(line.key).name))

    @property
    def found(self) -> int:
        """How many keys are in view."""
        return sum(not isinstance(line, GroupLine) for line in self._lines)

    def show(
        self,
        fields: Sequence[Field],
        values: Mapping[str, str],
        changes: Mapping[str, str],
        faults: Mapping[str, str],
    ) -> None:
        """Take other lines; the cursor stays on the key that it is on."""
        self.fields, self._values, self._changes, self._faults = fields, values, changes, faults
        self._lay_out()

    def _lay_out(self) -> None:
        """Make the lines again; the cursor stays on its key or title."""
        at = _name(self.line)
        self._lines = self.view.lines(self.fields, self._set_keys())
        kept = next((i for i, line in enumerate(self._lines) if _name(line) == at), None)
        self.virtual_size = Size(self.room, len(self._lines))
        self._move(min(self._at, max(0, len(self._lines) - 1)) if kept is None else kept)

    def _set_keys(self) -> set[str]:
        """Return the keys that hold a value that is not their default, and those with a fault."""
        defaults = {one.key: one.default for one in self.fields}
        held = {**self._values, **self._changes}
        return {key for key, value in held.items() if value not in ("", defaults.get(key))} | {*self._faults}

    def go_to(self, key: str) -> None:
        """Put the cursor on a key; its group is opened, and a search that hides it is over."""
        if key and all(_name(line) != key for line in self._lines):
            folds = {**(self.view.folds or {}), group_of(key).name: True}
            self.view = FormView(folds=folds)
            self._lay_out()
        self._move(next((i for i, line in enumerate(self._lines) if _name(line) == key), self._at))

    # Groups and search

    def toggle_group(self) -> None:
        """Open the group under the cursor, or fold it; from one of its keys the cursor goes to its title."""
        line = self.line
        if line is None or self.view.search:
            return
        group = line.group if isinstance(line, GroupLine) else group_of(line.key)
        title = next((one for one in self._lines if isinstance(one, GroupLine) and one.group is group), None)
        if title is not None:
            self._fold({group.name: not title.open})
            self._move(next(i for i, one in enumerate(self._lines) if _name(one) == _name(title)))

    def toggle_all(self) -> None:
        """Open all groups, or fold all."""
        titles = [line for line in self._lines if isinstance(line, GroupLine)]
        is_any_folded = any(not line.open for line in titles)
        self._fold({group.name: is_any_folded for group in GROUPS if group.name})

    def _fold(self, folds: Mapping[str, bool]) -> None:
        self.view = replace(self.view, folds={**(self.view.folds or {}), **folds})
        self._lay_out()

    def search(self, words: str) -> None:
        """Show only keys that a search finds, with the cursor on the one that it means most likely."""
        before = self.field.key if self.field else ""
        self.view = replace(self.view, search=words.strip())
        self._lay_out()
        self.go_to(best_match(self.fields, words) if words.strip() else before)

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        at, width, base = self.scroll_offset.y + y, self.room, self.base
        if at >= len(self._lines):
            return self._beyond(y, width)
        line = self._lines[at]
        segments = self._title(line, width) if isinstance(line, GroupLine) else self._key(line, width)
        strip = Strip(segments).adjust_cell_length(width, base)
        return overlay(strip, self._cursor()) if at == self._at else strip

    def _beyond(self, y: int, width: int) -> Strip:
        """Say that a search finds nothing, where it finds nothing."""
        if self._lines or y != 1 or not self.view.search:
            return Strip.blank(width, self.base)
        shown = f" no key is about {formats.printable(self.view.search)!r}; esc shows all"
        return Strip([Segment(shown, self.base + paint_of(self).style("dim"))]).adjust_cell_length(
            width, self.base
        )

    def _title(self, line: GroupLine, width: int) -> list[Segment]:
        """Draw the title of a group; next to a folded one stands what is in it."""
        paint, base = paint_of(self), self.base
        wrong = not line.open and any(key in self._faults for key in line.keys)
        sign = glyphs().unfolded if line.open else glyphs().folded
        name = f"{sign} {line.group.name}"
        segments = [
            Segment("!" if wrong else " ", base + paint.style("error", "bold")),
            Segment(name.ljust(NAME_WIDTH), base + paint.style("error" if wrong else "key", "bold")),
        ]
        if not line.open:
            keys = ", ".join(key.removeprefix("framework.") for key in line.keys)
            room = max(0, width - NAME_WIDTH - 2)
            segments.append(Segment(text.shorten(keys, room), base + paint.style("dim")))
        return segments

    def _key(self, one: Field, width: int) -> list[Segment]:
        paint, base = paint_of(self), self.base
        wrong, changed = one.key in self._faults, one.key in self._changes
        sign = "!" if wrong else glyphs().mark if changed else " "
        indent = "  " if group_of(one.key).name else ""
        name = text.shorten(f"{indent}{one.label}", NAME_WIDTH - 1)
        shown, role = self._value(one)
        room = max(0, width - NAME_WIDTH - 2)
        is_set = changed or one.key in self._values
        return [
            Segment(sign, base + paint.style("error" if wrong else "accent", "bold")),
            Segment(
                name.ljust(NAME_WIDTH),
                base
                + paint.style("error" if wrong else "accent" if changed else "text" if is_set else "dim"),
            ),
            Segment(text.shorten(formats.printable(shown), room), base + paint.style(role)),
        ]

    def _cursor(self) -> Style:
        return paint_of(self).cursor(focused=self.has_focus)

    def _value(self, one: Field) -> tuple[str, str]:
        """Return what stands in a line, and how: as changed, as the manifest says, or the default."""
        if one.key in self._changes:
            value = self._changes[one.key]
            return (value, "text") if value else (one.default, "dim")
        if one.key in self._values:
            return self._values[one.key], "text"
        return one.default, "dim"

    # Moving

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def _move(self, at: int) -> None:
        super()._move(at)
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        """Open or fold a group whose title is clicked; elsewhere the cursor goes to the line."""
        at = self.scroll_offset.y + event.y
        if at < len(self._lines) and isinstance(self._lines[at], GroupLine):
            event.prevent_default()
            self._move(at)
            self.toggle_group()

    def on_resize(self, event: events.Resize) -> None:
        """Keep the cursor in view."""
        del event
        self.virtual_size = Size(self.room, len(self._lines))
        self._move(self._at)


def _name(line: FormLine | None) -> str:
    """Name a line: a key, or the title of a group."""
    if line is None:
        return ""
    return f"group {line.group.name}" if isinstance(line, GroupLine) else line.key
