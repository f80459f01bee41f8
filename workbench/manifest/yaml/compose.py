"""Composes YAML text into nodes: duplicates, anchors, merge keys and tags, with limits on depth and size.

PyYAML's C parser gives the events; composing them here keeps the location of everything, finds every duplicate
key instead of the first, and stops at a depth or an expansion that no real manifest has.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

import yaml

from workbench.manifest.yaml.errors import explain
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import (
    ListNode,
    MapEntry,
    MapNode,
    Node,
    ScalarNode,
    SourceLocation,
    Style,
    shortened,
)

DEPTH_MAX: Final = 40
WEIGHT_MAX: Final = 4 << 20
"""Of the whole document with every alias written out: its characters, and so many more for each node."""
_NODE_WEIGHT: Final = 32

_STYLES: Final[dict[str | None, Style]] = {
    None: "plain",
    "": "plain",
    "'": "single",
    '"': "double",
    ">": "folded",
    "|": "literal",
}
_STANDARD: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset({"int", "float", "bool", "null"})
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Stopped(Exception):
    """The document cannot be composed further; the fault is noted."""


def compose(text: str, file: str, findings: Findings, *, origin: str = "", lines: bool = True) -> Node | None:
    """Compose one YAML document.

    Args:
        text: the document.
        file: what faults call it.
        findings: where faults go.
        origin: what the origin of its values is called; empty makes it ``file:line``.
        lines: whether it has lines worth naming (the value of an option has none).

    Returns:
        The root, or None when the document is empty or cannot be composed.
    """
    composer = _Composer(text, file, findings, origin, lines)
    try:
        return composer.document()
    except yaml.MarkedYAMLError as error:
        explain(error, text, composer.location_at, findings)
    except yaml.YAMLError as error:
        findings.fault(composer.location_at(0, 0), "", f"this is not YAML: {error}")
    except _Stopped:
        pass
    return None


class _Composer:
    """Composes the nodes of one document from the parser's events."""

    def __init__(self, text: str, file: str, findings: Findings, origin: str, lines: bool) -> None:
        self._events = _LOADER(text)
        self._file = file
        self._findings = findings
        self._origin = origin
        self._lines = lines
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        """Each anchor's node and its weight; None while it is being composed."""
        self._weight = 0

    def location_at(self, line: int, column: int) -> SourceLocation:
        """Make a location from a mark, which counts from 0."""
        if not self._lines:
            return SourceLocation(self._file, 0, 0, self._origin or self._file)
        return SourceLocation(self._file, line + 1, column + 1, self._origin or f"{self._file}:{line + 1}")

    def document(self) -> Node | None:
        """Compose the document, and see that there is only one."""
        self._events.get_event()
        if isinstance(self._events.peek_event(), yaml.StreamEndEvent):
            return None
        self._events.get_event()
        root = self._node(0)
        self._events.get_event()
        self._nothing_more()
        return root

    def _nothing_more(self) -> None:
        event = self._events.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return
        body = self._events.peek_event()
        if isinstance(body, yaml.ScalarEvent) and not body.value:
            return
        location = self._location(event)
        self._findings.fault(
            location,
            "",
            "a second document starts here; a manifest is one document",
            "put each job in a file of its own",
        )

    def _location(self, event: Any) -> SourceLocation:
        return self.location_at(event.start_mark.line, event.start_mark.column)

    def _stop(self, location: SourceLocation, problem: str, hint: str = "") -> _Stopped:
        self._findings.fault(location, "", problem, hint)
        return _Stopped()

    def _node(self, depth: int) -> Node:
        event = self._events.get_event()
        location = self._location(event)
        if depth > DEPTH_MAX:
            raise self._stop(location, f"lists and maps are nested more than {DEPTH_MAX} deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, location)
        before = self._weight
        self._add_weight(_NODE_WEIGHT, location)
        if event.anchor:
            self._anchors[event.anchor] = None
        node = self._composed(event, location, depth)
        if event.anchor:
            self._anchors[event.anchor] = (node, self._weight - before)
        return node

    def _composed(self, event: Any, location: SourceLocation, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, location)
        if isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event.tag, "seq", location)
            return ListNode(location, tuple(self._items(depth)))
        self._check_tag(event.tag, "map", location)
        return self._map(location, depth)

    def _alias(self, anchor: str | None, location: SourceLocation) -> Node:
        if anchor is None or anchor not in self._anchors:
            raise self._stop(
                location, f"*{anchor} refers to an anchor &{anchor} that is not defined above it"
            )
        target = self._anchors[anchor]
        if target is None:
            raise self._stop(location, f"*{anchor} stands inside what &{anchor} names, so it would never end")
        self._add_weight(target[1], location)
        return target[0]

    def _add_weight(self, weight: int, location: SourceLocation) -> None:
        self._weight += weight
        if self._weight > WEIGHT_MAX:
            raise self._stop(
                location,
                "with its aliases written out the document is too large",
                "a manifest needs a few kilobytes",
            )

    def _scalar(self, event: Any, location: SourceLocation) -> ScalarNode:
        self._add_weight(len(event.value), location)
        style = _STYLES[event.style]
        tag = (event.tag or "").removeprefix(_STANDARD)
        if tag in ("str", "!"):
            style = "literal" if style == "literal" else "double"
        elif tag in _SCALAR_TAGS:
            style = "plain"
        else:
            self._check_tag(event.tag, "str", location)
        return ScalarNode(event.value, location, style, (event.start_mark.index, event.end_mark.index))

    def _check_tag(self, tag: str | None, expected: str, location: SourceLocation) -> None:
        if tag not in (None, "!", _STANDARD + expected):
            name = shortened(tag.replace(_STANDARD, "!!"))
            self._findings.fault(location, "", f"the tag {name} is not known here; leave it out")

    def _items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(self._events.peek_event(), yaml.SequenceEndEvent):
            items.append(self._node(depth + 1))
        self._events.get_event()
        return items

    def _map(self, location: SourceLocation, depth: int) -> MapNode:
        entries: dict[str, MapEntry] = {}
        merged: list[Node] = []
        while not isinstance(self._events.peek_event(), yaml.MappingEndEvent):
            key = self._node(depth + 1)
            value = self._node(depth + 1)
            if not isinstance(key, ScalarNode):
                self._findings.fault(key.location, "", "a key must be a name, not a list or a map")
            elif key.text == "<<" and key.style == "plain":
                merged.append(value)
            elif key.text in entries:
                self._duplicate(key, entries[key.text])
            else:
                entries[key.text] = MapEntry(key.text, key.location, value)
        self._events.get_event()
        return self._merge(MapNode(location, entries), merged)

    def _duplicate(self, key: ScalarNode, first: MapEntry) -> None:
        where = f"first in line {first.location.line}" if self._lines else "twice"
        name = shortened(key.text)
        self._findings.fault(
            key.location, name, f"the key {name!r} is given more than once ({where}); keep one"
        )

    def _merge(self, node: MapNode, merged: list[Node]) -> MapNode:
        entries = dict(node.entries)
        for source in merged:
            for part in source.nodes if isinstance(source, ListNode) else (source,):
                if isinstance(part, MapNode):
                    entries = {**part.entries, **entries}
                else:
                    self._findings.fault(part.location, "<<", "only maps can be merged with <<")
        return MapNode(node.location, entries) if merged else node


_MARK: Final = re.compile(r"(---|\.\.\.)(?=\s|$)")
_SAYS_NOTHING: Final = re.compile(r"\s*(#.*|%.*)?")


def documents(text: str) -> list[str]:
    """Return the text of each document that is not empty, in their order.

    Lines of other documents are blank in it, so that faults name the line of the file. A text without any
    document comes back as it is, once.
    """
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if _MARK.match(line)]
    bounds = [0, *starts, len(lines)]
    found = []
    for begin, end in pairwise(bounds):
        own = lines[begin:end]
        content = [_MARK.sub("", own[0], count=1), *own[1:]] if own else []
        if any(not _SAYS_NOTHING.fullmatch(line.rstrip("\r\n")) for line in content):
            found.append("\n" * begin + "".join(own))
    return found if len(found) > 1 else [text]
