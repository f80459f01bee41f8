"""Values from outside the manifest: ``--set``, flags, ``FABRIC_*`` variables and the configuration's defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from workbench.errors import UsageError, is_utf8
from workbench.manifest.builder.determined import EXPERIMENT, RESOURCES
from workbench.manifest.builder.overlay import drop, kind_at, laid_over, put_at, set_at
from workbench.manifest.keys.containers import KeyTable
from workbench.manifest.keys.kinds import MultilineText, Script, Text, ValueKind
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import (
    ListNode,
    MapEntry,
    MapNode,
    Node,
    ScalarNode,
    SourceLocation,
    describe_node,
    from_value,
)
from workbench.values import dataclass

VARIABLES: Final[Mapping[str, str]] = {
    f"FABRIC_{name.upper()}": name for name, key in MANIFEST.keys.items() if key.variable
}
"""Each environment variable that sets a key, and the key."""

NOT_UTF8: Final = "the value is not UTF-8"

SET: Final = "--set"
"""The origin of what ``--set`` has set."""
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")

FLAG_NAMES: Final[Mapping[str, str]] = {
    "env": "-e",
    "secrets": "-e",
    "labels": "--label",
    "framework": "--image",
    "framework.command": "--",
    "data_stores": "--data",
}
"""Flags that are not called as their key."""


def apply_sets(root: Node | None, overrides: Sequence[str], findings: Findings) -> Node | None:
    """Lay every ``path=value`` over the manifest, in order.

    Raises:
        UsageError: one of them is not of that form.
    """
    for path, node in _set_by_paths(overrides, MANIFEST, findings):
        root = set_at(root, MANIFEST, path, node, findings)
    return root


@dataclass(frozen=True, slots=True)
class ArrayValues:
    """What the jobs of an array differ in."""

    params: Mapping[str, Sequence[str]]
    """The texts of the values of each parameter, as ``--set`` has them."""
    at_once: int
    """How many jobs run at once, at most."""


def as_array(root: MapNode, array: ArrayValues, findings: Findings) -> MapNode:
    """Return a manifest as the search that an array is: a grid, which begins with the last of its values."""
    params: dict[str, MapEntry] = {}
    for name, texts in array.params.items():
        path = f"params.{name}"
        location = SourceLocation(f"{SET} {path}", 0, 0, SET)
        nodes = tuple(_param_node(text, path, location, findings) for text in reversed(texts))
        choice = MapEntry("choice", location, ListNode(location, nodes))
        params[name] = MapEntry(name, location, MapNode(location, {"choice": choice}))
        root = drop(root, ["params", name])
    location = SourceLocation(SET, 0, 0, SET)
    search = {
        "method": from_value("grid", location),
        "max_concurrent": from_value(array.at_once, location),
        "params": MapNode(location, params),
    }
    entries = {name: MapEntry(name, location, node) for name, node in search.items()}
    return root.with_entry("search", MapEntry("search", location, MapNode(location, entries)))


def _param_node(text: str, path: str, location: SourceLocation, findings: Findings) -> ScalarNode:
    """Read one of the values of a parameter; one that it cannot have is a fault."""
    if _NUMBER.fullmatch(text):  # there may be 100,000
        return ScalarNode(text, location)
    node = _value(text, MANIFEST, path, location, findings)
    if isinstance(node, ScalarNode) and not node.is_null:
        return node
    if node is not None:
        findings.fault(location, path, f"found {describe_node(node)}; write a number, a text, true or false")
    return ScalarNode(text, location)


def apply_sets_of_experiment(root: MapNode, overrides: Sequence[str], findings: Findings) -> MapNode:
    """Lay every ``path=value`` over an experiment of Determined; its keys are checked with those of the file.

    Raises:
        UsageError: one of them is not of that form.
    """
    for path, node in _set_by_paths(overrides, EXPERIMENT, findings):
        root = put_at(root, path.split("."), node)
    return root


def sets_experiment_key(override: str) -> bool:
    """Say whether a ``path=value`` sets a key in an experiment of Determined.

    A key that manifests have, too, is the experiment's unless the value has a form that manifests alone take: labels
    that are a map, a time with its unit.
    """
    path, _, value = override.partition("=")
    name, _, below = path.strip().partition(".")
    if name == "resources":  # manifests have such a map, too
        return below.partition(".")[0] in RESOURCES.keys
    if name not in EXPERIMENT.keys:
        return False
    if (found := MANIFEST.below(name)) is None:
        return True
    node = _value(value, MANIFEST, name, SourceLocation(SET, 0, 0, SET), Findings())
    is_only_ours = isinstance(node, MapNode) or (
        node is not None and _takes(found[1], node) and not _takes(EXPERIMENT.keys[name].kind, node)
    )
    # An item of a list is set in the list that the manifest has of it.
    return not below and not is_only_ours


def _takes(kind: ValueKind, node: Node) -> bool:
    findings = Findings()
    kind.read(kind.canonical(node, "", findings), "", findings)
    return not findings.faults and not findings.warnings


def without_variables(environ: Mapping[str, str], overrides: Sequence[str]) -> dict[str, str]:
    """Return an environment without the variables of keys that ``--set`` sets in an experiment: it goes before them."""
    names = {text.partition("=")[0].strip() for text in overrides}
    return {name: value for name, value in environ.items() if VARIABLES.get(name) not in names}


def _set_by_paths(overrides: Sequence[str], kind: KeyTable, findings: Findings) -> Iterator[tuple[str, Node]]:
    """Yield the path and the value of each ``path=value``."""
    for text in overrides:
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not path:
            raise UsageError(
                f"--set needs path=value; found {text!r}",
                hint="such as --set params.lr=0.1 or --set data_stores=[]",
            )
        node = _value(value, kind, path, SourceLocation(f"{SET} {path}", 0, 0, SET), findings)
        if node is not None:
            yield path, node


def apply_variables(root: Node | None, environ: Mapping[str, str], findings: Findings) -> Node | None:
    """Lay every ``FABRIC_*`` variable that names a key over the manifest; an empty one is not set."""
    for variable, name in VARIABLES.items():
        if value := environ.get(variable, ""):
            node = _value(value, MANIFEST, name, SourceLocation(variable, 0, 0, variable), findings)
            if node is not None:
                root = set_at(root, MANIFEST, name, node, findings)
    return root


def apply_flags(root: Node | None, flags: Mapping[str, Any], findings: Findings) -> Node | None:
    """Lay flags over the manifest, by key; None means that the flag was not given.

    Maps are joined key by key, names of secrets are added, and ``image`` stands for ``framework`` being
    that image.
    """
    for key, value in flags.items():
        if value is None:
            continue
        flag = FLAG_NAMES.get(key, "--" + key.rpartition(".")[2].replace("_", "-"))
        location = SourceLocation(f"flag {flag}", 0, 0, f"flag {flag}")
        if not is_utf8(_texts(value)):
            findings.fault(location, key, NOT_UTF8)
            continue
        for path, node in _set_by_flag(root, key, value, location):
            if isinstance(root, MapNode):
                root = _without_rival(root, path)
            root = set_at(root, MANIFEST, path, node, findings)
    return root


def _set_by_flag(
    root: Node | None, key: str, value: Any, location: SourceLocation
) -> Iterator[tuple[str, Node]]:
    if key == "image":
        yield "framework.name", from_value("custom", location)
        yield "framework.version", from_value(value, location)
        yield "framework.image_tag", ScalarNode("null", location)
    elif key == "secrets" and _is_list(value):
        there = root.entries.get("secrets") if isinstance(root, MapNode) else None
        before = there.node.nodes if there and isinstance(there.node, ListNode) else ()
        added = tuple(from_value(name, location) for name in value if not _holds(before, str(name)))
        yield key, ListNode(location, (*before, *added))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield f"{key}.{name}", from_value(item, location)
    else:
        yield key, from_value(value, location)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Say whether a flag's value is a list of names; any other value is refused later, by the key's kind."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _holds(nodes: Sequence[Node], name: str) -> bool:
    return any(isinstance(node, ScalarNode) and node.text.strip() == name for node in nodes)


def _without_rival(root: MapNode, path: str) -> MapNode:
    """Return the manifest without a secret whose name a flag sets as a variable."""
    entry = root.entries.get("secrets")
    if not path.startswith("env.") or entry is None or not isinstance(entry.node, ListNode):
        return root
    name = path.removeprefix("env.")
    kept = tuple(node for node in entry.node.nodes if not _holds([node], name))
    return root.with_entry(
        "secrets", MapEntry(entry.written, entry.location, ListNode(entry.node.location, kept))
    )


def drop_secrets_from_env(root: MapNode, flags: Mapping[str, Any]) -> MapNode:
    """Take a variable that a flag makes a secret out of the manifest's ``env``."""
    names = flags.get("secrets")
    for name in names if _is_list(names) else ():
        root = drop(root, ("env", str(name)))
    return root


