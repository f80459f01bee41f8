"""The weight of a job: a number from 0.01 to 1000, 1 unless given; older versions stored none."""

from __future__ import annotations

import json

import pytest

from tests.quick.manifest.support import spec_of
from workbench.errors import ManifestError
from workbench.spec import JobSpec, spec_from_json, spec_to_json


@pytest.mark.parametrize("weight", ["0.01", "1", "2.5", "1000"])
def test_a_weight_is_stored_and_read_back(weight: str) -> None:
    spec = spec_of(f"weight: {weight}\n")

    assert spec.weight == float(weight)
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


def test_without_a_word_and_in_what_an_older_version_stored_it_is_1() -> None:
    document = {key: value for key, value in spec_to_json(JobSpec(name="a")).items() if key != "weight"}

    assert spec_of("").weight == 1.0
    assert spec_from_json(document).weight == 1.0


def test_a_weight_is_set_as_every_key_is() -> None:
    assert spec_of("weight: 3\n", "weight=2").weight == 2.0


@pytest.mark.parametrize(
    "weight", ["0", "0.009", "-1", "1000.1", "1e300", ".nan", ".inf", "high", "true", "'2'"]
)
def test_a_weight_out_of_range_is_refused_with_the_range(weight: str) -> None:
    with pytest.raises(ManifestError, match=r"a number from 0\.01 to 1,000") as refused:
        spec_of(f"weight: {weight}\n")

    assert refused.value.exit_code == 65
