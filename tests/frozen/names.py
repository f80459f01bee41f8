"""Says what can be imported from modules, as JSON: ``python tests/frozen/names.py MODULE|GROUP...``.

A program of its own, because ``fabric_learner`` is found as training code finds it: in the agent's archive, which a
learner has on its ``PYTHONPATH``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, Final

CALLED: Final = ("fabric_workbench", "fabric_learner", "workbench.learner")
"""Modules whose functions people call: names and defaults of their parameters are frozen, too."""

EXTENDED: Final = ("backends.interface", "runners.interface", "runners.conformance")
"""Modules whose classes people derive from, or are given objects of: names of their members are frozen."""

GROUPS: Final = ("fabric.backends", "fabric.runners", "fabric.collectors")

_OFFERED: Final = {"runners.conformance": ("RunnerContract",)}
"""Of a module that only puts together what it offers: that alone. Of what it is made, nothing is promised."""

_NO_MEMBERS: Final = ("_", "test_")
"""How names begin that nobody outside uses: each test of a contract is its own matter."""

_OURS: Final = ("workbench", "backends", "runners", "screens", "fabric_workbench", "fabric_learner")


def public(module: str) -> dict[str, Any]:
    """Return the public names of a module and what each is."""
    found = importlib.import_module(module)
    offered = _OFFERED.get(module) or getattr(found, "__all__", None)
    names = offered or [name for name in vars(found) if _is_ours(name, vars(found)[name])]
    return {name: _described(getattr(found, name), module in CALLED) for name in sorted(names)}


def plugins(group: str) -> dict[str, Any]:
    """Return the entry points of a group that fabric itself brings, and what each is once it is loaded."""
    own = [
        entry for entry in entry_points(group=group) if entry.dist and entry.dist.name == "fabric-workbench"
    ]
    return {entry.name: _plugin(entry.load()) for entry in sorted(own, key=lambda entry: entry.name)}


def _plugin(found: Any) -> dict[str, Any]:
    public_bases = [
        base.__name__ for base in found.__mro__[1:] if base.__name__ in ("Backend", "Runner", "Collector")
    ]
    return {"class": found.__name__, "is a": public_bases}


def _is_ours(name: str, value: object) -> bool:
    if name.startswith("_") or isinstance(value, types.ModuleType):
        return False
    home = getattr(value, "__module__", None)
    # An alias such as Literal[...] has typing's own module, and is distinguished from typing's names by its arguments.
    return str(home).partition(".")[0] in _OURS or hasattr(value, "__args__")


def _described(value: Any, called: bool) -> dict[str, Any]:
    if inspect.isclass(value):
        return {"kind": "class", "members": dict(_members(value, called))}
    if callable(value) and not hasattr(value, "__args__"):
        return {"kind": "function", **_parameters(value, called)}
    return {"kind": "alias", "of": re.sub(r"[\w.]+\.(\w+)", r"\1", str(value))}


def _members(found: type, called: bool) -> Iterator[tuple[str, Any]]:
    ours = [base for base in found.__mro__ if base.__module__.partition(".")[0] in _OURS]
    names = {name for base in ours for name in {**vars(base), **vars(base).get("__annotations__", {})}}
    for name in sorted(name for name in names if not name.startswith(_NO_MEMBERS)):
        value = inspect.getattr_static(found, name, None)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield (
            name,
            {"kind": "method", **_parameters(value, called)}
            if inspect.isfunction(value)
            else {"kind": "field"},
        )


def _parameters(function: Any, called: bool) -> dict[str, Any]:
    if not called:
        return {}
    parameters = inspect.signature(function).parameters.values()
    return {"parameters": [f"{'*, ' if p.kind is p.KEYWORD_ONLY else ''}{_parameter(p)}" for p in parameters]}


def _parameter(parameter: inspect.Parameter) -> str:
    signs: dict[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
    return f"{signs.get(parameter.kind, '')}{parameter.name}{default}"


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        document = {word: plugins(word) if word in GROUPS else public(word) for word in sys.argv[1:]}
    json.dump(document, sys.stdout)
