"""Reads one file of the configuration: named backends, defaults, profiles, and how long jobs are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from workbench.config.types import Config
from workbench.errors import ConfigError, ManifestFault

LOCAL: Final = "local"
SCHEMES: Final[Mapping[str, str]] = {"ssh": "ssh", "k8s": "kubernetes", "kubernetes": "kubernetes"}
"""What an address begins with, and the backend type for it; any other scheme is a type of that name."""

CLUSTERS: Final = ("k8s", "kubernetes")
"""Names that mean the kubeconfig's current context where no backend has them."""

TABLES: Final = (
    "backends",
    "code",
    "data",
    "defaults",
    "experiments",
    "keys",
    "profiles",
    "retention",
    "store_alias",
    "stores",
)
RUN_OPTIONS: Final[Mapping[str, type]] = {
    "detach": bool,
    "on_interrupt": str,
    "no_prefix": bool,
    "quiet": bool,
    "timeout": str,
    "notify": bool,
    "notify_when": str,
}
"""Options of ``fabric run`` that may have a default here, as every key of a manifest may."""

RETENTION: Final[Mapping[str, type]] = {
    "older_than": str,
    "keep_last": int,
    "keep_failed": bool,
    "logs_only": bool,
}
"""What ``fabric prune`` does by default."""

CPU_SLOT: Final = "cpu_slot"
"""What a slot of an experiment of Determined is where there is no GPU: a process with so many cores, or false."""
CORES_MAX: Final = 1024
MAX_SLOTS_PER_POD: Final = "max_slots_per_pod"
"""How many slots of an experiment of Determined one pod of a cluster has at most."""
SLOTS_MAX: Final = 1024

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\S*)")
_BYTES_MAX: Final = 1 << 20
_POSITION_IN_MESSAGE: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)


def read_config(path: Path) -> Config:
    """Read one file; a missing one counts as empty.

    Raises:
        ConfigError: it cannot be read, is not TOML, or has an invalid value; with file and line.
    """
    text = read_text(path)
    if not text.strip():
        return Config(backends={LOCAL: local_backend()}, file=path)
    return ConfigReader(path, text).config()


