"""What people type who come from other tools, and the command that does it here: docs/coming-from.md as tables.

Read only where a command line is none of ours, so whatever ours takes keeps its meaning. Command lines of Determined's
``det`` are translated into ours; of other tools the verb leads to a command, which is named. Tests run every row of
the first, and compare the other one with that page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from workbench.errors import UsageError
from workbench.values import dataclass

PEER_VERBS: Final = {
    # docker, and what is common
    "rm": "delete",
    "remove": "delete",
    "destroy": "delete",
    "stop": "halt",
    "pause": "halt",
    "suspend": "halt",
    "terminate": "kill",
    "unpause": "resume",
    "start": "resume",
    "restart": "resume",
    "continue": "resume",
    "inspect": "show",
    "info": "show",
    "top": "gpus",
    "stats": "gpus",
    "log": "logs",
    "tail": "logs",
    "load": "image load",
    "system": "du",
    # kubectl
    "apply": "run",
    "create": "run",
    "get": "list",
    "annotate": "note",
    "label": "tag",
    "auth": "backend test",
    # Slurm
    "sbatch": "run -d",
    "srun": "run",
    "squeue": "queue",
    "sacct": "list",
    "scancel": "cancel",
    "scontrol": "show",
    "sattach": "attach",
    "sinfo": "backend list",
    "sstat": "show",
    "scrontab": "schedule",
    # dstack, Ray, SkyPilot, TorchX
    "activate": "resume",
    "check": "doctor",
    "down": "backend remove",
    "event": "events",
    "fleet": "backend list",
    "jobs": "list",
    "launch": "run",
    "show-gpus": "gpus",
    "submit": "run -d",
    "up": "run",
}
"""By the verb; of several that fit, the one that a newcomer means most likely."""

NOUNS: Final = {
    "e": "experiment",
    "exp": "experiment",
    "experiment": "experiment",
    "t": "trial",
    "trial": "trial",
    "c": "checkpoint",
    "checkpoint": "checkpoint",
    "j": "job",
    "job": "job",
    "s": "slot",
    "slot": "slot",
    "a": "agent",
    "agent": "agent",
    "cmd": "command",
    "command": "command",
    "m": "model",
    "model": "model",
    "p": "project",
    "project": "project",
    "w": "workspace",
    "workspace": "workspace",
    "u": "user",
    "user": "user",
    "tpl": "template",
    "template": "template",
    "rp": "resource-pool",
    "resource-pool": "resource-pool",
    "res": "resources",
    "d": "deploy",
    "tkn": "token",
    "shell": "shell",
    **{
        name: name
        for name in (
            "preview-search",
            "task",
            "notebook",
            "tensorboard",
            "resources",
            "master",
            "deploy",
            "dev",
            "user-group",
            "rbac",
            "token",
            "auth",
            "oauth",
            "config-policies",
        )
    },
}
"""What commands of Determined begin with, and the whole noun."""

JOB_NOUNS: Final = frozenset({"shell"})
"""Nouns that are commands of ours for one job: a word after them is a verb only where no job is called so."""

PRIORITY: Final = "PRIORITY"
"""An argument of a row that counts the other way round: Determined starts small priorities first."""


class Refusal(str):
    """What to do instead of something that has no equal."""

    __slots__ = ()


class Whole(str):
    """A command that stands for the whole row where an option is given."""

    __slots__ = ()


Options = Mapping[str, str]
"""Options as they are declared, such as ``-o --output-dir DIR``, and the words that stand for them here.

