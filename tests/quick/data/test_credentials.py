"""Keys and credentials: left out of snapshots and named, unless ``.fabricignore`` brings them back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.quick.data.support import make_tree, packed_names
from workbench.data.code.snapshot import take_snapshot
from workbench.paths import Home

AWS = "[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG\n"
AGE = "# created: 2026-01-01T00:00:00Z\n# public key: age1abc\nAGE-SECRET-KEY-1QQQQQQQQ\n"
PUTTY = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\nabc\n"
BAG = "Bag Attributes\n    localKeyID: 01 02\nKey Attributes: <No Attributes>\n"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def kept(tree: Path, home: Home) -> list[str]:
    return packed_names(home.snapshot(take_snapshot(tree, home).code_hash))


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/config",
        ".aws/credentials",
        ".gnupg/x",
        ".kube/config",
        ".azure/x",
        ".config/gcloud/credentials.db",
        ".docker/config.json",
        ".netrc",
        ".git-credentials",
        "deep/down/id_rsa",
        "id_ed25519",
        ".env",
        "sub/.ENV",
        ".env.production",
        "store.p12",
        "prod.env",
        "deploy/secrets.env",
        ".databrickscfg",
        ".config/fabric/secrets.toml",
    ],
)
def test_a_credential_is_left_out_by_its_name(clean_environment: Path, home: Home, path: str) -> None:
    tree = make_tree(clean_environment / "code", {"train.py": "", path: "secret"})

    snapshot = take_snapshot(tree, home)

    assert [name for name in packed_names(home.snapshot(snapshot.code_hash)) if name[-1] != "/"] == [
        "train.py"
    ]
    (warning,) = snapshot.warnings
    (named,) = snapshot.excluded
    assert path.startswith(named.rstrip("/"))
    assert warning.startswith(f"left out of the code as keys or credentials: {named};")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deploy", PEM),
        ("server.pem", CERTIFICATE + PEM),
        ("bag.pem", "Bag Attributes\n" + PEM),
        ("robot.json", json.dumps({"type": "service_account", "private_key": PEM})),
        ("spaced.txt", "\n  " + PEM),
        ("marked", b"\xef\xbb\xbf" + PEM.encode()),
        ("marked.txt", b"\xef\xbb\xbf# mine\n" + PEM.encode()),
        ("wide", ("\ufeff" + PEM).encode("utf-16-le")),
        ("wide.txt", ("\ufeff" + PEM).encode("utf-16-be")),
        ("exported", BAG + PEM),
        ("exported.txt", BAG + PEM),
        ("commented", "# the key of the robot\n" + PEM),
        ("commented.py", "# the key of the robot\n\n" + PEM),
        ("chained", "subject=CN = robot\n" + CERTIFICATE * 40 + PEM),
        ("vpn.ovpn", "client\n<key>\n" + PEM + "</key>\n"),
        ("pgp.asc", PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
        ("age", AGE),
        ("age.txt", AGE),
        ("putty", PUTTY),
        ("credentials", AWS),
        ("aws.old", AWS),
    ],
)
def test_a_private_key_is_left_out_by_its_content(
    clean_environment: Path, home: Home, name: str, text: str | bytes
) -> None:
    tree = make_tree(clean_environment / "code", {"train.py": "", name: text})

    snapshot = take_snapshot(tree, home)

    assert packed_names(home.snapshot(snapshot.code_hash)) == ["train.py"]
    assert snapshot.excluded == (name,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ca.pem", CERTIFICATE),
        ("id_rsa.pub", "ssh-rsa AAAA"),
        (".env.example", "TOKEN="),
        ("config.json", "{}"),
        ("token", "x"),
        ("make_keys.py", f'KEY = """{PEM}"""'),
        ("make_more_keys.py", f'# keys\nKEY = """\n{PEM}"""'),
        ("keys.md", f"# Keys\n\nOne looks so:\n\n{PEM}"),
        ("README", f"One looks so:\n{PEM}"),
        ("test_age.py", f'KEY = """\n{AGE}"""'),
        ("sign.sh", "grep -e '-----BEGIN PRIVATE KEY-----' key\n"),
        ("library.so", b"\0\0\n" + PEM.encode()),
        ("credentials", "aws_secret_access_key = ${SECRET}\n"),
        ("store.py", 'aws_secret_access_key = os.environ["SECRET"]\n'),
        ("example.env", "TOKEN="),
        ("prod.env.sample", "TOKEN="),
        ("environment.py", ""),
    ],
)
def test_what_only_looks_like_one_is_taken(
    clean_environment: Path, home: Home, name: str, text: str | bytes
) -> None:
    assert kept(make_tree(clean_environment / "code", {name: text}), home) == [name]


@pytest.mark.usefixtures("settled")
def test_it_is_left_out_of_every_later_snapshot_too(clean_environment: Path, home: Home) -> None:
    tree = make_tree(clean_environment / "code", {"train.py": "", ".env": "", "deploy": PEM})

    first, second = take_snapshot(tree, home), take_snapshot(tree, home)

    assert second.cached
    assert second.excluded == first.excluded == (".env", "deploy")
    assert second.warnings == first.warnings


@pytest.mark.usefixtures("settled")
def test_fabricignore_takes_it_along(clean_environment: Path, home: Home) -> None:
    tree = make_tree(
        clean_environment / "code", {".env": "", "deploy": PEM, ".ssh/config": "", ".ssh/id_rsa": ""}
    )
    assert kept(tree, home) == []

    (tree / ".fabricignore").write_text("!.env\n!deploy\n!.ssh/\n")

    assert kept(tree, home) == [".env", ".fabricignore", ".ssh/", ".ssh/config", "deploy"]


@pytest.mark.usefixtures("settled")
def test_gitignore_does_not_take_it_along(clean_environment: Path, home: Home) -> None:
    tree = make_tree(clean_environment / "code", {".env": "", ".gitignore": "!.env\n"})
    assert kept(tree, home) == [".gitignore"]

    (tree / ".gitignore").rename(tree / ".fabricignore")

    assert kept(tree, home) == [".env", ".fabricignore"]


def test_one_that_a_pattern_leaves_out_is_not_spoken_of(clean_environment: Path, home: Home) -> None:
    tree = make_tree(clean_environment / "code", {".env": "", "a.py": "", ".gitignore": ".env\n"})

    assert take_snapshot(tree, home).warnings == ()


def test_it_is_one_line_however_many_there_are(clean_environment: Path, home: Home) -> None:
    tree = make_tree(clean_environment / "code", {f"{number}/.env": "" for number in range(30)})

    (warning,) = take_snapshot(tree, home).warnings

    assert "\n" not in warning
    assert "and 22 more" in warning
    assert "`!/0/.env` in .fabricignore" in warning


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_it_is_left_out_of_an_archive(clean_environment: Path, home: Home, kind: str) -> None:
    tree = make_tree(
        clean_environment / "code", {"train.py": "", ".env": "", "x.log": "", ".gitignore": "*.log\n"}
    )
    archive = Path(shutil.make_archive(str(clean_environment / "one"), kind, tree))
    assert kept(archive, home) == [".gitignore", "train.py", "x.log"]

    (tree / ".fabricignore").write_text("!.env\n*.log\n")
    archive = Path(shutil.make_archive(str(clean_environment / "two"), kind, tree))

    assert kept(archive, home) == [".env", ".fabricignore", ".gitignore", "train.py", "x.log"]


def test_a_snapshot_of_an_earlier_job_is_taken_as_it_is(clean_environment: Path, home: Home) -> None:
    tree = make_tree(clean_environment / "code" / "src", {".env": "", "train.py": ""})
    make_tree(tree.parent, {".git/HEAD": "", ".fabricignore": "!.env\n"})
    first = take_snapshot(tree, home)

    again = take_snapshot(home.snapshot(first.code_hash), home)

    assert (again.code_hash, again.cached, again.warnings) == (first.code_hash, True, ())
