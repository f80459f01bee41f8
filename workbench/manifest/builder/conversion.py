"""Turns simple files of other tools into manifests: what has no place in one is named, and nothing is guessed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from workbench.errors import ManifestError, ManifestFault
from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
from workbench.manifest.builder import determined
from workbench.manifest.builder.former_experiments import renewed
from workbench.manifest.builder.load import validate_text
from workbench.manifest.builder.templates import from_command
from workbench.manifest.keys import credentials
from workbench.manifest.keys.registries import LOGIN_CREDENTIALS
from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class ConvertedManifest:
    """A manifest that was made of another tool's file."""

    text: str
    format: str
    """What the file was, such as ``a SkyPilot task``."""
    notes: tuple[str, ...]
    """What is not carried over, and what is still wrong."""


class _Unreadable(Exception):
    """The file is of the format, but is not one simple job; the message says why."""


class _Fields:
    """The fields of a file, taken one by one, so that those that are left can be named."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def take(self, *path: str) -> Any:
        """Return the value at a path and leave it out from now on; None where there is none."""
        holder: Any = self._values
        for name in path[:-1]:
            holder = holder.get(name) if isinstance(holder, Mapping) else None
        if not isinstance(holder, dict):
            return None
        return holder.pop(path[-1], None)

    def put(self, name: str, rest: Mapping[str, Any]) -> None:
        """Have something named as left, below a name."""
        self._values[name] = {
            key: value._values if isinstance(value, _Fields) else value for key, value in rest.items()
        }

    def left(self) -> Iterator[str]:
        """Name what was not taken."""
        yield from _leaves(self._values, "")


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif value not in (None, [], ""):
        yield path


def convert(text: str, source: str) -> ConvertedManifest:
    """Make a manifest of a file of Determined, SkyPilot, dstack, Slurm, Docker Compose, MLflow or Ray.

    Args:
        text: the file.
        source: its name.

    Raises:
        ManifestError: it is none of them, or not one simple job; the fault says why.
    """
    if re.search(r"^#SBATCH\s", text, re.MULTILINE):
        if source == "-":
            raise _refusal(source, "a batch script must be a file: the job runs it by its name")
        try:
            fields = _Fields(_directives(text))
            return _made("a batch script of Slurm", fields, lambda fields: _slurm(fields, source), text)
        except ValueError as error:
            raise _refusal(source, f"the #SBATCH lines cannot be read: {error}") from None
    if experiment := _experiment(text, source):
        return experiment
    values = _read(text, source)
    for name, is_format, read in _FORMATS:
        if is_format(values):
            try:
                return _made(name, _Fields(values), read, text)
            except _Unreadable as error:
                raise _refusal(source, f"this {name.partition(' ')[2]} {error}") from None
            except (AttributeError, TypeError, ValueError) as error:
                raise _refusal(source, f"this is not {name} as it should be: {error}") from None
    raise _refusal(source, "this is not a file that can be converted")


def _experiment(text: str, source: str) -> ConvertedManifest | None:
    """Return the manifest of an experiment of Determined; None where the file is none.

    Raises:
        ManifestError: the experiment is at fault.
    """
    findings = Findings()
    root = compose(text, source, findings)
    if not isinstance(root, MapNode) or not determined.is_experiment(root):
        return None
    made = determined.manifest_of(renewed(root, findings), findings)
    if findings.faults:
        raise ManifestError(findings.faults, warnings=findings.warnings)
    document = determined.plain(made)
    notes = [str(each) for each in findings.warnings]
    for store in document.get("data_stores") or ():
        connection = store.get("connection") or {}
        notes += _named_secrets(
            connection, ("user_name", *credentials.CREDENTIALS), "checkpoint_storage", "CHECKPOINT_STORAGE"
        )
    login = document["framework"].get("image_location") or {}
    notes += _named_secrets(login, LOGIN_CREDENTIALS, "environment.registry_auth", "REGISTRY")
    if determined.data_secrets(root):
        document["secrets"] = [DATA_SECRETS_VARIABLE]
        notes.append(
            f"{credentials.DATA_SECRETS}: is not written out: set the secret {DATA_SECRETS_VARIABLE} to it, as JSON"
        )
    written = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return ConvertedManifest(written, "an experiment of Determined", tuple(notes))


def _named_secrets(values: dict[str, str], keys: Iterable[str], path: str, prefix: str) -> Iterator[str]:
    """Replace credentials by names of secrets, and yield a note for each.

    Args:
        values: what holds them, such as the connection of a store.
        keys: which of its keys are credentials.
        path: what the experiment calls it.
        prefix: what the names of the secrets begin with.
    """
    for key in keys:
        if (value := values.get(key)) and not credentials.is_reference(value):
            name = f"{prefix}_{key.upper().removeprefix(f'{prefix}_')}"
            values[key] = f"${{{name}}}"
            yield f"{path}: its {key} is not written out: set the secret {name}"


def _refusal(source: str, problem: str) -> ManifestError:
    hint = (
        "files of Determined, SkyPilot, dstack, Slurm, Docker Compose, MLflow and Ray are; fabric init writes"
        " a manifest"
    )
    return ManifestError([ManifestFault(source, 0, 0, "", problem)], hint=hint)


def _read(text: str, source: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _refusal(source, f"is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise _refusal(source, "this is not a file that can be converted")
    return values


def _made(
    format: str, fields: _Fields, read: Callable[[_Fields], dict[str, Any]], original: str
) -> ConvertedManifest:
    job = {key: value for key, value in read(fields).items() if value not in (None, "", {}, [])}
    command = str(job.pop("command", "")).strip()
    if not command:
        raise _Unreadable("has no command")
    image, gpus = job.pop("image", ""), job.pop("gpus", 0)
    text = from_command([command], name=job.pop("name", None), gpus=gpus, image=image, keys=job)
    faults, warnings = validate_text(text, "the manifest", None)
    notes = [f"{path} is not carried over" for path in fields.left()]
    if found := sorted(set(re.findall(r"\b(?:SKYPILOT|DSTACK|SLURM|RAY)_[A-Z_]+", original))):
        notes.append(
            f"the file reads {', '.join(found)}; learners have LEARNER_ID, NUM_LEARNERS, RANK, WORLD_SIZE,"
            " MASTER_ADDR and MASTER_PORT"
        )
    if re.search(r"^\s*srun\s", original, re.MULTILINE):
        notes.append("the script calls srun; leave it out: each learner runs the script")
    return ConvertedManifest(text, format, (*notes, *(str(each) for each in (*faults, *warnings))))


def _environment(value: Any) -> dict[str, Any]:
    """Return ``env`` and ``secrets`` of a map, or of a list of ``NAME=VALUE`` and names."""
    if isinstance(value, list):
        value = {
            name: text if given else None
            for name, given, text in (str(each).partition("=") for each in value)
        }
    pairs = value if isinstance(value, Mapping) else {}
    return {
        "env": {str(name): _text(item) for name, item in pairs.items() if item is not None},
        "secrets": [str(name) for name, item in pairs.items() if item is None],
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _command(value: Any) -> str:
    """Return a command of a text, or of a list of arguments."""
    return shlex.join(str(each) for each in value) if isinstance(value, list) else str(value or "")


def _at_least(value: Any, unit: str = "") -> Any:
    """Return the number of ``8+`` or ``8..16``, with a unit where it has none."""
    if value is None:
        return None
    text = re.split(r"\+|\.\.", str(value))[0].strip()
    if unit:
        return text + unit if text.replace(".", "", 1).isdigit() else text
    return float(text) if "." in text else int(text) if text.isdigit() else text


def _gpus(value: Any) -> dict[str, Any]:
    """Return ``gpus`` and ``gpu_type`` of ``A100:2``, ``2``, ``{A100: 2}`` or ``{name: A100, count: 2}``."""
    if not value:
        return {}
    if isinstance(value, Mapping) and ("count" in value or "name" in value):
        return {"gpus": _at_least(value.get("count", 1)), "gpu_type": value.get("name")}
    if isinstance(value, (Mapping, list)) and len(value) > 1:
        raise _Unreadable(f"names {len(value)} kinds of GPUs; a job asks for one")
    if isinstance(value, Mapping):
        ((name, count),) = value.items()
        return {"gpus": int(count), "gpu_type": str(name)}
    if isinstance(value, list):
        return _gpus(value[0])
    parts = [part for part in str(value).split(":") if part]
    count = next((int(part) for part in parts if part.isdigit()), 1)
    name = next((part for part in parts if not part[0].isdigit()), None)
    return {"gpus": count, "gpu_type": name}


def _skypilot(fields: _Fields) -> dict[str, Any]:
    image = str(fields.take("resources", "image_id") or "")
    return {
        "name": fields.take("name"),
        "learners": fields.take("num_nodes"),
        **_gpus(fields.take("resources", "accelerators")),
        "cpus": _at_least(fields.take("resources", "cpus")),
        "memory": _binary(_at_least(fields.take("resources", "memory"), "G")),
        "code": fields.take("workdir"),
        **_environment({**(fields.take("envs") or {}), **(fields.take("secrets") or {})}),
        "setup": fields.take("setup"),
        "image": image.removeprefix("docker:"),
        "command": fields.take("run"),
    }


def _dstack(fields: _Fields) -> dict[str, Any]:
    if (kind := fields.take("type")) != "task":
        raise _Unreadable(f"is a {kind}; a job is made of a task")
    gpu = fields.take("resources", "gpu")
    if re.search(r"\dGB", str(gpu)):
        fields.put("gpu", {"memory": gpu})
    return {
        "name": fields.take("name"),
        "learners": fields.take("nodes"),
        **_gpus(gpu),
        "cpus": _at_least(fields.take("resources", "cpu")),
        "memory": _binary(_at_least(fields.take("resources", "memory"), "G")),
        "shm_size": _binary(_at_least(fields.take("resources", "shm_size"), "G")),
        "max_runtime": fields.take("max_duration"),
        **_environment(fields.take("env")),
        "image": fields.take("image"),
        "command": "\n".join(str(each) for each in fields.take("commands") or ()),
    }


def _compose(fields: _Fields) -> dict[str, Any]:
    services = fields.take("services") or {}
    if len(services) != 1:
        raise _Unreadable(f"has {len(services)} services; a job is one")
    ((name, service),) = services.items()
    fields.take("version")
    own = _Fields(service)
    job = {
        "name": name,
        "shm_size": own.take("shm_size"),
        **_environment(own.take("environment")),
        "image": own.take("image"),
        "command": " ".join(filter(None, (_command(own.take("entrypoint")), _command(own.take("command"))))),
    }
    fields.put("services", {name: own})
    return job


def _mlproject(fields: _Fields) -> dict[str, Any]:
    points = fields.take("entry_points") or {}
    name = "main" if "main" in points else next(iter(points), "")
    if not name or (len(points) > 1 and name != "main"):
        raise _Unreadable(f"has {len(points)} entry points, and none is called main")
    point = points[name]
    declared = point.get("parameters") or {}
    params = {key: _default_of(each) for key, each in declared.items()}
    if missing := [key for key, value in params.items() if not isinstance(value, (int, float, str))]:
        raise _Unreadable(f"has no default for {', '.join(missing)}, which a param needs")
    command = re.sub(r"\{(\w+)\}", lambda found: f"${{params.{found[1]}}}", str(point.get("command", "")))
    return {
        "name": fields.take("name"),
        "params": params,
        "image": fields.take("docker_env", "image"),
        "command": command,
    }


def _default_of(parameter: Any) -> Any:
    """Return the default of an MLproject's parameter; None where only its type is written."""
    if isinstance(parameter, Mapping):
        return parameter.get("default")
    return None if parameter in _MLFLOW_TYPES else parameter