The value is that of the capital word. Words that are empty have no effect here; see also the two classes above.
"""

JSON_ONLY: Final = Refusal(
    "lists are printed as a table, or with --json as one document for `jq` and programs"
)
FORMATS: Final[Options] = {"--json": "--json", "--csv": JSON_ONLY, "--yaml": JSON_ONLY, "--table": ""}
ALL_AT_ONCE: Final = Refusal("everything is listed at once: leave it out, or end the line with `| head`")
PAGES: Final[Options] = {
    "--limit N": ALL_AT_ONCE,
    "--offset N": ALL_AT_ONCE,
    "--pages WHICH": ALL_AT_ONCE,
    "--reverse": ALL_AT_ONCE,
}
ONE_MACHINE: Final = Refusal("`fabric logs ID --learner N` prints the log of one learner")
ONE_STREAM: Final = Refusal(
    "what a learner prints is one stream; `fabric logs ID --grep REGEX` finds lines in it"
)
LOGS: Final[Options] = {
    "-f --follow": "--follow",
    "--tail N": "--tail N",
    "--head N": Whole("loglines ID --pagesize N"),
    "--rank-id N": r"--grep \[rank=N\]",
    "--timestamp-after TIME": "--since TIME",
    "--timestamp-before TIME": Refusal("`fabric logs ID --since TIME --timestamps` has the times to go by"),
    "--level NAME": Refusal("`fabric logs ID --grep 'ERROR|WARNING'` finds such lines"),
    "--agent-id NAME": ONE_MACHINE,
    "--container-id NAME": ONE_MACHINE,
    "--allocation-id NAME": Refusal("`fabric logs ID --attempt N` prints the log of one attempt"),
    "--source NAME": ONE_STREAM,
    "--stdtype NAME": ONE_STREAM,
    "--json": "--json",
}
IN_THE_CODE: Final = Refusal("have it in the folder of the code, which is sent as a whole but for .detignore")
IN_THE_FILE: Final = Refusal("write workspace: and project: into the file; they become labels")
SORTED: Final = Refusal("`fabric list --sort KEY` sorts")
NO_BY: Final = Refusal(
    "the best are those by the metric of the search; `fabric checkpoint list ID` has all values"
)
RETENTION: Final = Refusal("logs are kept with their job: `fabric prune --older-than 30d` removes old jobs")
WITHOUT_A_SERVER: Final = "there is no server, and nobody logs in: jobs belong to who started them"
NO_SSH: Final = Refusal(
    "no job has an SSH server: `fabric shell ID` opens a shell in it, `fabric exec ID -- COMMAND` runs a command"
)
NO_SLOTS_OFF: Final = "every GPU of a backend is used; `fabric gpus` shows who holds which"
NO_NOTEBOOKS: Final = (
    "start it as a job: `fabric run -- jupyter lab --no-browser`; it prints its address to the log"
)
NO_TENSORBOARD: Final = (
    "`fabric metrics ID --plot` and `fabric tui` draw curves; `fabric download ID logs` fetches event files"
)
NO_REGISTRY: Final = (
    "no models are registered: `fabric tag ID TAG` marks a job, `fabric checkpoint list ID` has its files"
)
NO_PROJECTS: Final = "workspace: and project: of a file become labels: `fabric list --label project=NAME`"
NO_TEMPLATES: Final = (
    "a template is a file: `fabric run FILE --template base.yaml` lays the experiment over it"
)

OF_A_SERVER: Final = f"{WITHOUT_A_SERVER}; leave it out"
BEFORE_NOUNS: Final = {
    "-u": OF_A_SERVER,
    "--user": OF_A_SERVER,
    "-m": f"{OF_A_SERVER}, and name a backend: `fabric run FILE --backend NAME`",
    "--master": f"{OF_A_SERVER}, and name a backend: `fabric run FILE --backend NAME`",
    "-v": "`fabric version` prints the version",
}
"""Options that stand before the noun of a command of Determined, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Row:
    """One command of Determined."""

    theirs: str
    """Such as ``experiment list-trials|lt ID``. In capitals are its arguments: ``[ID]`` may be left out, ``IDS`` are
    separated by commas and get a command each, ``COMMAND...`` takes the rest of the line as it stands."""
    ours: str | Refusal
    """The command that does the same, with these arguments."""
    options: Options = field(default_factory=dict)
    unless: Mapping[str, str] = field(default_factory=dict)
    """Words that are added where an option, by its last name, is not given."""

    @property
    def path(self) -> list[frozenset[str]]:
        """The words that it begins with, each with its other names."""
        return [frozenset(word.split("|")) for word in self.theirs.split() if word[0].islower()]

    @property
    def arguments(self) -> list[str]:
        """Its arguments."""
        return [word for word in self.theirs.split() if not word[0].islower()]


