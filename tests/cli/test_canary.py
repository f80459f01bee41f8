"""A secret is searched for wherever a job leaves traces: it is nowhere but in the file that keeps it for the job."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.screens.test_real_terminal import TMUX, Terminal
from tests.support.command import EXECUTABLE, Fabric
from tests.support.images import BUSYBOX, ensure_images, why_not
from tests.support.processes import threads_of_the_kernel
from tests.support.registry import USER, auth_of, registry_of
from tests.support.store_servers import KEY, SECRET, Server, serving
from tests.support.waiting import until
from workbench.data.stores.rclone import find_rclone
from workbench.errors import FabricError
from workbench.learner.platform.system import read_bytes
from workbench.learner.scribe.masking import Mask
from workbench.paths import Home

TOKEN = "canary/token hush+0816"
CANARIES = Mask([SECRET, TOKEN])

OWN_WORDS = b"\0--set\0data_stores.0.connection.password="

PRINTS = """\
      env; echo "$TOKEN"; echo "x$TOKEN" | base64; echo "xy$TOKEN" | base64; cat /proc/$PPID/cmdline;
      echo "token=$TOKEN" >&2; cat $DATA_DIR/train.txt; touch $RESULT_DIR/model; echo ready; """

MANIFEST = """\
name: canary
runner: {runner}
framework:
  name: custom
  version: {image}
  command: |
{prints}{end}
secrets: [TOKEN]
data_stores:
  - id: sl-internal-os
    type: mount_cos
    training_data: {{container: tf_training_data}}
    training_results: {{container: tf_trained_model}}
    connection:
      auth_url: {address}
      user_name: {key}
      password: {secret}
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Server]:
    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    yield from serving("s3", tmp_path / "s3")


@pytest.fixture
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "container":
        monkeypatch.delenv("DOCKER_HOST")
        if reason := why_not():
            pytest.skip(reason)
        ensure_images()
    return name


def write_code(fabric: Fabric, s3: Server, runner: str, end: str) -> Path:
    """Write a repository whose manifest was committed without its password."""
    manifest = fabric.folder / "manifest.yml"
    keys = {
        "runner": runner,
        "image": BUSYBOX,
        "prints": PRINTS,
        "end": end,
        "address": s3.address,
        "key": KEY,
    }
    manifest.write_text(MANIFEST.format(secret="not-yet-known", **keys))
    (fabric.folder / "train.py").write_text("print('trains')\n")
    commit(fabric.folder)
    manifest.write_text(MANIFEST.format(secret=SECRET, **keys))
    return manifest


def commit(folder: Path) -> None:
    """Make a folder a repository with all that it holds."""
    for args in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True)


def files_with_canaries(*roots: Path) -> list[Path]:
    return files_with(CANARIES, *roots)


def files_with(canaries: Mask, *roots: Path) -> list[Path]:
    found = []
    for root in roots:
        for path in root.rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            if canaries.spans(data) or canaries.spans(os.fsencode(path)):
                found.append(path)
    return found


