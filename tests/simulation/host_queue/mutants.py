"""Defects that are put into the queue of a host by hand, to prove that its simulation finds such.

``python -m tests.simulation.host_queue.mutants`` tries each, as ``tests.simulation.mutants`` does the controller's.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.simulation.mutants import Mutant, try_out

MODULE: Final = "tests.simulation.host_queue.mutants"

MUTANTS: Final = (
    Mutant(
        "entry-removed-as-it-goes",
        "workbench/learner/host/operations.py",
        "        waiter.give(ticket, secrets, entry)\n        queue.let_go(leases_folder, home, job)\n",
        "        queue.leave(leases_folder, home, job)\n        waiter.give(ticket, secrets)\n",
        "an entry is removed before its job is handed over",
    ),
    Mutant(
        "since-forgotten",
        "workbench/learner/queue/entries.py",
        '_since(before if "since_us" in before else facts)',
        "_since(facts)",
        "an entry that is renewed waits from now on",
    ),
    Mutant(
        "latest-first",
        "workbench/learner/queue/order.py",
        "    return (-entry.priority, entry.since_us, entry.person, entry.home, entry.job)\n",
        "    return (-entry.priority, -entry.since_us, entry.person, entry.home, entry.job)\n",
        "of one priority the last that came goes first",
    ),
    Mutant(
        "fits-beside-who-waits",
        "workbench/learner/queue/order.py",
        "        start = is_fit and waits == NOBODY\n",
        "        start = is_fit\n",
        "small jobs pass a large one that waits",
    ),
    Mutant(
        "one-gpu-too-many",
        "workbench/learner/queue/order.py",
        "        is_fit = left.free(entry.each) >= entry.gpus and not why\n",
        "        is_fit = left.free(entry.each) + 1 >= entry.gpus and not why\n",
        "it is the turn of a job for which one GPU is lacking",
    ),
    Mutant(
        "lease-not-locked",
        "workbench/learner/platform/leases.py",
        "            if not _try_lock(descriptor) or",
        "            if not _try_lock(descriptor) and False or",
        "a lease counts as taken though somebody else holds it",
        "order,slow",
    ),
    Mutant(
        "written-in-place",
        "workbench/learner/queue/entries.py",
        "        replaced = replace_own(name, text)\n        if replaced is None:\n",
        "        os.unlink(name)\n        replaced = replace_own(name, text)\n        if replaced is None:\n",
        "an entry is gone for an instant when it is renewed",
    ),
    Mutant(
        "withdrawal-forgotten",
        "workbench/learner/waiter/waiter.py",
        "            attempt.withdraw()\n            if not attempt.learners:\n                self._leave(attempt)\n",
        "            pass\n",
        "a waiter starts what was withdrawn",
        "people",
    ),
    Mutant(
        "change-not-written",
        "workbench/learner/waiter/waiter.py",
        "            attempt.ticket = attempt.ticket.changed(facts)\n",
        "            attempt.ticket.changed(facts)\n",
        "a job that waits at its host keeps its priority",
        "people",
    ),
    Mutant(
        "one-gpu-over-the-limit",
        "workbench/learner/queue/limits.py",
        "have.gpus + gpus > limits.max_gpus:",
        "have.gpus + gpus > limits.max_gpus + 1:",
        "a person gets one GPU more than the policy allows",
        "policy",
    ),
    Mutant(
        "equals-preempt",
        "workbench/learner/queue/preemption.py",
        "        if priority >= below or not",
        "        if priority > below or not",
        "jobs of the same priority are asked to end",
    ),
    Mutant(
        "tickets-kept-for-ever",
        "workbench/learner/waiter/kept_tickets.py",
        "            os.unlink(kept_file(self._home_folder, job, attempt))\n            _synchronise",
        "            _synchronise",
        "what began, or has ended, is kept for the next waiter",
    ),
    Mutant(
        "lock-not-inherited",
        "workbench/learner/waiter/start.py",
        "        descriptors = [learner.lock, *(number",
        "        descriptors = [*(number",
        "an agent does not inherit its learner's lock",
    ),
    Mutant(
        "passed-too-soon",
        "workbench/learner/queue/line.py",
        "if now - at > OFFER_SECONDS)",
        "if now - at >= 0)",
        "a turn that was offered is passed at the next look",
        "slow,kill,gpus",
    ),
    Mutant(
        "garbage-stops-readers",
        "workbench/learner/queue/entries.py",
        "        except (OSError, ValueError, RecursionError):\n            return None\n        finally:",
        "        except OSError:\n            return None\n        finally:",
        "a text that is none keeps all who read from their turns",
        "garbage",
    ),
    Mutant(
        "anybodys-text-counts",
        "workbench/learner/queue/entries.py",
        "    if not is_text_of_owner(found) or found.st_nlink != 1:\n        return None\n",
        "",
        "a file that others may write, or that has another name, counts",
        "garbage",
    ),
    Mutant(
        "any-number-of-gpus",
        "workbench/learner/queue/entries.py",
        "    if not 1 <= gpus <= _GPUS_MAX or not 1 <= each <= gpus:\n        return None\n",
        "",
        "an entry that needs no GPUs, or too many, counts",
        "garbage",
    ),
    Mutant(
        "person-by-text",
        "workbench/learner/queue/entries.py",
        "return entry_of(found.st_uid, document, now)",
        'return entry_of(_whole(document.get("person"), found.st_uid), document, now)',
        "whose an entry is its text says, not the kernel",
        "garbage",
    ),
    Mutant(
        "waiter-ends-too-soon",
        "workbench/learner/waiter/waiter.py",
        "            if self._waiting or self._beginning or",
        "            if self._beginning or",
        "a waiter ends though jobs wait",
    ),
    Mutant(
        "sent-file-left-open",
        "workbench/learner/queue/entries.py",
        "            self._held[folder, name] = descriptor\n        else:\n            os.close(descriptor)\n",
        "            self._held[folder, name] = descriptor\n",
        "a waiter leaves the file open that it was sent and did not need",
    ),
    Mutant(
        "closed-twice",
        "workbench/learner/queue/entries.py",
        "            os.close(descriptor)\n\n    def keep_only",
        "            os.close(descriptor)\n            os.close(descriptor)\n\n    def keep_only",
        "a hand-over fails after its job was given",
    ),
    Mutant(
        "preempts-against-policy",
        "workbench/learner/queue/preemption.py",
        '    if policy.preemption == "none":\n        return False\n',
        "    if consent in (ASKED, BY_POLICY):\n        return True\n",
        "jobs are preempted whatever the policy says",
    ),
    Mutant(
        "preempts-too-soon",
        "workbench/learner/queue/preemption.py",
        "        if policy.min_run_seconds and now_us - (holding",
        "        if False and now_us - (holding",
        "jobs are asked to end before they have run for as long as they may",
    ),
    Mutant(
        "all-preempted",
        "workbench/learner/queue/line.py",
        "jobs_to_preempt(punctual, lacking, ending)[:",
        "list(punctual)[:",
        "more jobs are asked to end than have to",
    ),
    Mutant(
        "one-job-over-the-limit",
        "workbench/learner/queue/limits.py",
        "have.jobs >= limits.max_jobs",
        "have.jobs > limits.max_jobs",
        "a person gets one job more than the policy allows",
        "policy",
    ),
    Mutant(
        "without-entry-first",
        "workbench/learner/queue/line.py",
        "                entries += [] if fresh is None else [fresh]\n",
        "                entries += []\n",
        "whoever has no entry takes GPUs at once",
    ),
    Mutant(
        "turn-taken-late",
        "workbench/learner/waiter/waiter.py",
        "        attempt.lacks_cpus = not self._has_cpus(attempt)\n",
        "        time.sleep(20.0)\n        attempt.lacks_cpus = not self._has_cpus(attempt)\n",
        "a waiter takes GPUs long after it has looked",
    ),
    Mutant(
        "drain-ignored",
        "workbench/learner/queue/line.py",
        "                key: turn._replace(start=False, limit=why",
        "                key: turn._replace(limit=why",
        "jobs start at a host that is to be empty",
        "drain",
    ),
    Mutant(
        "most-goes-first",
        "workbench/learner/queue/order.py",
        "        share = self._gpus[person] / self._weights[person]\n",
        "        share = -self._gpus[person] / self._weights[person]\n",
        "under fair_share the person with the most goes first",
        "policy",
    ),
)


def main() -> int:
    """Try one defect, or all."""

    def explore() -> int:
        from tests.simulation.host_queue.__main__ import main as live  # what is changed is imported by it

        return live()

    return try_out(MUTANTS, "tests.simulation.host_queue", MODULE, explore)


if __name__ == "__main__":
    sys.exit(main())
