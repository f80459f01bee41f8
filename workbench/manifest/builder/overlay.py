"""Lays nodes over one another: configuration, manifest, variables, ``--set`` and flags."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.manifest.keys.containers import KeyTable, ListOf, MapOf
from workbench.manifest.keys.kinds import OneOf, ValueKind
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapEntry, MapNode, Node, ScalarNode, shortened


def laid_over(below: Node | None, above: Node) -> Node:
    """Lay one node over another: maps are joined key by key, everything else is replaced."""
    if not isinstance(below, MapNode) or not isinstance(above, MapNode):
        return above
    entries = dict(below.entries)
    for name, entry in above.entries.items():
        beneath = entries.get(name)
        node = laid_over(beneath.node, entry.node) if beneath else entry.node
        entries[name] = MapEntry(entry.written, entry.location, node)
    return MapNode(above.location, entries)


def set_at(root: Node | None, kind: ValueKind, path: str, value: Node, findings: Findings) -> Node | None:
    """Return a copy of a tree with the value at a dotted path replaced; one past the end of a list appends.

    What cannot be set is a fault. An unknown key is one too, since a path that is typed is meant to have an effect.
    """
    setter = _Setter(path, value, findings)
    return setter.put(root, kind, path.split("."), "")


def put_at(root: MapNode, path: Sequence[str], value: Node) -> MapNode:
    """Return a copy with the value at a path of maps replaced; what is not there, or is no map, becomes one."""
    name, *below = path
    entry = root.entries.get(name)
    if below:
        there = entry.node if entry else None
        value = put_at(there if isinstance(there, MapNode) else MapNode(value.location), below, value)
    return root.with_entry(name, MapEntry(name, value.location, value))


def kind_at(kind: ValueKind, path: str) -> ValueKind | None:
    """Return the kind of the value at a dotted path, or None when nothing can be there."""
    parts = path.split(".")
    while parts:
        holder = _holder(kind)
        if isinstance(holder, MapOf) and _holder(holder.kind) is None:
            return holder.kind
        found = holder.below(parts.pop(0)) if holder else None
        if found is None:
            return None
        kind = found[1]
    return kind


class _Setter:
    """Puts one value at a dotted path."""

    def __init__(self, path: str, value: Node, findings: Findings) -> None:
        self._path = path
        self._value = value
        self._findings = findings

    def _fault(self, problem: str, hint: str = "") -> None:
        self._findings.fault(self._value.location, self._path, problem, hint)

    def put(self, node: Node | None, kind: ValueKind, parts: Sequence[str], done: str) -> Node | None:
        """Put the value below a node; returns the node as it was when that cannot be."""
        if not parts:
            return kind.canonical(self._value, done, self._findings)
        holder = _holder(kind)
        if isinstance(holder, ListOf):
            return self._put_item(node, holder, parts, done)
        if isinstance(holder, MapOf) and _holder(holder.kind) is None:
            # Free names may hold dots, and nothing is below their values.
            parts = [".".join(parts)]
        found = holder.below(parts[0]) if holder and parts[0] else None
        if found is None:
            self._fault(*self._unknown(holder, parts[0], done))
            return node
        return self._put_entry(node, *found, parts, done)

    def _put_entry(
        self, node: Node | None, name: str, kind: ValueKind, parts: Sequence[str], done: str
    ) -> Node | None:
        if isinstance(kind, KeyTable) and name in kind.moved:
            if len(parts) > 1:
                return self.put(node, kind, parts[1:], done)
            if not isinstance(self._value, MapNode):
                kind.wrong(self._value, self._path, self._findings)
                return node
            return laid_over(node, kind.canonical(self._value, done, self._findings))
        if not (node is None or isinstance(node, MapNode) or _is_null(node)):
            self._fault(f"there is no map at {done or 'the top'} to set this in")
            return node
        base = node if isinstance(node, MapNode) else MapNode(self._value.location)
        before = base.entries.get(name)
        after = self.put(before.node if before else None, kind, parts[1:], _joined(done, name))
        if after is None:
            return node
        return base.with_entry(name, MapEntry(parts[0], self._value.location, after))

    def _put_item(self, node: Node | None, kind: ListOf, parts: Sequence[str], done: str) -> Node | None:
        if not (node is None or isinstance(node, ListNode) or _is_null(node)):
            self._fault(f"there is no list at {done} to set this in")
            return node
        nodes = list(node.nodes) if isinstance(node, ListNode) else []
        index = int(parts[0]) if parts[0].isdecimal() and len(parts[0]) < 7 else -1
        if not 0 <= index <= len(nodes):
            allowed = "0" if not nodes else f"0 to {len(nodes)}"
            self._fault(f"{shortened(parts[0])!r} is not an index of the list {done}; write {allowed}")
            return node
        after = self.put(
            nodes[index] if index < len(nodes) else None, kind.kind, parts[1:], f"{done}.{index}"
        )
        if after is None:
            return node
        nodes[index:] = [after, *nodes[index + 1 :]]
        return ListNode(self._value.location if node is None else node.location, tuple(nodes))

    def _unknown(self, holder: ValueKind | None, part: str, done: str) -> tuple[str, str]:
        if not part:
            return "the path has an empty part", "write it such as framework.version or data_stores.0.type"
        if not isinstance(holder, KeyTable):
            return f"nothing can be set below {done}", ""
        hint = holder.advice(part)
        if not done and not nearest(part, holder.known()):
            hint = hint or f"a hyper-parameter is set as params.{part}"
        return f"{shortened(part)} is not a key of {holder.what}", hint


def drop(root: MapNode, path: Sequence[str]) -> MapNode:
    """Return a copy without the entry at a path of maps; the same when it is not there."""
    entry = root.entries.get(path[0])
    if entry is None:
        return root
    if len(path) == 1:
        return root.without(path[0])
    if not isinstance(entry.node, MapNode):
        return root
    return root.with_entry(path[0], MapEntry(entry.written, entry.location, drop(entry.node, path[1:])))


def _holder(kind: ValueKind) -> ValueKind | None:
    """Return the kind itself, or the alternative of it, that has something below it."""
    if isinstance(kind, OneOf):
        return next((holder for inner in kind.kinds if (holder := _holder(inner))), None)
    return kind if isinstance(kind, (KeyTable, MapOf, ListOf)) else None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.is_null