def process_list() -> bytes:
    """Return the words of every process, without those that name a secret by the test's own doing."""
    command_lines = []
    kernel = threads_of_the_kernel()
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208 - it is done all the time
        if pid in kernel:
            continue
        try:
            words = read_bytes(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        if b"\0serve\0" not in words and OWN_WORDS not in words:
            command_lines.append(words)
    return b"\n".join(command_lines)


def inspected() -> bytes:
    """Return all that the engine tells of its containers."""
    listed = subprocess.run(["docker", "ps", "-aq"], capture_output=True, check=False).stdout.split()
    if not listed:
        return b""
    return subprocess.run(["docker", "inspect", *listed], capture_output=True, check=False).stdout


@contextlib.contextmanager
def looking(canaries: Mask = CANARIES, *, containers: bool = False) -> Iterator[list[bytes]]:
    """Look at processes all the time, and at containers now and then; return what showed a secret."""
    found: list[bytes] = []
    over = threading.Event()

    def look() -> None:
        turn = 0
        while not over.wait(0.02):
            seen = process_list() + (inspected() if containers and turn % 20 == 0 else b"")
            if canaries.spans(seen):
                found.append(seen)
            turn += 1
        assert turn

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed: no real terminal to look at")
def test_a_secret_is_on_no_screen(
    fabric: Fabric,
    home: Home,
    tmp_path: Path,
    s3: Server,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_code(fabric, s3, "process", "sleep 1; exit 3")
    monkeypatch.setenv("TOKEN", TOKEN)
    terminal = Terminal(clean_environment, home)
    commands = (
        "run manifest.yml",
        "show @last",
        "show @last --origin",
        "events @last",
        "logs @last",
        "plan manifest.yml",
    )
    script = "; ".join(f"{EXECUTABLE} {words}" for words in commands)
    try:
        terminal(
            "new-session",
            "-d",
            "-x",
            "200",
            "-y",
            "60",
            "-c",
            str(fabric.folder),
            "sh",
            "-c",
            f"{script}; echo all shown; sleep 600",
        )
        terminal.until(lambda _: "all shown" in terminal("capture-pane", "-p"))
        shown = terminal("capture-pane", "-p", "-J", "-S", "-")
        assert "ready" in shown and "*" * len(TOKEN) in shown
        assert CANARIES.spans(shown.encode()) == []
        subprocess.run([*terminal.base, "kill-server"], capture_output=True)
        terminal = Terminal(tmp_path, home)
        terminal.start(120, 40)
        screens = [terminal.until_shown("canary")]
        for key, word in (("Enter", "overview"), ("l", "ready")):
            terminal.keys(key)
            screens.append(terminal.until_shown(word))
        assert CANARIES.spans("".join(screens).encode()) == []
    finally:
        subprocess.run([*terminal.base, "kill-server"], capture_output=True)


SAME_END = pytest.mark.soak(
    "another end; the gate has a failure and a kill, each by another runner, and experiments that complete"
)


@pytest.mark.parametrize(
    ("runner", "end", "code"),
    [
        ("process", "exit 3", 3),
        ("container", "sleep 600", 137),
        pytest.param("process", "true", 0, marks=SAME_END),
        pytest.param("container", "true", 0, marks=SAME_END),
        pytest.param("container", "exit 3", 3, marks=SAME_END),
        pytest.param("process", "sleep 600", 137, marks=SAME_END),
    ],
    indirect=["runner"],
)
def test_a_secret_is_nowhere_after_a_run_a_failure_and_a_kill(
    fabric: Fabric,
    home: Home,
    clean_environment: Path,
    s3: Server,
    runner: str,
    end: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = write_code(fabric, s3, runner, end)
    monkeypatch.setenv("TOKEN", TOKEN)
    with looking(containers=runner == "container") as shown:
        runs = [fabric("plan", "--native", "manifest.yml"), fabric("plan", "--json", "manifest.yml")]

        runs.append(
            fabric("run", "-d", "manifest.yml", "--set", f"data_stores.0.connection.password={SECRET}")
        )
        job_id = runs[-1].stdout.strip()
        output = home.job(job_id).attempt(1).learner(1).output
        until(lambda: output.exists() and b"ready" in output.read_bytes(), "the command to print")
        running = process_list() + inspected()
        if code == 137:
            runs.append(fabric("kill", job_id))
        runs.append(fabric("wait", job_id, expect=None))
        assert fabric.json("show", job_id, "--json")["exit_code"] == code
        runs += [
            fabric(words[0], job_id, *words[1:], expect=None)
            for words in (
                ["show"],
                ["show", "--json"],
                ["show", "--origin"],
                ["logs"],
                ["logs", "--json"],
                ["attach"],
            )
        ]
        runs += [fabric("list", "--json"), fabric("rerun", "-d", job_id), fabric("doctor", expect=None)]
        again = fabric.json("list", "--json")[0]["id"]
        fabric("kill", again, expect=None)
        fabric("wait", again, expect=None)

    assert shown == []
    assert CANARIES.spans(running) == []
    for ran in runs:
        assert CANARIES.spans(f"{ran.stdout}{ran.stderr}".encode(errors="surrogateescape")) == [], ran.args
    kept = {home.secrets / f"{each}.json" for each in (job_id, again)}
    places = [clean_environment, s3.folder]
    assert set(files_with_canaries(*places)) == {manifest, *kept}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    assert b"*" * len(TOKEN) in output.read_bytes()
    # A kill waits for no storing, and says what it left.
    stored = (s3.results(job_id) / "model").exists()
    assert stored or (code == 137 and "not stored" in fabric.json("show", job_id, "--json")["reason"])

    fabric("delete", job_id, again, "--yes")

    until(lambda: not any(path.exists() for path in kept), "the secrets to be dropped")
    assert files_with_canaries(*places) == [manifest]


EXPERIMENT = """\
name: canary
entrypoint: python3 train.py
hyperparameters: {{x: {x}}}
searcher: {{metric: loss, {searcher}}}
resources: {{slots_per_trial: 0}}
checkpoint_storage: {{type: s3, bucket: tf_trained_model, prefix: of/trials, endpoint_url: "{address}",
  access_key: {key}, secret_key: {secret}, save_trial_latest: 1, save_trial_best: 0}}
data: {{root: /d, secrets: {{deep: ["{token}"]}}}}
"""

TRAIN = """\
import os
import determined as det

print({**os.environ}, det.get_cluster_info().user_data, det.get_cluster_info().trial._config)
with det.core.init() as core:
    for step in 1, 2:
        with core.checkpoint.store_path({"steps_completed": step}) as (path, name):
            path.joinpath("state").write_text(str(step))
    core.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1})
"""


@pytest.mark.parametrize(
    ("x", "searcher"),
    [
        pytest.param(
            "3", "name: single", marks=pytest.mark.soak("a trial alone; the gate has a search of them")
        ),
        ("{type: int, minval: 1, maxval: 9}", "name: random, max_trials: 2"),
    ],
)
def test_the_keys_of_an_experiments_storage_are_nowhere_but_in_the_files_of_secrets(
    fabric: Fabric, home: Home, clean_environment: Path, s3: Server, x: str, searcher: str
) -> None:
    manifest = fabric.folder / "experiment.yaml"
    (fabric.folder / "train.py").write_text(TRAIN)
    keys = {"address": s3.address, "key": KEY, "secret": SECRET, "token": TOKEN}
    manifest.write_text(EXPERIMENT.format(x=x, searcher=searcher, **keys))
    ran = [
        fabric(*args, "experiment.yaml")
        for args in (["validate"], ["plan", "--native"], ["plan", "--json"], ["preview"], ["convert"])
    ]
    ran.append(fabric("run", "-q", "experiment.yaml"))

    def jobs() -> list[str]:
        return [each["id"] for each in fabric.json("list", "--json") if each["state"] == "COMPLETED"]

    until(lambda: len(jobs()) == (1 if "single" in searcher else 2), "the trials to end")
    ran += [fabric("show", each, "--json") for each in jobs()]
    ran += [fabric("show", each, "--manifest") for each in jobs()]

    both = Mask([SECRET, KEY, TOKEN])
    for one in ran:
        assert both.spans(f"{one.stdout}{one.stderr}".encode()) == [], one.args
    assert "${CHECKPOINT_STORAGE_PASSWORD}" in ran[4].stdout
    assert "set the secret CHECKPOINT_STORAGE_USER_NAME" in ran[4].stdout + ran[4].stderr
    kept = {path for path in home.secrets.iterdir() if path.suffix == ".json"}
    assert set(files_with_canaries(clean_environment, s3.folder)) == {manifest, *kept}
    assert set(files_with(both, clean_environment)) == {manifest, *kept}
    for each in jobs():
        stored = s3.folder / "tf_trained_model/of/trials" / each / "_checkpoints"
        assert [path.read_text() for path in stored.glob("*/state")] == ["2"]


OF_CODE = """\
name: canary
entrypoint: python3 train.py
searcher: {{name: single, metric: loss}}
resources: {{slots_per_trial: 0}}
max_restarts: 1
data:
  root: /d
  secrets: {{password: {token}, deep: [{{key: {secret}}}], of_mine: "${{OF_MINE}}", pin: 7}}
"""
READS = """\
import hashlib, os, sys
import determined as det

data = det.get_cluster_info().user_data
secrets = data["secrets"]
values = secrets["password"], secrets["deep"][0]["key"], secrets["of_mine"]
print({**os.environ}, data, *values)
digest = hashlib.sha256(" ".join(values).encode()).hexdigest()
print("read", digest, data["root"], secrets["pin"])
sys.exit(int(os.environ["DET_TRIAL_RUN_ID"]) < 3)
"""


def test_secrets_of_an_experiments_data_are_read_by_its_code_alone(
    fabric: Fabric, home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_mine = 'canary "quoted" ${hush}'
    canaries = Mask([SECRET, TOKEN, of_mine])
    monkeypatch.setenv("OF_MINE", of_mine)
    manifest = fabric.folder / "experiment.yaml"
    (fabric.folder / "train.py").write_text(READS)
    manifest.write_text(OF_CODE.format(token="not-yet-known", secret="nor-this"))
    commit(fabric.folder)
    manifest.write_text(OF_CODE.format(token=TOKEN, secret=SECRET))
    with looking(canaries) as shown:
        ran = [
            fabric(*args, "experiment.yaml")
            for args in (["validate"], ["plan", "--native"], ["plan", "--json"], ["convert"])
        ]
        assert "set the secret DET_DATA_SECRETS to it" in ran[-1].stdout + ran[-1].stderr
        assert "data.secrets.password (and 2 more) is written out" in ran[1].stdout + ran[1].stderr
        ran.append(fabric("run", "experiment.yaml", expect=1))  # and again, by its host
        job_id = fabric.json("list", "--json")[0]["id"]
        monkeypatch.delenv("OF_MINE")
        ran += [fabric("resume", job_id), fabric("rerun", job_id, expect=1)]
        again = fabric.json("list", "--json")[0]["id"]
        words = (
            ["show"],
            ["show", "--json"],
            ["show", "--origin"],
            ["show", "--manifest"],
            ["logs"],
            ["events"],
        )
        ran += [fabric(first, job_id, *more) for first, *more in words]

    digest = hashlib.sha256(f"{TOKEN} {SECRET} {of_mine}".encode()).hexdigest()
    for each, attempts in ((job_id, 3), (again, 2)):
        for attempt in range(1, attempts + 1):
            output = home.job(each).attempt(attempt).learner(1).output.read_text()
            assert f"read {digest} /d 7\n" in output
            assert "*" * len(TOKEN) in output
    assert shown == []
    for one in ran:
        assert canaries.spans(f"{one.stdout}{one.stderr}".encode()) == [], one.args
    kept = {home.secrets / f"{each}.json" for each in (job_id, again)}
    assert set(files_with(canaries, clean_environment)) == {manifest, *kept}


LOGIN = "canary+login/0816 hush"
OF_REGISTRY = {
    "manifest": """\
name: canary
framework:
  name: custom
  version: {image}
  command: env; echo ready
  image_location: {{username: {user}, password: "{login}"}}
""",
    "experiment": """\
name: canary
entrypoint: env; echo ready
searcher: {{name: single, metric: loss}}
resources: {{slots_per_trial: 0}}
environment:
  image: {image}
  registry_auth: {{username: {user}, password: "{login}", serveraddress: "http://{address}"}}
""",
    "auth": """\
name: canary
entrypoint: env; echo ready
searcher: {{name: single, metric: loss}}
resources: {{slots_per_trial: 0}}
environment: {{image: "{image}", registry_auth: {{auth: {auth}}}}}
""",
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            "manifest", marks=pytest.mark.soak("the same keys; the gate has those of an experiment")
        ),
        "experiment",
        "auth",
    ],
)
@pytest.mark.parametrize("runner", ["container"], indirect=True)
def test_a_login_to_a_registry_is_nowhere_but_in_the_file_of_secrets(
    fabric: Fabric, home: Home, clean_environment: Path, runner: str, kind: str
) -> None:
    canaries = Mask([LOGIN, auth_of(USER, LOGIN)])
    manifest = fabric.folder / "manifest.yml"
    with registry_of(BUSYBOX, password=LOGIN) as registry, looking(canaries, containers=True) as shown:
        keys = {"address": registry.address, "user": USER, "login": LOGIN, "auth": auth_of(USER, LOGIN)}
        manifest.write_text(OF_REGISTRY[kind].format(image=registry.image, **keys))
        ran = [
            fabric(*args, "manifest.yml", "--runner", runner)
            for args in (["plan"], ["plan", "--native"], ["plan", "--json"], ["run"])
        ]
        assert "ready" in ran[-1].stdout
        job_id = fabric.json("list", "--json")[0]["id"]
        ran += [fabric(*args, "manifest.yml") for args in (["validate"],)]
        if kind != "manifest":
            ran.append(fabric("convert", "manifest.yml"))
            assert "${REGISTRY_" in ran[-1].stdout
        ran += [
            fabric(words[0], job_id, *words[1:])
            for words in (
                ["show"],
                ["show", "--json"],
                ["show", "--origin"],
                ["show", "--manifest"],
                ["logs"],
            )
        ]
        subprocess.run(["docker", "rmi", "-f", registry.image], check=True, capture_output=True)
        ran.append(fabric("rerun", job_id))
        assert "ready" in ran[-1].stdout
        again = fabric.json("list", "--json")[0]["id"]
        wrong = (
            manifest.read_text().replace(LOGIN, "wrong").replace(auth_of(USER, LOGIN), auth_of(USER, "wrong"))
        )
        subprocess.run(["docker", "rmi", "-f", registry.image], check=True, capture_output=True)
        refused = fabric("run", "-", input=wrong, expect=75)

    assert "framework.image_location" in refused.stderr
    assert shown == []
    for one in ran:
        assert canaries.spans(f"{one.stdout}{one.stderr}".encode()) == [], one.args
    kept = {home.secrets / f"{each}.json" for each in (job_id, again)}
    assert set(files_with(canaries, clean_environment)) == {manifest, *kept}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)

    fabric("delete", job_id, again, "--yes")

    until(lambda: not any(path.exists() for path in kept), "the secrets to be dropped")
    assert files_with(canaries, clean_environment) == [manifest]
