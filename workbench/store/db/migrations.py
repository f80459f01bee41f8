"""The steps from one schema to the next. Loaded only when a step is due: sqlite-utils costs 0.1 s of start.

A step is a function of a ``sqlite_utils.Database``, is run in a transaction of its own together with the
record that it was run, and is never edited once released. The number of the step is ``PRAGMA user_version``.
"""

from __future__ import annotations

from typing import Final

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from workbench.store.db.schema import FIRST, FIRST_NAME, statements

SET_NAME: Final = "fabric"

STEPS: Final = Migrations(SET_NAME)


@STEPS(name=FIRST_NAME)
def m001_first(database: Database) -> None:
    """Make the first schema.

    New databases get it without this module (:func:`workbench.store.db.setup.create`).
    """
    for statement in statements(FIRST):
        database.execute(statement)
