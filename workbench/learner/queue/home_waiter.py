"""The waiter of a home as those see it who give it attempts; it is started where none runs."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence

from workbench.learner.platform import leases
from workbench.learner.platform.errors import Failure
from workbench.learner.queue import channel, entries

WAITER_LOG = "waiter.log"
"""In a home's folder: what its waiter says."""

RESUME_SCRIPT = "resume.sh"
"""In a home's folder, where its owner wants what waits to be kept: what is run when the machine has started."""

WAITING_FOLDER = "waiting"
"""In a home's folder: one file for each attempt that waits, where they are kept."""

SECRETS_AT_HOST = "secrets_at_host"
"""The key of a ticket that says that the values of its secrets may lie on the host's disk while it waits."""

LAPTOP = "laptop"
"""The key of a ticket, and of the state of who waits, that names the machine which gave it to the host: it has the
secrets, and gives it once more where the waiter has ended."""

UNANSWERED = "unanswered"
"""The kind of failure after which nobody knows whether the waiter has the attempt."""


def kept_file(folder: str, job: str, attempt: int) -> str:
    """Return the file in a home's folder in which an attempt that waits is kept, where it is."""
    return os.path.join(folder, WAITING_FOLDER, "%s-%d.json" % (job, attempt))


class HomeWaiter:
    """The waiter of a home at this host.

    Args:
        home: the home's uuid, which names the waiter's socket.
        folder: the home's folder here, in which the waiter's log lies.
        argv: the agent's command ``waiter`` with that folder.
        env: the waiter's environment.
        leases_folder: where the leases of GPUs lie.
    """

    def __init__(
        self, home: str, folder: str, argv: Sequence[str], env: Mapping[str, str], leases_folder: str
    ) -> None:
        self._home = home
        self._leases_folder = leases_folder
        self._command = ([*argv, home], env, os.path.join(folder, WAITER_LOG))

    def reach(self) -> None:
        """Have it run.

        Raises:
            Failure: ``not_supported`` where none can be; else why it cannot be started.
        """
        leases.make_folder(self._leases_folder)
        if not channel.is_possible() or not entries.are_lockable(self._leases_folder):
            raise Failure("not_supported", "This host's system or file system knows no waiter for its queue.")
        channel.insist(self._home, {"act": "list"}, *self._command)

    def give(
        self, ticket: Mapping[str, Any], secrets: Mapping[str, str], descriptor: Optional[int] = None
    ) -> None:
        """Give it an attempt.

        Args:
            ticket: the attempt, as :class:`workbench.learner.waiter.attempts.Ticket` reads it.
            secrets: the values of its secrets by name.
            descriptor: the open file that holds its entry in the host's queue, where there is one.

        Raises:
            Failure: why it does not take it; :data:`UNANSWERED` where it may have it all the same.
        """
        document = {**ticket, "leases_folder": self._leases_folder}
        request = {"act": "wait", "format": channel.format_of(ticket), "ticket": document, "secrets": secrets}
        try:
            channel.insist(self._home, request, *self._command, descriptor=descriptor)
        except Failure as error:
            if error.kind == "timeout":  # the request lies there, and may be served yet
                raise Failure(UNANSWERED, error.message, error.hint) from error
            raise
