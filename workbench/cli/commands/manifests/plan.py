"""``fabric plan``, and what it prints of a job that would be started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.cli.framework.run_options import takes_run_options
from workbench.services.submit.options import RunOptions

if TYPE_CHECKING:
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.preview import SubmissionPreview


LONGEST = 100
"""Characters of a value that are shown without --native."""

Native = Annotated[
    bool,
    typer.Option(
        "--native", help="Also print what is sent to the backend: its own documents, as JSON or YAML."
    ),
]


@command(
    "plan",
    "fabric plan manifest.yml",
    "fabric plan --json manifest.yml src/",
    "fabric plan --gpus 2 -- python train.py",
    "fabric plan --native manifest.yml --backend k8s",
    takes_command_line=True,
)
@takes_run_options("checkpoint")
def plan(options: RunOptions, native: Native = False, json: Json = False) -> int:
    """Show exactly what a run would start, without starting it.

    Of a search it shows what it tries at most, and the plan of its first trial. A backend that cannot be asked, or
    has too little for the job, is a warning.
    """
    from workbench.services.submit.batch import read_batch

    return print_previews(read_batch(options), json=json, native=native)


def print_previews(batch: JobBatch, *, json: bool, native: bool = False) -> int:
    """Print what the jobs of a batch would start; one job as one document, several as a list."""
    from workbench.paths import Home, default_home
    from workbench.services.submit.preview import preview_batch
    from workbench.terminal.code import terminal_code_options

    with exit_on_signals():
        previews = preview_batch(batch, Home(default_home()), code_options=terminal_code_options(quiet=False))
    if json:
        from workbench.terminal.json_output import print_document

        documents = [each.document() for each in previews]
        print_document(documents[0] if batch.is_single else documents)
    else:
        sys.stdout.write("\n".join(preview_text(each, native=native) for each in previews))
    return 0


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and a hang-up end the process as an exit does, so that temporary folders are removed."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in ends:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in ends:
            signal.signal(each, signal.SIG_DFL)


def preview_text(preview: SubmissionPreview, *, native: bool) -> str:
    """Return a preview as people read it: the choices, and with ``native`` the native objects of the runner."""
    from workbench.formats import short
    from workbench.terminal.table import fields

    plan = preview.plan
    pairs = [
        *((name, value if native else short(value, LONGEST)) for name, value in preview.facts),
        *((name, value if native else short(value, LONGEST)) for name, value in preview.details),
        *(("warning", text) for text in preview.warnings),
        *(("note", text) for text in preview.notes),
    ]
    text = f"{fields(search)}\n{fields(pairs)}" if (search := preview.search_facts) else fields(pairs)
    if not native:
        return text
    if plan.objects:
        return text + "\n" + _yaml(plan.objects)
    return text + "".join(f"\n{each.name}\n{_indented_json(each.native)}" for each in plan.learners)


def _yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return objects as ``kubectl`` writes them."""
    import json

    import yaml

    # Through JSON, so that YAML writes no value as a reference to another one.
    plain = json.loads(json.dumps(list(objects)))
    return "".join("---\n" + yaml.safe_dump(one, sort_keys=False, allow_unicode=True) for one in plain)


def _indented_json(document: Mapping[str, Any]) -> str:
    import json

    text = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True)
    return "".join(f"  {line}\n" for line in text.splitlines())
