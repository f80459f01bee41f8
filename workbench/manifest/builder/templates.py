"""Manifests that fabric writes: a commented one to start from, and the one that a bare command becomes.

The job of a command whose script is made for Determined's Core API is an experiment that no file describes. Only
commands are looked at: a manifest says itself what its job is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.learner.determined_jobs import CONFIG_VARIABLE, EXTERNAL_IDS, UNMANAGED
from workbench.learner.texts import escaped
from workbench.manifest.builder.scripts_run import RunScript, interpreter_of, scripts_of
from workbench.manifest.yaml.core_schema import written
from workbench.spec import FRAMEWORKS
from workbench.values import dataclass

if TYPE_CHECKING:
    import ast

    from workbench.manifest.builder.load import Loaded
    from workbench.manifest.builder.script_options import ScriptOption
    from workbench.spec import JobSpec

_SCRIPT_SUFFIXES: Final = (".py", ".sh", ".bash", ".R", ".jl", ".pl", ".rb", ".js")
_NAME_LENGTH: Final = 60
_NOTHING: Final[Mapping[str, Any]] = {}


_TEMPLATE: Final = """\
# A job of fabric's. Check it with `fabric validate FILE`, start it with `fabric run FILE`.
name: {name}
# description: What it is about.

# Per learner. Memory needs a unit: 500MiB, 1.5GB, 8G.
learners: {learners}
gpus: {gpus}
# cpus: 2
# memory: 4GiB
{ends_when}
framework:
  # The image, where learners run in containers: tensorflow, pytorch, ... with version as tag, or custom with
  # version as a whole reference, such as python:3.12. Not used where they are plain processes.
  name: {framework}
{version}
  # Runs in the folder of the code. ${{params.NAME}} stands for a hyper-parameter of below.
  command: {command}

# Hyper-parameters, changed by --set params.lr=0.1; the learner sees FABRIC_PARAM_LR.
{params}

# How metrics are found: auto (the default), plain (not at all), tensorboard, regex_extractor or emetrics_file.
# evaluation_metrics:
#   type: regex_extractor
#   groups:
#     train:
#       regex: 'step %{{INT:step}} loss %{{FLOAT:loss}}'
#       scalars:
#         loss: {{type: FLOAT, value: $loss}}
#       etimes:
#         step: {{type: INT, value: $step}}

# Variables of the command; secrets are named here and taken from your environment.
# env:
#   OMP_NUM_THREADS: 4
# secrets: [WANDB_API_KEY]

