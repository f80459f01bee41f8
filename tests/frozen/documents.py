"""Which ``--json`` documents are frozen, how each is asked for, and what of it depends on the machine or the moment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.frozen.sandbox import Sandbox
from tests.frozen.unpacking import ROOT, frozen_uuid
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Asked:
    """One command line, and how its document is kept."""

    words: tuple[str, ...]
    shape: bool = False
    """Whether only names and types of values are kept: what they are is the machine's matter."""
    masked: tuple[str, ...] = ()
    """Keys whose values are not kept: moments, and sentences that are made when asked. Of a shape not even their
    types are: what they are is a matter of how far the controller is."""
    expect: int = 0
    runs: tuple[str, int] = ("", 0)
    """A job and its attempt that must run before this is asked."""


def _ask(words: str, *masked: str, shape: bool = False, expect: int = 0) -> Asked:
    return Asked(tuple(words.split()), shape, masked, expect)


READ: Final[Mapping[str, Asked]] = {
    **{f"show-{name}": _ask(f"show {name} --json") for name in (
        "steps", "broken", "retry", "pair", "stopped", "killed", "limited", "grid-1", "next",
    )},
    "show-origin": _ask("show steps --origin --json"),
    "show-history": _ask("show retry --history --json"),
    "list": _ask("list --all --json"),
    "list-where": _ask("list --json --where state:done --where has:train/loss --sort train/loss"),
    "list-columns": _ask("list --json --state failed --limit 1 --columns +params.lr,test/accuracy"),
    "status": _ask("status steps pair --json"),
    "logs": _ask("logs steps --json"),
    "logs-attempt": _ask("logs retry --attempt 1 --json"),
    "logs-several": _ask("logs pair --json"),
    "logs-setup": _ask("logs pair --setup --learner 2 --json"),
    "logs-grep": _ask("logs steps --grep warning --json"),
    "metrics": _ask("metrics steps --all --json"),
    "metrics-latest": _ask("metrics pair --latest --json"),
    "metrics-attempt": _ask("metrics steps --attempt 1 --tail 2 --json"),
    "loglines": _ask("loglines steps --pos 1 --pagesize 3 --json"),
    "emetrics": _ask("emetrics steps --pos 1 --pagesize 3 --json"),
    "compare": _ask("compare steps pair --all --json"),
    "diff": _ask("diff grid-1 grid-2 --json", expect=1),
    "grep": _ask("grep warning|second --json"),
    "grep-jobs": _ask("grep ready --jobs --json"),
    "grep-count": _ask("grep step --count --all --json"),
    "events": _ask("events --limit 1000 --json"),
    "events-of-a-job": _ask("events steps --kind request,annotate,note --json"),
    "attach": _ask("attach retry --json"),
    "attach-failed": _ask("attach broken --json", expect=3),
    "attach-halted": _ask("attach stopped --json", expect=143),
    "attach-killed": _ask("attach killed --json", expect=137),
    "attach-limited": _ask("attach limited --json", expect=124),
    "wait": _ask("wait steps pair --json"),
    "wait-failed": _ask("wait steps broken --json", expect=3),
    "checkpoint-list": _ask("checkpoint list steps --json"),
    "files": _ask("files steps --json", "modified"),
    "files-code": _ask("files pair code -l 2 --json", "modified"),
    "tag": _ask("tag steps --json"),
    "note": _ask("note steps --json"),
    "backend-list": _ask("backend list --json"),
    "backend-test": _ask("backend test local --json", shape=True),
    "config-list": _ask("config list --json"),
    "config-get": _ask("config get backends.box.address --json"),
    "config-path": _ask("config path --json"),
    "data-list": _ask("data list --json"),
    "controller-status": _ask("controller status --json"),
    "controller-stop": _ask("controller stop --json"),
    "doctor": _ask("doctor --json", shape=True),
    "du": _ask("du --json", shape=True),
    "prune": _ask("prune --keep-last 1 --dry-run --json", shape=True),
    "gpus": _ask("gpus --backend local --json", shape=True),
    "queue": _ask("queue list --backend local --json"),
    "schema": _ask("schema --json", "description", "examples"),
    "validate": _ask("validate steps.yml pair.yml --json"),
    "validate-faulty": _ask("validate faulty.yml --json", "problem", "hint", expect=65),
    "plan": _ask("plan steps.yml --json", "notes", "warnings"),
    "preview": _ask("preview search.yml --json --samples 2"),
    "version": _ask("version --json", shape=True),
    "sql-views": _ask("sql --json", "about"),
    **{f"sql-{view}": Asked(("sql", f"select * from {view} order by 1, 2, 3", "--json")) for view in (
        "jobs", "attempts", "learners", "metrics", "checkpoints",
    )},
}  # fmt: skip
"""On the home ``ended``: none changes anything, or starts a controller."""

UNTIL_HALTED: Final = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
MOVING: Final = ("state", "reason", "started", "changed", "seen", "intent")
"""Keys of a job that is about to run."""

