"""What keeps us out of a host is one sentence, one hint and the exit code that fits, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from backends.ssh.bootstrap import DiskFull
from backends.ssh.connection import UnknownHostKey
from tests.ssh.seen import Tries, reason, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.sshd import a_user
from tests.support.waiting import patience, until
from workbench.errors import BackendError, BackendUnreachable, ConfigError, FabricError, NotAllowed
from workbench.job import State
from workbench.paths import Home


def refused(box: Box, kind: type[FabricError], address: str = "", **options: str) -> FabricError:
    """Try to open the host and return why that cannot be."""
    with pytest.raises(kind) as caught:
        box.backend(address, **options).open()
    assert "\n" not in caught.value.message
    assert "Traceback" not in caught.value.message
    return caught.value


def test_a_host_that_nobody_knows_is_refused_with_the_command_that_accepts_it(box: Box) -> None:
    box.known_hosts.write_text("")
    error = refused(box, UnknownHostKey)

    assert error.exit_code == 78
    assert "SHA256:" in error.message
    assert f"fabric backend test {box.address} --accept-key SHA256:" in error.hint
    assert box.known_hosts.read_text() == ""


def test_a_key_that_was_accepted_is_written_down_and_known_from_then_on(box: Box) -> None:
    box.known_hosts.write_text("# mine, without a newline at its end")
    shown: list[tuple[str, str]] = []

    def accept(what: str, fingerprint: str) -> bool:
        shown.append((what, fingerprint))
        return True

    box.backend().introduce(accept)
    box.backend().open().close()

    ran = subprocess.run(
        ["ssh-keygen", "-lf", str(box.daemon.folder / "host_key.pub")], capture_output=True, text=True
    ).stdout.split()[1]
    assert shown == [(box.daemon.address, ran)]
    assert box.known_hosts.read_text().splitlines()[1:] == [box.daemon.known_line().strip()]


def test_a_changed_key_is_refused_even_where_somebody_would_accept_it(box: Box) -> None:
    before = box.known_hosts.read_text()
    box.daemon.stop()
    box.daemon.new_host_key()
    box.daemon.start()
    with pytest.raises(NotAllowed) as caught:
        box.backend().introduce(lambda what, fingerprint: True)

    assert caught.value.exit_code == 77
    assert "NOT the one that is known" in caught.value.message
    assert "line 1" in caught.value.message
    assert box.known_hosts.read_text() == before


def test_a_changed_key_ends_a_command_and_a_job_with_the_same_code(box: Box, fabric: Fabric) -> None:
    fabric("run", "--backend", box.address, "--", "true")
    fabric("controller", "stop")
    box.daemon.stop()
    box.daemon.new_host_key()
    box.daemon.start()
    ran = fabric("run", "--backend", box.address, "--", "true", expect=77)
    fabric("backend", "test", box.address, expect=77)

    assert "NOT the one that is known" in ran.stderr
    # Else a try that goes on may have read the file before, and whoever waits for it gets its answer.
    fabric("controller", "stop")
    box.known_hosts.write_text("")
    fabric("run", "--backend", box.address, "--", "true", expect=78)


def test_a_revoked_key_is_refused(box: Box) -> None:
    box.known_hosts.write_text(
        box.daemon.known_line() + "@revoked * " + box.daemon.known_line().split(" ", 1)[1]
    )

    assert "revoked" in refused(box, NotAllowed).message


def test_a_hashed_entry_is_known(box: Box) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(box.known_hosts)], check=True, capture_output=True)
    assert box.daemon.address not in box.known_hosts.read_text()

    box.backend().open().close()


def test_a_host_that_a_certificate_authority_alone_knows_is_refused_with_the_pin(box: Box) -> None:
    box.known_hosts.write_text("@cert-authority " + box.daemon.known_line())
    error = refused(box, UnknownHostKey)

    assert "authority" in error.message
    assert "--accept-key" in error.hint


def test_a_key_that_the_host_does_not_take_is_named(box: Box) -> None:
    (box.daemon.folder / "keys" / box.user.name).write_text("")
    error = refused(box, NotAllowed)

    assert error.exit_code == 77
    assert box.user.name in error.message
    assert "id_ed25519" in error.message
    assert "ssh-copy-id" in error.hint


def test_a_key_with_a_passphrase_and_no_agent_says_ssh_add(box: Box) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(box.key)],
        check=True,
        capture_output=True,
    )
    error = refused(box, NotAllowed)

    assert "passphrase" in error.message
    assert f"ssh-add {box.key}" in error.hint


def test_no_key_at_all_says_how_to_make_one(box: Box) -> None:
    box.key.unlink()
    error = refused(box, NotAllowed)

    assert "there is no key" in error.message
    assert "ssh-keygen" in error.hint


def test_a_refused_port_says_so(box: Box) -> None:
    box.daemon.stop()
    error = refused(box, BackendUnreachable)

    assert error.exit_code == 69
    assert "refuses the connection" in error.message


def test_a_name_without_an_address_says_so(box: Box) -> None:
    error = refused(box, BackendUnreachable, "ssh://no-such-host.invalid")

    assert "no-such-host.invalid" in error.message


@pytest.mark.parametrize(
    "address", ["ssh://", "ssh://a b", "ssh://-oProxyCommand=x", "ssh://h:99999", "ssh://h/p"]
)
def test_what_is_no_address_says_so(address: str) -> None:
    from backends.contract.host import BackendOptions
    from backends.ssh.backend import SshBackend

    with pytest.raises(ConfigError, match="not an address"):
        SshBackend(BackendOptions("box", "ssh", address))


def test_a_setting_that_is_none_names_those_there_are(box: Box) -> None:
    with pytest.raises(ConfigError) as caught:
        box.backend(pyhton="python3")
    assert "python:" in caught.value.hint


def test_a_host_without_a_python_says_so(box: Box) -> None:
    error = refused(box, BackendError, python="/no/such/python3")

    assert "/no/such/python3 is not Python 3.8 or newer" in error.message
    assert "-o python=" in error.hint


@pytest.mark.new_host
def test_a_home_that_cannot_be_written_says_so(box: Box) -> None:
    box.user.home.chmod(0o555)
    os.chown(box.user.home, 0, 0)
    error = refused(box, NotAllowed)

    assert error.exit_code == 77
    assert "root=" in error.hint


@pytest.mark.new_host
def test_a_full_disk_there_says_so_and_nothing_is_left_on_it(box: Box) -> None:
    folder = box.user.home / ".fabric"
    folder.mkdir()
    options = f"size=64k,mode=0700,uid={box.user.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        error = refused(box, DiskFull)
        assert error.exit_code == 69
        assert "No space left" in error.message
        assert "make room there" in error.hint
        assert not [path for path in folder.rglob("*") if path.is_file()]
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_is_named_with_its_host_and_the_file(
    box: Box, fabric: Fabric, home: Home
) -> None:
    small = box.user.home / "small"
    small.mkdir()
    options = f"size=2m,mode=0700,uid={box.user.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(small)], check=True)
    try:
        fabric("backend", "add", "gpubox", box.address, "-o", f"root={small}")
        (fabric.folder / "big").write_bytes(os.urandom(3_000_000))
        job = fabric("run", "--detach", "--backend", "gpubox", "--", "true").stdout.strip()

        # Read once: it is tried again, and says so while it is.
        why = until(lambda: found if "No space left" in (found := reason(home, job)) else "", "the full disk")
        assert "On gpubox: " in why
        assert f"{small}/" in why
        fabric("halt", job)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false"])
def test_a_shell_that_lets_nobody_in_says_so(box: Box, shell: str) -> None:
    with a_user(shell) as user:
        box.daemon.authorize(user, Path(f"{box.key}.pub"))
        address = box.address.replace(box.user.name, user.name)
        error = refused(box, BackendUnreachable, address)
        assert "hint" not in error.message
        assert error.hint


@pytest.mark.new_host
def test_a_shell_that_prints_banners_is_listened_through(box: Box) -> None:
    for name in (".bashrc", ".profile", ".bash_profile"):
        (box.user.home / name).write_text(
            "echo Welcome to the lab; echo 'fabric-arrival, not'; printf no-newline\n"
        )
    with closing(box.backend().open()) as host:
        assert host.identity().user == box.user.name


@pytest.mark.new_host
def test_the_commands_add_test_and_remove_a_host(box: Box, fabric: Fabric) -> None:
    box.known_hosts.write_text("")
    unknown = fabric("backend", "add", "box", box.address, expect=78)
    fingerprint = next(word for word in unknown.stderr.split() if word.startswith("SHA256:")).rstrip(".")
    assert "hint:" in unknown.stderr
    fabric("backend", "test", "box", expect=64)

    fabric("backend", "add", "box", box.address, "--accept-key", fingerprint)
    tested = fabric.json("backend", "test", "box", "--json")[0]
    assert tested["usable"]
    assert {"reach", "python", "machine", "disk"} <= {finding["subject"] for finding in tested["findings"]}

    ran = fabric("run", "--backend", "box", "--", "sh", "-c", "id -un; exit 5", expect=5)
    assert ran.stdout == f"{box.user.name}\n"

    fabric("backend", "remove", "box", "--purge")
    assert [str(each) for each in box.user.home.glob(".fabric/**/*")] == []
    assert not (box.user.home / ".fabric").exists()


def test_exit_codes_say_why_a_host_cannot_be_used(box: Box, fabric: Fabric) -> None:
    (box.daemon.folder / "keys" / box.user.name).write_text("")
    assert "cannot be used" in fabric("backend", "test", box.address, expect=77).stdout
    box.daemon.stop()
    assert "refuses the connection" in fabric("backend", "test", box.address, expect=69).stdout


def test_a_host_that_was_never_reached_is_refused_when_the_job_is_given(
    box: Box, fabric: Fabric, home: Home
) -> None:
    command = ("--", "true")
    unknown = fabric("run", "--backend", "ssh://no-such-host.invalid", *command, expect=69)
    assert "There is no host no-such-host.invalid" in unknown.stderr
    assert "spelled right" in unknown.stderr
    box.known_hosts.write_text("")
    assert "--accept-key" in fabric("run", "--backend", box.address, *command, expect=78).stderr
    box.known_hosts.write_text(box.daemon.known_line())
    keys = box.daemon.folder / "keys" / box.user.name
    allowed = keys.read_text()
    keys.write_text("")
    assert "ssh-copy-id" in fabric("run", "--backend", box.address, *command, expect=77).stderr
    keys.write_text(allowed)
    box.daemon.stop()
    assert "refuses the connection" in fabric("run", "--backend", box.address, *command, expect=69).stderr

    assert fabric.json("list", "--json") == []
    assert not list(home.jobs.iterdir()) if home.jobs.exists() else True


def test_a_host_that_is_known_and_away_is_waited_for_and_what_waits_is_stopped_at_once(
    box: Box, fabric: Fabric, home: Home
) -> None:
    fabric("run", "-q", "--backend", box.address, "--", "true")
    box.daemon.stop()
    jobs = [
        fabric("run", "-d", "-q", "--backend", box.address, *args, "--", "true").stdout.strip()
        for args in (("--set", "cpus=1"), (), ())
    ]
    for job in jobs:
        until(partial(is_tried_again, home, job), "the reason")
        assert "refuses the connection" in fabric.json("show", job, "--json")["reason"]
    for verb, job in zip(("halt", "kill", "delete"), jobs, strict=True):
        args = ("--yes",) if verb == "delete" else ()
        fabric(verb, job, *args)
        until(partial(is_over, home, job), f"the {verb} to be done though the host is away")


def is_tried_again(home: Home, job: str) -> bool:
    """Say whether a job's reason names the next try."""
    return "next try within" in reason(home, job)


