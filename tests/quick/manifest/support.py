"""What the tests of manifests share: a small manifest, and short ways to read one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from workbench.errors import ManifestError, ManifestFault
from workbench.manifest import Loaded, load_text
from workbench.spec import JobSpec

SMALL = "name: small\nframework:\n  command: python train.py\n"


def loaded(
    text: str = SMALL,
    *,
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read a manifest, by itself unless given more."""
    return load_text(
        text, "m.yml", overrides=sets, flags=flags or {}, environ=environ or {}, defaults=defaults or {}
    )


def spec_of(extra: str = "", *sets: str) -> JobSpec:
    """Read the small manifest with some more lines."""
    return loaded(SMALL + extra, sets=sets).spec


def warnings_of(extra: str = "") -> list[str]:
    """Return the warnings of the small manifest with some more lines."""
    return [str(warning) for warning in loaded(SMALL + extra).warnings]


def faults_of(text: str, *sets: str) -> list[ManifestFault]:
    """Return the faults of a manifest that must have some."""
    with pytest.raises(ManifestError) as caught:
        loaded(text, sets=sets)
    return list(caught.value.faults)


def fault_of(extra: str, *sets: str) -> str:
    """Return the one fault of the small manifest with some more lines, as a text."""
    faults = faults_of(SMALL + extra, *sets)
    assert len(faults) == 1, [str(fault) for fault in faults]
    return str(faults[0])