# python: current            # or requirements, conda:NAME, PATH, /path/to/python
# requirements: requirements.txt
# max_runtime: 8h
# max_restarts: 0
# seed: 42
"""

_NO_PARAMS: Final = "# params:\n#   lr: 0.01"

_SEVERAL: Final = """\
# The job is over when all learners are; FfDL's own rule is first.
ends_when: all
"""

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

_LIKELY_SCRIPTS: Final = ("train.py", "main.py", "run.py")
"""What training scripts are called, the likeliest first."""


@dataclass(frozen=True, slots=True)
class ExternalIds:
    """By what training code names its experiment and its trial: where both are the same, it is the same trial."""

    experiment: str
    trial: str


def template(
    *,
    name: str = "my-job",
    learners: int = 1,
    gpus: int = 0,
    framework: str = "custom",
    version: str = "",
    command: str = "python train.py",
    options: Sequence[ScriptOption] = (),
) -> str:
    """Return a commented manifest that validates, for ``fabric init``; ``options`` become parameters.

    Raises:
        UsageError: there is no such framework.
    """
    framework = framework.lower()
    if framework not in FRAMEWORKS:
        raise UsageError(f"there is no framework {framework!r}", hint=f"one of {', '.join(FRAMEWORKS)}")
    return _TEMPLATE.format(
        name=written(name),
        learners=learners,
        gpus=gpus,
        ends_when=_SEVERAL if learners > 1 else "",
        framework=written(framework),
        version=f"  version: {written(version)}" if version else "  # version: python:3.12",
        command=_command_text(command, "  "),
        params=_params_text(options) if options else _NO_PARAMS,
    )


def _params_text(options: Sequence[ScriptOption]) -> str:
    lines = ["params:"]
    for option in options:
        about = f"  # {escaped(option.help)}" if option.help else ""
        lines.append(f"  {written(option.param)}: {_scalar(option.value)}{about}")
    return "\n".join(lines)


def command_in(folder: Path) -> str:
    """Return the command that trains with the code of a folder, for a manifest to begin with.

    Where there is no script, it is one that can be run, and says what to put in its place.
    """
    scripts = sorted(each.name for each in folder.glob("*.py")) if folder.is_dir() else []
    likely = [name for name in _LIKELY_SCRIPTS if name in scripts] or (scripts if len(scripts) == 1 else [])
    if not likely:
        return "echo 'write the command that trains here'"
    return shlex.join([*(interpreter_of(likely[0]) or ()), likely[0]])


def from_command(
    argv: Sequence[str],
    *,
    name: str | None = None,
    gpus: int = 0,
    image: str = "",
    keys: Mapping[str, Any] = _NOTHING,
) -> str:
    """Return the manifest of a bare command, as ``fabric run -- python train.py --lr 0.1`` uses and keeps it.

    Args:
        argv: the command and its arguments, each kept as it is; a single one is shell text, as ``sh -c``
            has it.
        name: what the job is called; from the command if None.
        gpus: per learner.
        image: what containers are made of; empty for none.
        keys: further keys of the manifest with their values.

    Raises:
        UsageError: there is no command, or it is not text.
    """
    if not argv or not argv[0].strip():
        raise UsageError("there is no command to run", hint="such as fabric run -- python train.py")
    command = argv[0] if len(argv) == 1 else shlex.join(argv)
    try:
        command.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the command is not UTF-8, which a manifest must be", hint="put it in a script file"
        ) from None
    several = {"ends_when": "all"} if keys.get("learners", 1) not in (0, 1) else {}
    values = {"name": name or _name_of(argv), **({"gpus": gpus} if gpus else {}), **several, **keys}
    lines = [line for key, value in values.items() if value is not None for line in _lines(key, value, "")]
    lines.append("framework:")
    if image:
        lines += ["  name: custom", f"  version: {written(image)}"]
    lines.append(f"  command: {_command_text(command, '  ')}")
    return "\n".join(lines) + "\n"


def as_experiment(
    loaded: Loaded, code: Path | None, environment: Mapping[str, str]
) -> tuple[Loaded, tuple[str, ...], ExternalIds | None]:
    """Return a command's job as an experiment if its script imports ``core_v2``, with a note; else as it is.

    With it come the external ids that the script gives, where they can be read from it. They are no part of the job: a
    manifest that is kept of it would go by them when the script gives others.

    A variable of the user's that holds an experiment is left alone, also an empty one, which is none.

    Args:
        loaded: the command's job.
        code: the folder of its code; None where it has none.
        environment: the variables that the job has beside its own.
    """
    spec = loaded.spec
    if CONFIG_VARIABLE in spec.env or CONFIG_VARIABLE in spec.secrets:
        return loaded, (), None
    command = spec.framework.command
    found, tree = _core_api_part(command, code) if code is not None and code.is_dir() else ("", None)
    if not found:
        return loaded, (), None
    origins = {key: origin for key, origin in loaded.origins.items() if key != "env"}
    origins[f"env.{CONFIG_VARIABLE}"] = found
    experiment = _experiment_text(spec)
    env, text = {**spec.env, CONFIG_VARIABLE: experiment}, _with_variable(loaded.text, experiment)
    note = (
        f"{found} is made for Determined's Core API: the job is an experiment"
        f" (-e {CONFIG_VARIABLE}= leaves that out)"
    )
    # What the command sets before its script is not looked at: such a variable is not known.
    known = {
        name: value
        for name, value in {**environment, **spec.env}.items()
        if f"{name}=" not in command and "$" not in value
    }
    ids: ExternalIds | None = None
    if tree is not None:
        with contextlib.suppress(
            RecursionError
        ):  # an expression may be nested without end: nothing is known then
            ids = _external_ids(tree, known)
    return replace(loaded, spec=replace(spec, env=env), text=text, origins=origins), (note,), ids


def _with_variable(text: str, experiment: str) -> str:
    """Return the manifest of a command with the variable that holds an experiment: run again it is one, too."""
    line = "\n".join(_lines(CONFIG_VARIABLE, experiment, "  "))
    rows = text.splitlines(keepends=True)
    if "env:\n" not in rows:
        rows.append("env:\n")
    at = rows.index("env:\n") + 1
    return "".join([*rows[:at], line + "\n", *rows[at:]])


def _experiment_text(spec: JobSpec) -> str:
    """Return the experiment of a command. It has no metric: nobody has said by which one checkpoints are the best.

    Nor does it repeat the command: a variable holds so much and no more.
    """
    config = {"name": spec.name, "hyperparameters": {}, "searcher": {"name": "single"}, UNMANAGED: True}
    return json.dumps(config, ensure_ascii=False)


def _core_api_part(command: str, code: Path) -> tuple[str, ast.Module | None]:
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


def _external_ids(tree: ast.Module, environment: Mapping[str, str]) -> ExternalIds | None:
    """Return the external ids that a script gives; None where it gives none, several, or such as are not known."""
    import ast  # as above

    given, is_known = [], True
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _CONFIG_CLASSES:
            ids = {each.arg: each.value for each in node.keywords if each.arg in EXTERNAL_IDS}
            given.append(ids)
            # What is unpacked may be others.
            is_known &= bool(ids) or all(each.arg for each in node.keywords)
    if not (any(given) and is_known):
        return None
    environment = _unchanged(tree, environment)
    constants = _constants(tree, environment)
    found = {
        tuple(_text(each.get(name), constants, environment) for name in EXTERNAL_IDS)
        for each in given
        if each
    }
    experiment, trial = found.pop()
    return ExternalIds(experiment, trial) if experiment and trial and not found else None


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


def _unchanged(tree: ast.Module, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that a script leaves as they are."""
    changed = set(_changed_variables(tree))
    if None in changed:
        return _NOTHING
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


