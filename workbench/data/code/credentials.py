"""Which files are keys and credentials: left out of every snapshot unless ``.fabricignore`` brings them back.

By their name, or by what they begin with. The list is a safety net for well-known names; a credential in a file
of another name is not recognised.
"""

from __future__ import annotations

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

_SUFFIXES: Final = (".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk")
_ENVIRONMENT: Final = ".env."
_SAMPLES: Final = (".example", ".sample", ".template", ".dist", ".defaults")
"""Variables of ``.env.example`` have no values, or none that matter."""

_KEY_MARK: Final = b"PRIVATE KEY"
_SERVICE_ACCOUNT: Final = b'"service_account"'
_PLAIN_KEYS: Final = (".pem", ".key")


def is_credential(name: str, folder: str, *, is_folder: bool) -> bool:
    """Say whether an entry of a folder is a key or a credential, by its name."""
    low = name.lower()
    if low in (_FOLDERS if is_folder else _FILES):
        return True
    if ends := _BELOW.get(low):
        return folder.lower().endswith(ends)
    if is_folder:
        return False
    return low.endswith(_SUFFIXES) or (low.startswith(_ENVIRONMENT) and not low.endswith(_SAMPLES))


def is_key(name: str, head: bytes) -> bool:
    """Say whether a file is a private key, by its first bytes."""
    if _KEY_MARK not in head:
        return False
    start = head[:256].lstrip()
    if start.startswith(b"----") or name.lower().endswith(_PLAIN_KEYS):
        return True
    return start.startswith(b"{") and _SERVICE_ACCOUNT in head


def lies_in_credentials(folder: str) -> bool:
    """Say whether a folder is one of keys, or lies in one."""
    above, _, name = folder.rpartition("/")
    while name:
        if is_credential(name, above, is_folder=True):
            return True
        above, _, name = above.rpartition("/")
    return False
