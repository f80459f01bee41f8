"""``fabric image``: images for containers without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.command import Family, command
from workbench.cli.options import Json

File = Annotated[Path, typer.Argument(metavar="FILE", help="What `docker save IMAGE -o FILE` has written.")]
Where = Annotated[str, typer.Option("--backend", "-b", metavar="NAME", help="The place; else this machine.")]


@command("load", "fabric image load image.tar", "fabric image load image.tar --json")
def load(file: File, backend: Where = "local", json: Json = False) -> int:
    """Bring the images of a file into a place's container engine, and print their names."""
    from contextlib import closing

    from backends.interface import Host
    from runners.container_engine import engine_at
    from runners.container_load import load as load_into
    from workbench.cli.places import backend_options, open_backend
    from workbench.errors import UsageError

    reached = open_backend(backend_options(backend)).open()
    with closing(reached):
        if not isinstance(reached, Host):
            raise UsageError(f"'{backend}' is a cluster: its images come from a registry")
        names = load_into(engine_at(reached, reached.call("survey")["environment"]), file)
    if json:
        from workbench.cli.documents import print_document

        print_document({"schema": "fabric.images/1", "images": names})
    else:
        print("\n".join(names))
    return 0


image = Family("image", "Bring images to a place that has no registry.", (load,), default="load")
