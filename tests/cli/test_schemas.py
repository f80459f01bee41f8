"""Every document that a command prints fits the schema of its mark, and every schema is of a document that is printed.

``Fabric`` of ``tests.cli.conftest`` checks what the commands of all other tests print, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

import fabric_workbench
from backends.contract.host import BackendOptions
from tests.frozen import commands, documents, goldens
from tests.frozen.asked import keys_of_documents
from tests.frozen.sandbox import Sandbox, only, sandbox
from tests.support.command import Fabric, Serve
from tests.support.schemas import check_printed, documents_in, faults, fits
from workbench.documents import docs
from workbench.documents.catalogue import BY_MARK, JOB_FILE, schema
from workbench.documents.catalogue import documents as listed
from workbench.errors import UnknownName
from workbench.job import State
from workbench.paths import Home
from workbench.services.transfer.retry_upload import UploadRetry
from workbench.spec import JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.updates.experiments import insert_experiment, record_event

KUBECONFIG: Final = """\
{apiVersion: v1, kind: Config, current-context: lab,
 contexts: [{name: lab, context: {cluster: lab, user: ada, namespace: team}}],
 clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: ada, user: {token: x}}]}
"""
REGEX: Final = """\
name: tried
framework: {command: 'true'}
evaluation_metrics:
  type: regex_extractor
  groups: {test: {regex: 'loss %{FLOAT:loss}', scalars: {loss: {type: FLOAT, value: $loss}}}}
"""
SEARCH: Final = """\
name: searched
framework: {command: 'true'}
search: {method: asha, metric: loss, time_metric: epoch, max_time: 9, max_trials: 9, params: {a: {int: [1, 8]}}}
"""
CHANGES: Final = (
    "download", "download-code", "cp", "checkpoint-download", "checkpoint-delete", "tag-added", "note-written",
)  # fmt: skip
"""Commands of the frozen home that change it without a controller."""
EXTRA: Final = (
    "schema --list --json",
    "store retry steps --json",
    "metrics --try tried.yml tried.log --json",
    "metrics --try auto auto.log --json",
    "preview search.yml --json",
    "show searched[2] --json",
    "experiment list --json",
    "experiment show searched --json",
    "experiment trials searched --json",
    "experiment best searched --json",
    "experiment wait searched --json",
    "experiment kill searched --json",
    "experiment pause searched --json",
    "experiment resume searched --json",
    "experiment archive searched --json",
    "experiment continue searched --json",
    "experiment fork searched --json",
    "run --every @daily --name again --json -- true",
    "schedule list --json",
    "schedule show again --json",
    "schedule pause again --json",
    "schedule resume again --json",
    "schedule run again --json",
    "schedule delete again --json",
    "logs steps --follow --json",
    "loglines steps --follow --json",
    "metrics steps --follow --json",
    "download pair --definition --trainedmodel --json",
    "gc --json",
    "prune --keep-last 1 --yes --json",
    "doctor --bind-home --yes --json",
    "doctor --rebuild --yes --json",
    "backend role k8s://lab --user ada --json",
    "backend linger ssh://gpubox --json",
    "backend drain local --show --json",
    "backend halt ssh://gpubox bcdefghjk --json",
    "image load image.tar --json",
    "image send gpubox my-image --json",
    "adopt gpubox --json",
)


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with sandbox("ended") as one:
        yield one


def test_every_document_is_printed_and_fits_its_schema(
    box: Sandbox,
    fabric: Fabric,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[str, ...]] = []
    seen: set[Any] = set()

    def take(words: tuple[str, ...], printed: str) -> None:
        asked.append(words)
        check_printed(printed)
        for document in documents_in(printed):
            seen.update(kind for kind in BY_MARK.get(document.get("schema"), ()) if fits(kind, document))

    _of_a_served_store(fabric, serve, take)
    take(("events",), _first_event(fabric))
    _of_a_queue(fabric, take)
    monkeypatch.chdir(box.folder)
    with only(box):
        _prepare(box, monkeypatch)
        for words in _all_words():
            take(words, _printed(words, capfd))
        _print_trouble()
        take(("attach",), capfd.readouterr().out)

    assert {kind.__name__ for kinds in BY_MARK.values() for kind in kinds if kind not in seen} == set()
    able = {name for name, each in commands.ask()["commands"].items() if "--json" in each["options"]}
    started = {"run", "rerun", "halt", "kill", "resume"}  # they print a job, as other tests check
    assert {name for name in able if not any(" ".join(words).startswith(name) for words in asked)} <= started


def _all_words() -> Iterator[tuple[str, ...]]:
    for asked in documents.READ.values():
        yield asked.words
    for name in CHANGES:
        yield documents.CHANGED[name].words
    for words in EXTRA:
        yield tuple(words.split())


def _printed(args: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process, and return what it printed."""
    before = sys.argv
    sys.argv = ["fabric", *args]
    try:
        fabric_workbench.main()
    finally:
        sys.argv = before
    printed = capfd.readouterr()
    assert printed.out, f"{args}: {printed.err}"
    return printed.out