ROWS: Final = (
    Row(
        "experiment list|ls",
        "experiment list",
        {
            "-a --all": "--all",
            "--show_project": Refusal("`fabric list --columns +labels` shows what a job is labelled with"),
            **PAGES,
            **FORMATS,
        },
    ),
    Row("experiment config ID", "show ID --manifest"),
    Row(
        "experiment describe IDS",
        "show IDS",
        {
            "--metrics": Whole("metrics IDS --all"),
            **FORMATS,
            "--outdir DIR": Refusal("`fabric show ID --json > FILE` writes it to a file"),
        },
    ),
    Row("experiment logs ID", "logs ID", LOGS),
    Row(
        "experiment download-model-def ID",
        "download ID --definition",
        {"--output-dir DIR": Whole("download ID code DIR")},
    ),
    Row("experiment list-trials|lt ID", "experiment trials ID", {**PAGES, **FORMATS}),
    Row("experiment list-checkpoints|lc ID", "checkpoint list ID", {"--best N": "--best N", **FORMATS}),
    Row(
        "experiment create FILE [DIR]",
        "run FILE DIR",
        {
            "-f --follow-first-trial": "--follow-first-trial",
            "--config ASSIGNMENT": "--set ASSIGNMENT",
            "--template NAME": "--template NAME",
            "-i --include PATH": IN_THE_CODE,
            "--local": Refusal("`fabric run FILE` runs it on this machine where no backend is named"),
            "-t --test-mode": Refusal(
                "`fabric validate FILE` and `fabric plan FILE` check it without a start"
            ),
            "--project_id N": IN_THE_FILE,
            "--paused": Refusal(
                "leave it out: `fabric run -d FILE --begin +1h` starts a job later, and"
                " `fabric experiment pause ID` pauses a search"
            ),
            "-p --publish PORT": Refusal("write environment.proxy_ports: into the file"),
        },
        unless={"--follow-first-trial": "--detach"},
    ),
    Row(
        "experiment continue ID",
        "experiment continue ID",
        {
            "--config ASSIGNMENT": "--set ASSIGNMENT",
            "--config-file FILE": Refusal(
                "what differs is given as --config searcher.max_trials=20;"
                " `fabric run FILE --from ID` begins a new trial with its checkpoint"
            ),
            "-f --follow-first-trial": Refusal("`fabric logs -f ID` follows a trial once it goes on"),
        },
    ),
    Row("experiment activate|unpause ID", "resume ID"),
    Row("experiment cancel ID", "cancel ID"),
    Row("experiment pause ID", "experiment pause ID"),
    Row("experiment archive ID", "experiment archive ID"),
    Row("experiment unarchive ID", "experiment archive ID --undo"),
    Row("experiment delete ID", "experiment delete ID", {"--yes": "--yes"}),
    Row(
        "experiment download ID",
        "checkpoint download ID",
        {
            "-o --output-dir DIR": "DIR",
            "--top-n N": "--best N",
            "--sort-by NAME": NO_BY,
            "--smaller-is-better TRUTH": NO_BY,
            "-q --quiet": "",
        },
        unless={"--top-n": "--best 1"},
    ),
    Row("experiment kill ID", "experiment kill ID"),
    Row("experiment wait ID", "experiment wait ID", {"--polling-interval SECONDS": ""}),
    Row("experiment label add ID LABEL", "tag ID LABEL"),
    Row("experiment label remove ID LABEL", "tag ID --remove LABEL"),
    Row("experiment move ID WORKSPACE PROJECT", Refusal(NO_PROJECTS)),
    Row("experiment set description ID TEXT", "note ID TEXT"),
    Row(
        "experiment set name ID NAME",
        Refusal(
            "a name stays; `fabric note ID TEXT` writes beside it, and `fabric experiment fork ID --set name=NAME`"
            " begins another search"
        ),
    ),
    Row(
        "experiment set gc-policy ID",
        Refusal(
            "`fabric checkpoint delete ID --step N` removes some; of a new job save_trial_best: and"
            " save_trial_latest: say how many are kept"
        ),
        {
            "--save-experiment-best N": "",
            "--save-trial-best N": "",
            "--save-trial-latest N": "",
            "--yes": "",
        },
    ),
    Row(
        "experiment set max-slots ID N",
        Refusal(
            "a search that runs keeps its limit; `fabric experiment continue` and `fork` take"
            " --set search.max_concurrent=N"
        ),
    ),
    Row("experiment set log-retention ID", RETENTION, {"--days N": "", "--forever": ""}),
    Row(
        "experiment set weight ID N",
        "queue set ID weight=N",
    ),
    Row("experiment set priority ID PRIORITY", "queue set ID priority=PRIORITY"),
    Row(
        "experiment delete-tb-files ID", Refusal("`fabric delete ID --yes` removes a job with all its files")
    ),
    Row(
        "trial describe ID",
        "show ID",
        {
            "--metrics": Whole("metrics ID --all"),
            "--metrics-summary": Whole("metrics ID --latest"),
            **PAGES,
            **FORMATS,
        },
    ),
    Row(
        "trial download ID",
        "checkpoint download ID",
        {
            "--best": "--best 1",
            "--latest": "--latest",
            "--uuid UUID": Whole("checkpoint download UUID"),
            "-o --output-dir DIR": "DIR",
            "--sort-by NAME": NO_BY,
            "--smaller-is-better TRUTH": NO_BY,
            "-q --quiet": "",
        },
    ),
    Row(
        "trial support-bundle ID",
        Refusal("`fabric download ID logs` and `fabric show ID --json` have what there is"),
        {"-o --output-dir DIR": ""},
    ),
    Row("trial logs ID", "logs ID", LOGS),
    Row("trial kill ID", "kill ID"),
    Row("trial set log-retention ID", RETENTION, {"--days N": "", "--forever": ""}),
    Row(
        "checkpoint download UUID",
        "checkpoint download UUID",
        {"-o --output-dir DIR": "DIR", "--mode NAME": "", "-q --quiet": ""},
    ),
    Row("checkpoint describe UUID", "checkpoint list UUID"),
    Row("checkpoint delete IDS", "checkpoint delete IDS", {"--yes": "--yes"}),
    Row(
        "checkpoint rm IDS",
        Refusal("a checkpoint is removed as a whole: `fabric checkpoint delete UUID`"),
        {"--glob PATTERN": "", "--yes": ""},
    ),
    Row(
        "job list|ls",
        "queue list",
        {"-p --resource-pool NAME": "--backend NAME", **PAGES, **FORMATS},
    ),
    Row(
        "job update|u ID",
        "queue set ID",
        {
            "-p --priority PRIORITY": "priority=PRIORITY",
            "-w --weight N": "weight=N",
            "--resource-pool NAME": Refusal(
                "`fabric halt ID`, then `fabric resume ID --backend NAME` moves it"
            ),
            "--ahead-of JOB": Whole("queue move ID --ahead-of JOB"),
            "--behind-of JOB": Whole("queue move ID --behind-of JOB"),
        },
    ),
    Row(
        "job update-batch OPERATION...",
        Refusal("`fabric queue set ID ID priority=70` sets it for several; large numbers go first here"),
    ),
    Row("slot list|ls", "gpus", FORMATS),
    Row("slot enable|disable AGENT SLOT", Refusal(NO_SLOTS_OFF)),
    Row("agent list|ls", "backend list", FORMATS),
    Row(
        "agent enable|disable [AGENT]",
        Refusal(NO_SLOTS_OFF),
        {"--all": "", "--drain": "", "--json": "", "--csv": ""},
    ),
    Row("preview-search FILE", "preview FILE"),
    Row(
        "command run COMMAND...",
        "run -- COMMAND...",
        {
            "-d --detach": "--detach",
            "--template NAME": "--template NAME",
            "--config ASSIGNMENT": Refusal("`fabric run --gpus N --image IMAGE -e KEY=VALUE -- COMMAND`"),
            "--config-file FILE": Refusal(
                "`fabric init` writes a manifest, and `fabric run MANIFEST` runs it"
            ),
            "-v --volume MOUNT": Refusal("`fabric run --data FOLDER -- COMMAND` makes a folder available"),
            "-c --context DIR": Refusal("run it in that folder, which is the code"),
            "-i --include PATH": IN_THE_CODE,
            "-w --workspace-name NAME": Refusal("`fabric run --label workspace=NAME -- COMMAND`"),
        },
    ),
    Row(
        "command|task|shell list|ls",
        "list",
        {
            "-q --quiet": "--quiet",
            "-a --all": "--all",
            "--sort-by KEY": SORTED,
            "--order-by ORDER": SORTED,
            "-w --workspace-name NAME": "--label workspace=NAME",
            **FORMATS,
        },
    ),
    Row("command describe ID", "show ID", FORMATS),
    Row("command|task|shell config ID", "show ID --manifest", {"--json": Whole("show ID --json")}),
    Row("command|task|shell logs ID", "logs ID", LOGS),
    Row(
        "command|task|shell kill ID...",
        "kill ID...",
        {"-f --force": Refusal("leave it out: a job that cannot be ended is named"), "--root": ""},
    ),
    Row("command|shell set priority ID PRIORITY", "queue set ID priority=PRIORITY"),
    Row("task pause ID", "halt ID"),
    Row("task unpause ID", "resume ID"),
    Row("task cleanup-logs", RETENTION),
    Row("task create REST...", Refusal("`fabric init` writes a manifest, and `fabric run MANIFEST` runs it")),
    Row(
        "task fork ID",
        "rerun ID",
        {"-f --follow": "", "--project_id N": IN_THE_FILE},
        unless={"--follow": "--detach"},
    ),
    Row("shell open ID", "shell ID", {"--show-ssh-command": NO_SSH}),
    Row(
        "shell start REST...",
        Refusal(
            "a shell is opened in a job that runs: `fabric run -d --gpus 1 -- sleep infinity` starts one, and"
            " `fabric shell @last` opens it"
        ),
    ),
    Row("shell show-ssh-command|show_ssh_command REST...", NO_SSH),
    Row("notebook REST...", Refusal(NO_NOTEBOOKS)),
    Row("tensorboard REST...", Refusal(NO_TENSORBOARD)),
    Row("model REST...", Refusal(NO_REGISTRY)),
    Row("project|workspace REST...", Refusal(NO_PROJECTS)),
    Row("template REST...", Refusal(NO_TEMPLATES)),
    Row("resource-pool list|ls", "backend list", FORMATS),
    Row("resource-pool REST...", Refusal("backends take their place: `fabric backend list`")),
    Row("resources REST...", Refusal("`fabric gpus` shows what is used now, `fabric sql` asks what was")),
    Row(
        "master logs",
        Refusal("there is no server; `fabric controller` and `fabric doctor` show what runs here"),
    ),
    Row("deploy REST...", Refusal("nothing has to be set up; `fabric doctor` checks this machine")),
    Row(
        "master|user|user-group|rbac|token|auth|oauth|config-policies|dev REST...", Refusal(WITHOUT_A_SERVER)
    ),
)


