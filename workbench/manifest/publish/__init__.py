"""The table of keys for readers: the JSON schema and docs/manifest.md (``python -m workbench.manifest.publish.docs``).

Only ``json_schema`` serves the program. It imports the other packages of ``workbench.manifest``.
"""