def _ray(fields: _Fields) -> dict[str, Any]:
    return {
        "name": fields.take("name"),
        **_gpus(fields.take("entrypoint_num_gpus")),
        "cpus": fields.take("entrypoint_num_cpus"),
        "code": fields.take("working_dir") or fields.take("runtime_env", "working_dir"),
        **_environment(fields.take("runtime_env", "env_vars")),
        "image": fields.take("image_uri"),
        "command": _command(fields.take("entrypoint")),
    }


_MLFLOW_TYPES: Final = ("string", "float", "path", "uri")

_LETTERS: Final = {
    "J": "job-name",
    "t": "time",
    "G": "gpus",
    "c": "cpus-per-task",
    "N": "nodes",
    "a": "array",
    "b": "begin",
}
_SLURM_TIMES: Final = {
    "midnight": "00:00", "tomorrow": "00:00", "noon": "12:00", "fika": "15:00", "teatime": "16:00",
}  # fmt: skip
"""Times of a day by name; the next midnight is also when tomorrow begins."""
_SLURM_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_OUTPUT: Final = ("output", "error", "o", "e", "open-mode")
"""Where Slurm writes what is printed; fabric keeps it anyway."""


def _directives(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH\s+(.*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        while words:
            option, given, value = words.pop(0).lstrip("-").partition("=")
            if not given and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[_LETTERS.get(option, option)] = value or "yes"
    return found


def _slurm(fields: _Fields, source: str) -> dict[str, Any]:
    for option in _OUTPUT:
        fields.take(option)
    gpus = fields.take("gpus-per-node") or fields.take("gpus")
    generic = str(fields.take("gres") or "")
    if generic.startswith("gpu"):
        gpus = gpus or generic.removeprefix("gpu").lstrip(":") or "1"
    elif generic:
        fields.put("gres", {generic: True})
    memory = fields.take("mem")
    begin = str(fields.take("begin") or "now")
    begins = _slurm_begin(begin)
    if begins is None:
        fields.put("begin", {begin: True})
    return {
        "name": fields.take("job-name") or Path(source).stem,
        "learners": int(fields.take("nodes") or 1),
        **_gpus(gpus),
        "cpus": _at_least(fields.take("cpus-per-task")),
        "memory": _at_least(memory, "MiB") if str(memory or "").isdigit() else _binary(memory),
        "max_runtime": _slurm_time(fields.take("time")),
        "begin": begins or None,
        "command": shlex.join(["bash", Path(source).name]),
    }


def _binary(memory: str | None) -> str | None:
    """Return ``32G`` or ``32GB`` of tools that count in 1024s, as a size."""
    return re.sub(r"(?i)([kmgt])b?$", lambda found: f"{found[1].upper()}iB", memory) if memory else None


def _slurm_time(text: str | None) -> str | None:
    """Return ``D-HH:MM:SS``, ``HH:MM:SS``, ``MM:SS`` or ``MM`` as seconds."""
    if not text:
        return None
    days, dash, clock = text.partition("-") if "-" in text else ("0", "", text)
    parts = [int(part) for part in clock.split(":")]
    if dash:
        parts = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        parts = [0, *parts, 0]
    elif len(parts) == 2:
        parts = [0, *parts]
    return f"{((int(days) * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2]}s"


def _slurm_begin(text: str) -> str | None:
    """Return when a job of Slurm begins as ``begin:`` has it, empty for at once, None where it is not such a time.

    Slurm takes ``HH:MM[:SS]``, times with a name, ``now+COUNT[UNIT]``, ``MMDDYY``, ``MM/DD/YY``, and dates with and
    without a time.
    """
    from workbench.time_expressions import is_begin

    lower = text.lower()
    if lower in ("now", "today"):
        return ""
    if found := re.fullmatch(r"now\+(\d+)([a-z]*?)s?", lower):
        unit = _SLURM_UNITS.get(found[2] or "second")
        return f"+{int(found[1]) * unit}s" if unit else None
    if found := re.fullmatch(r"(\d\d)(/?)(\d\d)\2(\d\d)", text):
        text = f"20{found[4]}-{found[1]}-{found[3]}"
    text = _SLURM_TIMES.get(lower, text)
    has_form = re.fullmatch(r"\d{1,2}:\d\d.*|\d{4}-.*", text) is not None
    return text if has_form and is_begin(text) else None


_FORMATS: Final[
    tuple[tuple[str, Callable[[dict[str, Any]], bool], Callable[[_Fields], dict[str, Any]]], ...]
] = (
    ("a Docker Compose file", lambda values: isinstance(values.get("services"), dict), _compose),
    ("an MLproject file", lambda values: isinstance(values.get("entry_points"), dict), _mlproject),
    ("a dstack configuration", lambda values: "type" in values and "commands" in values, _dstack),
    (
        "a Ray job",
        lambda values: (
            "entrypoint" in values and bool({"runtime_env", "working_dir", "image_uri"} & set(values))
        ),
        _ray,
    ),
    ("a SkyPilot task", lambda values: "run" in values and "framework" not in values, _skypilot),
)
