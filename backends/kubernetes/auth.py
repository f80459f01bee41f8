"""Loads the credentials of a kubeconfig (token, certificate, exec plugin, proxy), and renews expired ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import FileOrData, KubeConfigLoader, KubeConfigMerger

from backends.contract.cluster import LoginRejected
from backends.kubernetes.certificates import day_of, file_end
from backends.kubernetes.kubeconfig import Access
from workbench.clock import elapsed_seconds
from workbench.errors import ConfigError, FabricError, InputMissing
from workbench.paths import runtime_folder
from workbench.values import dataclass

PLUGIN_SECONDS: Final = 60.0
"""The deadline of a credential plugin: a slower one waits for a person, and the controller has none."""


def loader_of(access: Access, environment: Mapping[str, str], folder: str | None) -> KubeConfigLoader:
    """Return the loader of a context; certificates within the kubeconfig are written to ``folder``."""
    merged = KubeConfigMerger(os.pathsep.join(access.files))
    if merged.config is None:
        raise ConfigException("no configuration found")
    return _Loader(
        merged.config,
        environment,
        active_context=access.context,
        config_base_path=None,
        config_persister=merged.save_changes,  # as kubectl does: a refresh token can be used once
        temp_file_path=folder,
    )


class _Loader(KubeConfigLoader):  # type: ignore[misc] # the package has no types
    def __init__(self, config: Any, environment: Mapping[str, str], **settings: Any) -> None:
        self._environment = environment
        super().__init__(config, **settings)

    def _load_from_exec_plugin(self) -> bool | None:
        # The package's method logs a failure and continues without credentials.
        if not self._user or "exec" not in self._user:
            return None
        base = self._get_base_path(self._cluster.path)
        plugin = _Plugin(self._user["exec"], base, self._cluster)
        plugin.env = {**plugin.env, **self._environment, **plugin.environment}
        status = plugin.run()
        if token := status.get("token"):
            self.token = f"Bearer {token}"
        if certificate := status.get("clientCertificateData"):
            self.cert_file = self._file(certificate)
            self.key_file = self._file(status.get("clientKeyData", ""))
        if not token and not certificate:
            raise LoginRejected(
                f"{plugin.name} gave no credentials for the cluster.", hint="Log in with it again."
            )
        if "expirationTimestamp" in status:
            from kubernetes.config.dateutil import parse_rfc3339

            self.expiry = parse_rfc3339(status["expirationTimestamp"])
        return True

    def _load_user_token(self) -> bool | None:
        # The package reads a token file only once, but the file is rewritten before the token expires.
        if file := self._user.safe_get("tokenFile"):
            base = self._get_base_path(self._user.path)
            self.token = f"Bearer {(Path(base) / file).read_text().strip()}"
            return True
        loaded: bool | None = super()._load_user_token()
        return loaded

    def _set_config(self, client_configuration: Configuration) -> None:
        super()._set_config(client_configuration)
        if self._user and self._user.safe_get("tokenFile"):

            def again(configuration: Configuration) -> None:
                self._load_user_token()
                configuration.api_key["BearerToken"] = self.token

            client_configuration.refresh_api_key_hook = again

    def _file(self, data: str) -> str:
        kept = FileOrData(
            {"data": data},
            None,
            data_key_name="data",
            base64_file_content=False,
            temp_file_path=self._temp_file_path,
        )
        return str(kept.as_file())


class _Plugin(ExecProvider):  # type: ignore[misc] # the package has no types
    """Runs a credential plugin with a deadline; a failure is raised with its stderr as the message."""

    def __init__(self, config: Any, cwd: str, cluster: Any) -> None:
        super().__init__(config, cwd, cluster)
        self.environment = {item["name"]: item["value"] for item in config.safe_get("env") or ()}
        self.hint = str(config.safe_get("installHint") or "").strip()
        command = str(self.args[0])
        if os.sep in command:  # relative to the kubeconfig's folder, as in kubectl
            self.args[0] = str(Path(cwd or ".") / command)

    @property
    def name(self) -> str:
        return str(self.args[0])

    def run(self, previous_response: Any = None) -> Mapping[str, Any]:
        import json

        asks = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        info: dict[str, Any] = {
            "apiVersion": self.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": asks},
        }
        if self.cluster:
            info["spec"]["cluster"] = _cluster_info(self.cluster.value)
        try:
            done = subprocess.run(
                self.args,
                stdin=None if asks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if asks else subprocess.PIPE,
                env={**self.env, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                timeout=None if asks else PLUGIN_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise LoginRejected(
                f"{self.name} gave no credentials within {PLUGIN_SECONDS:.0f} s.",
                hint="Log in with it by hand.",
            ) from error
        except OSError as error:
            raise InputMissing(
                f"The credential plugin {self.name} cannot be run: {error.strerror}.",
                hint=" ".join(self.hint.split()) or "Install it, or put it into PATH.",
            ) from error
        if done.returncode:
            stderr = " ".join((done.stderr or b"").decode(errors="replace").split()).rstrip(".")
            raise LoginRejected(
                f"{self.name} gave no credentials for the cluster (exit code {done.returncode})"
                + (f": {stderr[-300:]}." if stderr else "."),
                hint="Log in with it again.",
            )
        try:
            answer = json.loads(done.stdout)
            status: Mapping[str, Any] = answer["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigException(f"{self.name} printed no ExecCredential") from error
        return status


def _cluster_info(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    renamed = {
        "server": "server",
        "tls-server-name": "tls-server-name",
        "insecure-skip-tls-verify": "insecure-skip-tls-verify",
        "certificate-authority-data": "certificate-authority-data",
        "proxy-url": "proxy-url",
    }
    info = {ours: cluster[theirs] for theirs, ours in renamed.items() if theirs in cluster}
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info


RENEW_SECONDS: Final = 5.0
"""The least time between two reloads of refused credentials."""

_loading = threading.Lock()
"""Guards the package's global table of certificate files."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The server of a cluster and the headers that authenticate a call."""

    configuration: Any = field(repr=False)
    """The package's ``Configuration``: server, certificates, proxy."""

    @property
    def server(self) -> str:
        """The API's address."""
        return str(self.configuration.host)

    def headers(self) -> dict[str, str]:
        """Return the headers of a call; a token that expires soon is refreshed first."""
        try:
            token = self.configuration.get_api_key_with_prefix("BearerToken")
        except FabricError:
            raise
        except Exception as error:  # an auth provider may raise anything
            raise _not_logged_in(error) from error
        return {"authorization": token} if token else {}

    def rejected(self, error: FabricError) -> FabricError:
        """Return the error for refused credentials: a client certificate that has ended is named with its date."""
        end = file_end(self.configuration.cert_file)
        if end is None or end > datetime.now(UTC):
            return error
        return LoginRejected(
            f"Your certificate for the cluster at {self.server} ended on {day_of(end)}.",
            hint="Log in to it again, or get a new kubeconfig from who runs it.",
        )


