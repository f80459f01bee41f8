"""Turns error messages of rclone and of stores into one sentence, a hint and a code."""

from __future__ import annotations

import errno
import re

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Sequence


class TransferError(Exception):
    """Data could not be moved."""

    def __init__(
        self,
        text: str,
        code: str = "S302",
        hint: str = "",
        *,
        transient: bool = False,
        incomplete: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.hint = hint
        self.transient = transient
        """Whether a retry may succeed."""
        self.incomplete = incomplete
        """Whether the store does not give what it lists: it changed meanwhile, or it never does."""

    def reason(self) -> dict[str, Any]:
        """Return it as a state file has it."""
        return {"text": self.text, "code": self.code, "hint": self.hint}


MISSING = (
    "directory not found",
    "nosuchbucket",
    "bucket does not exist",
    "container not found",
    "404 not found",
)
_SKEW = (
    "requesttimetooskewed",
    "too skewed",
    "request is not yet valid",
    "difference between the request time",
    "signature expired",
    "signature not yet current",
)
_DENIED = (
    "accessdenied", "access denied", "statuscode: 403", "403 forbidden", "permission denied", "read-only", "read only",
    "method not allowed", "authorizationpermissionmismatch", "insufficientaccountpermissions",
)  # fmt: skip
_CREDENTIALS = (
    "invalidaccesskeyid", "signaturedoesnotmatch", "invalidtoken", "expiredtoken", "authenticationfailed",
    "401 unauthorized", "statuscode: 401", "unauthorized", "unable to authenticate", "authorization failed",
    "invalid_grant", "the access key id you provided does not exist", "access key not found",
)  # fmt: skip
_HOST_KEY = ("knownhosts: key is unknown", "knownhosts: key mismatch", "known_hosts", "host key")
_FULL = ("no space left on device", "disk quota exceeded", "too big for remaining disk space")
_REFUSED = re.compile(r"statuscode: (3\d\d|4\d\d)|\b(400 bad request|414 request-uri)")
_RETRIED_STATUS = ("404", "408", "409", "412", "423", "425", "429")
_RETRIED_ERRORS = (
    "requesttimeout",
    "baddigest",
    "incompletebody",
    "invaliddigest",
    "contentsha256mismatch",
    "slowdown",
)
"""What S3 answers with 400 and would not a moment later."""

_FREE = "free some space, and try again"
_LACKS = "look at those objects: fabric data put uploads them again"

_NAMES = (
    "file name too long",
    "is a directory",
    "not a directory",
    "invalid argument",
    "illegal byte sequence",
)


def explain(messages: Sequence[str], *, store: str, address: str, writing: bool = False) -> TransferError:
    """Explain the failure of a store from rclone's messages.

    Args:
        messages: rclone's error messages, in order.
        store: the store's id.
        address: the store's address, for people.
        writing: whether something was to be written there.
    """
    text = " ".join(messages).lower()
    where = "the data store %s" % store + (" (%s)" % address if address else "")
    last = _short(messages)
    if any(phrase in text for phrase in _SKEW):
        return TransferError(
            "%s refuses this machine's clock" % where, "C103", "set the clock: timedatectl set-ntp true"
        )
    if any(phrase in text for phrase in _FULL):
        return TransferError("the disk is full: %s" % last, "S204", _FREE)
    if any(phrase in text for phrase in _CREDENTIALS):
        return TransferError(
            "%s does not accept the credentials: %s" % (where, last),
            "C103",
            "check user_name and password of its connection",
        )
    if any(phrase in text for phrase in _HOST_KEY):
        return TransferError(
            "%s is not known: %s" % (where, last),
            "C103",
            "put its key into known_hosts on the host (ssh-keyscan), once you know that it is the right one",
        )
    if any(phrase in text for phrase in _DENIED) or (writing and "409 conflict" in text):
        verb = "lets nothing be written" if writing else "does not let the data be read"
        return TransferError(
            "%s %s: %s" % (where, verb, last), "C103", "ask for the right, or use other credentials"
        )
    if not writing and any(phrase in text for phrase in _NAMES):
        return TransferError(
            "some names in %s cannot be files here: %s" % (where, last), "C101", "rename those objects"
        )
    code = "S303" if writing else "S302"
    if _is_permanent(text):
        return TransferError(
            "%s refuses it, and would again: %s" % (where, last),
            code,
            "check the names of what is %s, and the store's address and region"
            % ("stored" if writing else "read"),
        )
    if not writing and "object not found" in text:
        return TransferError(
            "%s lists what it does not give: %s" % (where, last),
            code,
            _LACKS,
            transient=True,
            incomplete=True,
        )
    return TransferError(
        "%s cannot be %s: %s" % (where, "written" if writing else "read", last), code, transient=True
    )


def _is_permanent(text: str) -> bool:
    """Say whether a store has refused something that it will refuse each time."""
    if any(phrase in text for phrase in _RETRIED_ERRORS):
        return False
    return any(code not in _RETRIED_STATUS for code, _ in _REFUSED.findall(text))


def of_system(error: OSError) -> TransferError:
    """Say what the host itself refused while data was copied to it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = " of %s" % error.filename if error.filename else ""
        return TransferError("the disk%s is full" % where, "S204", _FREE)
    return TransferError("the data could not be brought in: %s" % (error.strerror or error))


def is_missing(messages: Sequence[str]) -> bool:
    """Say whether the requested file or folder is missing."""
    text = " ".join(messages).lower()
    return any(phrase in text for phrase in MISSING)


def _short(messages: Sequence[str]) -> str:
    """Return the store's own message from the last error."""
    text = next((message for message in reversed(messages) if message.strip()), "rclone does not say why")
    for mark in ("api error ", "last error was: ", "error in ListJSON: "):
        if mark in text:
            text = text.rpartition(mark)[2]
    return " ".join(text.split())[:300]
