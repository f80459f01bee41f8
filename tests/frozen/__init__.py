"""What fabric did on the day before its modules moved: kept as files, and held to by tests.

============== ============================================================ =======================================
kept           what                                                         written by
============== ============================================================ =======================================
home.tar.xz    homes with ended, running and waiting jobs, their agents,    ``python -m tests.frozen.make_home``,
               and the folder at an SSH host                                only of the version that is to be frozen
json/          every ``--json`` document of such a home, with exit codes    ``python -m tests.frozen.renew json``
options.json   commands with their options, types and defaults              ``python -m tests.frozen.renew options``
names.json     what others import, and the entry points                     ``python -m tests.frozen.renew names``
schemas.json   keys of every document, and their types              ``python -m tests.frozen.renew schemas``
keys.json      keys of every pane of the screens                            ``python -m tests.frozen.renew keys``
help/          the help of every command and topic                          ``python -m tests.frozen.renew``
============== ============================================================ =======================================

The help is there so that a review sees every sentence that changes; the rest is not expected to change, but for fields
and options that are added.
"""
