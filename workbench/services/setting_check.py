"""Checks a value before it is written into the configuration, as the command that uses it would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from workbench.errors import UsageError

POLICIES: Final = ("detach", "halt", "kill")
"""What an interrupt does to the job that a command follows."""


def check_setting(key: str, text: str) -> None:
    """Check the value of a default or a retention rule; of other keys the file's own reader says what is wrong.

    Raises:
        UnknownName: it is not a configuration key.
        UsageError: no such value has that key.
    """
    from workbench.config.edit import parts_of, value_of

    parts = parts_of(key)
    own = parts[2:] if parts[0] == "profiles" else parts
    value = value_of(text, parts)
    if own[:1] == ["defaults"] and len(own) > 1:
        _check_default(key, own[1:], value)
    elif own == ["retention", "older_than"]:
        from workbench.services.durations import seconds_of

        seconds_of(str(value), key)


def _check_default(key: str, parts: Sequence[str], value: Any) -> None:
    from workbench.services.durations import seconds_of
    from workbench.services.filters import read_conditions

    name = parts[0]
    if name == "on_interrupt" and value not in POLICIES:
        raise UsageError(f"{key} cannot be {value!r}", hint=f"one of {', '.join(POLICIES)}")
    if name == "timeout":
        seconds_of(str(value), key)
    elif name == "notify_when":
        read_conditions([str(value)])
    else:
        _check_manifest_key(key, parts, value)


def _check_manifest_key(key: str, parts: Sequence[str], value: Any) -> None:
    from workbench.manifest.keys.root import MANIFEST
    from workbench.manifest.yaml.faults import Findings
    from workbench.manifest.yaml.nodes import SourceLocation, from_value

    found = MANIFEST.below(parts[0])
    if found is None:
        return  # the reader of the file names the nearest
    for part in reversed(parts[1:]):
        value = {part: value}
    name, kind = found
    findings = Findings()
    node = kind.canonical(from_value(value, SourceLocation(key, 0, 0, key)), name, findings)
    if not findings.faults and len(parts) == 1:  # a map may get the rest of its keys from the manifest
        kind.read(node, name, findings)
    if findings.faults:
        fault = findings.faults[0]
        raise UsageError(f"{key}: {fault.problem}", hint=fault.hint)
