"""Priorities: 0 to 100, larger first, 50 unless given; what older versions stored means 50."""

from __future__ import annotations

import json

import pytest

from tests.quick.manifest.support import spec_of
from workbench.errors import ManifestError
from workbench.spec import JobSpec, spec_from_json, spec_to_json


@pytest.mark.parametrize("priority", [0, 1, 50, 100])
def test_a_priority_is_stored_and_read_back(priority: int) -> None:
    spec = spec_of(f"priority: {priority}\n")

    assert spec.priority == priority
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


def test_without_a_word_it_is_50() -> None:
    assert spec_of("").priority == 50


@pytest.mark.parametrize("stored", [{"priority": 0}, {}, {"priority": None}, {"priority": -7}])
def test_what_an_older_version_stored_means_50(stored: dict[str, object]) -> None:
    document = {key: value for key, value in spec_to_json(JobSpec(name="a")).items() if key != "priority"}

    assert spec_from_json({**document, **stored}).priority == 50


@pytest.mark.parametrize("priority", [-1, 101, 1_000_000])
def test_a_priority_out_of_range_is_refused_with_the_range(priority: int) -> None:
    with pytest.raises(ManifestError, match="0 to 100") as refused:
        spec_of(f"priority: {priority}\n")

    assert refused.value.exit_code == 65
