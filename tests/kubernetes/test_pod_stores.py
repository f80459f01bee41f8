"""Data stores of pods: data before the command starts, results in the store while it runs and when it ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.kubernetes.stores import claim_of, host_for, manifest, states, texts_of_cluster
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import DEBIAN
from tests.support.store_servers import KEY, SECRET, Server, serving
from tests.support.waiting import until
from workbench.paths import Home
from workbench.spec import DataStore

FFDL: Final = Path(__file__).parents[2] / "examples" / "ffdl"
FFDL_STORE: Final = "http://s3.default.svc.cluster.local"


@pytest.fixture
def pods(shared_pods: Pods) -> Pods:
    return shared_pods.anew()


@pytest.fixture
def own_pods(fabric: Fabric, space: Space) -> Pods:
    """For a test that changes its user's rights, environment or configuration."""
    configure(space)
    return Pods(fabric, space)


@pytest.fixture
def s3_words() -> list[str]:
    """More words of the store's command line; overridden by a test that wants some."""
    return []


@pytest.fixture
def s3(tmp_path: Path, shared_pods: Pods, s3_words: list[str]) -> Iterator[Server]:
    """S3 over a folder, for pods to reach."""
    yield from serving("s3", tmp_path / "s3", *s3_words, host=host_for(shared_pods.space))


def until_it_says(pods: Pods, job: str, text: str) -> None:
    pods.until(job, lambda shown: text in str(shown["reason"]), f"the job to say {text!r}")


