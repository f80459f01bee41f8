"""What ssh's configuration files say is what we do: patterns, includes, jumps, tokens. No sshd is needed."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.ssh import config
from backends.ssh.config import Address, Hop, SshConfig, parse_address
from backends.ssh.known_hosts import accept, check, entries_of, fingerprint
from tests.support.waiting import until
from workbench.errors import CannotWrite, ConfigError
from workbench.learner.platform.system import read_bytes


@pytest.fixture
def ssh(clean_environment: Path) -> Path:
    """Our ``~/.ssh``."""
    folder = clean_environment / ".ssh"
    folder.mkdir()
    return folder


def route(ssh: Path, text: str, address: str) -> tuple[Hop, ...]:
    (ssh / "config").write_text(text)
    return SshConfig().route(parse_address(address))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh://box", Address("box")),
        ("ssh://me@box", Address("box", "me")),
        ("ssh://me@box:2222", Address("box", "me", 2222)),
        ("ssh://me@[::1]:2222/", Address("::1", "me", 2222)),
        ("box", Address("box")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_a_name_gets_what_its_patterns_say_and_the_first_value_counts(ssh: Path) -> None:
    text = (
        "Host gpu*\n  HostName %h.lab.example\n  Port 2200\n  IdentityFile ~/.ssh/lab\n"
        "Host *\n  User me\n  Port 22\n  IdentitiesOnly yes\n  ServerAliveInterval 7\n  ConnectTimeout 3\n"
    )
    (hop,) = route(ssh, text, "ssh://gpu1")

    assert (hop.alias, hop.host, hop.port, hop.user) == ("gpu1", "gpu1.lab.example", 2200, "me")
    assert hop.identities == (ssh / "lab",)
    assert hop.only_identities
    assert (hop.alive_seconds, hop.connect_seconds) == (7.0, 3.0)
    assert hop.known_name == "[gpu1.lab.example]:2200"


def test_a_negated_pattern_leaves_a_host_out(ssh: Path) -> None:
    text = "Host * !gpu2\n  User lab\nHost *\n  User me\n"

    assert route(ssh, text, "ssh://gpu1")[0].user == "lab"
    assert route(ssh, text, "ssh://gpu2")[0].user == "me"


def test_what_the_address_says_counts_more(ssh: Path) -> None:
    (hop,) = route(ssh, "Host box\n  User lab\n  Port 2200\n", "ssh://me@box:22")

    assert (hop.user, hop.port) == ("me", 22)


def test_without_any_file_the_default_keys_are_tried(ssh: Path) -> None:
    (hop,) = SshConfig().route(Address("box", "me"))

    assert [path.name for path in hop.identities] == ["id_ed25519", "id_ecdsa", "id_rsa"]
    assert not hop.identities_named


def test_included_files_are_read_where_they_stand(ssh: Path) -> None:
    (ssh / "conf.d").mkdir()
    (ssh / "conf.d" / "10-lab").write_text("Host box\n  User lab\n  Include deeper\n")
    (ssh / "conf.d" / "20-home").write_text("Host box\n  User home\n  Port 2222\n")
    (ssh / "deeper").write_text("Port 2200\n")
    text = "Host *\n  IdentitiesOnly yes\nInclude conf.d/*\nHost other\n  Include nothing-there\nHost *\n  User me\n"
    (hop,) = route(ssh, text, "ssh://box")

    assert (hop.user, hop.port, hop.only_identities) == ("lab", 2200, True)
    assert route(ssh, text, "ssh://else")[0].user == "me"


def test_a_file_included_under_another_host_does_not_count(ssh: Path) -> None:
    (ssh / "only").write_text("User lab\n")
    text = "Host box\n  Include only\nHost *\n  User me\n"

    assert route(ssh, text, "ssh://box")[0].user == "lab"
    assert route(ssh, text, "ssh://other")[0].user == "me"


def test_files_that_include_each_other_are_refused(ssh: Path) -> None:
    (ssh / "a").write_text("Include a\n")

    with pytest.raises(ConfigError, match="deep"):
        route(ssh, "Include a\n", "ssh://box")


def test_jump_hosts_come_first_each_with_its_own_settings(ssh: Path) -> None:
    text = (
        "Host target\n  ProxyJump me@outer:2201,inner\n"
        "Host inner\n  HostName 10.0.0.2\n  User inside\n"
        "Host outer\n  HostName outer.example\n"
        "Host *\n  User all\n"
    )
    hops = route(ssh, text, "ssh://target")

    assert [(hop.host, hop.port, hop.user) for hop in hops] == [
        ("outer.example", 2201, "me"),
        ("10.0.0.2", 22, "inside"),
        ("target", 22, "all"),
    ]


def test_a_jump_host_may_have_a_jump_host(ssh: Path) -> None:
    text = "Host c\n  ProxyJump b\nHost b\n  ProxyJump a\n"

    assert [hop.host for hop in route(ssh, text, "ssh://c")] == ["a", "b", "c"]


def test_jump_hosts_in_a_circle_are_refused(ssh: Path) -> None:
    with pytest.raises(ConfigError, match="circle"):
        route(ssh, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n", "ssh://a")


def test_a_proxy_command_is_kept_and_none_means_none(ssh: Path) -> None:
    text = "Host a\n  ProxyCommand nc %h %p\nHost b\n  ProxyCommand none\nHost *\n  ProxyCommand other\n"

    assert route(ssh, text, "ssh://a")[0].proxy_command == "nc a 22"
    assert route(ssh, text, "ssh://b")[0].proxy_command == ""


def test_known_hosts_files_may_be_named(ssh: Path) -> None:
    text = "Host a\n  UserKnownHostsFile ~/mine /other\n  GlobalKnownHostsFile none\n  HostKeyAlias lab\n"
    (hop,) = route(ssh, text, "ssh://a")

    assert hop.known_hosts == (ssh.parent / "mine", Path("/other"))
    assert hop.known_name == "lab"


def test_a_command_of_match_decides_and_leaves_our_input_alone(
    ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``fabric exec JOB -- cat`` passes its standard input on: no command of a ``Match`` may read it."""
    ours, writer = os.pipe()
    os.write(writer, b"\xff\x00 for the job")
    os.close(writer)
    before = os.dup(0)
    os.dup2(ours, 0)
    try:
        with open(0, "rb", buffering=0, closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
            text = (
                'Match host a exec "cat >&2; test %h = a"\n  Port 2201\n'
                "Match host a exec false\n  User other\n"
            )
            (hop,) = route(ssh, text, "ssh://me@a")
        assert os.read(0, 100) == b"\xff\x00 for the job"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(ours)

    assert (hop.port, hop.user) == (2201, "me")


def test_a_command_of_match_that_does_not_end_is_named_and_killed_with_what_it_started(
    ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_MATCH_SECONDS", 0.3)
    seconds = f"1000.{os.getpid()}"

    with pytest.raises(ConfigError, match=rf"did not end within .* sleep {seconds}"):
        route(ssh, f'Match host a exec "true; sleep {seconds}; true"\n  Port 2201\n', "ssh://a")

    argv = f"sleep\0{seconds}\0".encode()
    until(lambda: all(read_bytes(f"{entry}/cmdline") != argv for entry in Path("/proc").glob("[0-9]*")))


def test_a_line_that_cannot_be_read_is_reported(ssh: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        route(ssh, "Host a\n  Match final exec\n  =\n", "ssh://a")


# known_hosts

KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519" + b"k" * 36).decode()
OTHER = base64.b64encode(b"\0\0\0\x0bssh-ed25519" + b"o" * 36).decode()


def verdict(tmp_path: Path, text: str, name: str = "box.example", key: str = KEY) -> str:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return check("ssh-ed25519", base64.b64decode(key), entries_of(name, [tmp_path / "none", file])).verdict


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (f"box.example ssh-ed25519 {KEY}", "known"),
        (f"other,box.example ssh-ed25519 {KEY} a comment", "known"),
        (f"*.example ssh-ed25519 {KEY}", "known"),
        (f"*.example,!box.example ssh-ed25519 {KEY}", "unknown"),
        (f"BOX.example ssh-ed25519 {KEY}", "known"),
        (f"box.example ssh-ed25519 {OTHER}", "changed"),
        (f"box.example ssh-ed25519 {OTHER}\nbox.example ssh-ed25519 {KEY}", "known"),
        (f"box.example ssh-rsa {OTHER}", "changed"),
        (f"[box.example]:2222 ssh-ed25519 {KEY}", "unknown"),
        (f"@revoked * ssh-ed25519 {KEY}\nbox.example ssh-ed25519 {KEY}", "revoked"),
        (f"@revoked * ssh-ed25519 {OTHER}\nbox.example ssh-ed25519 {KEY}", "known"),
        (f"@cert-authority *.example ssh-ed25519 {OTHER}", "authority"),
        (f"# box.example ssh-ed25519 {KEY}\n\nbroken\n", "unknown"),
        ("box.example ssh-ed25519 ###", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_key_is_judged_by_the_lines_that_name_its_host(tmp_path: Path, line: str, wanted: str) -> None:
    assert verdict(tmp_path, line + "\n") == wanted


def test_a_port_is_part_of_the_name(tmp_path: Path) -> None:
    assert verdict(tmp_path, f"[box.example]:2222 ssh-ed25519 {KEY}\n", "[box.example]:2222") == "known"


def test_hashed_names_are_found(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"box.example ssh-ed25519 {KEY}\n[box.example]:2222 ssh-ed25519 {OTHER}\n")
    hashed = subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], capture_output=True)
    if hashed.returncode or "box.example" in file.read_text():
        pytest.skip("needs an ssh-keygen that hashes")

    assert verdict(tmp_path, file.read_text()) == "known"
    assert verdict(tmp_path, file.read_text(), "[box.example]:2222") == "changed"
    assert verdict(tmp_path, file.read_text(), "else.example") == "unknown"


def test_a_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], capture_output=True
    )
    assert made.returncode == 0
    shown = subprocess.run(
        ["ssh-keygen", "-lf", f"{file}.pub"], capture_output=True, text=True
    ).stdout.split()[1]
    key = base64.b64decode(Path(f"{file}.pub").read_text().split()[1])

    assert fingerprint(key) == shown


def test_a_key_that_cannot_be_written_down_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "folder"
    file.mkdir()

    with pytest.raises(CannotWrite):
        accept("box", "ssh-ed25519", b"key", file)
