"""The SQLite file itself: opening and upgrading it, transactions, the schema, and its rows as frozen values.

Everybody may import ``database``, ``rows``, ``errors`` and ``identity``. Imports nothing else of the store.
"""