@pytest.fixture(scope="class")
def shared_s3(tmp_path_factory: pytest.TempPathFactory, shared_pods: Pods) -> Iterator[Server]:
    """The same for the jobs that all tests of a class look at."""
    yield from serving("s3", tmp_path_factory.mktemp("shared") / "s3", host=host_for(shared_pods.space))


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that has read and written what a job may, and the output of its command."""

    planned: str
    ran: subprocess.CompletedProcess[str]
    job: str


class TestOneJob:
    """What is seen of one job with a data store."""

    @pytest.fixture(scope="class")
    @staticmethod
    def one(shared_pods: Pods, shared_s3: Server) -> Ran:
        pods = shared_pods
        (pods.fabric.folder / "notes.txt").write_text(f"it is {SECRET}\n")
        command = (
            "find $DATA_DIR -type f | sort; cat $DATA_DIR/train.txt;"
            " mkdir $RESULT_DIR/sub; echo model >$RESULT_DIR/sub/model.bin; echo c >$CHECKPOINT_DIR/c;"
            " cat notes.txt; env; cat /proc/*/environ 2>/dev/null; echo done"
        )
        path = manifest(pods, shared_s3, command, fetch_results=True)
        planned = pods.fabric("plan", "--native", "--backend", "cluster", "--image", "busybox", path).stdout
        ran = pods.run(path)
        return Ran(planned, ran, pods.show()["id"])

    def test_data_is_there_when_the_command_starts_and_results_are_in_the_store_when_it_ended_and_here_if_wanted(
        self, shared_pods: Pods, shared_s3: Server, one: Ran
    ) -> None:
        assert one.ran.stdout.splitlines()[:4] == [
            "/mnt/data/tf_training_data/sub/more.txt",
            "/mnt/data/tf_training_data/train.txt",
            "one",
            "two",
        ]
        results, job = shared_s3.results(one.job), shared_pods.fabric.jobs_home.job(one.job)
        assert (results / "sub" / "model.bin").read_text() == "model\n"
        assert (results / "_checkpoints" / "c").read_text() == "c\n"
        assert (results / "learner-1" / "output.log").read_text() == one.ran.stdout
        assert (job.results / "sub" / "model.bin").read_text() == "model\n"
        assert (job.checkpoints / "c").read_text() == "c\n"
        assert [path.name for path in job.results.iterdir()] == ["sub"]

    def test_credentials_are_in_no_pod_event_log_or_plan(
        self, shared_pods: Pods, shared_s3: Server, one: Ran
    ) -> None:
        texts = [one.planned, one.ran.stdout, one.ran.stderr, *texts_of_cluster(shared_pods)]
        texts += [
            path.read_text(errors="replace")
            for path in (shared_s3.results(one.job) / "learner-1").rglob("*")
            if path.is_file()
        ]
        assert f"it is {'*' * len(SECRET)}" in one.ran.stdout
        assert [text for text in texts if KEY in text or SECRET in text] == []
        assert [text for text in texts if "canary" in text] == []

    @pytest.mark.usefixtures("one")
    def test_a_cluster_without_a_claim_for_copies_says_what_would_make_its_jobs_share_them(
        self, shared_pods: Pods
    ) -> None:
        message = shared_pods.fabric("data", "list", "--backend", "cluster", expect=64).stderr

        assert "each of its pods has a copy of its own" in message
        assert "data_claim" in message


@pytest.mark.parametrize("s3_words", [["--bwlimit", "4M"]])
def test_a_store_that_is_gone_for_a_while_in_both_copies_costs_nothing_and_a_failure_is_reported_all_the_same(
    pods: Pods, s3: Server
) -> None:
    data = os.urandom(10_000_000)
    s3.write("tf_training_data/large.bin", data)
    # It takes a moment: of states that come and go between two looks the last is seen.
    command = "cp $DATA_DIR/large.bin $RESULT_DIR/copy.bin; sleep 1; exit 3"
    job = pods.start(manifest(pods, s3, command))

    for state, doing in (("DOWNLOADING", "downloads "), ("STORING", "stores results")):
        until_it_says(pods, job, doing)
        assert pods.show(job)["state"] == state
        s3.stop()
        until_it_says(pods, job, "retrying")
        s3.start()

    assert pods.wait(job)["reason_code"] == "C201"
    assert (s3.results(job) / "copy.bin").read_bytes() == data
    assert states(pods, job)[-4:] == ["DOWNLOADING", "PROCESSING", "STORING", "FAILED"]
    assert "downloads tf_training_data: " in (s3.results(job) / "learner-1" / "records.jsonl").read_text()


def test_new_results_and_output_go_up_while_it_runs_and_all_of_it_when_it_is_halted(
    pods: Pods, s3: Server
) -> None:
    command = "echo saved; echo model >$RESULT_DIR/model.bin; sleep 600"
    job = pods.start(manifest(pods, s3, command, upload_seconds=0.3))
    results = s3.results(job)

    until((results / "model.bin").exists, "the results to be stored")
    until((results / "learner-1" / "output.log").exists, "the output to be stored")

    assert pods.show(job)["state"] == "PROCESSING"
    pods.fabric("halt", job)
    pods.until_state(job, "HALTED")
    assert "STORING" in states(pods, job)
    assert (results / "learner-1" / "output.log").read_text() == "saved\n"
    assert json.loads((results / "learner-1" / "attempt.json").read_text())["stopped"] == "halt"


class TestOneFailure:
    """What is seen of one job whose data are not there, and of another that is killed."""

    @pytest.fixture(scope="class")
    @staticmethod
    def failed(shared_pods: Pods, shared_s3: Server) -> tuple[subprocess.CompletedProcess[str], str]:
        path = manifest(shared_pods, shared_s3, "echo ran")
        ran = shared_pods.run("--set", "data_stores.0.training_data.container=nothing", path, expect=None)
        return ran, shared_pods.show()["id"]

    def test_what_cannot_be_had_or_written_is_reported_before_the_command_starts(
        self, shared_pods: Pods, failed: tuple[subprocess.CompletedProcess[str], str]
    ) -> None:
        ran, job = failed
        shown = shared_pods.show(job)
        assert (shown["state"], shown["reason_code"]) == ("FAILED", "C103")
        assert "has no container nothing" in shown["reason"]
        assert "tf_training_data" in ran.stderr  # those that are there
        assert "ran" not in ran.stdout

    @pytest.mark.usefixtures("failed")
    def test_credentials_are_nowhere_after_a_failure_and_after_a_kill(
        self, shared_pods: Pods, shared_s3: Server
    ) -> None:
        pods, s3, home = shared_pods, shared_s3, shared_pods.fabric.jobs_home
        command = "cat manifest.yml; env; echo ready; sleep 600"
        job = pods.start(manifest(pods, s3, command, upload_seconds=0.3))
        pods.until_printed(job, "ready")

        pods.fabric("kill", job)
        pods.until_state(job, "HALTED")

        texts = [*texts_of_cluster(pods), pods.fabric("logs", job).stdout]
        kept = [path for path in home.path.rglob("*") if path.is_file() and path.parent.name != "secrets"]
        stored = [path for path in [*s3.folder.rglob("*"), *kept] if path.is_file()]
        assert [text for text in texts if "canary" in text] == []
        assert SECRET not in pods.fabric("show", job, "--json").stdout
        assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []


def test_mounting_and_folders_of_a_machine_are_refused_in_a_sentence(pods: Pods, s3: Server) -> None:
    path = manifest(pods, s3, "true")

    mounted = pods.run("--set", "data_stores.0.mount=true", path, expect=None)
    folder = pods.run(
        *("--set", "data_stores.0.type=host_path", "--set", "data_stores.0.connection={path: /tmp}"),
        path,
        expect=None,
    )

    assert mounted.returncode and folder.returncode
    assert "the runner pod cannot mount the data store" in mounted.stderr
    assert "is a folder of a machine" in folder.stderr
    assert pods.objects() == []


@pytest.mark.soak("the mover is the same everywhere; the gate has it in stores/test_harm")
def test_what_a_store_does_not_take_is_named_comes_home_and_is_stored_when_it_is_asked_for(
    own_pods: Pods, s3: Server, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = own_pods
    monkeypatch.setenv("FABRIC_STORE_PATIENCE_SECONDS", "2")
    command = (
        "echo model >$RESULT_DIR/model.bin; echo ready; while [ ! -e $RESULT_DIR/go ]; do sleep 0.1; done"
    )
    job = pods.start(manifest(pods, s3, command, upload_seconds=0))
    pods.until_printed(job, "ready")

    s3.stop()
    pods.fabric("exec", job, "--", "touch", "/mnt/results/go")
    shown = pods.wait(job)

    assert (shown["state"], shown["reason_code"]) == ("FAILED", "S303")
    assert "not stored" in shown["reason"]
    assert (home.job(job).results / "model.bin").read_text() == "model\n"
    s3.start()
    pods.fabric("store", "retry", job)
    assert (s3.results(job) / "model.bin").read_text() == "model\n"


def test_learners_bring_their_own_copy_and_none_waits_for_anothers_storing(pods: Pods, s3: Server) -> None:
    command = (
        "cat $DATA_DIR/train.txt; echo $LEARNER_ID >$RESULT_DIR/from-$LEARNER_ID; sleep $((LEARNER_ID - 1))"
    )

    pods.run(manifest(pods, s3, command, learners=2, ends_when="all"))

    results = s3.results(pods.show()["id"])
    assert {path.name for path in results.iterdir()} == {"from-1", "from-2", "learner-1", "learner-2"}
    assert (results / "learner-2" / "output.log").read_text() == "one\ntwo\n"


@pytest.mark.soak("FfDL's example in a pod; the gate runs it in examples/test_ffdl, and stores of pods above")
def test_ffdls_first_manifest_runs_in_a_pod_byte_for_byte(own_pods: Pods, s3: Server, home: Home) -> None:
    pods = own_pods
    with Path(os.environ["FABRIC_CONFIG"]).open("a") as file:
        file.write(
            f'\n[store_alias]\n"{FFDL_STORE}" = "lab"\n[stores.lab]\ntype = "s3_datastore"\n'
            f'auth_url = "{s3.address}"\nuser_name = "{KEY}"\npassword = "${{LAB_KEY}}"\n'
        )
    made = subprocess.run(
        [sys.executable, FFDL / "make_data.py", s3.folder / "tf_training_data"], capture_output=True
    )
    assert made.returncode == 0, made.stderr
    shutil.copytree(FFDL, pods.fabric.folder / "ffdl")

    os.environ["LAB_KEY"] = SECRET
    try:
        ran = pods.run("ffdl/manifest.yml")
    finally:
        del os.environ["LAB_KEY"]

    shown = pods.show()
    assert shown["state"] == "COMPLETED", shown["reason"]
    results = s3.results(shown["id"])
    assert (results / "learner-1" / "output.log").read_text() == ran.stdout
    assert [path for path in results.rglob("*") if path.is_file() and "learner-1" not in path.parts]


def test_a_job_that_was_halted_here_goes_on_in_a_pod_and_in_another_pod_from_its_checkpoint(
    pods: Pods, s3: Server
) -> None:
    command = (
        "trap 'exit 0' TERM; n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0); r=$(cat $RESULT_DIR/r);"
        " echo $((n + 1)) >$CHECKPOINT_DIR/n; echo of $n >$RESULT_DIR/r; echo from $n; echo $r;"
        " [ $n = 2 ] || while :; do sleep 0.1; done"
    )
    path = manifest(pods, s3, command)
    job = pods.fabric("run", "-d", "--runner", "process", "--image", DEBIAN, path).stdout.split()[-1]
    for number in range(2):
        pods.until_printed(job, f"from {number}\n")
        pods.fabric("halt", job)
        pods.until_state(job, "HALTED")
        pods.fabric("resume", job, *(["--backend", "cluster"] if number == 0 else []))

    assert pods.wait(job)["state"] == "COMPLETED"
    assert "from 2\nof 1\n" in pods.fabric("logs", job).stdout


def test_results_are_stored_with_nobody_watching(pods: Pods, s3: Server) -> None:
    command = "while [ ! -e /tmp/go ]; do sleep 0.1; done; echo model >$RESULT_DIR/model.bin; echo done"
    started = pods.run("-d", manifest(pods, s3, command, upload_seconds=0))
    job = str(started.stdout).split()[-1]  # nothing is lost here, so no consent is asked for
    pods.until_state(job, "PROCESSING")
    pods.fabric("exec", job, "--", "true")
    pods.fabric("controller", "stop")

    (pod,) = pods.pods()
    exec_argv = ["sh", "-c", "touch /tmp/go"]
    assert pods.space.admin.exec(pod["metadata"]["name"], "learner", exec_argv).wait() == 0
    until(
        lambda: pods.pods()[0]["status"]["phase"] == "Succeeded", "the pod to end", every=IN_CLUSTER_SECONDS
    )

    assert (s3.results(job) / "model.bin").read_text() == "model\n"
    assert (s3.results(job) / "learner-1" / "output.log").read_text() == "done\n"
    assert pods.wait(job)["state"] == "COMPLETED"


@pytest.mark.soak(
    "which data a job gets is no matter of pods; the gate has it in stores/test_results_of_jobs"
)
def test_the_results_of_another_pod_that_went_to_a_store_are_data_of_this_one(pods: Pods, s3: Server) -> None:
    pods.run("--name", "prepare", manifest(pods, s3, "echo data >$RESULT_DIR/d.txt"))
    child = {
        "name": "train",
        "framework": {"name": "custom", "version": "x", "command": "cat $DATA_DIR/d.txt"},
        "data_stores": [{"type": "job", "training_data": {"container": "prepare"}}],
    }
    path = pods.fabric.folder / "train.yml"
    path.write_text(json.dumps(child))

    ran = pods.run(str(path))

    assert ran.stdout == "data\n"
    assert SECRET not in json.dumps(pods.show())


def test_a_claim_is_used_where_it_is_and_results_on_it_stay_there(
    pods: Pods,
) -> None:
    home = pods.fabric.jobs_home
    store = DataStore(
        id="lab",
        type="volume",
        training_data="digits/train",
        training_results="out",
        connection={"name": "lab"},
    )
    command = "cat $DATA_DIR/x; pwd -P >/dev/null; echo model >$RESULT_DIR/m; echo c >$CHECKPOINT_DIR/c"
    with claim_of(pods.space, "lab") as folder:
        (folder / "digits" / "train").mkdir(parents=True)
        (folder / "digits" / "train" / "x").write_text("there\n")

        job, fetched = (
            str(pods.run("-d", manifest(pods, store, command, **keys)).stdout).split()[-1]
            for keys in ({}, {"fetch_results": True})
        )

        assert [pods.wait(each)["state"] for each in (job, fetched)] == ["COMPLETED"] * 2
        assert pods.printed(job) == "there\n"
        assert (folder / "out" / job / "m").read_text() == "model\n"
        assert (folder / "out" / job / "_checkpoints" / "c").read_text() == "c\n"
        assert not home.job(job).results.exists() or not any(home.job(job).results.iterdir())
        assert (home.job(fetched).results / "m").read_text() == "model\n"


def test_a_claim_that_is_not_there_is_reported_before_anything_is_made(pods: Pods) -> None:
    store = DataStore(id="lab", type="volume", training_data="x", connection={"name": "nowhere"})

    ran = pods.run(manifest(pods, store, "true"), expect=None)

    assert ran.returncode
    assert "there is none in the namespace" in ran.stderr
    assert pods.objects() == []


@pytest.mark.soak(
    "the gate sees the pod that is made, in test_pod_template, and such a volume in test_pod_settings"
)
def test_folders_of_nodes_are_used_where_the_backend_allows_them(
    fabric: Fabric, space: Space, tmp_path: Path
) -> None:
    configure(space, host_paths=True, run_as="image")
    pods = Pods(fabric, space)
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "x").write_text("there\n")
    store = DataStore(
        id="node",
        type="host_path",
        training_data="train",
        training_results="out",
        connection={"path": str(tmp_path / "data")},
    )

    ran = pods.run(manifest(pods, store, "cat $DATA_DIR/x; echo model >$RESULT_DIR/m"))

    assert ran.stdout == "there\n"
    assert (tmp_path / "data" / "out" / pods.show()["id"] / "m").read_text() == "model\n"


@pytest.mark.soak("the gate has two jobs on one copy where copies are listed and pruned")
def test_jobs_share_the_copy_on_a_claim_of_the_backend(
    fabric: Fabric, space: Space, s3: Server, home: Home
) -> None:
    configure(space, data_claim="copies")
    pods = Pods(fabric, space)
    path = manifest(pods, s3, "find $DATA_DIR -type f | wc -l; cat /mnt/data/tf_training_data/train.txt")
    with claim_of(space, "copies") as folder:
        outputs = [pods.run(path).stdout for _ in range(2)]

        assert outputs == ["2\none\ntwo\n"] * 2
        assert len(list(folder.rglob("complete.json"))) == 1
    records = [
        home.job(row["id"]).attempt(1).learner(1).records.read_text() for row in fabric.json("list", "--json")
    ]
    assert ["downloads " in record for record in records].count(True) <= 1


def test_copies_on_a_claim_are_listed_and_pruned_from_here_and_nothing_of_that_stays_in_the_cluster(
    fabric: Fabric, space: Space, s3: Server
) -> None:
    configure(space, data_claim="copies")
    pods = Pods(fabric, space)
    with claim_of(space, "copies") as folder:
        before = fabric("data", "list", "--backend", "cluster", "--json")
        assert json.loads(before.stdout) == []
        path = manifest(pods, s3, "cat $DATA_DIR/train.txt")
        assert [pods.run(path).stdout for _ in range(2)] == ["one\ntwo\n"] * 2
        (copy,) = fabric.json("data", "list", "--backend", "cluster", "--json")
        assert (copy["container"], copy["files"], copy["whole"]) == ("tf_training_data", 2, True)
        assert copy["store"]

        elsewhere = fabric("data", "list")
        assert "--backend cluster looks at them" in elsewhere.stderr
        (gone,) = fabric.json("data", "prune", "--backend", "cluster", "--yes", "--json")
        assert (gone["container"], gone["removed"]) == ("tf_training_data", True)
        assert list(folder.rglob("complete.json")) == []
        assert fabric.json("data", "list", "--backend", "cluster", "--json") == []
    for job in fabric.json("list", "--json"):
        fabric("delete", job["id"], "--yes")
    until(lambda: pods.objects() == [], "all objects to be gone", every=IN_CLUSTER_SECONDS)


class TestTooMuchMemory:
    """What is seen of one job whose container is ended, with its agent, since it needs too much memory."""

    @pytest.fixture(scope="class")
    @classmethod
    def shown(cls, shared_pods: Pods, shared_s3: Server) -> dict[str, Any]:
        hog = "import time; time.sleep(1); kept = [bytearray(b'x' * (1 << 20)) for _ in range(4096)]"
        command = f'echo model >$RESULT_DIR/model.bin; echo saved; exec python3 -c "{hog}"'
        shared_pods.run(manifest(shared_pods, shared_s3, command), expect=137)
        return shared_pods.show()

    def test_a_learner_that_needs_too_much_memory_says_so(self, shown: dict[str, Any]) -> None:
        assert (shown["state"], shown["reason_code"]) == ("FAILED", "C203")
        assert "0.20 GiB" in shown["reason"]

    def test_results_are_stored_of_a_learner_whose_container_was_ended_with_its_agent(
        self, shared_s3: Server, shown: dict[str, Any]
    ) -> None:
        results = shared_s3.results(shown["id"])
        until((results / "model.bin").exists, "the results to be stored")
        until((results / "learner-1" / "output.log").exists, "the output to be stored")


@pytest.mark.soak("marks are made alike everywhere; the gate has them in stores/test_checkpoints")
def test_a_reported_checkpoint_is_marked_and_another_job_begins_with_it(pods: Pods, s3: Server) -> None:
    script = (
        "import os; from fabric_learner import checkpoint; path = os.environ['CHECKPOINT_DIR'] + '/step-3';"
        " os.mkdir(path); open(path + '/weights', 'w').write('w3'); checkpoint(path, step=3)"
    )
    (pods.fabric.folder / "save.py").write_text(script)
    pods.run(manifest(pods, s3, "python3 save.py"))
    first = pods.show()["id"]

    ran = pods.run("--from", f"{first}@3", manifest(pods, s3, "cat $CHECKPOINT_DIR/step-3/weights"))

    assert ran.stdout.strip() == "w3"
    stored = s3.results(first) / "_checkpoints" / "step-3"
    assert json.loads((stored / "metadata.json").read_text())["step"] == 3


def test_without_the_right_to_run_commands_in_pods_data_stores_are_refused_with_what_to_ask_for(
    own_pods: Pods, s3: Server
) -> None:
    pods = own_pods
    pods.space.take_rights("pods/exec")

    ran = pods.run(manifest(pods, s3, "true"), expect=None)

    assert ran.returncode
    assert "you may not run commands in pods" in ran.stderr
    assert "fabric backend role" in ran.stderr
    assert pods.objects() == []


def test_results_are_stored_of_a_learner_whose_agent_and_side_car_are_killed(pods: Pods, s3: Server) -> None:
    command = "echo model >$RESULT_DIR/model.bin; echo saved; sleep 600"
    job = pods.start(manifest(pods, s3, command, upload_seconds=600, max_platform_restarts=0))
    pods.until_printed(job, "saved")
    (name,) = (pod["metadata"]["name"] for pod in pods.pods())
    kill = (
        "import json, os; state = '/.fabric/journal/attempt/learner-1/state.json';"
        " os.kill(json.load(open(state))['pid'], 9)"
    )

    pods.space.admin.exec(name, "journal", ["sh", "-c", "kill 1"]).wait()
    assert pods.space.admin.exec(name, "learner", ["python3", "-c", kill]).wait() == 0

    assert pods.wait(job)["reason_code"] == "S202"
    assert (s3.results(job) / "model.bin").read_text() == "model\n"
    assert (s3.results(job) / "learner-1" / "output.log").read_text() == "saved\n"


@pytest.mark.soak(
    "the gate has learners that share a claim in test_pod_claims, and that store each their own here"
)
def test_learners_that_share_their_results_on_a_claim_store_them_as_well(
    fabric: Fabric, space: Space, s3: Server
) -> None:
    with claim_of(space, "results") as folder:
        configure(space, claim="results")
        pods = Pods(fabric, space)
        command = "echo $LEARNER_ID >$RESULT_DIR/from-$LEARNER_ID"

        pods.run(manifest(pods, s3, command, learners=2, ends_when="all"))

        job = pods.show()["id"]
        kept = {path.name: path.read_text() for path in folder.rglob("from-*")}
        stored = {path.name: path.read_text() for path in s3.results(job).glob("from-*")}
        assert kept == stored == {"from-1": "1\n", "from-2": "2\n"}
