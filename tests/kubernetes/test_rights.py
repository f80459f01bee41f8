"""What a job still does as a user who lacks one of the rights that jobs can do without, and what is refused."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backends.kubernetes.rbac import (
    EXEC,
    EXEC_CREATES_SINCE,
    RIGHTS,
    all_rights,
    may_exec,
    missing_rights,
    role_document,
)
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.pod.runner import PodRunner
from tests.cli.test_canary import files_with
from tests.kubernetes.jobs import IN_CLUSTER_SECONDS
from tests.support.cluster import Space, cluster_held, load_images, space_of, why_not
from tests.support.command import Fabric
from tests.support.pod_images import DEBIAN
from tests.support.registry import USER, auth_of
from tests.support.waiting import until
from workbench.errors import NotAllowed, RightsMissing
from workbench.learner.scribe.masking import Mask
from workbench.paths import Home

OPTIONAL = tuple(right.resource for right in all_rights() if not right.needed and right.resource != "pods")
NEEDED = tuple(right for right in RIGHTS if right.needed)
ONE_BY_ONE = pytest.mark.soak(
    "rights one by one; the gate takes all that a job can do without, one of all, and all"
)


@pytest.fixture
def user(space: Space, monkeypatch: pytest.MonkeyPatch) -> Space:
    monkeypatch.setenv("KUBECONFIG", str(space.kubeconfig))
    return space


@pytest.fixture(scope="module")
def shared_space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with cluster_held(alone=False), space_of(tmp_path_factory.mktemp("space")) as space:
        yield space


def take(space: Space, *rights: str, verbs: tuple[str, ...] = ()) -> None:
    """Take rights away, and wait until the cluster knows."""
    space.take_rights(*rights, verbs=verbs)
    until(lambda: {each.resource for each in missing_rights(space.cluster())} >= set(rights), "the loss")


def left(space: Space) -> list[str]:
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in ("Job", "Pod", "Service", "Secret", "PersistentVolumeClaim")
        for each in space.admin.list(kind).items
    ]


@pytest.mark.parametrize(
    ("rights", "verbs"),
    [
        pytest.param(("pods/exec",), (), id="pods/exec", marks=ONE_BY_ONE),
        pytest.param(("pods/exec",), ("get",), id="get pods/exec", marks=ONE_BY_ONE),
        pytest.param(OPTIONAL, (), id="all of them"),
    ],
)
def test_a_job_runs_and_leaves_nothing_without_rights_that_it_can_do_without(
    fabric: Fabric, user: Space, rights: tuple[str, ...], verbs: tuple[str, ...]
) -> None:
    take(user, *rights, verbs=verbs)

    command = "echo here; echo made >$RESULT_DIR/file; exit 3"
    ran = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "sh", "-c", command, expect=3)

    assert ran.stdout == "here\n"
    assert "without the right to pods/exec nobody can fetch them" in ran.stderr
    fabric("delete", "--yes", "@last")
    until(lambda: not left(user), "all objects to be gone", every=IN_CLUSTER_SECONDS)


@pytest.mark.parametrize("taken", ["create", pytest.param("get", marks=ONE_BY_ONE)])
def test_commands_in_pods_need_get_alone_before_kubernetes_1_35_and_create_too_from_then_on(
    fabric: Fabric, user: Space, taken: str
) -> None:
    user.take_rights(EXEC, verbs=(taken,))
    with closing(user.cluster()) as cluster:
        until(lambda: not cluster.may(taken, "pods", "exec"), "the loss")
        is_enough = taken == "create" and cluster.version < EXEC_CREATES_SINCE
        assert may_exec(cluster) is is_enough

    command = "echo here; echo made >$RESULT_DIR/file; until [ -e $RESULT_DIR/end ]; do sleep 0.1; done"
    job = fabric("run", "-d", "--accept-loss", "-b", "k8s", "--image", DEBIAN, "--", "sh", "-c", command)
    until(lambda: fabric.json("show", "@last", "--json")["state"] == "PROCESSING", "it to run")
    ran = fabric("exec", "@last", "--", "sh", "-c", "touch $RESULT_DIR/end", expect=None)

    assert ran.returncode == (0 if is_enough else 77), ran.stderr
    if is_enough:
        fabric("wait", "@last")
        results = Path(fabric.json("show", "@last", "--json")["folder"]) / "results"
        assert (results / "file").read_text() == "made\n", job.stdout
    fabric("delete", "--yes", "@last")


@ONE_BY_ONE
@pytest.mark.parametrize(
    ("right", "verb"), [(right.resource, verb) for right in NEEDED for verb in right.verbs]
)
def test_each_verb_of_the_role_is_needed_by_the_life_of_a_job(
    shared_space: Space, right: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(shared_space, right, verbs=(verb,))
    cluster = shared_space.backend(default_memory="200Mi").open()
    message = f"You may not {verb} {right} in the namespace {shared_space.namespace}."
    with closing(cluster), closing(PodRunner(cluster, home_uuid=str(uuid.uuid4()))) as runner:
        with pytest.raises(RightsMissing, match=re.escape(message)):
            live(runner)
        # Without the check before the launch it fails on the way, for want of just this verb.
        monkeypatch.setattr("runners.pod.launch.require_rights", lambda cluster: None)
        resource, _, subresource = right.partition("/")
        refused = f"may not {verb} {resource}{'/' + subresource if subresource else ''} in the namespace"
        with pytest.raises(NotAllowed, match=refused):
            live(runner)


def live(runner: PodRunner) -> None:
    """Have a job run, end, read and removed."""
    request = request_of("echo here", home=runner.home_uuid, image=DEBIAN)
    job = LaunchedAttempt.planned(runner, request).launch()
    job.until_over()
    until(lambda: b"here" in runner.journal(job.ref(), {"output": 0})["output"].data, "the output")
    runner.remove(request.attempt)
    runner.remove_job(request.attempt.job_id)


@pytest.mark.parametrize(
    ("right", "verb"), [("jobs", "list"), pytest.param("pods/log", "get", marks=ONE_BY_ONE)]
)
def test_a_job_that_lacks_a_right_is_refused_with_the_role_and_leaves_nothing(
    fabric: Fabric, user: Space, right: str, verb: str
) -> None:
    take(user, right, verbs=(verb,))

    ran = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "true", expect=77)
    tested = fabric("backend", "test", "k8s", expect=77)

    assert f"You may not {verb} {right} in the namespace {user.namespace}" in ran.stderr
    assert f"fabric backend role {user.address}" in ran.stderr
    assert f"you may not {verb} {right}" in tested.stdout
    assert left(user) == []
    fabric("delete", "--yes", "@last")


def test_a_job_with_a_login_of_who_may_make_no_secret_is_refused_by_that_right_and_shows_no_login(
    fabric: Fabric, user: Space, home: Home, clean_environment: Path
) -> None:
    take(user, "secrets", verbs=("create",))
    login = "canary+login/5e1 hush"
    location = {"username": USER, "password": login}
    framework = {"version": "registry.invalid/team/image:1", "command": "true", "image_location": location}
    manifest = fabric.folder / "manifest.yml"
    manifest.write_text(json.dumps({"name": "x", "framework": {"name": "custom", **framework}}))

    ran = fabric("run", "-b", "k8s", "manifest.yml", expect=77)

    shown = fabric.json("show", "@last", "--json")
    missing = f"You may not create secrets in the namespace {user.namespace}."
    assert missing in ran.stderr and f"fabric backend role {user.address}" in ran.stderr
    assert (shown["state"], shown["reason"]) == ("FAILED", missing)
    assert left(user) == []
    canaries = Mask([login, auth_of(USER, login)])
    assert canaries.spans(f"{ran.stdout}{ran.stderr}{json.dumps(shown)}".encode()) == []
    kept = {manifest, home.secrets / f"{shown['id']}.json"}
    assert set(files_with(canaries, clean_environment)) == kept


def test_a_job_of_who_has_no_right_at_all_is_refused_with_all_verbs_until_they_are_granted(
    fabric: Fabric, user: Space
) -> None:
    role = role_document(user.namespace)
    user.admin.replace({**role, "rules": []})
    until(lambda: len(missing_rights(user.cluster())) == len(all_rights()), "all rights to be gone")

    ran = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "true", expect=77)

    for right in NEEDED:
        assert f"{right.verbs[-1]} {right.resource}" in ran.stderr
    user.admin.replace(role)
    until(lambda: not missing_rights(user.cluster()), "the rights to be back")
    # The same controller, whose watch was refused a moment ago.
    granted = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "echo", "here")
    assert granted.stdout == "here\n"


def test_a_right_that_was_missing_is_asked_for_again(user: Space) -> None:
    cluster = user.cluster()
    take(user, "events")
    until(lambda: not cluster.may("list", "events"), "the right to be gone")

    user.admin.replace(role_document(user.namespace))

    until(lambda: cluster.may("list", "events"), "the right to be known")