class Login:
    """Loads credentials with the first call and again after a refusal. Thread-safe."""

    def __init__(self, access: Access, environment: Mapping[str, str]) -> None:
        self._access = access
        self._environment = environment
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._read_at = 0.0

    def credentials(self) -> Credentials:
        """Return the credentials that were loaded last.

        Raises:
            ConfigError: the kubeconfig cannot be used.
            InputMissing: a file that it names, or its plugin, does not exist.
        """
        with self._lock:
            if self._credentials is None:
                self._credentials = self._load()
            return self._credentials

    def renew(self, refused: Credentials) -> Credentials | None:
        """Reload the credentials after a refusal; None if they are still the refused ones."""
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
        access: the kubeconfig files and the context.
        environment: variables for an exec plugin; they replace those of this process.
    """
    from kubernetes.config.incluster_config import load_incluster_config

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
        raise ConfigError(_plain(access, str(error)), hint="See its content: kubectl config view") from error
    except OSError as error:
        raise InputMissing(
            f"A file that the context {access.context} names cannot be read: {error.filename}: {error.strerror}."
        ) from error
    except FabricError:
        raise
    except Exception as error:  # the loader does not check types: a wrong file raises anything
        raise ConfigError(_plain(access, f"{type(error).__name__}: {error}")) from error
    return Credentials(configuration)


def _private_folder() -> str | None:
    """Return the folder for certificates within a kubeconfig; None for the system's temporary folder."""
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
