"""Which files are keys and credentials: left out of every snapshot unless ``.fabricignore`` brings them back.

By their name, or by a line of their first KiB that is a private key's or a credential's. The list is a safety net
for well-known names and forms; any other credential is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FOLDERS: Final = frozenset(
    {
        ".ssh",
        ".aws",
        ".azure",
        ".gnupg",
        ".kube",
        ".oci",
        ".password-store",
        ".mozilla",
        ".thunderbird",
    }
)

_FILES: Final = frozenset(
    {
        ".env",
        ".envrc",
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".pgpass",
        ".my.cnf",
        ".npmrc",
        ".pypirc",
        ".dockercfg",
        ".s3cfg",
        ".boto",
        ".databrickscfg",
        ".vault-token",
        ".rclone.conf",
        "rclone.conf",
        "kubeconfig",
        "kaggle.json",
        "application_default_credentials.json",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ecdsa_sk",
        "id_ed25519",
        "id_ed25519_sk",
    }
)

_BELOW: Final[Mapping[str, tuple[str, ...]]] = {
    "gcloud": ("/.config",),
    "gh": ("/.config",),
    "google-chrome": ("/.config",),
    "chromium": ("/.config",),
    "keyrings": ("/.local/share",),
    "config.json": ("/.docker",),
    "auth.json": ("/.config/containers",),
    "credentials": ("/.cargo",),
    "credentials.toml": ("/.cargo",),
    "token": ("/.huggingface", "/.cache/huggingface"),
    "secrets.toml": ("/.config/fabric", "/.streamlit"),
}
"""Names that are only meant in certain folders, by the end of the folder's path."""

_SUFFIXES: Final = (".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env")
_ENVIRONMENT: Final = ".env."
_SAMPLES: Final = ("example", "sample", "template", "dist", "defaults")
"""Variables of ``.env.example`` and ``example.env`` have no values, or none that matter."""

_KEY_MARK: Final = b"PRIVATE KEY"
_AGE_MARK: Final = b"AGE-SECRET-KEY-1"
_PUTTY_MARK: Final = b"PuTTY-User-Key-File-"
_SECRET_MARK: Final = b"secret_access_key"
"""A file without any of these is not looked at: most have none, and searching for a text costs next to nothing."""
_BEGIN_BYTES: Final = 4 << 10
"""Where the marks but the first are searched: such files are short, or begin with it."""

_KEY_LINE: Final = re.compile(
    rb"^[ \t]*(?:-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|---- BEGIN [A-Z0-9 ]*PRIVATE KEY ----"
    rb"|AGE-SECRET-KEY-1[0-9A-Z]+|PuTTY-User-Key-File-\d+: .*)[ \t\r]*$",
    re.MULTILINE,
)
_SECRET_LINE: Final = re.compile(
    rb"^[ \t]*(?:aws_|gs_)?secret_access_key[ \t]*=[ \t]*[\"']?[^\s<{$%\"']{8}.*$",
    re.MULTILINE | re.IGNORECASE,
)
"""As the files of AWS, Google and rclone have it; a variable in its place is not a credential."""
_PREAMBLE: Final = re.compile(
    rb"(?:[ \t]*(?:(?:#|//|;|%|--(?!--)|<!--|/?\*|Comment:|subject=|issuer=).*|(?:Bag|Key) Attributes\b.*)?\r?\n"
    rb"|[ \t]+(?:localKeyID|friendlyName|X509v3|Microsoft)\b.*\r?\n)*"
)
"""Lines that may stand over a key: empty ones, comments, and what ``openssl pkcs12`` writes."""
_BYTE_ORDERS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF8_MARK: Final = b"\xef\xbb\xbf"

_SERVICE_ACCOUNT: Final = b'"service_account"'
_PLAIN_KEYS: Final = (".pem", ".key")
_TEXTS: Final = frozenset(
    (
        ".py", ".pyi", ".pyx", ".ipynb", ".md", ".rst", ".adoc", ".txt", ".text", ".tex", ".html", ".htm",
        ".css", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp",
        ".cu", ".cuh", ".m", ".swift", ".java", ".kt", ".scala", ".go", ".rs", ".rb", ".pl", ".php", ".lua",
        ".r", ".jl", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".sql", ".json", ".jsonl", ".yaml",
        ".yml", ".toml", ".xml", ".csv", ".tsv", ".log", ".diff", ".patch",
    )
)  # fmt: skip
_TEXT_NAMES: Final = frozenset(
    (
        "readme", "license", "licence", "copying", "changelog", "changes", "news", "install", "authors",
        "makefile", "dockerfile", "jenkinsfile",
    )
)  # fmt: skip
"""Programs and texts, which speak of keys and have some in their tests: one that is a key begins as one."""


def is_credential(name: str, folder: str, *, is_folder: bool) -> bool:
    """Say whether an entry of a folder is a key or a credential, by its name."""
    low = name.lower()
    if low in (_FOLDERS if is_folder else _FILES):
        return True
    if ends := _BELOW.get(low):
        return folder.lower().endswith(ends)
    if is_folder or not (low.endswith(_SUFFIXES) or low.startswith(_ENVIRONMENT)):
        return False
    return low.removesuffix(".env").rpartition(".")[2] not in _SAMPLES


def is_key(name: str, head: bytes) -> bool:
    """Say whether a file is a private key or a credential, by its first bytes."""
    order = _BYTE_ORDERS.get(head[:2])
    if order is not None:
        head = head[2 : 2 * _BEGIN_BYTES].decode(order, "replace").encode("utf-8", "replace")
    has_key = _KEY_MARK in head
    if not has_key:
        begin = head[:_BEGIN_BYTES]
        if not (_SECRET_MARK in begin or _AGE_MARK in begin or _PUTTY_MARK in begin):
            return False
    text, low = head.removeprefix(_UTF8_MARK), name.lower()
    start = text[:256].lstrip()
    if has_key and (start.startswith(b"----") or low.endswith(_PLAIN_KEYS)):
        return True
    if has_key and start.startswith(b"{") and _SERVICE_ACCOUNT in text:
        return True
    stem, _, suffix = low.rpartition(".")
    if f".{suffix}" in _TEXTS or (stem or suffix) in _TEXT_NAMES or b"\0" in text:
        preamble = _PREAMBLE.match(text)
        return _KEY_LINE.match(text, preamble.end() if preamble else 0) is not None
    return (_KEY_LINE.search(text) or _SECRET_LINE.search(text)) is not None


def lies_in_credentials(folder: str) -> bool:
    """Say whether a folder is one of keys, or lies in one."""
    above, _, name = folder.rpartition("/")
    while name:
        if is_credential(name, above, is_folder=True):
            return True
        above, _, name = above.rpartition("/")
    return False
