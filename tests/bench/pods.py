"""Pods beside ``kubectl``: the first line, a million lines, how late a line is, and when a GPU is free."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.kubernetes.cluster import KubernetesCluster
from tests.bench.harness import FABRIC, Row, first_line_seconds, fresh_home, in_turn, running, seconds_of
from tests.bench.output import LINES, PRINT, STAMP, late
from tests.support.cluster import Space, cluster_held, load_images, space_of, why_not
from tests.support.cluster_health import KUBECONFIG
from tests.support.pod_images import DEBIAN

FREE_SECONDS = 5.0
OPTIONS: Final[Mapping[str, Any]] = {"type": "kubernetes", "default_memory": "512Mi"}


@dataclass(frozen=True, slots=True)
class Ground:
    """A namespace, and who runs jobs in it."""

    environment: dict[str, str]
    folder: Path
    space: Space
    kubectl: str

    def run(self, *args: str) -> list[str]:
        """Return the command that runs these words in a pod."""
        return [FABRIC, "run", "-q", "-b", "lab", "--image", DEBIAN, "--", *args]


@contextmanager
def ground(**options: Any) -> Iterator[Ground]:
    """Make a namespace with an ordinary user, and a home."""
    if reason := why_not():
        raise SystemExit(f"this benchmark has {reason}")
    load_images()
    beside = Path(KUBECONFIG).parent / "bin" / "kubectl"
    kubectl = str(beside) if beside.exists() else shutil.which("kubectl")
    if kubectl is None:
        raise SystemExit("this benchmark has no kubectl as its peer")
    with (
        cluster_held(alone=False),
        fresh_home() as environment,
        tempfile.TemporaryDirectory() as kept,
        space_of(Path(kept)) as space,
    ):
        environment["KUBECONFIG"] = str(space.kubeconfig)
        settings = {**OPTIONS, **options}
        lines = ["[backends.lab]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
        Path(environment["FABRIC_CONFIG"]).write_text("\n".join(lines) + "\n")
        folder = Path(environment["HOME"]) / "work"
        folder.mkdir()
        yield Ground(environment, folder, space, kubectl)
        subprocess.run([FABRIC, "controller", "stop"], env=environment, capture_output=True)


def _toml(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"


def first_line_rows() -> Iterator[Row]:
    """From the command to its first line of output, the image there, beside the same objects by ``kubectl``."""
    with ground() as it:
        argv = it.run("echo", "ready")
        peer = _apply_and_follow(it, _objects(it, argv))

        def first_line(words: list[str]) -> float:
            return first_line_seconds(words, it.environment, it.folder, expect=b"ready\n")

        def theirs() -> float:
            took = first_line(peer)
            remove = ["delete", "job,service,secret", "-l", "peer=yes", "-n", it.space.namespace, "--wait"]
            seconds_of([it.kubectl, "--kubeconfig", KUBECONFIG, *remove], it.environment)
            return took

        again, plain = in_turn(lambda: first_line(argv), lambda: first_line(_create_and_follow(it)), runs=5)
        yield Row(
            "pod: first line, controller up",
            again,
            "s",
            "`kubectl create job`, `logs -f`",
            plain,
            "<= 4 x",
            again <= 4 * plain,
        )
        mine, other = in_turn(lambda: first_line(argv), theirs, runs=5)
        yield Row(
            "pod: first line, controller up",
            mine,
            "s",
            "`kubectl apply`, `logs -f`",
            other,
            "<= 1.3 x",
            mine <= 1.3 * other,
        )


def million_line_rows() -> list[Row]:
    """1,000,000 lines of 99 bytes from a pod to attached stdout, while the cluster rotates the log."""
    with ground() as it:
        target = it.folder / "out"
        ours = ["sh", "-c", f'exec "$@" >{target}', "sh", *it.run("sh", "-c", PRINT)]
        pod = ["run", "peer", f"--image={DEBIAN}", "--restart=Never", "--command", "--", "sh", "-c", PRINT]
        theirs = _kubectl_run_and_follow(it, pod, target)

        def mine() -> float:
            took = seconds_of(ours, it.environment, it.folder)
            assert target.stat().st_size == 99 * LINES, "lines were lost"
            return took

        measured, other = in_turn(mine, lambda: seconds_of(theirs, it.environment), runs=3)
    what = "1,000,000 lines of 99 bytes, pod, attached"
    return [Row(what, measured, "s", "`kubectl logs -f`", other, "<= 1.3 x", measured <= 1.3 * other)]


def latency_rows() -> list[Row]:
    """From ``print`` in a pod to the line at the reader of ``fabric run``, 99th percentile."""
    with ground() as it:
        ours = sorted(late(it.run("python3", "-c", STAMP), it.folder, it.environment))
        pod = [
            "run",
            "peer",
            f"--image={DEBIAN}",
            "--restart=Never",
            "--command",
            "--",
            "python3",
            "-c",
            STAMP,
        ]
        theirs = sorted(late(_kubectl_run_and_follow(it, pod), it.folder, it.environment))
    mine, other = ours[int(0.99 * len(ours))], theirs[int(0.99 * len(theirs))]
    return [
        Row(
            "line printed in a pod to line read, p99",
            mine,
            "ms",
            "`kubectl logs -f`",
            other,
            "<= 200 ms",
            mine <= 200,
        )
    ]


def free_rows() -> list[Row]:
    """From a learner's exit to the end of its pod, which gives its GPU back, with no controller of ours."""
    with ground() as it:
        admin = it.space.admin
        args = ["sh", "-c", "sleep 5; date +%s.%N"]
        argv = [
            FABRIC,
            "run",
            "-q",
            "-d",
            "--accept-loss",
            "-b",
            "lab",
            "--image",
            DEBIAN,
            "--gpus",
            "1",
            "--",
            *args,
        ]

        def once() -> float:
            seconds_of(argv, it.environment, it.folder)
            until(lambda: any(pod["status"]["phase"] == "Running" for pod in _live(admin)))
            subprocess.run([FABRIC, "controller", "stop"], env=it.environment, capture_output=True)
            (pod,) = _live(admin)
            name = str(pod["metadata"]["name"])
            until(lambda: (admin.read("Pod", name) or {})["status"]["phase"] in ("Succeeded", "Failed"))
            ended = time.time()
            printed = b"".join(admin.logs(name, "learner")).decode().split()[-1]
            seconds_of([FABRIC, "list"], it.environment)
            return ended - float(printed)

        (took,) = in_turn(once, runs=3)
    return [
        Row(
            "pod: GPU free after its learner, nobody watching",
            took,
            "s",
            "",
            None,
            "<= 5 s",
            took <= FREE_SECONDS,
        )
    ]


