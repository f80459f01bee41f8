"""Use cases that act on jobs which exist: select them, stop them, delete them, give them tags and notes.

* ``select``: which jobs names and labels mean, for a client that lists them before it acts.
* ``requests``: stop and delete; a request is kept until the backend has confirmed it.
* ``searches``: wait for searches, as for jobs that were stopped or deleted.
* ``annotate``: tags and the note.

Command line, screens and the Python API import it. It imports ``services.follow``, the store and the controller's
client; it never prints.
"""
