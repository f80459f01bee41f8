"""Runs rclone as a child: stores are configured by its environment, its JSON log comes back as values.

Credentials are never in its arguments. Its environment is its own: nothing of a user's rclone configuration
and nothing of the learner's variables reaches it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time

from workbench.learner.platform import system
from workbench.learner.stores import errors

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    StopCheck = Callable[[], None]
    """Raises when the run has to stop."""

PASSED = (
    "PATH", "HOME", "TMPDIR", "LANG", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "RCLONE_BUFFER_SIZE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""What of our own environment it sees."""

TRIES = ("--retries", "1", "--low-level-retries", "2")
"""How often it tries by itself: more is for us to do, who say so and look whether to stop."""

POLL_SECONDS = 0.2
END_SECONDS = 5.0
STATISTICS_SECONDS = 0.5
_MESSAGES_MAX = 2000


class RcloneResult:
    """The outcome of one run."""

    __slots__ = ("code", "failed", "messages", "output")

    def __init__(self, code: int, output: bytes, messages: list[str], failed: set[str]) -> None:
        self.code = code
        self.output = output
        self.messages = messages
        """Its error messages, the first ones first."""
        self.failed = failed
        """Files that these name."""


class RcloneClient:
    """Runs rclone with the configuration of some stores (remotes)."""

    def __init__(self, path: str, remotes: Mapping[str, Mapping[str, Any]]) -> None:
        self.path = path
        self._remotes = remotes
        self._environment: dict[str, str] | None = None

    def run(
        self,
        arguments: list[str],
        *,
        stdin: bytes = b"",
        check_stop: StopCheck | None = None,
        on_statistics: Callable[[dict[str, Any]], None] | None = None,
    ) -> RcloneResult:
        """Run it to its end; ``check_stop`` is called all the time; what it raises ends the run.

        Raises:
            StoreTrouble: rclone itself cannot be started.
        """
        argv = [self.path, *arguments, "--use-json-log", "--stats", "%gs" % STATISTICS_SECONDS]
        argv += ["--stats-log-level", "NOTICE", "--log-level", "NOTICE"]
        with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as output:
            input_file.write(stdin)
            input_file.seek(0)
            # What writes one small text is over before there is garbage: to look for it took a quarter of its time.
            child = self._start(argv, input_file, output, {"GOGC": "off"} if arguments[0] == "rcat" else {})
            try:
                messages, failed = self._listen(child, check_stop, on_statistics)
            finally:
                _end(child)
            output.seek(0)
            return RcloneResult(child.returncode, output.read(), messages, failed)

    def start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        """Start it to stay: the caller ends it, and our end ends it as well.

        Raises:
            StoreTrouble: rclone itself cannot be started.
        """
        with open(os.devnull, "rb") as nothing, open(os.devnull, "wb") as nowhere:
            return self._start([self.path, *arguments], nothing, nowhere)

    def _start(
        self, argv: list[str], stdin: Any, stdout: Any, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        environment = dict(self.environment(), **(more or {}))
        try:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,
                preexec_fn=system.die_with_parent,
            )
        except OSError as error:
            raise errors.TransferError(
                "rclone cannot be started: %s: %s" % (self.path, error.strerror or error), "S101"
            ) from error

    def environment(self) -> dict[str, str]:
        """Return the environment that it is given: no configuration file, every store by variables."""
        if self._environment is None:
            environment = {name: os.environ[name] for name in PASSED if name in os.environ}
            environment["RCLONE_CONFIG"] = ""  # in memory alone
            environment["RCLONE_NO_UNICODE_NORMALIZATION"] = (
                "true"  # names in two Unicode forms are two files
            )
            for name, remote in self._remotes.items():
                for option, value in remote["config"].items():
                    if option in (remote.get("obscured") or ()):
                        value = self._obscured(value)
                    environment["RCLONE_CONFIG_%s_%s" % (name, option.upper())] = value
            self._environment = environment
        return self._environment

    def _obscured(self, value: str) -> str:
        try:
            done = subprocess.run(
                [self.path, "obscure", "-"],
                input=value.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "RCLONE_CONFIG": "", "GOGC": "off"},
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise errors.TransferError("rclone cannot be started: %s" % self.path, "S101") from error
        return done.stdout.decode().strip()

    def _listen(
        self,
        child: subprocess.Popen[bytes],
        check_stop: StopCheck | None,
        on_statistics: Callable[[dict[str, Any]], None] | None,
    ) -> tuple[list[str], set[str]]:
        assert child.stderr is not None
        descriptor = child.stderr.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        messages: list[str] = []
        failed: set[str] = set()
        rest, checked_at = b"", time.monotonic()
        while True:
            ready = poll.poll(POLL_SECONDS * 1000)
            if check_stop is not None and time.monotonic() - checked_at >= POLL_SECONDS:
                checked_at = time.monotonic()
                check_stop()
            if not ready:
                continue
            data = os.read(descriptor, 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines if data else [*lines, rest]:
                message = _read(line)
                if message.get("stats") and on_statistics is not None:
                    on_statistics(message["stats"])
                elif _is_error(message) and len(messages) < _MESSAGES_MAX:
                    messages.append(str(message.get("msg") or ""))
                    if message.get("object"):
                        failed.add(str(message["object"]))
            if not data:
                child.wait()
                return messages, failed


def _read(line: bytes) -> dict[str, Any]:
    text = line.strip()
    if not text:
        return {}
    try:
        message = json.loads(text)
    except ValueError:
        return {"level": "error", "msg": text.decode("utf-8", "replace")}
    return message if isinstance(message, dict) else {}


def _is_error(message: Mapping[str, Any]) -> bool:
    return message.get("level") in ("error", "critical", "fatal") or str(message.get("msg", "")).startswith(
        "Failed to"
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a run that was given up, and take back what is kept for it."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if child.stderr is not None:
        child.stderr.close()
