"""``fabric preview``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.services.submit.options import RunOptions
from workbench.terminal.console import width as terminal_width

if TYPE_CHECKING:
    from workbench.documents.experiments import PreviewDocument

File = Annotated[
    str, typer.Argument(metavar="[FILE]", help="A manifest, or an experiment of Determined; `-` for stdin.")
]
Samples = Annotated[
    int, typer.Option("--samples", min=0, max=100_000, metavar="N", help="How many trials to draw.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**32 - 1, metavar="S", help="Draw them with this seed."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the manifest, e.g. search.max_trials=50."),
]


@command(
    "preview",
    "fabric preview search.yml",
    "fabric preview search.yml --samples 10 --seed 42",
    "fabric preview search.yml --set search.max_trials=200 --json",
    "fabric preview manifest.yml --set params.lr=0.1,0.01 --set params.seed=1..4",
)
def preview(
    file: File = "", samples: Samples = 3, seed: Seed = None, set: Set = None, json: Json = False
) -> int:
    """Show what a search would try: how many trials get how far, and the first of them.

    Nothing is started and nobody is asked. The same seed draws the same trials as the search itself. Lists in --set
    are the grid of jobs that `fabric run` starts with them.
    """
    from workbench.services.submit.search_preview import preview_search

    options = RunOptions(manifest=file, overrides=tuple(set or ()))
    document = preview_search(options, samples=samples, seed=seed)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
    else:
        _print(document)
    return 0


def _print(document: PreviewDocument) -> None:
    from workbench.formats import count
    from workbench.services.submit.search_preview import sample_text
    from workbench.terminal.table import Column, render

    trials, width = document["trials"], terminal_width()
    rows = [
        (f"{each['count']:,}", f"{each['units']:,}" if "units" in each else "all the way") for each in trials
    ]
    total = sum(each["count"] for each in trials)
    print(f"{document['method']}: {count(total, 'trial')}")
    print(render([Column("TRIALS", right=True), Column("UNITS", right=True)], rows, width=width), end="")
    if (hours := document["gpu_hours"]) is not None:
        print(f"\nat most {hours:,.1f} GPU-hours, if a whole trial takes its max_runtime")
    if document["method"] in ("optuna", "python"):
        by = "Optuna" if document["method"] == "optuna" else "the class of search.searcher"
        print(f"\nits trials are chosen while it runs, by {by}; nothing is drawn beforehand")
    if document["samples"]:
        drawn_with = f"first trials with the seed {document['seed']}"
        print(f"\n{drawn_with if document['samples'][0]['id'] else 'first jobs, in their order'}")
        drawn = [(str(each["seed"]), sample_text(each["hparams"])) for each in document["samples"]]
        print(
            render([Column("SEED", right=True), Column("PARAMETERS", stretch=True)], drawn, width=width),
            end="",
        )