def _name_of(argv: Sequence[str]) -> str:
    arguments = argv if len(argv) > 1 else argv[0].split()
    script = next((argument for argument in arguments if argument.endswith(_SCRIPT_SUFFIXES)), None)
    if script is None and "-m" in arguments[1:-1]:
        script = arguments[arguments.index("-m") + 1]
    path = PurePosixPath(script or arguments[0])
    name = path.stem if path.name.endswith(_SCRIPT_SUFFIXES) else path.name
    shown = "".join(character if character.isprintable() else "-" for character in name)
    return shown[:_NAME_LENGTH].strip().lstrip("@- ") or "command"


def _command_text(command: str, indent: str) -> str:
    """Write shell text after its key; one of several lines as a literal block, whose newlines are meant."""
    rows = command.split("\n")
    block = len(rows) > 1 and rows[0].strip() and rows[-1].strip() and not rows[0].startswith((" ", "\t"))
    if block and all(row.replace("\t", "").isprintable() and row == row.rstrip() for row in rows):
        return "|-\n" + "\n".join(f"{indent}  {row}" if row else "" for row in rows)
    return written(command)


def _lines(key: str, value: Any, indent: str) -> Iterator[str]:
    """Write one key with its value: scalars, maps and lists of scalars."""
    if isinstance(value, Mapping):
        yield f"{indent}{written(key)}:" + ("" if value else " {}")
        for name, item in value.items():
            yield from _lines(str(name), item, indent + "  ")
    elif isinstance(value, (list, tuple)):
        yield f"{indent}{written(key)}:" + ("" if value else " []")
        for item in value:
            yield f"{indent}  - {_scalar(item)}"
    else:
        yield f"{indent}{written(key)}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)  # which is YAML as well
    if isinstance(value, bool):
        return "true" if value else "false"
    return written(value) if isinstance(value, str) else "null" if value is None else repr(value)
