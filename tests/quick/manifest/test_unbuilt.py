from __future__ import annotations

from dataclasses import replace

import pytest

from runners.interface import Capabilities
from runners.shared.capabilities import CONTAINER, POD, PROCESS
from runners.shared.unsupported import depends_on_runner, not_built
from tests.quick.manifest.support import SMALL, loaded, spec_of

STORE = "data_stores: [{type: http, training_data: {container: data}, connection: {auth_url: http://a}}]\n"


def test_an_ordinary_job_lacks_nothing() -> None:
    spec = spec_of(
        "learners: 2\ngpus: 1\nenv: {A: 1}\nsetup: make\nmax_restarts: 1\nseed: 1\nlabels: {a: b}\n"
    )

    assert not_built(spec) == []


@pytest.mark.parametrize(
    ("extra", "way_out"),
    [
        ("launcher: torchrun\n", ["launcher=none"]),
        ("ports: [80]\n", ["ports=[]"]),
    ],
)
def test_what_is_not_built_names_a_way_out_that_works(extra: str, way_out: list[str]) -> None:
    (sentence,) = not_built(spec_of(extra))

    assert all(f"--set {text}" in sentence for text in way_out)
    assert not_built(spec_of(extra, *way_out)) == []


def test_a_priority_in_a_cluster_names_a_way_out_that_works() -> None:
    (sentence,) = not_built(spec_of("priority: 70\n"), "pod", POD)

    assert "kubernetes.priority_class" in sentence
    assert 'priority_classes, such as {70 = "high"}' in sentence
    assert not_built(spec_of("priority: 70\n"), "pod", POD, has_priority_classes=True) == []
    assert not_built(spec_of("priority: 70\n", "priority=50"), "pod", POD) == []
    assert not_built(spec_of("priority: 70\n"), "process", PROCESS) == []


def test_a_data_store_that_is_to_be_mounted_in_a_pod_names_a_way_out_that_works() -> None:
    (sentence,) = not_built(spec_of(STORE, "data_stores.0.mount=true"), "pod", POD)

    assert "leave mount: out" in sentence
    assert not_built(spec_of(STORE), "pod", POD) == []


@pytest.mark.parametrize("framework", ["horovod", "pytorchmpi"])
def test_frameworks_under_mpi_name_a_way_out_that_works(framework: str) -> None:
    text = (
        SMALL.replace("  command", f"  name: {framework}\n  version: x\n  command") + "learners: 2\ngpus: 2\n"
    )

    (sentence,) = not_built(loaded(text).spec)

    assert "--set learners=1" in sentence
    assert not_built(loaded(text, sets=["learners=1", "gpus=1"]).spec) == []
    assert not_built(loaded(text, sets=["framework.name=custom"]).spec) == []


def test_an_image_that_is_to_be_built_needs_an_engine_beside_the_code() -> None:
    spec = spec_of("build: Dockerfile\n")

    assert not_built(spec) == not_built(spec, "container", CONTAINER) == []
    assert "build and push Dockerfile yourself" in not_built(spec, "pod", POD)[0]
    assert not_built(spec_of("build: Dockerfile\n", "build=null"), "pod", POD) == []


def test_a_foreign_runner_is_judged_by_its_capabilities() -> None:
    plain, images = Capabilities(needs="host"), Capabilities(needs="host", uses_image=True)
    served, built = spec_of("ports: [80]\n"), spec_of("build: Dockerfile\n")
    mounted = spec_of(STORE, "data_stores.0.mount=true")

    assert not_built(served, "moon", replace(plain, ports=True)) == []
    assert "ports" in not_built(served, "moon", plain)[0]
    assert (
        not_built(built, "moon", plain) == not_built(built, "moon", replace(images, builds_images=True)) == []
    )
    assert "the runner moon" in not_built(built, "moon", images)[0]
    assert not_built(mounted, "moon", plain) == []
    assert "the runner moon" in not_built(mounted, "moon", replace(plain, mounts_stores=False))[0]


def test_only_keys_that_a_runner_decides_on_make_a_job_depend_on_it() -> None:
    decided = [spec_of(text) for text in ("ports: [80]\n", "build: Dockerfile\n", "priority: 70\n")]

    assert not depends_on_runner(spec_of("gpus: 1\n" + STORE))
    assert all(map(depends_on_runner, [*decided, spec_of(STORE, "data_stores.0.mount=true")]))