def translate(words: Sequence[str]) -> list[list[str]] | None:
    """Return the command lines of ours for one of Determined's; None where it is none.

    Raises:
        UsageError: it is one of Determined's that has no equal; the hint says what to do instead.
    """
    from workbench.cli.framework.registry import find

    noun = NOUNS.get(words[0])
    if noun is None:
        return None
    line = [noun, *words[1:]]
    row = _row_of(line)
    lacks_verb = noun not in JOB_NOUNS and (len(line) == 1 or line[1][:1] == "-")
    if row is None and lacks_verb and (row := _row_of([noun, "list"])):
        line = [noun, "list", *line[1:]]
    if row is None:
        _refuse(line, is_ours=find(noun) is not None)
        return None
    try:
        return _Reading(row).read(line)
    except _Misused:
        # Of a command with a name of ours its own complaint says more.
        if not isinstance(row.ours, Refusal) and _beginning(row.ours) == line[: len(row.path)]:
            return None
        raise


def _row_of(line: Sequence[str]) -> Row | None:
    return next((row for row in ROWS if _begins(row.path, line, len(row.path))), None)


def _begins(path: Sequence[frozenset[str]], line: Sequence[str], depth: int) -> bool:
    """Say whether so many words of a line are those that a row begins with."""
    return len(line) >= depth and all(
        word in names for word, names in zip(line[:depth], path[:depth], strict=True)
    )


