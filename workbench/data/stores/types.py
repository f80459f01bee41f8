"""Turns FfDL's connection keys of each type of data store into rclone's options. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from workbench.errors import LaunchRefused
from workbench.values import dataclass

Connection = Mapping[str, str]

FFDL_REGION: Final = "us-standard"
"""The region that FfDL's documentation recommends for stores without regions."""

FOLDERS: Final = ("mount_volume", "host_path")
"""Types whose containers are folders of the machine that learners run on."""

VOLUMES: Final = ("volume",)
"""Types that only a container engine or a cluster knows."""


@dataclass(frozen=True, slots=True)
class Options:
    """rclone's options for one store."""

    plain: Mapping[str, str]
    obscured: tuple[str, ...] = ()
    """Options whose values rclone wants in its own obscured form; here they are plain."""


def options_of(kind: str, connection: Connection) -> Options:
    """Return rclone's options for a store of a type.

    Raises:
        LaunchRefused: no such type is reached through rclone, or its address cannot be read.
    """
    make = _MAKERS.get(kind)
    if make is None:
        raise LaunchRefused(
            f"A data store of type {kind} cannot be copied from or to.",
            hint=f"Types that can be: {', '.join(sorted(_MAKERS))}.",
            code="C101",
        )
    return make(connection)


def is_read_only(kind: str) -> bool:
    """Say whether nothing can be written to a type of store."""
    return kind == "http"


def _s3(connection: Connection) -> Options:
    address = _address(connection)
    host = urlsplit(address).hostname or ""
    amazon = host.endswith(".amazonaws.com") or not host
    region = connection.get("region", "")
    options = {
        "type": "s3",
        "provider": "AWS" if amazon else "Other",
        "access_key_id": connection.get("user_name", ""),
        "secret_access_key": connection.get("password", ""),
        "session_token": connection.get("token", ""),
        "endpoint": "" if amazon else address,
        "region": "" if region == FFDL_REGION else region,
        # Servers refuse to create names with underscores, which FfDL's own examples have, and serve them.
        "no_check_bucket": "true",
        "env_auth": "false",
    }
    return Options(_set(options))


def _swift(connection: Connection, *, version: str = "", key: str = "key") -> Options:
    options = {
        "type": "swift",
        "user": connection.get("user_name", ""),
        key: connection.get("password", ""),
        "auth": _address(connection),
        "auth_version": version,
        "domain": connection.get("domain_name", ""),
        "tenant_id": connection.get("project_id", ""),
        "region": connection.get("region", "") if connection.get("region") != FFDL_REGION else "",
        "env_auth": "false",
        "no_chunk": "false",
    }
    return Options(_set(options))


def _gcs(connection: Connection) -> Options:
    account = connection.get("password", "")
    options = {
        "type": "google cloud storage",
        "service_account_credentials": account,
        "anonymous": "" if account else "true",
        "project_number": connection.get("project_id", ""),
        "endpoint": _address(connection),
        "bucket_policy_only": "true",
        "no_check_bucket": "true",
    }
    return Options(_set(options))


def _azure(connection: Connection) -> Options:
    options = {
        "type": "azureblob",
        "account": connection.get("user_name", ""),
        "key": connection.get("password", ""),
        "sas_url": connection.get("token", ""),
        "endpoint": _address(connection),
        "no_check_container": "true",
    }
    return Options(_set(options))


def _sftp(connection: Connection) -> Options:
    address = urlsplit(_address(connection, "sftp://"))
    options = {
        "type": "sftp",
        "host": address.hostname or "",
        "port": str(_port(address.netloc, connection) or ""),
        "user": connection.get("user_name", "") or address.username or "",
        "pass": connection.get("password", ""),
        "key_file": connection.get("key_file", ""),
        # Without it rclone trusts every machine that answers.
        "known_hosts_file": connection.get("known_hosts", "") or "~/.ssh/known_hosts",
        # Which commands a server has is found by running some, which servers of files alone refuse.
        "shell_type": "none",
    }
    return Options(_set(options), ("pass",) if options["pass"] else ())


def _webdav(connection: Connection) -> Options:
    options = {
        "type": "webdav",
        "url": _address(connection),
        "vendor": connection.get("vendor", "") or "rclone",
        "user": connection.get("user_name", ""),
        "pass": connection.get("password", ""),
        "bearer_token": connection.get("token", ""),
    }
    return Options(_set(options), ("pass",) if options["pass"] else ())


def _http(connection: Connection) -> Options:
    return Options(_set({"type": "http", "url": _address(connection)}))


def _local(connection: Connection) -> Options:
    return Options({"type": "local"})


_MAKERS: Final[Mapping[str, Callable[[Connection], Options]]] = {
    "mount_cos": _s3,
    "s3_datastore": _s3,
    "swift_datastore": _swift,
    "softlayer_objectstore": lambda connection: _swift(connection, version="1"),
    "bluemix_objectstore": lambda connection: _swift(connection, version="3"),
    "gcs": _gcs,
    "azure": _azure,
    "sftp": _sftp,
    "webdav": _webdav,
    "http": _http,
    "host_path": _local,
    "mount_volume": _local,
}

TYPES: Final = tuple(_MAKERS)
"""Types that rclone reaches."""


def _address(connection: Connection, scheme: str = "") -> str:
    address = connection.get("auth_url", "").strip()
    return f"{scheme}{address}" if address and scheme and "://" not in address else address


def _port(location: str, connection: Connection) -> int | None:
    try:
        return urlsplit(f"//{location}").port
    except ValueError as error:
        raise LaunchRefused(
            f"{connection.get('auth_url', '')!r} is not an address of a data store: its port is not a number.",
            code="C101",
        ) from error


def _set(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}