def under_defaults(
    root: Node | None,
    defaults: Mapping[str, Any],
    file: str,
    findings: Findings,
    *,
    origin: str = "config.toml",
) -> Node | None:
    """Lay the manifest over the defaults that a file of the configuration has for its keys."""
    known = {name: value for name, value in defaults.items() if MANIFEST.below(name)}
    if not known:
        return root
    location = SourceLocation(file, 0, 0, origin)
    base = MANIFEST.canonical(from_value(known, location), "", findings)
    return laid_over(base, root) if root is not None else base


def _value(
    text: str, table: KeyTable, path: str, location: SourceLocation, findings: Findings
) -> Node | None:
    """Read the value of an option or a variable as YAML; nothing is null.

    Where a text belongs and the value is not YAML text of its own, it is that text itself: nobody should
    have to quote the ``: `` or the ``#`` of a command twice.
    """
    if not is_utf8(text):
        findings.fault(location, path, NOT_UTF8)
        return None
    tried = Findings()
    node = compose(text, location.file, tried, origin=location.origin, lines=False)
    if node is None and not tried.faults:
        return ScalarNode("null", location)
    if isinstance(kind_at(table, path), (Text, Script, MultilineText)) and not _whole(node, text):
        return ScalarNode(text, location, "literal")
    findings.faults.extend(tried.faults)
    return node


def _texts(value: Any) -> str:
    """Return all texts of a flag's value as one."""
    if isinstance(value, Mapping):
        return "".join(f"{name}{_texts(item)}" for name, item in value.items())
    return "".join(map(_texts, value)) if _is_list(value) else str(value)


def _whole(node: Node | None, text: str) -> bool:
    return isinstance(node, ScalarNode) and (node.style != "plain" or node.text == text.strip())
