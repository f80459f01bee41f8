"""The policy of a host: how its queue is ordered and what may be held and used, as root wrote it into one file."""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from workbench.learner.queue.entries import PRIORITY_MAX
from workbench.learner.queue.root_files import DRAIN_FILE, POLICY_FILE

SHARED = "fair_share"
KINDS = ("priority", "first_come", SHARED)

PREEMPTION = ("asked", "all", "none")

_SIZE_LIMIT = 1 << 16
_TABLE = re.compile(r'\[\s*(people|labels)\s*\.\s*(?:"([^"]+)"|([A-Za-z0-9_-]+))\s*\]|\[\s*(homes)\s*\]')
_LINE = re.compile(
    r'([a-z_]+)\s*=\s*(?:"([^"]*)"|([0-9]+(?:\.[0-9]+)?)|\[\s*((?:"[^"]*"\s*,\s*)*(?:"[^"]*"\s*)?)\])'
)
_ITEM = re.compile('"([^"]*)"')
_OPERATOR = re.compile(r"@?[^@:/\n][^:/\n]*")


class PolicyLimits(NamedTuple):
    """What a person, a home or the jobs with a label may hold at once and use; 0 sets no limit."""

    max_gpus: int = 0
    max_jobs: int = 0
    max_gpu_hours: float = 0.0
    """Of the last 24 hours."""
    weight: float = 1.0
    """Of a person: the share of the GPUs where the policy is ``fair_share``, beside the weights of others."""
    max_priority: int = PRIORITY_MAX
    """Of a person: a larger priority counts as this."""

    @property
    def has_limit(self) -> bool:
        """Whether there is a limit of what may be held or used."""
        return bool(self.max_gpus or self.max_jobs or self.max_gpu_hours)


class Policy(NamedTuple):
    """How a host orders those who wait."""

    kind: str = "priority"
    preemption: str = PREEMPTION[0]
    """Which jobs end for one of a higher priority: those that say so, all but those that serve, or none."""
    min_run_seconds: float = 0.0
    """So long a job has its GPUs before it ends for another one."""
    everybody: PolicyLimits = PolicyLimits()
    people: Mapping[str, PolicyLimits] = {}
    """Of single people, by their names: instead of ``everybody``."""
    home: PolicyLimits = PolicyLimits()
    """Of each home of fabric."""
    labels: Mapping[str, PolicyLimits] = {}
    """Of the jobs with one label together, of whomever; by ``NAME=VALUE``."""
    operators: Tuple[str, ...] = ()
    """Who may empty the host, as root may: accounts, and groups of accounts with an ``@`` before them."""

    def limits(self, name: str) -> PolicyLimits:
        """Return the limits of a person."""
        return self.people.get(name, self.everybody)

    def priority(self, priority: int, name: str) -> int:
        """Return a priority of a person's job as it counts here."""
        return min(priority, self.limits(name).max_priority)

    @property
    def counts_hours(self) -> bool:
        """Whether anybody's use of GPUs is limited."""
        every = (self.everybody, self.home, *self.people.values(), *self.labels.values())
        return any(limits.max_gpu_hours for limits in every)


class BadPolicy(Exception):
    """The file is there and is not used: why, in words."""


