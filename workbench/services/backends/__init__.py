"""Use cases on backends: choose one for a job, probe it, list its GPUs, set it up, reach a learner there.

* ``placement``: the target of a job, and opening a backend by its options.
* ``choice``: one of several backends for a job, by what is free there.
* ``watch``: how a backend is, asked once or again and again.
* ``probe``, ``inventory``, ``setup``, ``images``: what ``fabric backend``, ``gpus`` and ``image`` do.
* ``linger``: what a host keeps of a person's jobs beyond sessions and restarts.
* ``prompts``: who answers when a backend asks for a password; a front end names that once.
* ``learner_access``: a learner, running or ended.

Command line, screens, the Python API and the other services import it. It imports backends, runners and the
controller's client; it never prints.
"""
