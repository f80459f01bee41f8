"""``fabric store``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Job, Json

Folder = Annotated[
    str, typer.Argument(metavar="[FOLDER]", help="A folder for each container; else one in fabric's home.")
]
Port = Annotated[
    int,
    typer.Option(
        "--port", min=0, max=65535, metavar="N", help="Else 9023, or a free one when that is taken."
    ),
]
Manifests = Annotated[
    list[str] | None,
    typer.Option("--manifest", metavar="FILE", help="Make the containers that it names (repeatable)."),
]


@command(
    "serve",
    "fabric store serve",
    "fabric store serve ~/data --manifest manifest.yml",
    "fabric store serve ~/data --port 9000 --json",
)
def serve(folder: Folder = "", port: Port = 0, manifest: Manifests = None, json: Json = False) -> int:
    """Serve a folder of this machine as an S3 store, to try out manifests that need one.

    It answers on this machine alone, to user `test` with password `test`, and stands for the address of FfDL's
    own examples as long as it runs: they run as they are. Elsewhere it is named `served:CONTAINER`.
    """
    from workbench.paths import Home, default_home
    from workbench.services.transfer.s3_server import serve_store

    home = Home(default_home())
    place = Path(folder).expanduser().absolute() if folder else home.store_folder
    return serve_store(home, place, port, manifest or [], json=json)


@command("retry", "fabric store retry @last", "fabric store retry digits --json")
def retry(job: Job, json: Json = False) -> int:
    """Store a job's results again, where its end could not: from its place, or from here if they came home.

    A job that failed for this alone has completed then: its state is that of its command's own exit. The exit
    code is 75 while something is still missing.
    """
    from workbench.services.open_store import store_with
    from workbench.services.transfer.retry_upload import retry as again

    with store_with(job) as (opened, row):
        return again(opened, row.id, json=json)


store = Family(
    "store", "Serve a store on this machine, and store again what failed.", (serve, retry), default="serve"
)
