"""Every document that ``--json`` prints, as types: what a program may rely on.

Each document is a ``TypedDict`` whose ``schema`` is its mark, ``fabric.NAME/1``. The functions that make documents
return these types, so mypy compares each with its code; ``json_schema`` makes the published schemas of the same
types, so neither can drift from what is printed. Within a version keys are only ever added; a key that goes, or
means something else, makes ``fabric.NAME/2``.

The modules are imported where types are checked and by ``fabric schema`` alone: no other command loads them.
"""