def is_over(home: Home, job: str) -> bool:
    """Say whether a job has ended or is gone."""
    found = row(home, job)
    return found.deleted_us is not None or found.state is State.HALTED


def test_what_a_host_has_not_got_is_reported_before_a_job_is_made(box: Box, fabric: Fabric) -> None:
    fabric("run", "-q", "--backend", box.address, "--", "true")
    engine = Path("/var/run/docker.sock").exists()
    args = ("--runner", "container", "--image", "nothing", "--", "true")
    refusal = fabric("run", "--backend", box.address, *args, expect=77 if engine else 69)
    assert "container engine" in refusal.stderr
    assert "--runner process" in refusal.stderr

    for learners, message in (("1", "1 GPU"), ("2", "4 GPUs")):
        more = ("--gpus", message[0] if learners == "1" else "2", "--set", f"learners={learners}")
        refusal = fabric("run", "--backend", box.address, *more, "--", "true", expect=69)
        assert f"The job asks for {message}; " in refusal.stderr
        assert " has none" in refusal.stderr
        assert "hint: Ask for fewer with --gpus" in refusal.stderr
    assert len(fabric.json("list", "--json")) == 1


def test_who_waits_at_a_terminal_for_a_host_that_is_away_is_informed_once(box: Box, fabric: Fabric) -> None:
    fabric("run", "-q", "--backend", box.address, "--", "true")
    box.daemon.stop()
    tries = Tries(box)
    # Without a buffer, so that all that is not read here is left for what reads the rest.
    with fabric.start("run", "--backend", box.address, "--", "echo", "done", bufsize=0) as attached:
        assert attached.stderr is not None
        lines: list[str] = []
        while not lines or "refuses the connection" not in lines[-1]:
            lines.append(attached.stderr.readline().decode())
            assert lines[-1], lines
        known = tries()
        until(lambda: tries() >= known + 2, "the host to be tried again and again")
        box.daemon.start()
        stdout, stderr = attached.communicate(timeout=patience())
    lines = [line.rstrip("\n") for line in (*lines, *stderr.decode().splitlines())]

    assert stdout == b"done\n"
    assert len([line for line in lines if "refuses the connection" in line]) == 1, lines
    assert len([line for line in lines if line.endswith(": starting")]) <= 2, lines


def test_who_is_not_an_operator_of_a_host_cannot_empty_it(box: Box) -> None:
    with closing(box.backend().open()) as host:
        with pytest.raises(NotAllowed, match="is not an operator of this host") as caught:
            host.call("drain", act="begin")
        with pytest.raises(NotAllowed, match="is not an operator of this host"):
            host.call("end_job", job="training-k3f9x2mtq")
        found = host.call("drain", act="look")

    assert caught.value.hint.startswith("Root names operators in /etc/fabric/policy.toml: operators = [")
    assert (found["by"], found["may"]) == ("", False)
