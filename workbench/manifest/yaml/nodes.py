"""A document as nodes that know where they stand: composed from YAML, laid over, then read by the kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.manifest.yaml.core_schema import ScalarValue, resolve

Style = Literal["plain", "single", "double", "folded", "literal"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands, for faults, and what to call its origin."""

    file: str
    """The manifest, the configuration file, ``flag --gpus``, ``--set gpus=2`` or ``FABRIC_GPUS``."""
    line: int
    """From 1; 0 where there are no lines."""
    column: int
    origin: str
    """In words for ``fabric show --origin``: ``manifest.yml:12``, ``flag --gpus``, ``FABRIC_GPUS``."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value: its text as written, and how it was written."""

    text: str
    place: Place
    style: Style = "plain"
    span: tuple[int, int] = (0, 0)
    """First and last character in the document's text."""

    @property
    def value(self) -> ScalarValue:
        """What it stands for: only plain scalars are anything but texts."""
        return resolve(self.text) if self.style == "plain" else self.text

    @property
    def is_null(self) -> bool:
        """Whether nothing is written."""
        return self.style == "plain" and self.value is None


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a map with its value."""

    written: str
    """The key as it stands in the document; the map knows it by its canonical name."""
    place: Place
    node: Node


@dataclass(frozen=True, slots=True)
class Map:
    """Keys and values, in the order of the document."""

    place: Place
    entries: dict[str, Entry] = field(default_factory=dict)

    def with_entry(self, name: str, entry: Entry) -> Map:
        """Return a copy that has this entry: nodes may be shared by aliases and are never changed."""
        return replace(self, entries={**self.entries, name: entry})

    def without(self, name: str) -> Map:
        """Return a copy that lacks this entry."""
        return replace(self, entries={key: entry for key, entry in self.entries.items() if key != name})


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    nodes: tuple[Node, ...] = ()


Node = Scalar | Map | Items


def from_value(value: Any, place: Place) -> Node:
    """Make nodes of a plain Python value, as flags and ``config.toml`` give them."""
    if isinstance(value, dict):
        entries = {str(key): Entry(str(key), place, from_value(item, place)) for key, item in value.items()}
        return Map(place, entries)
    if isinstance(value, (list, tuple)):
        return Items(place, tuple(from_value(item, place) for item in value))
    if isinstance(value, bool):
        return Scalar("true" if value else "false", place)
    if value is None or isinstance(value, (int, float)):
        return Scalar("null" if value is None else _number_text(value), place)
    # A literal block is what keeps a text exactly as it is.
    return Scalar(str(value), place, "literal")


def _number_text(value: float) -> str:
    text = repr(value)
    return f".{text}" if text in ("nan", "inf") else text.replace("-inf", "-.inf")


def described(node: Node) -> str:
    """Say what was found, for a fault: ``the text 'a'``, ``the number 0.5``, ``a list``, ``nothing``."""
    if isinstance(node, Map):
        return "a map"
    if isinstance(node, Items):
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


def place_of(root: Node, path: str) -> Place:
    """Return where the value at a dotted path stands, or the nearest thing above it that is there."""
    node = root
    for part in path.split(".") if path else ():
        below = child(node, part)
        if below is None:
            break
        node = below
    return node.place


def found_at(root: Node, path: str) -> Node | None:
    """Return the value at a dotted path, or None when there is none."""
    node: Node | None = root
    for part in path.split("."):
        node = child(node, part) if node is not None else None
    return node


def child(node: Node, part: str) -> Node | None:
    """Return what is at a key or an index, or None."""
    if isinstance(node, Map) and part in node.entries:
        return node.entries[part].node
    if isinstance(node, Items) and part.isdecimal() and int(part) < len(node.nodes):
        return node.nodes[int(part)]
    return None


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Scalar | Map | Items]]:
    """Walk to every value that has none below it, with its dotted path: scalars, empty maps, empty lists."""
    prefix = f"{path}." if path else ""
    if isinstance(node, Map) and node.entries:
        for name, entry in node.entries.items():
            yield from leaves(entry.node, prefix + name)
    elif isinstance(node, Items) and node.nodes:
        for index, item in enumerate(node.nodes):
            yield from leaves(item, f"{prefix}{index}")
    else:
        yield path, node
