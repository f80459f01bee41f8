"""The table of commands: name, other names, where it lives; and one line of help of each. Importing it costs nothing.

``fabric --help`` is drawn from this table alone; any other command imports Typer and its own module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the real one costs every command the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping

COMPLETE_VARIABLE = "_FABRIC_COMPLETE"
"""Set by the shell's completion script."""
PROGRAM = "fabric"

GROUPS = {
    "start": "Start a job",
    "look": "Look at jobs",
    "change": "Stop and change jobs",
    "backends": "Backends",
    "care": "Maintenance",
}
"""Headings of the overview, in order."""


class Entry:
    """One command of the table."""

    __slots__ = ("aliases", "bare", "group", "name", "starts_jobs", "target")

    def __init__(
        self,
        name: str,
        target: str,
        group: str,
        aliases: tuple[str, ...] = (),
        starts_jobs: bool = False,
        bare: str = "",
    ) -> None:
        self.name = name
        self.target = target
        """``module:attribute`` under ``workbench.cli``, a Command or a Family."""
        self.group = group
        self.aliases = aliases
        self.starts_jobs = starts_jobs
        """Whether it needs the controller in any case, which then starts while the command line is parsed."""
        self.bare = bare
        """``module:function`` that does the command where no arguments are given: Typer is not imported then."""


ENTRIES = (
    Entry("run", "commands.jobs.run:run", "start", ("train",), starts_jobs=True),
    Entry("plan", "commands.manifests.plan:plan", "start"),
    Entry("preview", "commands.manifests.preview:preview", "start"),
    Entry("validate", "commands.manifests.manifests:validate", "start"),
    Entry("init", "commands.manifests.manifests:init", "start"),
    Entry("convert", "commands.manifests.manifests:convert", "start"),
    Entry("schema", "commands.manifests.manifests:schema", "start"),
    Entry("rerun", "commands.jobs.rerun:rerun", "start", starts_jobs=True),
    Entry("adopt", "commands.backends.adopt:adopt", "backends", starts_jobs=True),
    Entry("experiment", "commands.jobs.experiment:experiment", "look"),
    Entry("list", "commands.inspect.list:list_jobs", "look", ("ls", "ps")),
    Entry("status", "commands.inspect.status:status", "look"),
    Entry("show", "commands.inspect.show:show", "look", ("describe",)),
    Entry("logs", "commands.inspect.logs:logs", "look"),
    Entry("metrics", "commands.inspect.metrics:metrics", "look"),
    Entry("loglines", "commands.manifests.ffdl:loglines", "look"),
    Entry("emetrics", "commands.manifests.ffdl:emetrics", "look"),
    Entry("compare", "commands.inspect.compare:compare", "look"),
    Entry("diff", "commands.inspect.diff:diff", "look"),
    Entry("grep", "commands.inspect.grep:grep", "look"),
    Entry("events", "commands.inspect.events:events", "look"),
    Entry("sql", "commands.inspect.sql:sql", "look"),
    Entry("attach", "commands.jobs.attach:attach", "look"),
    Entry("wait", "commands.jobs.wait:wait", "look"),
    Entry("exec", "commands.jobs.exec:exec_", "look"),
    Entry("shell", "commands.jobs.exec:shell", "look"),
    Entry("download", "commands.data.download:download", "look"),
    Entry("checkpoint", "commands.data.checkpoint:checkpoint", "look"),
    Entry("files", "commands.data.files:files", "look"),
    Entry("cp", "commands.data.cp:cp", "look"),
    Entry("tui", "commands.upkeep.tui:tui", "look", bare="commands.upkeep.open_screens:open_screens"),
    Entry("halt", "commands.jobs.control:halt", "change", ("cancel",)),
    Entry("kill", "commands.jobs.control:kill", "change"),
    Entry("resume", "commands.jobs.control:resume", "change"),
    Entry("queue", "commands.jobs.queue:queue", "change"),
    Entry("schedule", "commands.jobs.schedule:schedule", "change"),
    Entry("tag", "commands.jobs.annotate:tag", "change"),
    Entry("note", "commands.jobs.annotate:note", "change"),
    Entry("delete", "commands.jobs.delete:delete", "change"),
    Entry("gpus", "commands.backends.gpus:gpus", "backends"),
    Entry("backend", "commands.backends.backend:backend", "backends"),
    Entry("data", "commands.data.data:data", "backends"),
    Entry("store", "commands.data.store:store", "backends"),
    Entry("image", "commands.backends.image:image", "backends"),
    Entry("config", "commands.upkeep.config:config", "care"),
    Entry("controller", "commands.upkeep.controller:controller", "care"),
    Entry("doctor", "commands.upkeep.doctor:doctor", "care"),
    Entry("du", "commands.upkeep.du:du", "care"),
    Entry("prune", "commands.upkeep.prune:prune", "care"),
    Entry("gc", "commands.upkeep.gc:gc", "care"),
    Entry("completion", "framework.completion:completion", "care"),
    Entry("man", "framework.manpage:man", "care"),
    Entry("version", "commands.upkeep.version:version", "care"),
)