def _refuse(line: Sequence[str], *, is_ours: bool) -> None:
    """Name the words that can follow a noun; of a command of ours its own complaint does that."""
    depth = 2 if any(len(row.path) > 2 and _begins(row.path, line, 2) for row in ROWS) else 1
    if is_ours and depth == 1:
        return
    begun = " ".join(line[:depth])
    found = [
        row.theirs.split()[depth] for row in ROWS if len(row.path) > depth and _begins(row.path, line, depth)
    ]
    names = ", ".join(dict.fromkeys(name.partition("|")[0] for name in found))
    is_named = len(line) > depth and line[depth][:1] != "-"
    what = f"{begun} has no command '{line[depth]}'" if is_named else f"{begun}: what of it?"
    raise UsageError(what, hint=f"of Determined's `{begun}` there are {names}")


class _Misused(UsageError):
    """A command of Determined's whose words are wrong."""


class _Reading:
    """Reads one command line of a row."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._values: dict[str, list[str]] = {}
        self._words: list[str] = []
        self._given: list[str] = []
        self._ours = row.ours
        self._options = {
            name: (option, ours)
            for option, ours in row.options.items()
            for name in option.split()
            if name[0] == "-"
        }

    def read(self, line: Sequence[str]) -> list[list[str]]:
        """Return the command lines of ours."""
        path, rest = list(line[: len(self._row.path)]), list(line[len(self._row.path) :])
        self._name = " ".join(path)
        own = rest[: rest.index("--")] if "--" in rest else rest
        if not isinstance(self._ours, Refusal) and {"-h", "--help"} & set(own):
            return [[*_beginning(self._ours), "--help"]]
        self._take_arguments(self._take_options(rest))
        if isinstance(self._ours, Refusal):
            raise UsageError(f"there is no `{self._name}` here", hint=self._ours)
        for name, words in self._row.unless.items():
            if name not in self._given:
                self._words += words.split()
        each_of = self._values.get("IDS", [""])
        return [self._made({**self._values, "IDS": [each]}) for each in each_of]

    def _take_options(self, rest: Sequence[str]) -> list[str]:
        """Take the options; return the other words."""
        others: list[str] = []
        is_rest = any(each.endswith("...") and each not in ("ID...",) for each in self._row.arguments)
        left = list(rest)
        while left:
            word = left.pop(0)
            if word == "--":
                return others + left
            if len(word) < 2 or word[0] != "-":
                others.append(word)
                if is_rest:
                    return others + left
                continue
            if is_rest and isinstance(self._row.ours, Refusal):
                continue
            self._take_option(word, left)
        return others

    def _take_option(self, word: str, left: list[str]) -> None:
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        fits = [name] if name in self._options else [each for each in self._options if each.startswith(name)]
        if len({self._options[each][0] for each in fits}) != 1 or len(name) < 2:
            raise _Misused(f"{self._name} has no option '{name}'", hint=self._what_it_is())
        option, ours = self._options[fits[0]]
        *names, last = option.split()
        if equals and last[0] == "-":
            raise _Misused(f"{self._name}: {fits[0]} takes no value, and is given alone")
        if isinstance(ours, Refusal):
            raise UsageError(f"{self._name} has no {fits[0]} here", hint=ours)
        if last[0] != "-":
            if not equals and not left:
                raise _Misused(f"{self._name} {name} needs a value: {last}")
            self._values[last] = [self._valued(last, value.removeprefix("=") if equals else left.pop(0))]
        self._given += [*names, last]
        if isinstance(ours, Whole):
            self._ours = ours
        else:
            self._words += _put(ours, self._values)

    def _take_arguments(self, others: list[str]) -> None:
        for argument in self._row.arguments:
            name = argument.strip("[]")
            if not others and not argument.startswith("["):
                if isinstance(self._ours, Refusal):
                    return
                raise _Misused(f"{self._name} needs {name}", hint=self._what_it_is())
            if name == "IDS":
                self._values[name] = others.pop(0).split(",")
            elif name.endswith("..."):
                self._values[name], others = others, []
            else:
                self._values[name] = [self._valued(name, others.pop(0))] if others else []
        if others and not isinstance(self._ours, Refusal):
            raise _Misused(f"{self._name} does not take '{others[0]}'", hint=self._what_it_is())
        for text in (each for name in ("ID", "IDS", "ID...") for each in self._values.get(name, ())):
            if text.isdecimal():
                raise UsageError(
                    f"{text} was an id of Determined's",
                    hint="`fabric list --all` shows the jobs that are here",
                )
        if "" in self._values.get("IDS", ()):
            raise _Misused(f"{self._name} takes ids with commas between them, and one of these is empty")

    def _valued(self, name: str, text: str) -> str:
        """Return the value of an argument or option as it is here."""
        if name != PRIORITY:
            return text
        from workbench.terminal.console import narrate

        if not text.isdecimal() or not 1 <= int(text) <= 99:
            raise _Misused(f"{self._name}: {text} cannot be a priority", hint="it is a number from 1 to 99")
        narrate(f"note: Determined's priority {text} is {100 - int(text)} here, where large ones go first")
        return str(100 - int(text))

    def _what_it_is(self) -> str:
        if isinstance(self._row.ours, Refusal):
            return self._row.ours
        return f"here it is `fabric {self._row.ours}`; `fabric {' '.join(_beginning(self._row.ours))} --help` says more"

    def _made(self, values: Mapping[str, Sequence[str]]) -> list[str]:
        words = _put(self._ours, values)
        at = words.index("--") if "--" in words else len(words)
        return [*words[:at], *self._words, *words[at:]]


def _put(ours: str, values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words of a command with the values of its arguments."""
    found: list[str] = []
    for word in ours.split():
        if word in values:
            found += values[word]
        else:
            found.append(re.sub("[A-Z]+", lambda name: "".join(values.get(name[0], [name[0]])), word))
    return found


def _beginning(ours: str) -> list[str]:
    """Return the words of a command before its arguments."""
    return [word for word in ours.split() if re.fullmatch(r"[a-z-]*[a-z]", word) and word[0] != "-"]
