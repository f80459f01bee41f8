"""Logs in to a cluster as its kubeconfig says: token, certificate, exec plugin, proxy; anew when it runs out."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.kubernetes.kubeconfig import Access
from workbench.clock import elapsed_seconds
from workbench.errors import ConfigError, FabricError, InputMissing
from workbench.paths import runtime_folder

RENEW_SECONDS: Final = 5.0
"""Credentials that are refused are read anew, but not more often than this."""

_loading = threading.Lock()
"""The package keeps the files that it writes certificates to in one table."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One login: where, and how a call shows who asks."""

    configuration: Any = field(repr=False)
    """The package's ``Configuration``: server, certificates, proxy."""

    @property
    def server(self) -> str:
        """The API's address."""
        return str(self.configuration.host)

    def headers(self) -> dict[str, str]:
        """Return what each call carries; a token that ends soon is exchanged first."""
        try:
            token = self.configuration.get_api_key_with_prefix("BearerToken")
        except FabricError:
            raise
        except Exception as error:  # what an auth provider raises is its own
            raise _not_logged_in(error) from error
        return {"authorization": token} if token else {}


class Login:
    """Credentials of an access, read when first asked for and again when they are refused. Thread-safe."""

    def __init__(self, access: Access, environment: Mapping[str, str]) -> None:
        self._access = access
        self._environment = environment
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._read_at = 0.0

    def credentials(self) -> Credentials:
        """Return the credentials as they were read last.

        Raises:
            ConfigError: the kubeconfig cannot be used.
            InputMissing: a file that it names, or its plugin, is not there.
        """
        with self._lock:
            if self._credentials is None:
                self._credentials = self._load()
            return self._credentials

    def renew(self, refused: Credentials) -> Credentials | None:
        """Return other credentials than the refused ones, None when there are none yet."""
        with self._lock:
            if self._credentials is not refused:
                return self._credentials
            if elapsed_seconds() < self._read_at + RENEW_SECONDS:
                return None
            self._credentials = self._load()
            return self._credentials

    def _load(self) -> Credentials:
        self._read_at = elapsed_seconds()
        with _loading:
            return load_credentials(self._access, self._environment)


def load_credentials(access: Access, environment: Mapping[str, str]) -> Credentials:
    """Read the kubeconfig, or the pod's own service account, with the ``kubernetes`` package.

    Args:
        access: which files and context.
        environment: variables that an exec plugin gets in the place of this process's.
    """
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config

    from backends.kubernetes.x_kubernetes_plugin import loader_of

    configuration = Configuration()
    configuration.keep_alive = True
    configuration.retries = False
    folder = _private_folder()
    try:
        if access.files:
            loader_of(access, environment, folder).load_and_set(configuration)
        else:
            load_incluster_config(configuration)
    except ConfigException as error:
        raise ConfigError(
            _plain(access, str(error)), hint="kubectl config view shows what it says."
        ) from error
    except OSError as error:
        raise InputMissing(
            f"A file that the context {access.context} names cannot be read: {error.filename}: {error.strerror}."
        ) from error
    except FabricError:
        raise
    except Exception as error:  # the loader takes what a file says for what it should be
        raise ConfigError(_plain(access, f"{type(error).__name__}: {error}")) from error
    return Credentials(configuration)


def _private_folder() -> str | None:
    """Return where certificates that a kubeconfig holds itself are written; None for the system's own folder."""
    folder = runtime_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    return str(folder) if found.st_uid == os.getuid() and not found.st_mode & 0o077 else None


def _plain(access: Access, text: str) -> str:
    where = " or ".join(access.files) or "the pod's service account"
    return f"The context {access.context} of {where} cannot be used: {' '.join(text.split()).rstrip('.')}."


def _not_logged_in(error: Exception) -> FabricError:
    return ConfigError(
        f"The login to the cluster cannot be renewed: {' '.join(str(error).split()).rstrip('.')}.",
        hint="Log in to it again.",
    )
