"""What a host is like that somebody may really have: each lack one sentence and one hint, and nothing left there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import DEBIAN
from tests.support.sshd import make_user, remove_user

EX_UNAVAILABLE, EX_NOPERM, EX_CONFIG = 69, 77, 78


def is_one_sentence_and_a_hint(stderr: str) -> bool:
    """Say whether a refusal is as each should be."""
    lines = [line for line in stderr.splitlines() if not line.startswith(("note:", "warning:"))]
    return len(lines) == 2 and lines[1].startswith("hint: ") and "Traceback" not in stderr


def left_at(box: Box) -> list[Path]:
    """List the files that are at the host of ours."""
    return [path for path in box.user.home.glob(".fabric/**/*") if path.is_file()]


class TestNoexec:
    @pytest.fixture
    def box_within(self) -> list[str]:
        script = 'mount --rbind /tmp /tmp && mount -o remount,noexec,bind /tmp && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    @pytest.fixture
    def box_home(self) -> Path:
        return Path("/var/tmp")

    def test_a_host_whose_tmp_is_mounted_noexec_runs_jobs_as_others_do(
        self, box: Box, fabric: Fabric
    ) -> None:
        (fabric.folder / "train.sh").write_text("#!/bin/sh\necho trained in $PWD\n")
        (fabric.folder / "train.sh").chmod(0o755)
        probe = (
            "file=/tmp/$JOB_ID.sh; printf '#!/bin/sh\\n' > $file; chmod +x $file; $file 2>/dev/null; echo $?;"
        )
        ran = fabric(
            "run", "-q", "--backend", box.address, "--", "sh", "-c", f"{probe} rm $file; exec ./train.sh"
        )

        assert ran.stdout.splitlines()[0] == "126", "the folder is not mounted noexec"
        assert "trained in" in ran.stdout


class TestAnotherArchitecture:
    @pytest.fixture
    def box_within(self) -> list[str]:
        return ["setarch", "i686"]  # what uname says of the kernel, to all that sshd starts

    def test_a_process_runs_and_the_architecture_is_reported(self, box: Box, fabric: Fabric) -> None:
        tested = fabric.json("backend", "test", box.address, "--json")[0]
        (reach,) = (one for one in tested["findings"] if one["subject"] == "reach")

        assert "i686" in reach["found"]
        assert fabric("run", "-q", "--backend", box.address, "--", "uname", "-m").stdout == "i686\n"

    def test_an_image_that_is_made_for_another_machine_is_refused_before_it_is_started(
        self, engine_box: Box, fabric: Fabric
    ) -> None:
        args = ("--runner", "container", "--image", DEBIAN, "--", "echo", "started")
        refused = fabric("run", "--backend", engine_box.address, *args, expect=69)

        assert refused.stdout == ""
        assert "amd64" in refused.stderr
        assert "hint: Take one that is made for" in refused.stderr
        assert not list(engine_box.user.home.glob(".fabric/*/*/jobs/*/attempt-1/learner-*/output.log"))


@pytest.mark.new_host
class TestReadOnly:
    def test_a_home_that_is_mounted_read_only_is_refused(self, box: Box, fabric: Fabric) -> None:
        home = str(box.user.home)
        subprocess.run(["mount", "--bind", home, home], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
            refused = fabric("run", "-q", "--backend", box.address, "--", "true", expect=EX_NOPERM)
        finally:
            subprocess.run(["umount", "-l", home], check=True)

        assert "Read-only file system" in refused.stderr
        assert "-o root=" in refused.stderr
        assert is_one_sentence_and_a_hint(refused.stderr), refused.stderr
        assert not left_at(box)
        assert fabric.json("list", "--json") == []

    def test_another_root_is_the_way_out(self, box: Box, tmp_path: Path, fabric: Fabric) -> None:
        root = Path(f"{box.user.home}-scratch")
        root.mkdir(mode=0o700)
        box.user.owns(root)
        box.user.home.chmod(0o500)
        try:
            options = ("-o", f"root={root}")
            fabric("backend", "add", "box", box.address, *options)
            assert fabric("run", "-q", "--backend", "box", "--", "echo", "here").stdout == "here\n"
            fabric("delete", "--all", "--yes", "--wait", expect=None)
        finally:
            subprocess.run(["rm", "-rf", str(root)], check=True)


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param("file", marks=pytest.mark.soak("less is gone; the gate has the whole folder gone")),
        "folder",
    ],
)
def test_without_known_hosts_the_key_is_refused_with_the_command_that_accepts_it(
    box: Box, fabric: Fabric, gone: str
) -> None:
    box.known_hosts.unlink()
    identity = ("-o", f"config={box.config}")
    if gone == "folder":
        elsewhere = box.folder / "ssh"
        box.key.parent.rename(elsewhere)
        config = elsewhere / "config"
        config.write_text(config.read_text().replace(str(box.key.parent), str(elsewhere)))
        config.write_text("\n".join(x for x in config.read_text().splitlines() if "KnownHosts" not in x))
        identity = ("-o", f"config={config}")
    refused = fabric("backend", "add", "box", "ssh://box", *identity, expect=EX_CONFIG)
    assert is_one_sentence_and_a_hint(refused.stderr), refused.stderr
    assert not box.known_hosts.exists()
    fingerprint = next(word for word in refused.stderr.split() if word.startswith("SHA256:")).rstrip(".")

    fabric("backend", "add", "box", "ssh://box", *identity, "--accept-key", fingerprint)
    assert box.known_hosts.stat().st_mode & 0o777 == 0o600
    assert box.known_hosts.parent.stat().st_mode & 0o777 == 0o700
    assert fabric("run", "-q", "--backend", "box", "--", "echo", "in").stdout == "in\n"


@pytest.mark.parametrize(
    "shell",
    [
        "/usr/bin/fish",
        "/bin/csh",
        pytest.param(
            "/usr/bin/zsh",
            marks=pytest.mark.soak("another shell; the gate has csh and fish, and bash everywhere else"),
        ),
        pytest.param(
            "/bin/bash",
            marks=pytest.mark.soak(
                "the gate has a bash that prints in tests/ssh/test_refusals.py, and jobs by bash"
            ),
        ),
    ],
)
def test_a_job_runs_whatever_the_login_shell_is_and_prints(box: Box, fabric: Fabric, shell: str) -> None:
    if not Path(shell).exists():
        pytest.skip(f"needs {shell}")
    user = make_user(shell)
    try:
        for name in (".cshrc", ".zshenv", ".bashrc", ".config/fish/config.fish"):
            (user.home / name).parent.mkdir(parents=True, exist_ok=True)
            (user.home / name).write_text("echo 'Welcome!'\necho fabric-arrival-not\n")
        box.daemon.authorize(user, Path(f"{box.key}.pub"))
        address = box.address.replace(box.user.name, user.name)
        ran = fabric("run", "-q", "--backend", address, "--", "sh", "-c", "id -un; exit 3", expect=3)
        assert ran.stdout == f"{user.name}\n"
    finally:
        remove_user(user)


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            "/usr/sbin/nologin", marks=pytest.mark.soak("a shell that says more; the gate has a mute one")
        ),
        "/bin/false",
    ],
)
def test_a_shell_that_runs_nothing_leaves_no_job(box: Box, fabric: Fabric, shell: str) -> None:
    user = make_user(shell)
    try:
        box.daemon.authorize(user, Path(f"{box.key}.pub"))
        address = box.address.replace(box.user.name, user.name)
        refused = fabric("run", "-q", "--backend", address, "--", "true", expect=EX_UNAVAILABLE)
        assert is_one_sentence_and_a_hint(refused.stderr), refused.stderr
        assert fabric.json("list", "--json") == []
        assert not (user.home / ".fabric").exists()
    finally:
        remove_user(user)


def test_a_gpu_where_none_is_leaves_neither_job_nor_folder(box: Box, fabric: Fabric) -> None:
    args = ("--backend", box.address, "--gpus", "1", "--", "true")
    refused = fabric("run", "-q", *args, expect=EX_UNAVAILABLE)

    assert is_one_sentence_and_a_hint(refused.stderr), refused.stderr
    assert fabric.json("list", "--json") == []
    assert not list(box.user.home.glob(".fabric/*/*/jobs/*"))
    assert "has none" in fabric("plan", *args).stdout


def test_a_determined_file_that_names_no_slots_runs_at_a_host_without_gpus(box: Box, fabric: Fabric) -> None:
    text = "name: own\nentrypoint: echo slots $DET_SLOT_IDS\nsearcher: {name: single, metric: x}\n"
    (fabric.folder / "own.yaml").write_text(text)

    ran = fabric("run", "--backend", box.address, "own.yaml")

    assert ran.stdout == "slots [0]\n"
    assert "the slot is a process on the CPU" in ran.stderr


def test_a_user_whom_the_host_does_not_know_is_refused_and_named(box: Box, fabric: Fabric) -> None:
    address = box.address.replace(box.user.name, "nobody-there")
    refused = fabric("run", "-q", "--backend", address, "--", "true", expect=EX_NOPERM)

    assert is_one_sentence_and_a_hint(refused.stderr), refused.stderr
    assert "does not let nobody-there in" in refused.stderr
    assert fabric.json("list", "--json") == []
