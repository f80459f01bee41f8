"""Command lines of Determined's `det`, typed as they were: each works, or names what to do instead."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.support.command import WAITS, Fabric
from tests.support.waiting import patience, until
from workbench.cli.framework import registry
from workbench.cli.framework.declare import Family
from workbench.cli.framework.dispatch import load
from workbench.cli.framework.peer_verbs import NOUNS, ROWS, Refusal, Row, translate
from workbench.errors import UsageError
from workbench.job import short_id

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"

MEANT = {
    "experiment list -a": "experiment list --all",
    "experiment ls": "experiment list",
    "experiment config ID": "show ID --manifest",
    "experiment describe ID --json": "show ID --json",
    "experiment describe ID --metrics": "metrics ID --all",
    "experiment logs ID -f --tail 20": "logs ID --follow --tail 20",
    "experiment logs ID --follow --tail=20": "logs ID --follow --tail 20",
    "experiment logs ID --head 5": "loglines ID --pagesize 5",
    "experiment logs ID --rank-id 3 --timestamp-after 2026-01-01": r"logs ID --grep '\[rank=3\]' --since 2026-01-01",
    "experiment download-model-def ID": "download ID --definition",
    "experiment download-model-def ID --output-dir here": "download ID code here",
    "experiment list-trials ID": "experiment trials ID",
    "experiment lt ID": "experiment trials ID",
    "experiment list-checkpoints ID --best 3": "checkpoint list ID --best 3",
    "experiment lc ID": "checkpoint list ID",
    "experiment create FILE": "run FILE --detach",
    "experiment create FILE DIR -f --config a.b=2 --config c=3 --template T": "run FILE DIR"
    " --follow-first-trial --set a.b=2 --set c=3 --template T",
    "experiment create FILE --follow": "run FILE --follow-first-trial",
    "experiment create --help": "run --help",
    "experiment continue ID --config searcher.max_trials=9": "experiment continue ID --set searcher.max_trials=9",
    "experiment activate ID": "resume ID",
    "experiment unpause ID": "resume ID",
    "experiment cancel ID": "cancel ID",
    "experiment pause ID": "experiment pause ID",
    "experiment kill ID": "experiment kill ID",
    "experiment archive ID": "experiment archive ID",
    "experiment unarchive ID": "experiment archive ID --undo",
    "experiment delete ID --yes": "experiment delete ID --yes",
    "experiment wait ID --polling-interval 3": "experiment wait ID",
    "experiment download ID": "checkpoint download ID --best 1",
    "experiment download ID --top-n 3 -o out -q": "checkpoint download ID --best 3 out",
    "experiment label add ID paper": "tag ID paper",
    "experiment label remove ID paper": "tag ID --remove paper",
    "experiment set description ID 'a b'": "note ID 'a b'",
    "experiment set priority ID 70": "queue set ID priority=30",
    "experiment set weight ID 2": "queue set ID weight=2",
    "trial describe ID --metrics-summary": "metrics ID --latest",
    "trial describe ID": "show ID",
    "trial logs ID -f": "logs ID --follow",
    "trial kill ID": "kill ID",
    "trial download ID --best -o out": "checkpoint download ID --best 1 out",
    "trial download ID --latest": "checkpoint download ID --latest",
    "trial download ID --uuid UUID": "checkpoint download UUID",
    "checkpoint download UUID -o out --mode direct": "checkpoint download UUID out",
    "checkpoint describe UUID": "checkpoint list UUID",
    "checkpoint delete UUID --yes": "checkpoint delete UUID --yes",
    "job": "queue list",
    "job list -p gpubox --json": "queue list --backend gpubox --json",
    "job update ID -p 1": "queue set ID priority=99",
    "job update ID -w 2.5": "queue set ID weight=2.5",
    "job u ID --ahead-of OTHER": "queue move ID --ahead-of OTHER",
    "slot list": "gpus",
    "slot ls --json": "gpus --json",
    "agent list": "backend list",
    "agent": "backend list",
    "resource-pool list": "backend list",
    "preview-search FILE": "preview FILE",
    "command run python train.py --lr 0.1": "run -- python train.py --lr 0.1",
    "cmd run -d -- python train.py": "run --detach -- python train.py",
    "cmd list -q": "list --quiet",
    "cmd list -w team": "list --label workspace=team",
    "command describe ID": "show ID",
    "command config ID": "show ID --manifest",
    "cmd logs ID -f": "logs ID --follow",
    "cmd kill ID OTHER": "kill ID OTHER",
    "command set priority ID 3": "queue set ID priority=97",
    "task list": "list",
    "task logs ID": "logs ID",
    "task pause ID": "halt ID",
    "task unpause ID": "resume ID",
    "task fork ID": "rerun ID --detach",
    "shell open ID": "shell ID",
    "shell list -a": "list --all",
    "shell ls": "list",
    "shell config ID": "show ID --manifest",
    "shell logs ID -f": "logs ID --follow",
    "shell kill ID OTHER": "kill ID OTHER",
    "shell set priority ID 40": "queue set ID priority=60",
}
"""What is typed, and the command of ours that it is."""

INSTEAD = {
    "experiment list --show_project": "--columns",
    "experiment list --csv": "--json",
    "experiment list --limit 5": "head",
    "experiment describe ID --outdir out": "--json > FILE",
    "experiment create FILE --paused": "fabric experiment pause ID",
    "experiment create FILE -i data": "folder of the code",
    "experiment create FILE --local": "fabric run FILE",
    "experiment create FILE -t": "fabric plan FILE",
    "experiment create FILE --project_id 1": "project:",
    "experiment create FILE -p 8080": "proxy_ports",
    "experiment create": "needs FILE",
    "experiment create FILE DIR MORE": "does not take 'MORE'",
    "experiment continue ID -f": "fabric logs -f ID",
    "experiment continue ID --config-file FILE": "--from ID",
    "experiment download ID --sort-by loss": "fabric checkpoint list ID",
    "experiment label": "add, remove",
    "experiment set": "description, name, gc-policy, max-slots",
    "experiment set nothing": "description, name, gc-policy, max-slots",
    "experiment set name ID NAME": "fork ID --set name=NAME",
    "experiment set gc-policy ID --save-experiment-best 1": "fabric checkpoint delete",
    "experiment set max-slots ID 4": "search.max_concurrent",
    "experiment set log-retention ID --days 3": "fabric prune",
    "experiment set priority ID high": "from 1 to 99",
    "experiment set priority ID 0": "from 1 to 99",
    "experiment move ID WORKSPACE PROJECT": "labels",
    "experiment delete-tb-files ID": "fabric delete ID",
    "experiment describe ,": "empty",
    "experiment logs ID --level ERROR": "--grep",
    "experiment logs ID --agent-id a": "--learner",
    "experiment logs ID --tail": "needs a value",
    "experiment logs ID -fx": "takes no value",
    "experiment logs ID --nothing": "fabric logs --help",
    "trial": "describe, download",
    "trial --help": "describe, download",
    "trial foo": "describe, download",
    "trial support-bundle ID -o out": "fabric download ID logs",
    "trial set log-retention ID --forever": "fabric prune",
    "checkpoint rm UUID --glob x --yes": "fabric checkpoint delete UUID",
    "job update ID --resource-pool other": "--backend",
    "job update-batch a.priority=3 b.priority=4": "fabric queue set",
    "slot enable a 0": "fabric gpus",
    "slot disable a 0": "fabric gpus",
    "agent enable a": "fabric gpus",
    "agent disable --all --drain": "fabric gpus",
    "cmd run --config resources.slots=2 python x": "--gpus N",
    "task create FILE --config a=b -f": "fabric init",
    "task cleanup-logs": "fabric prune",
    "shell start": "sleep infinity",
    "shell start --config resources.slots=1 -d": "sleep infinity",
    "shell open ID --show-ssh-command": "fabric exec ID",
    "shell show-ssh-command ID": "fabric exec ID",
    "shell show_ssh_command ID": "fabric exec ID",
    "shell open": "needs ID",
    "shell kill": "needs ID...",
    "shell set": "there are priority",
    "notebook start": "fabric run",
    "tensorboard start 1 2": "--plot",
    "model list": "fabric tag",
    "project list w": "--label project=NAME",
    "w create x": "--label project=NAME",
    "template create t FILE": "--template",
    "resource-pool bindings add": "fabric backend list",
    "resources raw": "fabric gpus",
    "res raw": "fabric gpus",
    "user-group list": "there is no server",
    "tkn list": "there is no server",
    "d local cluster-up": "fabric doctor",
    "master logs": "fabric doctor",
    "master info": "there is no server",
    "user login": "there is no server",
    "deploy local cluster-up --no-gpu": "fabric doctor",
}
"""What is typed that has no equal, and what the error or its hint names."""


def check_is_read(words: list[str]) -> None:
    """Check that a command line is one of ours: the command exists, and takes these words."""
    entry = registry.find(words[0])
    assert entry is not None, words
    target = load(entry)
    own, _ = target.split(words[1:])
    command: Any = get_command(target.app())
    if isinstance(target, Family):
        assert own[0] in command.commands, words
        command, own = command.commands[own[0]], own[1:]
    if "--help" not in own:
        command.make_context("fabric", own)


@pytest.mark.parametrize("typed", MEANT)
def test_a_command_line_of_determined_is_one_of_ours(typed: str) -> None:
    words = shlex.split(typed)
    noun = NOUNS[words[0]]

    made = translate(words)

    assert made == [shlex.split(MEANT[typed])]
    assert noun in {name for row in ROWS for name in row.path[0]}
    check_is_read(made[0])


@pytest.mark.parametrize("typed", INSTEAD)
def test_what_has_no_equal_names_what_to_do_instead(typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        translate(shlex.split(typed))

    assert raised.value.exit_code == 64
    assert INSTEAD[typed] in f"{raised.value.message}; {raised.value.hint}"


def test_each_row_is_typed_above() -> None:
    typed = [shlex.split(text) for text in (*MEANT, *INSTEAD)]
    lines = [[NOUNS[noun], *rest] for noun, *rest in typed]

    def is_typed(row: Row) -> bool:
        return any(
            all(word in names for word, names in zip(line, row.path, strict=False))
            for line in lines
            if len(line) >= len(row.path)
        )

    assert [row.theirs for row in ROWS if not is_typed(row)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.theirs)
def test_every_option_of_a_row_works_or_says_what_to_do_instead(row: Row) -> None:
    path = [sorted(names)[0] for names in row.path]
    required = [word.removesuffix("...") for word in row.arguments if word[0] != "["]
    values = {"N": "3", "PRIORITY": "70", "TIME": "5m", "TRUTH": "true"}
    for option, ours in row.options.items():
        *names, last = option.split()
        with_value = [values.get(last, last)] if last[0] != "-" else []
        for name in names if with_value else [*names, last]:
            words = [*path, *([] if "COMMAND" in required else required), name, *with_value]
            words += required if "COMMAND" in required else []
            words = [values.get(word, word) for word in words]
            if isinstance(ours, Refusal) or isinstance(row.ours, Refusal):
                with pytest.raises(UsageError) as raised:
                    translate(words)
                assert raised.value.hint
            else:
                for line in translate(words) or []:
                    check_is_read(line)


def test_what_refusals_name_are_commands_with_options_that_there_are() -> None:
    texts = [text for row in ROWS for text in (row.ours, *row.options.values()) if isinstance(text, Refusal)]
    named = {command for text in texts for command in re.findall(r"`fabric ([^`]+)`", text)}
    assert len(named) > 20
    for command in named:
        words = [word for word in shlex.split(command) if word not in ("...", ">", "FILE")]
        entry = registry.find(words[0])
        assert entry is not None, command
        made: Any = get_command(load(entry).app())
        if isinstance(load(entry), Family) and len(words) > 1:
            made = made.commands[words[1]]
        known = {option for parameter in made.params for option in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own[1:] if word.startswith("-")} <= known, command


@pytest.mark.parametrize(
    ("typed", "made"),
    [
        ("experiment describe a,b", ["show a", "show b"]),
        ("trial describe a", ["show a"]),
    ],
)
def test_ids_with_commas_between_them_are_several_commands(typed: str, made: list[str]) -> None:
    assert translate(typed.split()) == [line.split() for line in made]


@pytest.mark.parametrize(
    "typed",
    [
        "experiment shwo",
        "experiment list --jsn",
        "checkpoint lst a",
        "shell",
        "shell a",
        "shell -L 2",
        "shell a b",
        "foo",
        "rm a",
    ],
)
def test_what_is_none_of_determineds_is_left_to_our_own_complaints(typed: str) -> None:
    assert translate(typed.split()) is None


def test_each_row_of_the_page_is_read_as_it_says() -> None:
    section = PAGE.read_text().partition("## Determined (`det`)")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `det")]
    typed = [text for theirs, _ in rows for text in re.findall(r"`det ([^`]+)`", theirs)]
    assert len(typed) > 30
    for text in typed:
        words = shlex.split(text)
        if words[0] in registry.names() and not translate(words):
            check_is_read(words)
            continue
        for line in translate(words) or []:
            check_is_read(line)


EXPERIMENT = """\
name: small
description: says how much
labels: [first one]
entrypoint: echo lr $DET_HPARAMS
hyperparameters: {lr: 0.5}
resources: {slots_per_trial: 0}
searcher: {name: single, metric: loss}
"""


@pytest.fixture
def experiment(fabric: Fabric) -> Fabric:
    (fabric.folder / "const.yaml").write_text(EXPERIMENT)
    return fabric


def test_an_experiment_of_one_trial_is_created_looked_at_and_deleted_as_with_det(experiment: Fabric) -> None:
    created = experiment(
        "experiment", "create", "const.yaml", ".", "--config", "hyperparameters.lr=0.25", "-f"
    )
    assert created.stdout == 'lr {"lr": 0.25}\n'
    job = experiment("e", "create", "const.yaml").stdout.strip()

    assert experiment("e", "wait", job).stdout.split()[1:3] == ["small", "COMPLETED"]
    described = experiment("exp", "describe", f"{job},{job}").stdout
    assert described.count(f"{job}  small") == 2
    assert "description  says how much" in described and "first-one=true" in described
    assert experiment("t", "logs", job, "--tail", "1").stdout == 'lr {"lr": 0.5}\n'
    assert experiment("experiment", "config", job).stdout == EXPERIMENT
    experiment("e", "label", "add", job, "paper")
    assert experiment("tag", job).stdout == "paper\n"
    assert "is a job, not a search" in experiment("e", "archive", job, expect=64).stderr
    for text in ("small", job[:4]):  # nothing but a whole id ends or removes a job by this noun
        assert "there is no experiment" in experiment("e", "delete", text, "--yes", expect=64).stderr
        assert "there is no experiment" in experiment("e", "kill", text, expect=64).stderr
    experiment("e", "delete", job, "--yes")
    assert "there is no job" in experiment("e", "describe", job, expect=64).stderr


SEARCH = """\
name: several
entrypoint: %s
hyperparameters: {lr: {type: categorical, vals: [0.5, 0.25]}}
resources: {slots_per_trial: 0}
searcher: {name: grid, metric: loss, max_concurrent_trials: 1}
"""


def is_processing(fabric: Fabric, job: str) -> bool:
    state: str = fabric.json("status", job, "--json")[0]["state"]
    return state == "PROCESSING"


@pytest.mark.parametrize(
    ("file", "words"),
    [("single.yaml", ("--set", "params.a=1,2")), ("chain.yaml", ())],
    ids=["sweep", "chain"],
)
def test_the_first_trial_of_several_jobs_is_refused(
    fabric: Fabric, file: str, words: tuple[str, ...]
) -> None:
    one = "framework: {command: 'true'}\n"
    (fabric.folder / "chain.yaml").write_text(f"name: a\n{one}---\nname: b\n{one}")
    (fabric.folder / "single.yaml").write_text(
        "name: s\nentrypoint: 'true'\nsearcher: {name: single, metric: l}\nhyperparameters: {a: 1}\n"
    )

    refused = fabric("run", file, *words, "--follow-first-trial", expect=64, FABRIC_DETACH="1")

    assert "--follow-first-trial follows one search, and these are 2 jobs" in refused.stderr
    assert "fabric logs --follow ID" in refused.stderr
    assert fabric.json("list", "--all", "--json") == []


def test_the_first_trial_of_a_search_that_is_created_is_followed(fabric: Fabric) -> None:
    (fabric.folder / "search.yaml").write_text(SEARCH % "echo lr $DET_HPARAMS")

    created = fabric("experiment", "create", "search.yaml", ".", "-f")

    first = fabric.json("experiment", "trials", "several", "--json")[0]
    assert created.stdout == fabric("logs", first["id"]).stdout == f"lr {json.dumps(first['hparams'])}\n"
    assert re.search(rf"{short_id(first['id'])} several-\S+: the first trial", created.stderr)


def test_ctrl_c_leaves_the_first_trial_of_a_search_and_both_go_on(fabric: Fabric) -> None:
    (fabric.folder / "search.yaml").write_text(SEARCH % json.dumps(WAITS))
    process = fabric.start("experiment", "create", "search.yaml", "-f")
    assert process.stdout is not None and process.stdout.readline() == b"started\n"

    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=patience())

    first = fabric.json("experiment", "trials", "several", "--json")[0]
    assert process.returncode == 130
    assert f"left several; it goes on. `fabric logs -f {short_id(first['id'])}` follows".encode() in printed
    # Output and state come by two threads of the controller.
    until(lambda: is_processing(fabric, first["id"]), "the trial to be known as running")
    assert fabric.json("experiment", "show", "several", "--json")["state"] == "RUNNING"
    fabric("experiment", "kill", "several")


def test_a_word_after_shell_is_a_verb_where_no_job_is_called_so(fabric: Fabric) -> None:
    fabric("run", "-q", "--name", "other", "--", "true")
    listed = fabric("shell", "list").stdout
    assert listed.split()[:2] == ["ID", "NAME"] and "other" in listed

    fabric("run", "-d", "--name", "list", "--", WAITS)
    until(lambda: is_processing(fabric, "list"), "the job to run")
    assert fabric("shell", "list", input="echo in a shell\n").stdout == "in a shell\n"
    assert "other" in fabric("shell", "ls").stdout
    fabric("kill", "list")


def test_the_trials_of_a_job_are_itself_alone(experiment: Fabric) -> None:
    for name in ("c", "other"):
        (experiment.folder / "const.yaml").write_text(EXPERIMENT.replace("name: small", f"name: {name}"))
        experiment("e", "create", "const.yaml", "-f")

    (found,) = experiment.json("experiment", "trials", "c", "--json")
    assert found["name"] == "c"


@pytest.mark.parametrize(
    "line", ["trial kill 5", "experiment describe a,5", "command kill 5", "job update 5 -p 3"]
)
def test_a_number_is_not_taken_for_the_beginning_of_an_id(line: str) -> None:
    with pytest.raises(UsageError, match="5 was an id of Determined's"):
        translate(line.split())


SAVES = """\
name: saves
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
resources: {slots_per_trial: 0}
"""
TRAIN = """\
import determined as det