def _live(admin: KubernetesCluster) -> list[Mapping[str, Any]]:
    pods = admin.list("Pod", "fabric.job").items
    return [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for a condition; raises SystemExit when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not come so far")
        time.sleep(0.05)


def _objects(it: Ground, argv: Sequence[str]) -> dict[str, Any]:
    """Run a job, and return its objects as somebody would write them, under other names."""
    kept: dict[str, Any] = {}

    def seen() -> bool:
        for kind in ("Job", "Secret", "Service"):
            kept.update((kind, each) for each in it.space.admin.list(kind, "fabric.job").items)
        return len(kept) == 3

    with running(argv, it.environment, it.folder) as process:
        until(seen)  # while it runs: its Secret goes with its end
        process.communicate()
    stem = str(kept["Job"]["metadata"]["name"])
    items = []
    for each in kept.values():
        document = json.loads(json.dumps(each).replace(stem, "peer"))
        about = document["metadata"]
        document["metadata"] = {"name": about["name"], "labels": {"peer": "yes"}}
        document.pop("status", None)
        spec = document.get("spec", {})
        if document["kind"] == "Job":
            spec["suspend"] = False
            spec.pop("ttlSecondsAfterFinished", None)
            spec.pop("selector", None)
            labels = spec["template"]["metadata"].get("labels", {})
            spec["template"]["metadata"]["labels"] = {
                key: value
                for key, value in labels.items()
                if not key.startswith("fabric.") and not key.endswith(("controller-uid", "job-name"))
            }
        for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            spec.pop(key, None)
        items.append(document)
    return {"apiVersion": "v1", "kind": "List", "items": items}


FOLLOW_TRIES: Final = 600


def _until(command: str) -> str:
    """Return what repeats a command until it succeeds, but not for ever: a pod may never start."""
    return f"n=0; until {command}; do n=$((n + 1)); [ $n -lt {FOLLOW_TRIES} ] || exit 75; sleep 0.05; done"


def _apply_and_follow(it: Ground, objects: Mapping[str, Any]) -> list[str]:
    file = it.folder.parent / "peer.json"
    file.write_text(json.dumps(objects))
    kubectl = f"{it.kubectl} --kubeconfig {KUBECONFIG} -n {it.space.namespace}"
    follow = _until(f"{kubectl} logs -f job/peer -c learner 2>/dev/null")
    # On the server's side: a Secret with code and agent is larger than what kubectl keeps in an annotation.
    return ["sh", "-c", f"{kubectl} apply --server-side -f {file} >/dev/null && {follow}"]


def _create_and_follow(it: Ground) -> list[str]:
    """Return what runs one container in a plain Job of another name each time, and follows its log."""
    kubectl = f"{it.kubectl} --kubeconfig {KUBECONFIG} -n {it.space.namespace}"
    name = f"plain-{time.monotonic_ns()}"
    follow = _until(f"{kubectl} logs -f job/{name} 2>/dev/null")
    return ["sh", "-c", f"{kubectl} create job {name} --image={DEBIAN} -- echo ready >/dev/null; {follow}"]


def _kubectl_run_and_follow(it: Ground, args: list[str], target: Path | None = None) -> list[str]:
    """Return what runs a plain pod and follows its log to its end; as an administrator, who may make one."""
    kubectl = f"{it.kubectl} --kubeconfig {KUBECONFIG} -n {it.space.namespace}"
    follow = _until(f"{kubectl} logs -f peer{f' >{target}' if target else ''} 2>/dev/null")
    remove = f"{kubectl} delete pod peer --ignore-not-found --grace-period=0 --force >/dev/null 2>&1"
    return ["sh", "-c", f'{remove}; {kubectl} "$@" >/dev/null && {follow}', "sh", *args]
