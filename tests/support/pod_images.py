"""Images for pods, made without a registry or an engine: archives that containerd, Docker and kind can load.

============================================  =====================================================
``localhost/fabric-test/debian:1``            Debian with Python 3.11, bash, user root
``localhost/fabric-test/user:1``              the same, user 1234 without a name, working directory /
``localhost/fabric-test/busybox:1``           only busybox: no Python, no bash, no flock
``localhost/fabric-test/bare:1``              Debian without Python and tar, and with a PYTHONPATH of its own
``localhost/fabric-test/pip:1``               Debian with Python 3.11 and pip, and with a PYTHONPATH of its own
``localhost/fabric-test/hanging:1``           Debian with a Python that serves, and hangs before it handles signals
``localhost/fabric-test/searching:1``         Debian with a Python that hangs when asked whether it serves
============================================  =====================================================

``python -m tests.support.pod_images FILE`` writes them all, for a cluster of your own
(``kind load image-archive FILE``, ``minikube image load FILE``, ``k3s ctr images import FILE``).
"""

from __future__ import annotations

import ensurepip
import hashlib
import io
import json
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.images import BUSYBOX_PROGRAM, CACHE, applets, debian_tar, one_at_a_time, tree

DEBIAN, USER, BUSYBOX, BARE, PIP, HANGING, SEARCHING = (
    f"localhost/fabric-test/{name}:1"
    for name in ("debian", "user", "busybox", "bare", "pip", "hanging", "searching")
)

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN_PYTHONPATH = "/opt/own:/opt/other"

ABSENT = ("tar", "python3", "python3.11", "python")
"""What the bare image lacks: a layer over Debian's that takes these away."""


def archive() -> Path:
    """Return the archive with all images, made once."""
    path = CACHE / "pods-5.tar"  # another name when its images change
    with one_at_a_time():
        if not path.exists():
            part = path.with_suffix(".part")
            _write(part)
            part.rename(path)
    return path


def _write(path: Path) -> None:
    busybox = tree({"bin/busybox": BUSYBOX_PROGRAM.read_bytes()}, links=applets())
    debian = debian_tar()
    manifest: list[Mapping[str, Any]] = []
    with tarfile.open(path, "w") as tar:
        debian_layer = _add_layer(tar, debian)
        shell = _layer_of(tar, busybox)
        manifest.append(_add_image(tar, DEBIAN, debian_layer, {"Cmd": ["/bin/bash"]}))
        manifest.append(_add_image(tar, USER, debian_layer, {"User": "1234:1234", "WorkingDir": "/"}))
        manifest.append(_add_image(tar, BUSYBOX, shell, {"Cmd": ["/bin/sh"]}))
        without = _layer_of(tar, tree({f"usr/bin/.wh.{name}": b"" for name in ABSENT}))
        own = {"Env": [PATH, f"PYTHONPATH={OWN_PYTHONPATH}"]}
        manifest.append(_add_image(tar, BARE, debian_layer, {"Cmd": ["/bin/sh"], **own}, without))
        pip = _layer_of(tar, tree(_installed_pip()))
        manifest.append(_add_image(tar, PIP, debian_layer, {"Cmd": ["/bin/bash"], **own}, pip))
        for name, is_python in ((HANGING, '[ "$3" != -c ] || exit 0'), (SEARCHING, ":")):
            program = f"#!/bin/sh\n{is_python}\nexec sleep 600\n".encode()
            hangs = _layer_of(tar, tree({"usr/local/bin/python3": program}))
            manifest.append(_add_image(tar, name, debian_layer, {"Cmd": ["/bin/bash"]}, hangs))
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _installed_pip() -> dict[str, bytes]:
    """Return pip's files where Debian's Python looks for them."""
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    wheels = sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled  # a distribution keeps them elsewhere
    wheel = next(Path(wheels).glob("pip-*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        return {f"usr/lib/python3/dist-packages/{name}": packed.read(name) for name in packed.namelist()}


def _add_layer(tar: tarfile.TarFile, layer: Path) -> str:
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    tar.add(layer, arcname=f"{digest}.tar")
    return digest


def _layer_of(tar: tarfile.TarFile, layer: bytes) -> str:
    digest = hashlib.sha256(layer).hexdigest()
    _add(tar, f"{digest}.tar", layer)
    return digest


def _add_image(
    tar: tarfile.TarFile, name: str, layer: str, config: Mapping[str, Any], *more: str
) -> Mapping[str, Any]:
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [PATH], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in (layer, *more)]},
    }
    data = json.dumps(document).encode()
    file = f"{hashlib.sha256(data).hexdigest()}.json"
    _add(tar, file, data)
    return {"Config": file, "RepoTags": [name], "Layers": [f"{one}.tar" for one in (layer, *more)]}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(archive().read_bytes())
