"""Logs in: with the agent's keys and the key files in the order in which ssh tries them, then by what is typed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from backends.contract.prompts import CREDENTIALS, LoginPrompt
from backends.ssh.config import Hop
from workbench.errors import BackendUnreachable, NeedsLogin, NotAllowed
from workbench.values import dataclass

TRIES: Final = 3
"""How often a person is asked the same before it is given up, as ssh does."""

TYPED: Final = ("keyboard-interactive", "password")

TYPING_SECONDS: Final = 300.0
"""How long a person may take to type; the host gives up sooner, as a rule."""

ONE_TIME: Final = re.compile(
    r"\b(code|otp|token|passcode|one-time|verification|duo|authenticator)\b", re.IGNORECASE
)
"""Questions whose answer is worth nothing the next time: it is not kept, and a wrong try less is made."""


class _Unanswered(Exception):
    """Nobody answers: nothing is sent, since an empty answer counts as a wrong one, and locks accounts."""


def methods_of(transport: Any, hop: Hop) -> tuple[str, ...]:
    """Ask a host what it would take.

    Raises:
        BackendUnreachable: it hung up.
    """
    import paramiko

    try:
        return tuple(transport.auth_none(hop.user)) or ("none",)
    except paramiko.BadAuthenticationType as error:
        return tuple(error.allowed_types)
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise BackendUnreachable(f"{hop.label} closed the connection during the login: {error}.") from error


def log_in_typed(transport: Any, hop: Hop, methods: tuple[str, ...]) -> bool:
    """Log in with what is known or a person types; False when there is no right answer.

    Raises:
        BackendUnreachable: the host hung up, as it does after too many tries.
    """
    import paramiko

    if CREDENTIALS.can_prompt:
        transport.auth_timeout = TYPING_SECONDS
    refused: set[str] = set()
    for method in (one for one in TYPED if one in methods):
        log_in = _interactive if method == TYPED[0] else _password
        for number in range(TRIES):
            round_ = _Round(hop, use_known=number == 0, refused=refused)
            try:
                missing = log_in(transport, hop, round_)
            except _Unanswered:
                return False
            except paramiko.AuthenticationException:
                round_.was_wrong()
                if not transport.is_active() or not (round_.asked or round_.was_known):
                    break
                continue
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise BackendUnreachable(
                    f"{hop.label} closed the connection during the login: {error}."
                ) from error
            round_.was_right()
            return not missing or log_in_typed(transport, hop, tuple(missing))
    return False


def _interactive(transport: Any, hop: Hop, round_: _Round) -> list[str]:
    def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return [round_.answer(prompt.strip().rstrip(":"), shown) for prompt, shown in prompts]

    found: list[str] = transport.auth_interactive(hop.user, answer)
    return found


def _password(transport: Any, hop: Hop, round_: _Round) -> list[str]:
    found: list[str] = transport.auth_password(hop.user, round_.answer("Password", False), fallback=False)
    return found


class _Round:
    """One try, and what was answered in it; ``refused`` are the questions whose last answers were wrong."""

    def __init__(self, hop: Hop, *, use_known: bool, refused: set[str]) -> None:
        self._hop = hop
        self._use_known = use_known
        self._refused = refused
        # Questions come in a thread of paramiko's.
        self._ask = CREDENTIALS.prompter()
        self._given: list[tuple[LoginPrompt, str]] = []
        self.asked = False
        self.was_known = False

    def answer(self, prompt: str, shown: bool) -> str:
        """Answer a prompt by what is known, else by asking."""
        text = f"{prompt} of {self._hop.user}@{self._hop.alias}"
        question = LoginPrompt(text, shown, refused=text in self._refused)
        found = CREDENTIALS.answer_to(question) if self._use_known else None
        self.was_known |= found is not None
        if found is None:
            found = None if self._ask is None else self._ask(question)
            self.asked |= found is not None
        if found is None:
            raise _Unanswered
        self._given.append((question, found))
        return found

    def was_right(self) -> None:
        """Cache the answers, except one-time codes: prompts that ask for one by name, or echo what is typed."""
        for question, answer in self._given:
            if not question.shown and not ONE_TIME.search(question.text):
                CREDENTIALS.remember(question, answer)

    def was_wrong(self) -> None:
        """Remove the answers from the cache."""
        for question, _ in self._given:
            CREDENTIALS.forget(question)
            self._refused.add(question.text)


def passphrase_of(path: str) -> LoginPrompt:
    """Return the prompt for the passphrase of a key file."""
    return LoginPrompt(f"Passphrase of {path}")


TOO_MANY: Final = 3
"""A host that disconnects after so many keys has refused them; one that does so before has another problem."""


@dataclass(slots=True)
class LoginAttempts:
    """What was tried: named in the error when no login worked."""

    names: list[str] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    """Key files that need a passphrase."""
    broken: list[str] = field(default_factory=list)
    methods: tuple[str, ...] = ()
    """The login methods that the host accepts."""


def log_in(transport: Any, hop: Hop, agent_socket: str, timeout_seconds: float) -> None:
    """Log in to a host.

    Raises:
        NeedsLogin: a person has to type something.
        NotAllowed: it takes none of our keys.
        BackendUnreachable: it hung up.
    """
    import paramiko

    transport.auth_timeout = timeout_seconds
    tried = LoginAttempts()
    with _agent(agent_socket) as agent:
        for name, key in _keys(hop, agent, tried):
            try:
                if not (missing := transport.auth_publickey(hop.user, key)):
                    return
                tried.methods = tuple(missing)
                break  # the host requires a second factor
            except paramiko.BadAuthenticationType as error:
                tried.methods = tuple(error.allowed_types)
                break
            except paramiko.AuthenticationException as error:
                tried.names.append(name)
                if not transport.is_active() and len(tried.names) < TOO_MANY:
                    raise BackendUnreachable(
                        f"{hop.label} closed the connection during the login."
                    ) from error
                if "timeout" in str(error).lower() or not transport.is_active():
                    break
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise BackendUnreachable(
                    f"{hop.label} closed the connection during the login: {error}."
                ) from error
    if not tried.methods and transport.is_active():
        tried.methods = methods_of(transport, hop)
    if tried.methods == ("none",) or log_in_typed(transport, hop, tried.methods):
        return
    raise _refused(hop, tried)


@contextlib.contextmanager
def _agent(path: str) -> Iterator[Any]:
    """Open the agent that a socket leads to; one without keys where there is none."""
    import socket

    from paramiko.agent import AgentSSH
    from paramiko.ssh_exception import SSHException

    agent = AgentSSH()
    if path:
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(10.0)
        try:
            stream.connect(path)
            agent._connect(stream)
        except (OSError, SSHException):
            stream.close()  # it is gone; the files may do
            agent._close()
    try:
        yield agent
    finally:
        agent._close()


def _keys(hop: Hop, agent: Any, tried: LoginAttempts) -> Iterator[tuple[str, Any]]:
    """Give keys: of the agent those that the configuration names, then its others, then the files."""
    public = {path: _public_of(path) for path in hop.identities}
    named = [key for key in agent.get_keys() if key.blob in public.values()]
    others = [key for key in agent.get_keys() if key.blob not in public.values()]
    for key in (*named, *(() if hop.only_identities else others)):
        yield f"the agent's {key.comment or key.name}", key
    held = {key.blob for key in named}
    for path in hop.identities:
        if public[path] not in held and (key := _load(path, hop, tried)) is not None:
            yield str(path), key


def _load(path: Path, hop: Hop, tried: LoginAttempts) -> Any:

    if not path.is_file():
        if hop.identities_named:
            tried.broken.append(f"{path} is not there")
        return None
    try:
        key = _key_of(path)
        if key is None:
            tried.locked.append(path)
            return None
    except Exception as error:  # a file that is not a key may raise anything
        tried.broken.append(f"{path} cannot be used: {error}")
        return None
    for certificate in hop.certificates:
        with contextlib.suppress(Exception):  # it belongs to another key
            key.load_certificate(str(certificate))
            break
    return key


def _key_of(path: Path) -> Any:
    """Read a key, with its passphrase if need be; None when nobody knows that."""
    import paramiko

    try:
        return paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        question = passphrase_of(str(path))
    for number in range(TRIES):
        answer = (CREDENTIALS.answer_to(question) if number == 0 else None) or CREDENTIALS.ask(question)
        if not answer:
            return None
        try:
            key = paramiko.PKey.from_path(path, password=answer.encode())
        except (paramiko.SSHException, ValueError):
            CREDENTIALS.forget(question)
            question = replace(question, refused=True)
            continue
        CREDENTIALS.remember(question, answer)
        return key
    return None


def _public_of(path: Path) -> bytes:
    import base64

    try:
        return base64.b64decode(Path(f"{path}.pub").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return b""


def _refused(hop: Hop, tried: LoginAttempts) -> NotAllowed:
    who = f"{hop.label} does not let {hop.user} in"
    if tried.locked:
        paths = " ".join(str(path) for path in tried.locked)
        return NeedsLogin(
            f"{who}: {paths} has a passphrase, and no agent holds it.",
            hint=f"eval $(ssh-agent); ssh-add {paths}",
        )
    if typed := [method for method in tried.methods if method in TYPED]:
        keys = f"it takes none of our keys ({', '.join(tried.names)}) and " if tried.names else "it "
        return NeedsLogin(
            f"{who}: {keys}asks for {' or '.join(typed)}.", hint=f"ssh-copy-id {hop.user}@{hop.alias}"
        )
    if tried.methods and "publickey" not in tried.methods:
        return NotAllowed(
            f"{who}: it asks for {', '.join(tried.methods)}, which fabric does not answer.",
            hint='let ssh do it: transport = "openssh"',
        )
    if tried.names:
        named = ", ".join(tried.names)
        return NotAllowed(
            f"{who}: it takes none of our keys ({named}).",
            hint=f"ssh-copy-id {hop.user}@{hop.alias}, or name the key with IdentityFile in ~/.ssh/config",
        )
    why = "; ".join(tried.broken) or "there is no key in ~/.ssh and none in an agent"
    return NotAllowed(
        f"{who}: {why}.", hint=f"ssh-keygen -t ed25519, then ssh-copy-id {hop.user}@{hop.alias}"
    )