CHANGED: Final[Mapping[str, Asked]] = {
    "run-detached": Asked((*["run", "-d", "--json", "--name", "held", "--"], UNTIL_HALTED), True, MOVING),
    "kill": Asked(("kill", "held", "--json"), True, ("seen",), runs=("held", 1)),
    "resume": _ask("resume held --json", *MOVING, shape=True),
    "halt": Asked(("halt", "held", "--json"), True, ("seen",), runs=("held", 2)),
    "rerun": _ask("rerun -d next --json", *MOVING, shape=True),
    "tag-added": _ask("tag broken seen --json", shape=True),
    "note-written": _ask("note broken why --json", shape=True),
    "download": _ask("download steps results logs out --json", shape=True),
    "download-code": _ask("download steps code --to fetched --json", shape=True),
    "cp": _ask("cp steps:results/model.txt . --json", shape=True),
    "checkpoint-download": _ask("checkpoint download steps saved --step 40 --json", shape=True),
    "checkpoint-delete": _ask("checkpoint delete steps --step 10 --yes --json", shape=True),
    "prune-done": _ask("prune --where name:grid-1 --older-than 0s --yes --json", shape=True),
    "controller-restarted": _ask("controller restart --json", shape=True),
    "controller-running": _ask("controller status --json", shape=True),
    "controller-stopped": _ask("controller stop --json", shape=True),
    "rebuild": _ask("doctor --rebuild --yes --json", shape=True),
}
"""On the home ``ended``, one after the other: each changes something, most have a controller started."""

KEPT: Final = ("schema", "event", "state", "exit_code", "exit_by", "reason_code", "intent")
"""Keys whose values are kept where others are not."""

SEARCH: Final = """\
name: searched
framework: {name: custom, command: "true"}
seed: 42
search:
  method: asha
  metric: loss
  time_metric: epoch
  max_time: 16
  max_trials: 8
  params: {lr: {loguniform: [1e-4, 1e-1]}}
"""
FAULTY: Final = "name: x\nlearners: -1\ncolour: red\nframework: {command: 'true', version: 1.10}\n"

_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")


def ask(box: Sandbox, asked: Asked) -> dict[str, Any]:
    """Run a command and return what is kept of what it printed."""
    (box.folder / "faulty.yml").write_text(FAULTY)
    name, attempt = asked.runs
    if name:
        until(lambda: _runs(box, name, attempt), f"{name} to run")
    search = box.folder / "search.yml"
    if search.name in asked.words:
        search.write_text(SEARCH)
    ran = box(*asked.words, expect=None, COLUMNS="100")
    search.unlink(missing_ok=True)  # other documents name the files of this folder
    assert ran.returncode == asked.expect, f"{asked.words}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    document = plain(_parsed(ran.stdout), box)
    kept = shape(document, asked.masked) if asked.shape else masked(document, asked.masked)
    return {"command": " ".join(asked.words), "exit code": ran.returncode, "document": kept}


def _runs(box: Sandbox, name: str, attempt: int) -> bool:
    job = box.json("show", name, "--json")
    printed = box("logs", name, expect=None).stdout
    return (job["state"], job["attempt"]) == ("PROCESSING", attempt) and "ready" in printed


def _parsed(text: str) -> Any:
    """Return the one document that was printed, or those of all lines."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def plain(value: Any, box: Sandbox) -> Any:
    """Return a document of the home ``ended`` with the frozen folder, home and machine in place of the real ones."""
    uuid = json.loads((box.home / "home.json").read_bytes())["uuid"]
    text = json.dumps(value).replace(str(box.root), ROOT).replace(uuid, frozen_uuid("ended"))
    return json.loads(text.replace(f"@{os.uname().nodename}", "@frozen"))


def masked(value: Any, keys: tuple[str, ...]) -> Any:
    """Return a document with the types of some keys' values."""
    if isinstance(value, dict):
        return {key: shape(each) if key in keys else masked(each, keys) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each, keys) for each in value]
    return value


def shape(value: Any, unknown: tuple[str, ...] = ()) -> Any:
    """Return the names and types of a document; of a list those that its elements have."""
    if isinstance(value, dict):
        return {key: _shape_of(key, each, unknown) for key, each in value.items()}
    if isinstance(value, list):
        kinds = {json.dumps(shape(each, unknown)) for each in value}
        return [json.loads(kind) for kind in sorted(kinds)]
    if isinstance(value, str) and _TIME.match(value):
        return "<time>"
    return f"<{type(value).__name__}>"


def _shape_of(key: str, value: Any, unknown: tuple[str, ...]) -> Any:
    if key in unknown:
        return "<any>"
    return value if key in KEPT else shape(value, unknown)


FOLLOWED: Final = ("attach", "attach-failed", "attach-halted")
"""Frozen documents that are what follows a job prints."""

ELSEWHERE: Final = frozenset(
    (
        "adopt", "backend linger", "backend role", "data mkbucket", "data put", "data prune", "gc",
        "image load", "image send", "store serve", "store retry",
        "experiment list", "experiment show", "experiment trials", "experiment best", "experiment kill",
        "experiment pause", "experiment resume", "experiment continue", "experiment fork", "experiment archive",
        "queue set", "queue move",
        "schedule list", "schedule show", "schedule pause", "schedule resume", "schedule run", "schedule delete",
    )
)  # fmt: skip
"""Commands whose documents need a host, a cluster, an engine, a store, a search that ran or a job that waits.
gc says what other homes have here."""
