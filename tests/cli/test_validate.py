"""``fabric validate`` finds what ``fabric run`` would refuse at once, and ``fabric plan`` shows what it would start."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.command import Fabric

JOB = "name: {name}\nframework: {{command: 'true'}}\n{more}"
STORE = """\
data_stores:
- id: data
  type: host_path
  connection: {path: /nowhere}
  training_data: {container: here}
"""
BUILT_IN = """\
data_stores:
- id: data
  type: s3_datastore
  connection: {auth_url: "http://s3.default.svc.cluster.local", user_name: a, password: b}
  training_data: {container: here}
"""


def job(name: str = "x", more: str = "") -> str:
    return JOB.format(name=name, more=more)


def chain(*texts: str) -> str:
    return "---\n".join(texts)


REFUSED = {
    "two documents of one name": (chain(job("a"), job("a")), "two documents are called 'a'"),
    "documents that wait for each other": (
        chain(job("a", "after: [b]\n"), job("b", "after: [a]\n")),
        "the documents wait for each other",
    ),
    "a fault in a later document": (chain(job("a"), job("b", "gpus: many\n")), "m.yml:6:7: gpus: "),
    "a launcher": (job(more="launcher: torchrun\n"), "the launcher torchrun is not built yet"),
    "a priority out of range": (job(more="priority: 101\n"), "0 to 100"),
    "ports of a process": (job(more="ports: [80]\n"), "forwarding ports is not built yet"),
    "a folder that is not there": (job(more=STORE), "is the folder /nowhere/here, which does not exist"),
    "FfDL's own store": (job(more=BUILT_IN), "FfDL's built-in store, which does not exist here"),
    "a job that is not there": (job(more="after: [prepare]\n"), "there is no job 'prepare'"),
    "a backend that is not there": (job(more="backend: nowhere\n"), "nowhere"),
    "a runner that is not there": (job(more="runner: magic\n"), "there is no runner 'magic'"),
    "code that is not there": (job(more="code: nowhere\n"), "nowhere is not there"),
    "an empty name": (job('""'), "m.yml:1:7: name: "),
    "an empty command": ("name: x\nframework: {command: ' '}\n", "framework.command: is empty"),
    "a name that means a job": (job('"@last"'), "a name that does not begin with @ or -"),
    "a name that looks like an option": (job('"-x"'), "a name that does not begin with @ or -"),
    "a name that is shown otherwise": (job('"a\u202eb"'), "holds U+202E"),
    "a command that is shown otherwise": ('name: x\nframework: {command: "a\u2066b"}\n', "holds U+2066"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_run_refuses_is_found_by_validate(fabric: Fabric, case: str) -> None:
    text, problem = REFUSED[case]
    (fabric.folder / "m.yml").write_text(text)

    checked = fabric("validate", "m.yml", expect=65)

    assert problem in checked.stdout
    assert "valid" not in checked.stdout.splitlines()[-1]
    assert not (fabric.folder.parent / "fabric" / "fabric.db").exists()


def test_all_refusals_are_named_at_once(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(job(more="launcher: torchrun\nports: [80]\ncode: nowhere\n"))

    checked = fabric.json("validate", "--json", "m.yml", expect=65)

    assert len(checked[0]["faults"]) == 3


@pytest.mark.parametrize("source", ["m.yml", "-"])
def test_a_chain_is_valid(fabric: Fabric, source: str) -> None:
    text = chain(job("prepare"), job("train", "after: [prepare]\n"), job("test"))
    (fabric.folder / "m.yml").write_text(text)

    assert "valid" in fabric("validate", source, input=text).stdout


def test_what_only_this_machine_lacks_is_a_warning(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(job(more="secrets: [NOT_SET_ANYWHERE]\n"))

    checked = fabric("validate", "m.yml")
    strict = fabric("validate", "--strict", "m.yml", expect=65)

    assert "m.yml: warning: secret NOT_SET_ANYWHERE is not set" in checked.stdout
    assert checked.stdout.splitlines()[-1] == "m.yml: valid, with warnings"
    assert strict.stdout == checked.stdout


def test_the_refusal_of_ffdls_own_store_names_the_options_that_help(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(job(more=BUILT_IN))

    refused = fabric("run", "m.yml", expect=69)

    assert "--data FOLDER and --results FOLDER" in refused.stderr


def test_a_plan_is_short_and_shows_documents_on_request(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(
        job(more="params: {lr: 0.1}\nmax_runtime: 2h\nmemory: 100MB\n").replace("true", "echo " + "x" * 500)
    )

    short, long = fabric("plan", "m.yml").stdout, fabric("plan", "--native", "m.yml").stdout

    assert len(short.splitlines()) <= 15
    assert max(map(len, short.splitlines())) <= 120
    assert "params    lr=0.1" in short
    assert "limit     " in short
    assert '"launch"' not in short
    assert '"launch"' in long


def test_a_plan_for_a_machine_that_is_too_small_warns(fabric: Fabric) -> None:
    (fabric.folder / "m.yml").write_text(job(more="memory: 900TiB\ngpus: 64\n"))

    shown = fabric("plan", "m.yml").stdout
    document = fabric.json("plan", "--json", "m.yml")

    assert "warning   The job asks for 900.0 TiB of memory" in shown
    assert "The job asks for 64 GPUs; this machine has " in shown
    assert len(document["warnings"]) == 2


def test_a_plan_for_a_cluster_needs_no_kubeconfig(fabric: Fabric, clean_environment: Path) -> None:
    args = ("--backend", "k8s", "--image", "busybox", "--", "true")

    shown = fabric("plan", *args).stdout
    native = fabric("plan", "--native", *args).stdout
    refused = fabric("run", *args, expect=78)

    assert "backend   k8s, as pod" in shown
    assert "could not be asked, and may refuse the job: There is no kubeconfig" in shown
    objects = list(yaml.safe_load_all(native[native.index("---\n") :]))
    assert [one["kind"] for one in objects] == ["Job", "Secret", "Service"]
    assert "There is no kubeconfig" in refused.stderr
