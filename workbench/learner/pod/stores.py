"""What a pod's containers do for data stores: install rclone, and upload results while the command runs."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess

from workbench.learner.journal.launch_document import LaunchDocument, read
from workbench.learner.pod import config
from workbench.learner.stores.rclone import PASSED
from workbench.learner.stores.upload_process import UploadWorker

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.pod.config import PodConfig

VERSION_MIN = (1, 65)
_VERSION_SECONDS = 20.0
_BUFFER = "4Mi"


def install_rclone(pod: PodConfig) -> None:
    """Make rclone ready: the image's own, else the one that is sent.

    Raises:
        Failure: it did not come in time.
        OSError: there is no room for it.
    """
    if os.path.lexists(config.RCLONE):
        return
    own = image_rclone()
    if own:
        os.symlink(own, config.RCLONE)
        return
    config.await_file(pod, config.RCLONE_PACKED, "rclone, which moves the data,")
    new = config.RCLONE + ".new"
    with gzip.open(config.RCLONE_PACKED, "rb") as source, open(new, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    os.chmod(new, 0o755)
    os.rename(new, config.RCLONE)
    os.unlink(config.RCLONE_PACKED)


def limit_memory() -> None:
    """Limit rclone's buffers: a container's memory is limited."""
    os.environ.setdefault("RCLONE_BUFFER_SIZE", _BUFFER)


def start_upload_worker(pod: PodConfig) -> UploadWorker | None:
    """Start the process that uploads while the command runs; None where there is nothing to upload."""
    launch = read(pod.folder)
    if not launch.stores:
        return None
    limit_memory()
    for name in PASSED:
        if name in launch.env:
            os.environ.setdefault(name, launch.env[name])  # proxies are the learner's own
    found = UploadWorker(pod.folder, launch, _secrets(launch))
    found.start()
    return found if found.pid else None


def _secrets(launch: LaunchDocument) -> dict[str, str]:
    try:
        return launch.secret_values()
    except (OSError, ValueError):
        return {}


def image_rclone() -> str:
    """Return the image's rclone if it is new enough."""
    path = shutil.which("rclone")
    if not path:
        return ""
    try:
        printed = subprocess.run(
            [path, "version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_SECONDS,
            env={"PATH": os.defpath, "RCLONE_CONFIG": ""},
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(rb"rclone v(\d+)\.(\d+)", printed)
    return path if found and tuple(int(part) for part in found.groups()) >= VERSION_MIN else ""
