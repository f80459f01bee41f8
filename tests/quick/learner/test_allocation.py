"""Which GPUs, which port and how many CPUs a job gets: the same answer for a controller and a host's waiter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench.learner.queue import allocation


def gpu(index: int, **facts: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{index}", "index": index, "model": "A100", "memory_bytes": 1 << 30, **facts}


def test_free_gpus_are_chosen_in_the_order_of_the_machine() -> None:
    slots = [gpu(3), gpu(0, holder="anna@box"), gpu(2, foreign="python of bob"), gpu(1), gpu(4)]

    assert allocation.choose_gpus(slots, 2, 1, "") == ["GPU-1", "GPU-3"]
    assert allocation.choose_gpus(slots, 4, 1, "") is None


def test_the_wanted_type_goes_first_and_others_fill_up() -> None:
    slots = [gpu(0, model="Tesla K80"), gpu(1, model="Tesla V100-SXM2-16GB"), gpu(2, model="Tesla K80")]

    assert allocation.choose_gpus(slots, 2, 1, "nvidia-TeslaV100") == ["GPU-1", "GPU-0"]


def test_slices_are_for_learners_with_one_gpu_alone() -> None:
    slots = [gpu(0, uuid="MIG-a"), gpu(0, uuid="MIG-b"), gpu(1)]

    assert allocation.choose_gpus(slots, 3, 1, "") == ["MIG-a", "MIG-b", "GPU-1"]
    assert len(allocation.usable_gpus(slots, 2)) == 1
    assert allocation.choose_gpus(slots, 2, 2, "") is None


def test_a_gpu_that_cannot_be_used_is_none() -> None:
    assert allocation.usable_gpus([gpu(0, memory_bytes=0)], 1) == []


def test_learners_share_what_was_chosen() -> None:
    assert allocation.shares(["a", "b", "c", "d"], [1, 3], 2) == {1: ("a", "b"), 3: ("c", "d")}


def test_a_learner_without_gpus_sees_none() -> None:
    assert allocation.gpu_variables(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert set(allocation.gpu_variables(("GPU-1", "MIG-b")).values()) == {"GPU-1,MIG-b"}


def test_jobs_that_start_together_try_other_ports_first() -> None:
    one, other = allocation.candidate_ports("one"), allocation.candidate_ports("other")

    assert one[0] != other[0] and one == allocation.candidate_ports("one")
    assert all(port in allocation.PORTS for port in one + other)
    assert len(set(one)) == allocation.PORT_TRIES


def test_a_lease_says_who_holds_it() -> None:
    holder = {"owner": "me@box", "job": "training-1", "attempt": 2, "home": "uuid"}

    assert json.loads(allocation.lease_text(holder, 7)) == {**holder, "pid": 7}


@pytest.mark.parametrize(
    ("reserved", "needed", "fit"),
    [
        ([], 4.0, True),
        ([], 99.0, True),
        ([2.0], 2.0, True),
        ([2.0, 0.5], 2.0, False),
        ([99.0], 0.5, False),
        ([0.0], 99.0, True),
        ([0.5], 99.0, False),
    ],
)
def test_cpus_are_reserved_and_who_asks_for_too_many_gets_all(
    reserved: list[float], needed: float, fit: bool
) -> None:
    assert allocation.fit_cpus(reserved, needed, 4.0) is fit
