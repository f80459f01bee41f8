"""Kinds that hold other kinds: tables of known keys, maps of free keys, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

from workbench.manifest.keys.kinds import MultilineText, ValueKind
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapEntry, MapNode, Node, ScalarNode, shortened
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table, with what validation, schema, documentation and variables need."""

    name: str
    kind: ValueKind
    meaning: str
    """Full sentences, for the documentation and editors."""
    default: str = ""
    """The default as readers see it; empty when there is none."""
    example: str = ""
    """As it is written after the key, on one line of YAML."""
    spellings: tuple[str, ...] = ()
    """Other names by which it is known."""
    required: bool = False
    ours: bool = True
    """False for what FfDL knew."""
    variable: bool = False
    """Whether ``FABRIC_<NAME>`` sets it."""
    hint: str = ""
    """What helps when it is missing."""


class KeyTable(ValueKind):
    """A map of known keys; an unknown key is a warning that names the nearest one."""

    expected = "a map"

    def __init__(
        self,
        *keys: Key,
        what: str,
        elsewhere: Mapping[str, str] | None = None,
        moved: tuple[str, ...] = (),
        instead: str = "",
        is_strict: bool = False,
    ) -> None:
        self.keys = {key.name: key for key in keys}
        self.what = what
        """What the table describes, for sentences: ``a manifest``, ``a data store``."""
        self._names = {text: key.name for key in keys for text in (key.name, *key.spellings)}
        self._elsewhere = elsewhere or {}
        """Keys that people write here from habit, and a hint where they belong."""
        self.moved = moved
        """Maps whose keys belong to this table itself."""
        self._instead = instead
        self._is_strict = is_strict
        """Whether an unknown key is a fault, not a warning."""

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return a key's canonical name and kind."""
        if part in self.moved:
            return part, self
        name = self._names.get(part)
        return (name, self.keys[name].kind) if name else None

    def with_kinds(self, **kinds: ValueKind) -> Self:
        """Return the same table in which some keys have other kinds."""
        made = copy(self)
        changed = {name: replace(self.keys[name], kind=kind) for name, kind in kinds.items()}
        made.keys = {**self.keys, **changed}
        return made

    def known(self) -> tuple[str, ...]:
        """Return every name and spelling."""
        return (*self._names, *self.moved)

    def advice(self, name: str) -> str:
        """Say what an unknown key most likely stands for."""
        if name in self._elsewhere:
            return self._elsewhere[name]
        close = nearest(name, self.known())
        return f"did you mean {close}?" if close else ""

    def canonical(self, node: Node, path: str, findings: Findings) -> Node:
        """Give every key its one name, and warn of those that are unknown."""
        if not isinstance(node, MapNode):
            return node
        entries: dict[str, MapEntry] = {}
        for written, entry in self._flattened(node):
            name = self._names.get(written)
            where = _joined(path, written)
            if written in self.moved:
                self.wrong(entry.node, where, findings)
            elif name is None:
                what = f"is not a key of {self.what}"
                if self._is_strict:
                    findings.fault(entry.location, shortened(where), what, self.advice(written))
                else:
                    what += " and has no effect"
                    findings.warn(entry.location, shortened(where), what, self.advice(written))
            elif name in entries:
                first = entries[name]
                findings.fault(
                    entry.location,
                    where,
                    f"says the same as {first.written!r} (line {first.location.line}); keep one of them",
                )
            else:
                below = self.keys[name].kind.canonical(entry.node, where, findings)
                entries[name] = MapEntry(entry.written, entry.location, below)
        return MapNode(node.location, entries)

    def _flattened(self, node: MapNode) -> Iterator[tuple[str, MapEntry]]:
        for written, entry in node.entries.items():
            if written in self.moved and isinstance(entry.node, MapNode):
                yield from entry.node.entries.items()
            elif written not in self.moved or not _is_null(entry.node):
                yield written, entry

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the values by canonical name; null counts as absent."""
        if not isinstance(node, MapNode):
            self.wrong(node, path, findings, self._instead)
            return None
        values: dict[str, Any] = {}
        for name, entry in node.entries.items():
            if name in self.keys and not _is_null(entry.node):
                value = self.keys[name].kind.read(entry.node, _joined(path, entry.written), findings)
                if value is not None:
                    values[name] = value
        self._check_required(node, path, findings)
        return values

    def _check_required(self, node: MapNode, path: str, findings: Findings) -> None:
        for name, key in self.keys.items():
            entry = node.entries.get(name)
            if key.required and (entry is None or _is_null(entry.node)):
                location = node.location if entry is None else entry.location
                problem = "is missing" if entry is None else "is empty"
                findings.fault(
                    location, _joined(path, name), f"{problem}; write {key.kind.expected}", key.hint
                )

    def schema(self) -> dict[str, Any]:
        """An object whose keys are these and, so that editors mark typing errors, no others."""
        properties: dict[str, Any] = {}
        for key in self.keys.values():
            described_kind = _or_null(key.kind.schema()) if not key.required else key.kind.schema()
            documented = {**described_kind, "description": key.meaning}
            for spelling in (key.name, *key.spellings):
                properties[spelling] = documented
        required = sorted(name for name, key in self.keys.items() if key.required and not key.spellings)
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": required} if required else schema


class MapOf(ValueKind):
    """A map whose keys the user chooses and whose values are of one kind."""

    def __init__(
        self,
        kind: ValueKind,
        expected: str,
        *,
        key_pattern: str = r"\S(?:.{0,250}\S)?",
        key_expected: str = "a name without blanks around it",
        instead: str = "",
    ) -> None:
        self.kind = kind
        self.expected = expected
        self._pattern = key_pattern
        self._compiled = re.compile(key_pattern)
        self._key_expected = key_expected
        self._instead = instead

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return any key."""
        return part, self.kind

    def canonical(self, node: Node, path: str, findings: Findings) -> Node:
        """Return the map with canonical keys in its values."""
        if not isinstance(node, MapNode):
            return node
        entries = {
            name: MapEntry(
                entry.written, entry.location, self.kind.canonical(entry.node, _joined(path, name), findings)
            )
            for name, entry in node.entries.items()
        }
        return MapNode(node.location, entries)

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the map; a null value is left out, except where an empty text is meant."""
        if not isinstance(node, MapNode):
            self.wrong(node, path, findings, self._instead)
            return None
        values: dict[str, Any] = {}
        for name, entry in node.entries.items():
            where = _joined(path, name)
            if not self._compiled.fullmatch(name):
                found = shortened(name)
                findings.fault(
                    entry.location, path, f"the name {found!r} cannot be used; write {self._key_expected}"
                )
            elif not _is_null(entry.node) or isinstance(self.kind, MultilineText):
                value = self.kind.read(entry.node, where, findings)
                if value is not None:
                    values[name] = value
        return values

    def schema(self) -> dict[str, Any]:
        """An object with any keys of the pattern."""
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^(?:{self._pattern})$"},
            "additionalProperties": _or_null(self.kind.schema()),
        }


class ListOf(ValueKind):
    """A list whose items are of one kind."""

    def __init__(self, kind: ValueKind, expected: str, *, one_is_enough: bool = False) -> None:
        self.kind = kind
        self.expected = expected
        self._one_is_enough = one_is_enough

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return any index."""
        return (part, self.kind) if part.isdecimal() else None

    def canonical(self, node: Node, path: str, findings: Findings) -> Node:
        """Return the list with canonical keys in its items."""
        if not isinstance(node, ListNode):
            return node
        items = (
            self.kind.canonical(item, f"{path}.{index}", findings) for index, item in enumerate(node.nodes)
        )
        return ListNode(node.location, tuple(items))

    def read(self, node: Node, path: str, findings: Findings) -> tuple[Any, ...] | None:
        """Return the items; where one is enough it may stand without a list."""
        if self._one_is_enough and isinstance(node, ScalarNode):
            node = ListNode(node.location, (node,))
        if not isinstance(node, ListNode):
            self.wrong(node, path, findings)
            return None
        values = (self.kind.read(item, f"{path}.{index}", findings) for index, item in enumerate(node.nodes))
        return tuple(value for value in values if value is not None)

    def schema(self) -> dict[str, Any]:
        """An array."""
        array = {"type": "array", "items": self.kind.schema()}
        return {"anyOf": [self.kind.schema(), array]} if self._one_is_enough else array


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.is_null


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Let an editor accept an empty value, which is as if the key were not there."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": list(dict.fromkeys([*types, "null"]))}
