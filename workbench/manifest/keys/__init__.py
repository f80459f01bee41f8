"""The table of manifest keys: what each key may hold, its default, its documentation.

``root`` has the whole table, ``kinds``, ``scalars`` and ``containers`` the kinds of values, ``credentials`` which
values are secret, ``units`` sizes and durations. Validation, the JSON schema, the docs and the form of the screens
all read it. It imports ``manifest.yaml`` and ``workbench.spec``.
"""
