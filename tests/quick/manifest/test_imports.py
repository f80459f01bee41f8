from __future__ import annotations

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_values_of_manifests_cost_no_parser() -> None:
    loaded = modules_after("import workbench.manifest, workbench.spec")

    assert not loaded & {"yaml", "pydantic", "workbench.manifest.builder.load"}


def test_reading_a_manifest_costs_no_library_that_it_does_not_need() -> None:
    text = "name: a\\nframework: {command: x}"
    imports = "from workbench.config import load_config; from workbench.manifest import load_text"
    code = f"{imports}; load_text('{text}', 'm', environ={{}}, defaults=load_config)"

    loaded = modules_after(code)

    assert "yaml" in loaded
    assert not loaded & {
        "pydantic",
        "difflib",
        "tomllib",
        "importlib.metadata",
        "typer",
        "rich",
        "jsonschema",
    }
