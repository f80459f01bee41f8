"""A document as nodes that know their file and line: composed from YAML, laid over one another, read by the kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, Literal

from workbench.manifest.yaml.core_schema import ScalarValue, resolve
from workbench.values import dataclass

Style = Literal["plain", "single", "double", "folded", "literal"]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where a value was written, for faults and for ``fabric show --origin``."""

    file: str
    """The manifest, the configuration file, ``flag --gpus``, ``--set gpus=2`` or ``FABRIC_GPUS``."""
    line: int
    """From 1; 0 where there are no lines."""
    column: int
    origin: str
    """What ``fabric show --origin`` shows: ``manifest.yml:12``, ``flag --gpus``, ``FABRIC_GPUS``."""


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value: its text as written, and how it was written."""

    text: str
    location: SourceLocation
    style: Style = "plain"
    span: tuple[int, int] = (0, 0)
    """First and last character in the document's text."""

    @property
    def value(self) -> ScalarValue:
        """The value by YAML 1.2; quoted and block scalars are always texts."""
        return resolve(self.text) if self.style == "plain" else self.text

    @property
    def is_null(self) -> bool:
        """Whether it is empty or ``null``."""
        return self.style == "plain" and self.value is None


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One key of a map with its value."""

    written: str
    """The key as it stands in the document; the map knows it by its canonical name."""
    location: SourceLocation
    node: Node


@dataclass(frozen=True, slots=True)
class MapNode:
    """Keys and values, in the order of the document."""

    location: SourceLocation
    entries: dict[str, MapEntry] = field(default_factory=dict)

    def with_entry(self, name: str, entry: MapEntry) -> MapNode:
        """Return a copy that has this entry: nodes may be shared by aliases and are never changed."""
        return replace(self, entries={**self.entries, name: entry})

    def without(self, name: str) -> MapNode:
        """Return a copy that lacks this entry."""
        return replace(self, entries={key: entry for key, entry in self.entries.items() if key != name})


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    location: SourceLocation
    nodes: tuple[Node, ...] = ()


Node = ScalarNode | MapNode | ListNode


def from_value(value: Any, location: SourceLocation) -> Node:
    """Make nodes of a plain Python value, as flags and ``config.toml`` give them."""
    if isinstance(value, dict):
        entries = {
            str(key): MapEntry(str(key), location, from_value(item, location)) for key, item in value.items()
        }
        return MapNode(location, entries)
    if isinstance(value, (list, tuple)):
        return ListNode(location, tuple(from_value(item, location) for item in value))
    if isinstance(value, bool):
        return ScalarNode("true" if value else "false", location)
    if value is None or isinstance(value, (int, float)):
        return ScalarNode("null" if value is None else _number_text(value), location)
    # A literal block is what keeps a text exactly as it is.
    return ScalarNode(str(value), location, "literal")


def _number_text(value: float) -> str:
    text = repr(value)
    return f".{text}" if text in ("nan", "inf") else text.replace("-inf", "-.inf")


def describe_node(node: Node) -> str:
    """Describe a node for a fault: ``the text 'a'``, ``the number 0.5``, ``a list``, ``nothing``."""
    if isinstance(node, MapNode):
        return "a map"
    if isinstance(node, ListNode):
        return "a list"
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {node.text}"
    if isinstance(value, (int, float)):
        return f"the number {shortened(node.text)}"
    return f"the text {shortened(node.text)!r}"


def shortened(text: str, length: int = 60) -> str:
    """Return a text that fits into a sentence."""
    return text if len(text) <= length else text[: length - 3] + "..."


def location_of(root: Node, path: str) -> SourceLocation:
    """Return the location of the value at a dotted path, or of the nearest value above it."""
    node = root
    for part in path.split(".") if path else ():
        below = child(node, part)
        if below is None:
            break
        node = below
    return node.location


def node_at(root: Node, path: str) -> Node | None:
    """Return the value at a dotted path, or None when there is none."""
    node: Node | None = root
    for part in path.split("."):
        node = child(node, part) if node is not None else None
    return node


def child(node: Node, part: str) -> Node | None:
    """Return what is at a key or an index, or None."""
    if isinstance(node, MapNode) and part in node.entries:
        return node.entries[part].node
    if isinstance(node, ListNode) and part.isdecimal() and int(part) < len(node.nodes):
        return node.nodes[int(part)]
    return None


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, ScalarNode | MapNode | ListNode]]:
    """Walk to every value that has none below it, with its dotted path: scalars, empty maps, empty lists."""
    prefix = f"{path}." if path else ""
    if isinstance(node, MapNode) and node.entries:
        for name, entry in node.entries.items():
            yield from leaves(entry.node, prefix + name)
    elif isinstance(node, ListNode) and node.nodes:
        for index, item in enumerate(node.nodes):
            yield from leaves(item, f"{prefix}{index}")
    else:
        yield path, node