# Made of the commands by `python -m workbench.cli.framework.docgen --write`; a test compares.
HELP = {
    "run": "Run a training job and follow it.",
    "plan": "Show exactly what a run would start, without starting it.",
    "preview": "Show what a search would try: how many trials get how far, and the first of them.",
    "validate": "Check manifests and list every error.",
    "init": "Write a commented manifest to begin with.",
    "convert": "Turn a simple job file of another tool into a manifest.",
    "schema": "Print the JSON schema of manifests, or of what --json prints.",
    "rerun": "Run a job again with exactly its code, settings and Python.",
    "adopt": "Take over jobs that you submitted from another machine.",
    "experiment": "Look at searches for hyper-parameters, pause, continue, end and delete them.",
    "list": "List jobs, newest first.",
    "status": "Show each job's state in one line.",
    "show": "Show one job: state, why, times, settings, results.",
    "logs": "Print what a job printed.",
    "metrics": "Print what a job measured.",
    "loglines": "Print a job's log as FfDL did: number, milliseconds, line.",
    "emetrics": "Print what a job measured as FfDL did, in blocks.",
    "compare": "Compare jobs side by side: settings, values, code.",
    "diff": "Show every difference between two jobs.",
    "grep": "Search the logs of all jobs.",
    "events": "Print what happened: who asked for what, and every change.",
    "sql": "Query the database with SQL, read-only.",
    "attach": "Follow a job's output and end with its exit code.",
    "wait": "Wait until jobs, or searches with all their trials, have ended.",
    "exec": "Run a command in a running job.",
    "shell": "Open a shell in a running job.",
    "download": "Copy a job's code, logs, results or checkpoints here.",
    "checkpoint": "List, fetch and remove checkpoints of jobs and searches.",
    "files": "List a job's files, also while it runs.",
    "cp": "Copy files out of a job or into it, while it runs or afterwards.",
    "tui": "Open the terminal screens.",
    "halt": "Ask a job to checkpoint and stop; it can be resumed.",
    "kill": "Stop a job at once; it can be resumed.",
    "resume": "Start a halted or failed job again from its checkpoints.",
    "queue": "Look at the jobs that wait, and change their order.",
    "schedule": "Look at runs that come again, pause, resume, start and delete them.",
    "tag": "Add, remove or print the tags of a job or a search.",
    "note": "Write a note on a job or a search, or print it.",
    "delete": "Delete a job and everything that it left behind.",
    "gpus": "Show GPUs, their use, who holds them and since when.",
    "backend": "List, add, remove and test backends, and log in to them.",
    "data": "Upload data to stores, and manage cached copies.",
    "store": "Serve a store on this machine, and retry failed uploads.",
    "image": "Send images to a backend that has no registry.",
    "config": "Show and change the configuration: defaults, profiles, backends, retention.",
    "controller": "Show, stop or restart the background controller.",
    "doctor": "Check this machine and fabric's own files, with remedies.",
    "du": "Show how much disk space jobs and caches use on this machine.",
    "prune": "Remove jobs that ended long ago, and caches that no job uses.",
    "gc": "List what belongs to no job, and remove it on request.",
    "completion": "Print a shell's completion script.",
    "man": "Print the manual page.",
    "version": "Print the version.",
}
"""The first line of each command's own help."""


def find(name: str) -> Entry | None:
    """Return the command of that name or other name."""
    for entry in ENTRIES:
        if name == entry.name or name in entry.aliases:
            return entry
    return None


def names() -> list[str]:
    """Return every name that a command can be called by."""
    return [name for entry in ENTRIES for name in (entry.name, *entry.aliases)]


def overview(helps: Mapping[str, str] = HELP) -> str:
    """Return the help of ``fabric`` itself, with a line of help for each command."""
    lines = [
        f"Usage: {PROGRAM} COMMAND [ARGUMENTS]",
        "",
        "A terminal-first workbench for training jobs.",
    ]
    width = max(len(_title(entry)) for entry in ENTRIES)
    for group, heading in GROUPS.items():
        lines += ["", f"{heading}:"]
        found = [entry for entry in ENTRIES if entry.group == group]
        lines += [f"  {_title(entry):{width}}  {helps[entry.name]}" for entry in found]
    lines += [
        "",
        "Examples:",
        "  fabric run manifest.yml          run a job, its output and metrics live in this terminal",
        "  fabric run -- python train.py    the same without a manifest",
        "  fabric list                      all jobs, and why they wait or failed",
        "",
        f"`{PROGRAM} COMMAND --help` explains a command; `{PROGRAM} help topics` lists general topics.",
        "A job is named by its id, a part of it, its name, or @last.",
    ]
    return "\n".join(lines) + "\n"


def _title(entry: Entry) -> str:
    return ", ".join((entry.name, *entry.aliases))
