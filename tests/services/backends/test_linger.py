"""What a host keeps of a person's jobs: whom that is for, and how it is said."""

from __future__ import annotations

import pytest

from backends.contract.host import BackendOptions
from workbench.errors import UsageError
from workbench.services.backends.linger import Kept, keep_jobs, start_nothing

SCRIPT = "/home/ada/.fabric/4b5a/9f1c/resume.sh"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (BackendOptions("k8s", "kubernetes", "k8s://lab"), "k8s is a cluster"),
        (BackendOptions("local", "local"), "jobs that wait on this machine start again"),
    ],
    ids=["cluster", "this machine"],
)
def test_only_a_host_is_asked_to_keep_jobs(options: BackendOptions, why: str) -> None:
    for act in (keep_jobs, start_nothing):
        with pytest.raises(UsageError, match=why):
            act(options)


@pytest.mark.parametrize(
    ("kept", "last"),
    [
        (Kept(has_systemd=True, script=SCRIPT, unit="/u/f.service"), "after a restart of it: /u/f.service"),
        (Kept(has_systemd=False, script=SCRIPT), f"crontab there has `@reboot sh {SCRIPT}`"),
        (Kept(has_systemd=False, script="/a b/resume.sh"), "crontab there has `@reboot sh '/a b/resume.sh'`"),
        (Kept(has_systemd=True), "it has no Python: jobs wait here, not there"),
    ],
    ids=["systemd", "crontab", "a path with a space", "no Python"],
)
def test_what_starts_after_a_restart_is_named_with_its_way(kept: Kept, last: str) -> None:
    assert kept.sentences()[-1].endswith(last)
    assert kept.document("lab") == {
        "schema": "fabric.linger/1",
        "name": "lab",
        "script": kept.script or None,
        "unit": kept.unit or None,
    }
