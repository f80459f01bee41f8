"""Bind mounts: what processes have in their stead, and what pods are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.conformance.harness import request_of
from runners.pod.options import PodOptions
from runners.pod.volumes import bound_mounts, bound_refusals, bound_volumes
from tests.runners.jobs import HOME, Jobs
from tests.runners.test_process_launch import pack
from workbench.errors import LaunchRefused
from workbench.spec import BindMount


def test_a_process_finds_a_mount_at_a_relative_path_as_a_link_in_its_code(jobs: Jobs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("there\n")
    mounts = (BindMount(str(data), "in/put", read_only=True), BindMount(str(data), str(data)))

    job = jobs.run("cat in/put/x; echo $LEARNER_ID >in/put/$LEARNER_ID", bind_mounts=mounts, learners=2)
    job.until_over()

    assert [job.output(number) for number in (1, 2)] == [b"there\n"] * 2
    assert sorted(path.name for path in data.iterdir()) == ["1", "2", "x"]
    (note,) = [note for note in job.plan.notes if "is linked" in note]
    assert note.startswith(f"{data} is linked as in/put in the code's folder, and can be written to")


def test_a_removed_job_leaves_what_was_linked(jobs: Jobs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("there\n")
    job = jobs.run("true", bind_mounts=(BindMount(str(data), "data"),))
    job.until_over()

    job.runner.remove(job.request.attempt)

    assert (data / "x").read_text() == "there\n"


def test_a_mount_at_a_path_outside_of_the_code_is_planned_and_refused_for_a_process(
    jobs: Jobs, tmp_path: Path
) -> None:
    job = jobs.plan("true", bind_mounts=(BindMount(str(tmp_path), "/data"),))

    assert any("at /data needs a container" in warning for warning in job.plan.warnings)
    with pytest.raises(
        LaunchRefused, match=r"^The bind mount of .* at /data needs a container; use --runner"
    ):
        job.launch()


def test_a_mount_that_does_not_exist_or_that_the_code_has_already_is_refused(
    jobs: Jobs, tmp_path: Path
) -> None:
    with pytest.raises(LaunchRefused, match=r"The bind mount /not/there does not exist\."):
        jobs.run("true", bind_mounts=(BindMount("/not/there", "data"),))
    code = pack(tmp_path, {"data": "of the code"})
    with pytest.raises(LaunchRefused, match="The code has data already"):
        jobs.run("true", bind_mounts=(BindMount(str(tmp_path), "data"),), code=code)


def test_pods_mount_folders_of_nodes_where_the_backend_allows_it() -> None:
    mounts = (
        BindMount("/a", "b", read_only=True),
        BindMount("/c", "/d", propagation="rslave"),
        BindMount("/e", "/f", propagation="rshared"),
    )
    request = request_of("true", home=HOME, image="i", bind_mounts=mounts)

    assert [each["hostPath"]["path"] for each in bound_volumes(request)] == ["/a", "/c", "/e"]
    first, second, _ = bound_mounts(request)
    assert first == {"name": "bind-0", "mountPath": "/job/model-code/b", "readOnly": True}
    assert second["mountPropagation"] == "HostToContainer"
    assert [text.split(" asks")[0] for text in bound_refusals(request, PodOptions(host_paths=True))] == [
        "the bind mount /e"
    ]
    assert len(list(bound_refusals(request, PodOptions()))) == 3