with det.core.init() as core:
    for step in 1, 2, 3:
        with core.checkpoint.store_path({"steps_completed": step}) as (path, name):
            (path / "state").write_text(str(step))
"""


def test_checkpoints_are_deleted_by_their_uuids_with_commas_between_them(fabric: Fabric) -> None:
    (fabric.folder / "saves.yaml").write_text(SAVES)
    (fabric.folder / "train.py").write_text(TRAIN)
    fabric("run", "-q", "saves.yaml")
    first, second, third = [each["name"] for each in fabric.json("checkpoint", "list", "@last", "--json")]

    removed = fabric.json("checkpoint", "delete", f"{first},{third}", "--yes", "--json")

    assert [each["name"] for each in removed] == [first, third]
    left = [each["name"] for each in fabric.json("checkpoint", "list", "@last", "--json") if each["where"]]
    assert left == [second]


def test_a_verb_that_searches_have_is_done_to_a_job_where_no_search_has_the_name(experiment: Fabric) -> None:
    (experiment.folder / "const.yaml").write_text(
        EXPERIMENT.replace("echo lr", "python3 -c 'import signal; signal.pause()'")
    )
    job = experiment("experiment", "create", "const.yaml").stdout.strip()

    experiment("experiment", "pause", job)
    assert experiment.json("status", job, "--json")[0]["state"] == "HALTED"
    experiment("experiment", "activate", job)
    experiment("experiment", "kill", job)
    shown = experiment.json("experiment", "show", job, "--json")
    assert (shown["state"], shown["attempt"]) == ("HALTED", 2)
    assert "there is no experiment '@last'" in experiment("experiment", "kill", "@last", expect=64).stderr
    assert "there is no experiment '7'" in experiment("experiment", "kill", "7", expect=64).stderr


def test_the_table_is_read_only_for_what_is_none_of_ours() -> None:
    code = (
        "import sys; from workbench.cli.framework.main import main; "
        "main(['experiment', 'list', '--help']); "
        "sys.exit('workbench.cli.framework.peer_verbs' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["slot", "list", "--yaml"], "error: slot list has no --yaml here\nhint: lists are printed"),
        (
            ["experiment", "create"],
            "error: experiment create needs FILE\nhint: here it is `fabric run FILE DIR`",
        ),
        (
            ["experiment", "shwo"],
            "error: experiment has no command 'shwo'\nhint: did you mean `fabric experiment show`",
        ),
        (
            ["experiment", "list", "--jsn"],
            "error: experiment has no option '--jsn'\nhint: did you mean --json?",
        ),
        (
            ["job", "submit"],
            "error: job has no command 'submit'\nhint: of Determined's `job` there are list, update",
        ),
        (["shell", "a"], "error: there is no job 'a'"),
        (
            ["shell", "start"],
            "error: there is no `shell start` here\nhint: a shell is opened in a job that runs:",
        ),
        (["shell"], "error: missing argument 'JOB'"),
        (
            ["-m", "http://master:8080", "e", "list"],
            "error: there is no -m before a command\nhint: there is no server",
        ),
        (
            ["--master=master", "e", "list"],
            "error: there is no --master before a command\nhint: there is no server",
        ),
        (
            ["-uada", "e", "list"],
            "error: there is no -u before a command\nhint: there is no server, and nobody logs in",
        ),
        (["-v"], "error: there is no -v before a command\nhint: `fabric version` prints the version"),
    ],
)
def test_complaints_have_a_hint_and_the_exit_code_of_wrong_usage(
    fabric: Fabric, args: list[str], text: str
) -> None:
    assert fabric(*args, expect=64).stderr.startswith(text)
