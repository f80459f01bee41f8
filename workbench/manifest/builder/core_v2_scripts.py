"""Which scripts of a command are made for Determined's Core API, and which external ids they give.

They are read by their syntax trees and never run, so what cannot be known without running them is not known.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.learner.determined_jobs import EXTERNAL_IDS
from workbench.manifest.builder.scripts_run import RunScript, scripts_of
from workbench.values import dataclass

if TYPE_CHECKING:
    import ast

SCRIPT_BYTES_MAX: Final = 1 << 18
"""A larger file is hardly a script, and reading it would make each submission slow."""
_SCRIPTS_MAX: Final = 8
"""So many of a command's scripts are looked at."""
_PACKAGE: Final = "determined"
_SECOND_CORE: Final = "determined.experimental.core_v2"
_CONFIG_CLASSES: Final = frozenset({"Config", "DefaultConfig", "UnmanagedConfig"})

_CHANGING: Final = frozenset(
    {"setdefault", "pop", "update", "clear", "popitem", "__setitem__", "__delitem__", "__ior__"}
)
"""Methods that change a map."""


@dataclass(frozen=True, slots=True)
class ExternalIds:
    """By what training code names its experiment and its trial: where both are the same, it is the same trial."""

    experiment: str
    trial: str


def core_api_part(command: str, code: Path) -> tuple[str, ast.Module | None]:
    """Return what of a command is made for the Core API, a script of the code or Determined's launcher, and the script.

    Nothing is where the code has a package of that name itself: it would be another one than a job's.
    """
    found = ""
    for script in itertools.islice(scripts_of(command, code), _SCRIPTS_MAX):
        tree = None if script.path is None else _core_api_tree(script.path)
        if script.path is not None and tree is None:
            continue
        if not found and any(map(_has_own_package, _folders_of(script, code))):
            break
        found = found or script.name
        if tree is not None:
            return found, tree
    return found, None


def _folders_of(script: RunScript, code: Path) -> set[Path]:
    """Return where a script may find modules of its own."""
    return {code, script.folder, *([script.path.parent] if script.path else [])}


def _has_own_package(folder: Path) -> bool:
    # A folder without the first one is no package that would come before another one: it may hold experiments.
    return any((folder / name).is_file() for name in (f"{_PACKAGE}/__init__.py", f"{_PACKAGE}.py"))


def _core_api_tree(script: Path) -> ast.Module | None:
    """Return a script that imports ``core_v2``, as it is read; None for another one.

    Scripts that import other parts may train without a cluster, which ``get_cluster_info()`` of a job would close to
    them; ``core_v2`` cannot.
    """
    try:
        if script.stat().st_size > SCRIPT_BYTES_MAX:
            return None
        source = script.read_bytes()
        if _PACKAGE.encode() not in source:
            return None
        import ast  # most commands need none, and each submission would wait for it

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about the user's code, which is not run here
            tree = ast.parse(source)
        is_for_core_api = any(f"{name}.".startswith(f"{_SECOND_CORE}.") for name in _imports(tree))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if is_for_core_api else None


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a script imports, with dots: ``determined``, ``determined.core.init``."""
    import ast  # as above

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def external_ids(tree: ast.Module, environment: Mapping[str, str]) -> tuple[ExternalIds | None, bool]:
    """Return the external ids that a script gives, and whether it gives any.

    They are None where it gives none, several, or such as are not known.
    """
    try:
        return _external_ids(tree, environment)
    except RecursionError:
        # An expression may be nested without end.
        return None, False


def _external_ids(tree: ast.Module, environment: Mapping[str, str]) -> tuple[ExternalIds | None, bool]:
    import ast  # as above

    given, is_known, are_given = [], True, False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _CONFIG_CLASSES:
            ids = {each.arg: each.value for each in node.keywords if each.arg in EXTERNAL_IDS}
            given.append(ids)
            # What is unpacked may be others.
            is_unpacked = not all(each.arg for each in node.keywords)
            is_known &= bool(ids) or not is_unpacked
            are_given |= len(ids) == len(EXTERNAL_IDS) or (bool(ids) and is_unpacked)
    if not (any(given) and is_known):
        return None, are_given
    environment = _variables_left_alone(tree, environment)
    constants = _constants(tree, environment)
    found = {
        tuple(_text(each.get(name), constants, environment) for name in EXTERNAL_IDS)
        for each in given
        if each
    }
    experiment, trial = found.pop()
    return ExternalIds(experiment, trial) if experiment and trial and not found else None, are_given


def _last_name(node: ast.expr) -> str:
    """Return what follows the last dot of a name; an empty text where it is none."""
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def _constants(tree: ast.Module, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that a script assigns once and at its top, by their names; one that is not known is empty."""
    import ast  # as above

    bound, found = Counter(_bound_names(tree)), dict[str, str]()
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target, *others = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(target, ast.Name) and not others and bound[target.id] == 1:
                found[target.id] = _text(node.value, found, environment)
    return found


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names to which a script gives a meaning, as often as it does: variables, arguments, imports, ..."""
    import ast  # as above

    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id
        elif not isinstance(node, (ast.Attribute, ast.Constant, ast.keyword)):
            for _, value in ast.iter_fields(node):
                yield from (
                    each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)
                )


def _text(node: ast.expr | None, constants: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the text that an expression stands for; an empty one where that is not known without running it."""
    import ast  # as above

    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return constants.get(name, "")
        case ast.JoinedStr(values=parts):
            texts = [_text(part, constants, environment) for part in parts]
            return "".join(texts) if all(texts) else ""
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _text(value, constants, environment)
        case ast.Subscript(value=looked, slice=ast.Constant(value=str() as variable)):
            return environment.get(variable, "") if _is_environment(looked) else ""
        case ast.Call(
            func=ast.Attribute(value=ast.Name("os"), attr="getenv"),
            args=[ast.Constant(value=str() as variable), *_],
        ):
            return environment.get(variable, "")
        case ast.Call(
            func=ast.Attribute(value=looked, attr="get"), args=[ast.Constant(value=str() as variable), *_]
        ):
            return environment.get(variable, "") if _is_environment(looked) else ""
    return ""


def _is_environment(node: ast.expr) -> bool:
    """Return whether an expression is ``os.environ``."""
    import ast  # as above

    return (
        isinstance(node, ast.Attribute)
        and node.attr == "environ"
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


def _variables_left_alone(tree: ast.Module, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that a script leaves as they are."""
    changed = set(_changed_variables(tree))
    if None in changed:
        return {}
    return {name: value for name, value in environment.items() if name not in changed}


def _changed_variables(tree: ast.Module) -> Iterator[str | None]:
    """Yield the variables that a script may set or remove; None for one that is not known."""
    import ast  # as above

    for node in ast.walk(tree):
        keys: Sequence[ast.expr | None] = ()
        match node:
            case ast.Subscript(value=looked, slice=key, ctx=ast.Store() | ast.Del()):
                keys = [key] if _last_name(looked) == "environ" else ()
            case ast.Attribute(attr="environ", ctx=ast.Store()):
                keys = [None]
            case ast.AugAssign(target=ast.Name(id="environ")):
                keys = [None]
            case ast.Call(func=ast.Attribute(value=looked, attr=name), args=arguments) if (
                name in _CHANGING and _last_name(looked) == "environ"
            ):
                keys = arguments[:1] if arguments and name in {"setdefault", "pop"} else [None]
            case ast.Call(func=called, args=[key, *_]) if _last_name(called) in {"putenv", "unsetenv"}:
                keys = [key]
        for given in keys:
            yield given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None