def _prepare(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring in what the home lacks, and have an engine, a host and a store answer."""
    from workbench.services.backends import images, linger, setup
    from workbench.services.submit import adoption
    from workbench.services.transfer import retry_upload

    (box.folder / "faulty.yml").write_text(documents.FAULTY)
    (box.folder / "tried.yml").write_text(REGEX)
    (box.folder / "search.yml").write_text(SEARCH)
    (box.folder / "auto.log").write_text("step 1 loss 0.5\nstep 2 loss 0.4\nstep 3 loss nan\n")
    (box.folder / "tried.log").write_text("loss 0.5\nnothing\nloss nan\n")
    (box.folder / "kubeconfig").write_text(KUBECONFIG)
    (box.home / "jobs" / "training-aaaaaaaaa").mkdir()
    _write_search(Home(box.home))
    monkeypatch.setenv("KUBECONFIG", str(box.folder / "kubeconfig"))
    sent = SimpleNamespace(layers=3, missing=1, size_bytes=10)
    found = adoption.AdoptableJob(
        options=BackendOptions("gpubox", "ssh"),
        home="0",
        job_id="training-bcdefghjk",
        attempt=1,
        runner="process",
        owner="ada",
        spec=JobSpec("digits"),
        code_hash="",
        recorded={},
        alive=True,
        is_part=False,
        now="runs",
    )
    retried = UploadRetry("s3://x", 3, 10, 1, ("full",), State.FAILED, State.FAILED)
    monkeypatch.setattr(linger, "keep_jobs", lambda *_: linger.Kept(has_systemd=False, script="/x/resume.sh"))
    ended = setup.EndedJob("training-bcdefghjk", 1, "ada")
    monkeypatch.setattr(setup, "end_job", lambda *_: ended)
    monkeypatch.setattr(images, "load_images", lambda *_: ["my-image"])
    monkeypatch.setattr(images, "send_image", lambda *_: sent)
    monkeypatch.setattr(adoption, "find", lambda *_: [found])
    monkeypatch.setattr(retry_upload, "retry_upload", lambda *_, **__: retried)


def _write_search(home: Home) -> None:
    """Write a search with one trial, which has ended, and another one that is never made."""
    spec = JobSpec("searched", search={"method": "random", "max_trials": 2, "metric": "loss", "params": {}})
    trial = {
        "trial": "b33deacb-5c03-42f3-8e95-f52e6af463bb",
        "number": 1,
        "job": "training-bbbbbbbbb",
        "seed": 5,
    }
    with Store.open(home) as store:
        document = {
            "spec": spec_to_json(spec),
            "place": {"backend": "local", "type": "local", "runner": "process"},
            "seed": 1,
            "who": "test@here",
            "manifest_text": "",
            "origins": {},
            "code_hash": "",
            "recorded": {},
        }
        insert_experiment(store, "experiment-bcdefghjk", document)
        for event in (
            {"do": "begin", "operations": [{"do": "create", **trial, "hparams": {"lr": 0.1}}]},
            {"do": "report", "trial": trial["trial"], "point": 1, "units": 1.0, "value": 0.5, "metrics": {}},
            {"do": "end", "trial": trial["trial"], "how": "failed", "state": "FAILED"},
        ):
            record_event(store, "experiment-bcdefghjk", event)


def _of_a_served_store(fabric: Fabric, serve: Serve, take: Callable[[tuple[str, ...], str], None]) -> None:
    served = serve(str(fabric.folder / "store"))
    take(("store", "serve"), json.dumps({key: value for key, value in served.items() if key != "process"}))
    (fabric.folder / "mnist").mkdir()
    (fabric.folder / "mnist" / "images").write_text("seven\n")
    command = "cat $DATA_DIR/images; echo loss 0.5; exit 3"
    (fabric.folder / "manifest.yml").write_text(REGEX.replace("'true'", f"'{command}'"))
    for args, code in (
        (("data", "mkbucket", "served:new", "--json"), 0),
        (("data", "put", "mnist", "served:in", "--create", "--json"), 0),
        (("run", "manifest.yml", "--data", "served:in", "--json"), 3),
        (("data", "list", "--json"), 0),
        (("data", "prune", "--yes", "--json"), 0),
    ):
        take(args, fabric(*args, expect=code).stdout)


def _of_a_queue(fabric: Fabric, take: Callable[[tuple[str, ...], str], None]) -> None:
    fabric("run", "-d", "--name", "long", "--", "sleep", "600")
    fabric("run", "-d", "--name", "later", "--after", "long", "--", "true")
    for args in (
        ("queue", "set", "later", "priority=70", "--json"),
        ("queue", "move", "later", "--top", "--json"),
        ("controller", "restart", "--json"),
    ):
        take(args, fabric(*args).stdout)


def _first_event(fabric: Fabric) -> str:
    following = fabric.start("events", "--follow", "--json")
    assert following.stdout is not None
    try:
        return following.stdout.readline().decode()
    finally:
        following.kill()
        following.wait()
        for stream in (following.stdout, following.stderr):
            if stream:
                stream.close()


def _print_trouble() -> None:
    from workbench.cli.follow.events_view import EventView

    EventView().notice("the backend does not answer")


DOCUMENT: Final[dict[str, Any]] = {
    "schema": "fabric.checkpoint/1", "name": "a", "step": None, "attempt": 1, "time": "2026-01-31T10:00:00.000000Z",
    "size_bytes": 1, "sha256": "", "metrics": {"loss": 0.5}, "where": ["here"],
}  # fmt: skip


def test_a_document_that_is_right_has_no_faults() -> None:
    assert list(faults(DOCUMENT)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1},
        {"step": "1"},
        {"time": "yesterday"},
        {"where": "here"},
        {"schema": "fabric.checkpoint/2"},
        {"metrics": None},
    ],
    ids=str,
)
def test_what_is_added_or_of_another_type_is_a_fault(wrong: dict[str, Any]) -> None:
    assert list(faults({**DOCUMENT, **wrong}))


@pytest.mark.parametrize("key", DOCUMENT)
def test_a_key_that_is_gone_is_a_fault(key: str) -> None:
    assert list(faults({name: value for name, value in DOCUMENT.items() if name != key}))


def test_published_schemas_let_later_keys_pass() -> None:
    import jsonschema

    jsonschema.validate({**DOCUMENT, "later": 1}, schema("checkpoint"))
    for mark in BY_MARK:
        jsonschema.Draft202012Validator.check_schema(schema(mark))


def test_the_file_of_a_job_fits_its_schema() -> None:
    import jsonschema

    with sandbox("ended") as box:
        files = sorted(box.home.glob("jobs/*/job.json"))
        rule = schema(JOB_FILE)
        current = jsonschema.Draft202012Validator(rule)
        # A home of an older version: its files lack what was added to manifests since.
        spec = rule["properties"]["spec"]
        metrics = next(one for one in spec["properties"]["evaluation_metrics"]["anyOf"] if "required" in one)
        for part in (spec, spec["properties"]["checkpoints"], metrics):
            part.pop("required")

        assert len(files) > 5
        for file in files:
            assert [each.message for each in current.iter_errors(json.loads(file.read_text()))] == []


def test_a_new_file_of_a_job_has_no_key_without_a_schema(fabric: Fabric, home: Home) -> None:
    import jsonschema

    job = fabric("run", "-d", "--", "true").stdout.strip()

    written = json.loads(home.job(job).job_file.read_text())
    jsonschema.validate(written, schema(JOB_FILE, closed=True))


def test_schemas_are_printed_by_name_and_by_mark(fabric: Fabric) -> None:
    names = [each["name"] for each in listed()]
    assert len(names) == len(set(names)) == len(BY_MARK) + 2
    for name in names:
        assert schema(name)["$schema"].startswith("http")

    assert fabric.json("schema", "job") == fabric.json("schema", "fabric.job/1") == schema("job")
    assert fabric.json("schema") == schema("manifest")
    assert "job.json" in fabric("schema", "--list").stdout
    assert "did you mean metrics?" in fabric("schema", "metrisc", expect=64).stderr


def test_an_unknown_document_is_refused() -> None:
    with pytest.raises(UnknownName, match="there is no document 'zebra'"):
        schema("zebra")


def test_the_page_of_documents_is_current() -> None:
    assert docs.FILE.read_text() == docs.documents_page(), "python -m workbench.documents.docs --write"


def test_keys_are_only_added_within_a_version() -> None:
    goldens.holds(goldens.SCHEMAS, keys_of_documents())
