"""What is said outside the manifest: ``--set``, flags, ``FABRIC_*`` variables, ``config.toml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from workbench.errors import UsageError
from workbench.manifest.builder.overlay import drop, kind_at, laid_over, set_at
from workbench.manifest.keys.kinds import Passage, Script, Text
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import Entry, Items, Map, Node, Place, Scalar, from_value

VARIABLES: Final[Mapping[str, str]] = {
    f"FABRIC_{name.upper()}": name for name, key in MANIFEST.keys.items() if key.variable
}
"""Each environment variable that sets a key, and the key."""

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
    for text in overrides:
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not path:
            raise UsageError(
                f"--set needs path=value; found {text!r}",
                hint="such as --set params.lr=0.1 or --set data_stores=[]",
            )
        node = _value(value, path, Place(f"--set {path}", 0, 0, "--set"), findings)
        if node is not None:
            root = set_at(root, MANIFEST, path, node, findings)
    return root


def apply_variables(root: Node | None, environ: Mapping[str, str], findings: Findings) -> Node | None:
    """Lay every ``FABRIC_*`` variable that names a key over the manifest; an empty one is not set."""
    for variable, name in VARIABLES.items():
        if value := environ.get(variable, ""):
            node = _value(value, name, Place(variable, 0, 0, variable), findings)
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
        place = Place(f"flag {flag}", 0, 0, f"flag {flag}")
        for path, node in _set_by_flag(root, key, value, place):
            if isinstance(root, Map):
                root = _without_rival(root, path)
            root = set_at(root, MANIFEST, path, node, findings)
    return root


def _set_by_flag(root: Node | None, key: str, value: Any, place: Place) -> Iterator[tuple[str, Node]]:
    if key == "image":
        yield "framework.name", from_value("custom", place)
        yield "framework.version", from_value(value, place)
        yield "framework.image_tag", Scalar("null", place)
    elif key == "secrets" and _is_list(value):
        there = root.entries.get("secrets") if isinstance(root, Map) else None
        before = there.node.nodes if there and isinstance(there.node, Items) else ()
        added = tuple(from_value(name, place) for name in value if not _holds(before, str(name)))
        yield key, Items(place, (*before, *added))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield f"{key}.{name}", from_value(item, place)
    else:
        yield key, from_value(value, place)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Say whether a flag has names one by one; what is no list is laid over as it is, and refused by its type."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _holds(nodes: Sequence[Node], name: str) -> bool:
    return any(isinstance(node, Scalar) and node.text.strip() == name for node in nodes)


def _without_rival(root: Map, path: str) -> Map:
    """A variable given by a flag is no longer a secret of the manifest's."""
    entry = root.entries.get("secrets")
    if not path.startswith("env.") or entry is None or not isinstance(entry.node, Items):
        return root
    name = path.removeprefix("env.")
    kept = tuple(node for node in entry.node.nodes if not _holds([node], name))
    return root.with_entry("secrets", Entry(entry.written, entry.place, Items(entry.node.place, kept)))


def drop_secrets_from_env(root: Map, flags: Mapping[str, Any]) -> Map:
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
    place = Place(file, 0, 0, origin)
    base = MANIFEST.canonical(from_value(known, place), "", findings)
    return laid_over(base, root) if root is not None else base


def _value(text: str, path: str, place: Place, findings: Findings) -> Node | None:
    """Read the value of an option or a variable as YAML; nothing is null.

    Where a text belongs and the value is no YAML text of its own, it is that text itself: nobody should
    have to quote the ``: `` or the ``#`` of a command twice.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        findings.fault(place, path, "the value is not UTF-8")
        return None
    tried = Findings()
    node = compose(text, place.file, tried, origin=place.origin, lines=False)
    if node is None and not tried.faults:
        return Scalar("null", place)
    if isinstance(kind_at(MANIFEST, path), (Text, Script, Passage)) and not _whole(node, text):
        return Scalar(text, place, "literal")
    findings.faults.extend(tried.faults)
    return node


def _whole(node: Node | None, text: str) -> bool:
    return isinstance(node, Scalar) and (node.style != "plain" or node.text == text.strip())
