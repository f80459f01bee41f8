"""Lays the files of the configuration over one another: profile, project's ``fabric.toml``, ``config.toml``."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from workbench.config.model import CLUSTERS, LOCAL, RUN_OPTIONS, local_backend, read_config, type_of_address
from workbench.config.types import Config, Layer
from workbench.errors import UnknownName, UsageError
from workbench.paths import config_file

PROJECT_FILE: Final = "fabric.toml"
PROFILE_VARIABLE: Final = "FABRIC_PROFILE"

_chosen: ContextVar[str] = ContextVar("profile", default="")


@contextmanager
def profile(name: str) -> Iterator[None]:
    """Have a profile count within the block, as ``--profile`` does; an empty name changes nothing."""
    token = _chosen.set(name or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


def profile_in_force() -> str:
    """Return the profile that counts: the one of ``--profile``, else ``$FABRIC_PROFILE``; empty for none."""
    return _chosen.get() or os.environ.get(PROFILE_VARIABLE, "")


def project_file(folder: Path | None = None) -> Path | None:
    """Return the ``fabric.toml`` of a folder (the working one) or of the nearest above it; None if there is none.

    The search ends at the root of a repository, a folder with ``.git``.
    """
    try:
        start = os.path.abspath(folder or "")  # noqa: PTH100 - every command asks, and pathlib is slower
    except FileNotFoundError:
        return None
    while True:
        if os.path.isfile(found := os.path.join(start, PROJECT_FILE)):  # noqa: PTH113, PTH118 - see above
            return Path(found)
        above = os.path.dirname(start)  # noqa: PTH120 - see above
        if above == start or os.path.exists(os.path.join(start, ".git")):  # noqa: PTH110, PTH118 - see above
            return None
        start = above


def load_config(file: Path | None = None) -> Config:
    """Read the configuration, or one file of it alone; missing files count as empty.

    The order is: a profile in the project's ``fabric.toml``, the file itself, a profile in the user's
    ``config.toml`` (``FABRIC_CONFIG`` names another one), that file itself. Tables are joined key by key, a
    backend is replaced as a whole.

    Raises:
        ConfigError: a file cannot be read, is not TOML, or has an invalid value; with file and line.
        UnknownName: no file has the profile that was asked for.
    """
    if file is not None:
        return read_config(file)
    user = read_config(config_file())
    found = project_file()
    chosen = profile_in_force()
    if found is None and not chosen:
        return _joined([("config.toml", user)])
    parts = [("config.toml", user)]
    if found is not None and found != user.file:
        parts.append((PROJECT_FILE, read_config(found)))
    return _joined(_with_profiles(parts, chosen) if chosen else parts)


def _with_profiles(parts: list[tuple[str, Config]], chosen: str) -> list[tuple[str, Config]]:
    known = {name for _, config in parts for name in config.profiles}
    if chosen not in known:
        from workbench.manifest.yaml.faults import nearest

        close = nearest(chosen, known)
        there = f"there are {', '.join(sorted(known))}" if known else "there are none"
        hint = (
            f"did you mean {close}? {there}" if close else f"{there}; [profiles.{chosen}.defaults] makes one"
        )
        raise UnknownName(f"there is no profile {chosen!r}", hint=hint)
    joined: list[tuple[str, Config]] = []
    for origin, config in parts:
        joined.append((origin, config))
        if chosen in config.profiles:
            joined.append((f"{origin}, profile {chosen}", config.profiles[chosen]))
    return joined


def _joined(parts: list[tuple[str, Config]]) -> Config:
    """Join files and profiles, the weakest first."""
    backends: dict[str, Any] = {LOCAL: local_backend()}
    defaults: dict[str, Any] = {}
    retention: dict[str, Any] = {}
    data: dict[str, Any] = {}
    code: dict[str, Any] = {}
    experiments: dict[str, Any] = {}
    keys: dict[str, tuple[str, ...]] = {}
    stores: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    origins: dict[str, str] = {}
    layers: list[Layer] = []
    for origin, config in parts:
        for name, each in config.backends.items():
            if each != local_backend():
                backends[name] = each
                origins[f"backends.{name}"] = origin
        defaults |= config.defaults
        retention |= config.retention
        data |= config.data
        code |= config.code
        experiments |= config.experiments
        keys |= config.keys
        origins |= {f"defaults.{name}": origin for name in config.defaults}
        origins |= {f"retention.{name}": origin for name in config.retention}
        origins |= {f"data.{name}": origin for name in config.data}
        origins |= {f"code.{name}": origin for name in config.code}
        origins |= {f"experiments.{name}": origin for name in config.experiments}
        origins |= {f"keys.{name}": origin for name in config.keys}
        stores |= config.stores
        aliases |= config.store_alias
        origins |= {f"stores.{name}": origin for name in config.stores}
        origins |= {f"store_alias.{address}": origin for address in config.store_alias}
        layers.insert(0, Layer(origin, config.file, config.defaults))
    return Config(
        backends=backends,
        defaults=defaults,
        file=parts[0][1].file,
        warnings=tuple(warning for _, config in parts for warning in config.warnings),
        retention=retention,
        data=data,
        code=code,
        experiments=experiments,
        keys=keys,
        stores=stores,
        store_alias=aliases,
        profiles={name: each for _, config in parts for name, each in config.profiles.items()},
        layers=tuple(layers),
        origins=origins,
    )


MULTINODE: Final = "multinode"
"""The type of several hosts that run the learners of one job together."""

TOGETHER: Final = "+"
"""Stands between hosts that run one job together: ``box1+box2``."""

MEMBERS_MAX: Final = 16
SSH_PORT: Final = 22
_SSH_ADDRESS: Final = r"ssh://(?:[^@/\s]+@)?(\[[^\]\s]+\]|[^@:/\s]+)(?::(\d+))?/?"


def members_of(text: str, config: Config | None = None) -> list[str]:
    """Return the backends that a text names together; one alone is the only one.

    A ``+`` within an address is part of it: in its scheme, or before what is neither an address nor the name of a
    backend.
    """
    if TOGETHER not in text:
        return [text.strip()]
    names: Container[str] = {*(config or load_config()).backends, LOCAL, *CLUSTERS}
    parts: list[str] = []
    for part in text.split(TOGETHER):
        before = parts[-1] if parts else ""
        if "://" in before:
            is_rest = "://" not in part and part.strip() not in names
        else:
            is_scheme = before.strip() not in names and re.fullmatch(r"\s*[a-z][a-z0-9.-]*", before)
            is_rest = "://" in part and bool(is_scheme)
        if is_rest:
            parts[-1] += TOGETHER + part
        else:
            parts.append(part)
    return [part.strip() for part in parts]


def host_of(type: str, address: str) -> tuple[str, str, int]:
    """Return what two addresses of one host have in common, whatever the user: its name and its port."""
    found = re.fullmatch(_SSH_ADDRESS, address)
    return (type, found[1].lower(), int(found[2] or SSH_PORT)) if found else (type, address, 0)


def backend(name_or_address: str, config: Config | None = None) -> dict[str, Any]:
    """Return a backend by its name, or by an address such as ``ssh://me@gpubox`` or ``k8s://context/namespace``.

    Several hosts together, ``box1+box2``, are a backend, too. Whether anything installed reaches an address of that
    type is for the caller to find out.

    Raises:
        UnknownName: there is no such backend; the hint names those there are.
        UsageError: these cannot run one job together.
        ConfigError: the configuration is at fault.
    """
    if TOGETHER in name_or_address:
        config = config or load_config()
        if len(names := members_of(name_or_address, config)) > 1:
            return _together(names, config)
    if type_of_address(name_or_address):
        return {
            "name": name_or_address,
            "type": type_of_address(name_or_address),
            "address": name_or_address,
            "options": {},
        }
    config = config or load_config()
    found = config.backends.get(name_or_address)
    if found is None and name_or_address in CLUSTERS:
        address = f"{name_or_address}://"
        return {"name": name_or_address, "type": "kubernetes", "address": address, "options": {}}
    if found is None:
        from workbench.manifest.yaml.faults import nearest

        known = ", ".join(sorted(config.backends))
        close = nearest(name_or_address, config.backends)
        hint = f"did you mean {close}? There are {known}" if close else f"there are {known}"
        raise UnknownName(
            f"there is no backend {name_or_address!r}",
            hint=f"{hint}; fabric backend add NAME ssh://HOST adds one",
        )
    return {**found, "options": dict(found["options"])}


def _together(names: Sequence[str], config: Config) -> dict[str, Any]:
    """Return several hosts as one backend, whose options are those of its members.

    Raises:
        UsageError: they cannot run one job together.
    """
    shown = TOGETHER.join(names)
    if "" in names:
        raise UsageError(f"{shown}: a name is missing beside a {TOGETHER}", hint="box1+box2, say")
    if len(names) > MEMBERS_MAX:
        raise UsageError(f"a job runs on {MEMBERS_MAX} hosts at most, not on {len(names)}")
    members = [backend(name, config) for name in names]
    found: dict[tuple[str, str, int], str] = {}
    for member in members:
        name = member["name"]
        if member["type"] == "kubernetes":
            raise UsageError(
                f"{shown}: {name} is a cluster, which is not put together with others",
                hint=f"a cluster spreads the learners of a job by itself: --backend {name}",
            )
        other = found.setdefault(host_of(member["type"], member["address"] or name), name)
        if other != name:
            raise UsageError(f"{shown}: {other} and {name} are the same host", hint="name each host once")
        if [one["name"] for one in members].count(name) > 1:
            raise UsageError(f"{shown}: {name} is named twice", hint="name each host once")
    joined = TOGETHER.join(member["name"] for member in members)
    # By which it is another target once a member's name means another host.
    addresses = TOGETHER.join(member["address"] or member["name"] for member in members)
    return {"name": joined, "type": MULTINODE, "address": addresses, "options": {"members": members}}


_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def resolve_option(
    name: str, flag: Any, config: Config, *, default: Any = None, environ: Mapping[str, str] | None = None
) -> tuple[Any, str]:
    """Return an option's value and where it came from.

    Args:
        name: one of :data:`~workbench.config.model.RUN_OPTIONS`.
        flag: the value on the command line; None without one.
        config: the configuration.
        default: the value where none is set.
        environ: where ``FABRIC_<NAME>`` is read; the process's environment if None.

    Raises:
        UsageError: the variable's value cannot be one of this option.
    """
    if flag is not None:
        return flag, f"flag --{name.replace('_', '-')}"
    variable = f"FABRIC_{name.upper()}"
    if text := (os.environ if environ is None else environ).get(variable, ""):
        return _read(name, variable, text), variable
    if name in config.defaults:
        return config.defaults[name], config.origins.get(f"defaults.{name}", "config.toml")
    return default, "default"


def _read(name: str, variable: str, text: str) -> bool | str:
    if RUN_OPTIONS[name] is not bool:
        return text
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise UsageError(f"{variable} is {text!r}; write 1 or 0")
    return word in _TRUE