def read_policy(path: str = "") -> Policy:
    """Return the host's policy; without a file the default.

    Raises:
        BadPolicy: the file cannot be read, is not root's alone, or says what is not understood.
    """
    path = path or POLICY_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise BadPolicy(f"{path} cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != 0
            or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            raise BadPolicy(f"{path} is not a file that root alone may write")
        return parse_policy(os.pread(descriptor, _SIZE_LIMIT, 0).decode("utf-8", "replace"), path)
    finally:
        os.close(descriptor)


def heeds_weights() -> bool:
    """Say whether the weights of jobs count by the host's policy."""
    try:
        return read_policy().kind == SHARED
    except BadPolicy:
        return False


def roots_drain_us() -> Optional[int]:
    """Return since when root wants the host to be empty, by the host's clock; None where root does not."""
    try:
        found = os.lstat(DRAIN_FILE)
    except OSError:
        return None
    return found.st_mtime_ns // 1000 if found.st_uid == 0 else None


def parse_policy(text: str, path: str = POLICY_FILE) -> Policy:
    """Return the policy that a text says: of TOML tables, texts, numbers and lists of texts.

    Raises:
        BadPolicy: a line is not understood; it is named.
    """
    tables: Dict[Tuple[str, str], Dict[str, Any]] = {("", ""): {}}
    table = tables["", ""]
    for number, line in enumerate(text.splitlines(), start=1):
        plain = _without_comment(line).strip()
        if not plain:
            continue
        head, pair = _TABLE.fullmatch(plain), _LINE.fullmatch(plain)
        if head:
            kind, name = head.group(1) or head.group(4), head.group(2) or head.group(3) or ""
            if kind == "labels" and "=" not in name:
                raise BadPolicy(f'{path}, line {number}: a label is written as [labels."NAME=VALUE"]')
            table = tables.setdefault((kind, name), {})
        elif pair:
            table[pair.group(1)] = _value(pair)
        else:
            raise BadPolicy(f"{path}, line {number}, is not understood: {plain[:60]}")
    top = tables.pop(("", ""))
    ordered, minutes = top.pop("policy", KINDS[0]), top.pop("min_run_minutes", 0.0)
    preempted, operators = top.pop("preemption", PREEMPTION[0]), top.pop("operators", ())
    if ordered not in KINDS:
        raise BadPolicy(f"{path}: policy is one of {', '.join(KINDS)}")
    if preempted not in PREEMPTION:
        raise BadPolicy(f"{path}: preemption is one of {', '.join(PREEMPTION)}")
    if not isinstance(minutes, float):
        raise BadPolicy(f"{path}: min_run_minutes is a number")
    if not isinstance(operators, tuple) or not all(map(_OPERATOR.fullmatch, operators)):
        raise BadPolicy(
            f'{path}: operators is a list of accounts and @groups, such as ["ada", "@gpu-admins"]'
        )
    everybody = _limits(top, PolicyLimits(), path)
    people = {
        name: _limits(each, everybody, path) for (kind, name), each in tables.items() if kind == "people"
    }
    labels = {
        name: _limits(each, PolicyLimits(), path, kind)
        for (kind, name), each in tables.items()
        if kind == "labels"
    }
    home = _limits(tables.get(("homes", ""), {}), PolicyLimits(), path, "homes")
    return Policy(ordered, preempted, 60.0 * minutes, everybody, people, home, labels, operators)


def _value(pair: "re.Match[str]") -> Any:
    """Return the value of a line: a text, a number, or a tuple of texts."""
    text, number, items = pair.group(2), pair.group(3), pair.group(4)
    if items is not None:
        return tuple(_ITEM.findall(items))
    return text if number is None else float(number)


def _limits(
    values: Mapping[str, Any], otherwise: PolicyLimits, path: str, kind: str = "people"
) -> PolicyLimits:
    found: List[Tuple[str, Any]] = []
    for key, value in values.items():
        if key not in PolicyLimits._fields or (key in ("weight", "max_priority") and kind != "people"):
            raise BadPolicy(f"{path}: {key} is not a key of {'it' if kind == 'people' else f'[{kind}]'}")
        is_whole = key in ("max_gpus", "max_jobs", "max_priority")
        if key == "max_priority" and (
            not isinstance(value, float) or value != int(value) or value > PRIORITY_MAX
        ):
            raise BadPolicy(f"{path}: max_priority is a whole number up to {PRIORITY_MAX}")
        if (
            not isinstance(value, float)
            or (key == "weight" and not value)
            or (is_whole and value != int(value))
        ):
            must = "number above 0" if key == "weight" else "whole number" if is_whole else "number"
            raise BadPolicy(f"{path}: {key} is a {must}")
        found.append((key, int(value) if is_whole else value))
    return otherwise._replace(**dict(found))


def _without_comment(line: str) -> str:
    quoted = False
    for at, sign in enumerate(line):
        if sign == '"':
            quoted = not quoted
        elif sign == "#" and not quoted:
            return line[:at]
    return line