def read_text(path: Path) -> str:
    """Return the file's text, empty when there is none.

    Raises:
        ConfigError: it cannot be read or is not UTF-8.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from error
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"the configuration {path} is larger than {_BYTES_MAX:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: the byte 0x{data[error.start]:02x} is not UTF-8") from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """Read TOML.

    Raises:
        ConfigError: it is none; with file, line and column.
    """
    import tomllib

    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _POSITION_IN_MESSAGE.fullmatch(str(error))
        position = f"{path}:{found[2]}:{found[3]}" if found else f"{path}"
        raise ConfigError(f"{position}: this is not TOML: {found[1] if found else error}") from error


def local_backend() -> dict[str, Any]:
    """Return this machine, which needs no configuration."""
    return {"name": LOCAL, "type": LOCAL, "address": "", "options": {}}


def type_of_address(address: str) -> str:
    """Return which type of backend an address is for; empty when it is not an address."""
    found = _ADDRESS.fullmatch(address)
    return SCHEMES.get(found[1], found[1]) if found else ""


def reader_of(path: Path, text: str) -> ConfigReader:
    """Return what reads a text as the file it will become."""
    return ConfigReader(path, text)


class ConfigReader:
    """One file's way from TOML to values."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._warnings: list[ManifestFault] = []

    def config(self) -> Config:
        """Read the whole file."""
        document = parse(self._path, self._text)
        profiles = {}
        for name, table in self._table(document, "profiles").items():
            if not NAME.fullmatch(name) or not isinstance(table, dict):
                problem = f"profiles.{name} must be a table; write [profiles.{name}.defaults]"
                raise self._error(name, problem)
            inside = [table for table in TABLES if table != "profiles"]
            profiles[name] = self._part(table, inside, f"profiles.{name}.")
        whole = self._part(document, TABLES, "")
        return replace(
            whole,
            backends={LOCAL: local_backend(), **whole.backends},
            profiles=profiles,
            warnings=tuple(self._warnings),
        )

    def _part(self, document: Mapping[str, Any], tables: Sequence[str], prefix: str) -> Config:
        for name in document:
            if name not in tables:
                self._warn_unknown(name, tables, prefix)
        backend_tables = self._table(document, "backends").items()
        backends = {name: self._backend(name, each) for name, each in backend_tables}
        defaults = self._table(document, "defaults")
        self._check_defaults(defaults, prefix)
        retention = self._table(document, "retention")
        self._check_retention(retention, prefix)
        keys = {name: self._keys(prefix, name, value) for name, value in _flat(self._table(document, "keys"))}
        stores, aliases = self._table(document, "stores"), self._table(document, "store_alias")
        if stores or aliases:
            self._check_stores(stores, aliases, prefix)
        data, code = self._table(document, "data"), self._table(document, "code")
        if data:
            self._check_data(data, prefix)
        if code:
            self._check_code(code, prefix)
        experiments = self._table(document, "experiments")
        self._check_experiments(experiments, prefix)
        return Config(
            backends,
            defaults,
            self._path,
            data=data,
            code=code,
            experiments=experiments,
            retention=retention,
            keys=keys,
            stores=stores,
            store_alias=aliases,
        )

    def _check_stores(self, stores: Mapping[str, Any], aliases: Mapping[str, Any], prefix: str) -> None:
        # What a store may say is known to the manifest's table of keys, which few configurations need.
        from workbench.config.stores import fault_of_alias, fault_of_store

        for name, table in stores.items():
            if problem := fault_of_store(table):
                raise self._error(name, f"{prefix}stores.{name} {problem}")
        for address, target in aliases.items():
            if problem := fault_of_alias(address, target):
                raise self._error(address, f"{prefix}store_alias.{address} {problem}")

    def _check_data(self, data: Mapping[str, Any], prefix: str) -> None:
        from workbench.config.stores import KEYS, fault_of

        for name in data:
            if name not in KEYS:
                self._warn_unknown(name, KEYS, f"{prefix}data.")
        key, problem = fault_of(data)
        if key:
            raise self._error(key.rpartition(".")[2], f"{prefix}data.{key} {problem}")

    def _check_code(self, code: Mapping[str, Any], prefix: str) -> None:
        from workbench.config.code import KEYS, fault_of

        for name in code:
            if name not in KEYS:
                self._warn_unknown(name, KEYS, f"{prefix}code.")
        key, problem = fault_of(code)
        if key:
            raise self._error(key, f"{prefix}code.{key} {problem}")

    def _check_experiments(self, experiments: Mapping[str, Any], prefix: str) -> None:
        for name, value in experiments.items():
            if name == MAX_SLOTS_PER_POD:
                if type(value) is not int or not 1 <= value <= SLOTS_MAX:
                    problem = f"must be a whole number from 1 to {SLOTS_MAX}"
                    raise self._error(name, f"{prefix}experiments.{name} {problem}")
                continue
            if name != CPU_SLOT:
                self._warn_unknown(name, (CPU_SLOT, MAX_SLOTS_PER_POD), f"{prefix}experiments.")
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not False and not (is_number and 0 <= value <= CORES_MAX):
                problem = "must be a number of cores, 0 for none reserved, or false"
                raise self._error(name, f"{prefix}experiments.{name} {problem}")

    def _check_retention(self, retention: Mapping[str, Any], prefix: str) -> None:
        for name, value in retention.items():
            kind = RETENTION.get(name)
            if kind is None:
                self._warn_unknown(name, tuple(RETENTION), f"{prefix}retention.")
            elif type(value) is not kind:
                expected = {bool: "true or false", int: "a number", str: "a text in quotes, such as '30d'"}[
                    kind
                ]
                raise self._error(name, f"{prefix}retention.{name} must be {expected}")
            elif isinstance(value, int) and value < 0:
                raise self._error(name, f"{prefix}retention.{name} must be 0 or more")

    def _table(self, document: Mapping[str, Any], name: str) -> dict[str, Any]:
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise self._error(name, f"{name} must be a table; write [{name}] on a line of its own")
        return table

    def _backend(self, name: str, table: Any) -> dict[str, Any]:
        if not NAME.fullmatch(name):
            raise self._error(
                name, f"{name!r} is not a valid name of a backend; write letters, digits, '-', '_' and '.'"
            )
        if not isinstance(table, dict):
            raise self._error(
                name, f"backends.{name} must be a table; write [backends.{name}] on a line of its own"
            )
        for key in ("type", "address"):
            if not isinstance(table.get(key, ""), str):
                raise self._error(name, f"backends.{name}.{key} must be a text in quotes", key)
        address = table.get("address", "")
        kind = table.get("type") or (LOCAL if name == LOCAL else type_of_address(address))
        kind = SCHEMES.get(kind, kind)
        if not kind:
            raise self._error(name, f"backends.{name} lacks a type or an address such as ssh://me@gpubox")
        if (name == LOCAL) != (kind == LOCAL):
            raise self._error(
                name, f"the backend local is this machine; backends.{name} cannot be of type {kind}"
            )
        options = {key: value for key, value in table.items() if key not in ("type", "address")}
        return {"name": name, "type": kind, "address": address, "options": options}

    def _keys(self, prefix: str, name: str, value: Any) -> tuple[str, ...]:
        keys = [value] if isinstance(value, str) else value
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            problem = f'{prefix}keys.{name} must be a key, or a list of keys, in quotes: "ctrl+x", "F5"'
            raise self._error(name, problem)
        return tuple(keys)

    def _check_defaults(self, defaults: Mapping[str, Any], prefix: str = "") -> None:
        if not defaults:
            return
        # The table of keys is needed only where there are defaults.
        from workbench.manifest.keys.credentials import plain_in
        from workbench.manifest.keys.root import MANIFEST

        if path := plain_in(
            {name: defaults[name] for name in ("data_stores", "framework") if name in defaults}
        ):
            key = path.rpartition(".")[2]
            raise self._error(
                path.partition(".")[0],
                f"{prefix}defaults.{path} is written out, and a project's file goes along with its code; write {key} ="
                ' "${NAME}", and NAME into secrets.toml, which nobody else reads',
            )

        known = (*MANIFEST.known(), *RUN_OPTIONS)
        for name, value in defaults.items():
            kind = RUN_OPTIONS.get(name)
            if name not in known:
                self._warn_unknown(name, known, f"{prefix}defaults.")
            elif kind and not isinstance(value, kind):
                expected = "true or false" if kind is bool else "a text in quotes"
                raise self._error(name, f"{prefix}defaults.{name} must be {expected}")

    def _warn_unknown(self, name: str, known: Sequence[str], prefix: str) -> None:
        from workbench.manifest.yaml.faults import nearest

        close = nearest(name, known)
        line = line_of(self._text, name)
        self._warnings.append(
            ManifestFault(
                file=str(self._path),
                line=line,
                column=1 if line else 0,
                key=prefix + name,
                problem="is not a configuration key and has no effect",
                hint=f"did you mean {close}?" if close else "",
            )
        )

    def _error(self, name: str, problem: str, key: str = "") -> ConfigError:
        return ConfigError(f"{self._where(name, key)}: {problem}")

    def _where(self, name: str, key: str = "") -> str:
        line = line_of(self._text, name, key)
        return f"{self._path}:{line}" if line else str(self._path)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table by dotted name: TOML makes tables of ``job.halt = "H"``."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def line_of(text: str, name: str, key: str = "") -> int:
    """Return the line on which a table or key is named, or 0; TOML's reader does not say."""
    quoted = rf"[\"']?{re.escape(name)}[\"']?"
    header = re.compile(rf"\s*(\[\s*(?:[\w\"'.-]+\.)?\s*{quoted}\s*[\].]|(?:[\w\"'-]+\.)*{quoted}\s*[.=])")
    inside = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    found = 0
    for number, row in enumerate(text.splitlines(), 1):
        if not found and header.match(row):
            found = number
            if not key or re.search(rf"\b{re.escape(key)}\b", row.partition("=")[0].partition("]")[2]):
                return number
        elif found and key and inside.match(row):
            return number
    return found
