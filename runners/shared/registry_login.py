"""The login to the registry of a job's image: whoever pulls it gets it, and the learner does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.shared.container_defaults import reference_of
from workbench.errors import LaunchRefused
from workbench.manifest.keys.credentials import LOCATION, put_back
from workbench.manifest.keys.registries import DOCKER_HUB, decoded_auth, host_of, login_keys, registry_of
from workbench.values import dataclass

TOKEN_USER: Final = "token"
"""FfDL's user of a registry whose access token is given without one."""

LOGIN_HINT: Final = (
    "Check its name, and the login to its registry: framework.image_location of the manifest,"
    " environment.registry_auth of an experiment."
)
"""For an image that was not pulled with a job's own login."""

_DOCKER_HUB_ADDRESS: Final = "https://index.docker.io/v1/"
"""How configurations of Docker name it."""


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """A login to one registry: by user name and password, or by a token."""

    address: str
    """The registry, as configurations of Docker name it."""
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)
    email: str = ""

    def to_engine(self) -> dict[str, str]:
        """Return it as an engine's API takes it."""
        values = {
            "username": self.username,
            "password": self.password,
            "identitytoken": self.identity_token,
            "registrytoken": self.registry_token,
            "email": self.email,
            "serveraddress": self.address,
        }
        return {name: text for name, text in values.items() if text}

    def to_docker_config(self) -> dict[str, Any]:
        """Return a configuration of Docker that has this login alone, by user name and password."""
        entry = {"username": self.username, "password": self.password, "email": self.email}
        return {"auths": {self.address: {name: text for name, text in entry.items() if text}}}


def has_login(request: LaunchRequest) -> bool:
    """Say whether a job has a login of its own to the registry of its image."""
    return bool(login_keys(request.spec.framework.image_location))


def address_of(request: LaunchRequest) -> str:
    """Return the registry that a job's login is for; of an image that is built that of its base image."""
    framework = request.spec.framework
    registry = (
        host_of(framework.image_location.get("registry") or DOCKER_HUB)
        if request.spec.build
        else registry_of(reference_of(framework))
    )
    return _DOCKER_HUB_ADDRESS if registry == DOCKER_HUB else registry


def login_of(request: LaunchRequest) -> RegistryLogin | None:
    """Return the login of a job to the registry of its image; None where it has none of its own.

    Raises:
        LaunchRefused: a credential has no value, or is none (C103).
    """
    if not has_login(request):
        return None
    location = {
        key: put_back(text, request.secrets) for key, text in request.spec.framework.image_location.items()
    }
    for key in login_keys(request.spec.framework.image_location):
        if not location[key]:
            raise _refused(f"There is no value for {LOCATION}{key}.")
    address, user = address_of(request), location.get("username", "")
    if auth := location.get("auth"):
        decoded = decoded_auth(auth)
        if decoded is None:
            raise _refused(f"{LOCATION}auth is not the base64 of USER:PASSWORD.")
        return RegistryLogin(address, *decoded)
    password = location.get("password") or location.get("access_token", "")
    return RegistryLogin(
        address,
        user or (TOKEN_USER if password else ""),
        password,
        location.get("identity_token", ""),
        location.get("registry_token", ""),
        location.get("email", ""),
    )


def _refused(text: str) -> LaunchRefused:
    return LaunchRefused(text, hint="`fabric run` with the manifest supplies it again.", code="C103")


def learner_secrets(request: LaunchRequest) -> Mapping[str, str]:
    """Return the secrets that a job's learners get: all but the login, which those who pull the image need."""
    return {name: text for name, text in request.secrets.items() if not name.startswith(LOCATION)}
