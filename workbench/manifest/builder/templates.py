"""Manifests that fabric writes: a commented one to start from, and the one that a bare command becomes.

The job of a command whose script is made for Determined's Core API is an experiment that no file describes. Only
commands are looked at: a manifest says itself what its job is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.learner.determined_jobs import CONFIG_VARIABLE, UNMANAGED
from workbench.learner.texts import escaped
from workbench.manifest.builder.core_v2_scripts import core_api_part, external_ids
from workbench.manifest.builder.scripts_run import interpreter_of
from workbench.manifest.yaml.core_schema import written
from workbench.spec import FRAMEWORKS

if TYPE_CHECKING:
    from workbench.manifest.builder.core_v2_scripts import ExternalIds
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

_IDS_UNKNOWN: Final = (
    "the external ids that its code gives are not known before it runs:"
    " it goes on with an earlier trial only with --from JOB"
)

_LIKELY_SCRIPTS: Final = ("train.py", "main.py", "run.py")
"""What training scripts are called, the likeliest first."""


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
    """Return a command's job as an experiment if its script imports ``core_v2``, with notes; else as it is.

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
    found, tree = core_api_part(command, code) if code is not None and code.is_dir() else ("", None)
    if not found:
        return loaded, (), None
    origins = {key: origin for key, origin in loaded.origins.items() if key != "env"}
    origins[f"env.{CONFIG_VARIABLE}"] = found
    experiment = _experiment_text(spec)
    env, text = {**spec.env, CONFIG_VARIABLE: experiment}, _with_variable(loaded.text, experiment)
    notes: tuple[str, ...] = (
        f"{found} is made for Determined's Core API: the job is an experiment"
        f" (-e {CONFIG_VARIABLE}= leaves that out)",
    )
    # What the command sets before its script is not looked at: such a variable is not known.
    known = {
        name: value
        for name, value in {**environment, **spec.env}.items()
        if f"{name}=" not in command and "$" not in value
    }
    ids, are_given = external_ids(tree, known) if tree is not None else (None, False)
    if are_given and ids is None:
        notes = (*notes, _IDS_UNKNOWN)
    return replace(loaded, spec=replace(spec, env=env), text=text, origins=origins), notes, ids


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
