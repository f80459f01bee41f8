from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick.manifest.support import SMALL, fault_of, spec_of, warnings_of
from workbench.errors import ManifestError
from workbench.manifest import Loaded, load


def read(folder: Path, extra: str) -> Loaded:
    path = folder / "manifest.yml"
    path.write_text(SMALL + extra)
    return load(path)


def test_a_list_asks_for_an_environment_made_of_it() -> None:
    spec = spec_of("requirements: [numpy==2.1.0, 'tqdm>=4']\n")

    assert (spec.python, spec.requirements) == ("requirements", ("numpy==2.1.0", "tqdm>=4"))


def test_a_file_beside_the_manifest_is_read_with_those_it_includes(clean_environment: Path) -> None:
    (clean_environment / "requirements.txt").write_text(
        "# ours\r\nnumpy==2.1.0  # pinned\r\n\r\n-r more.txt\n"
    )
    (clean_environment / "more.txt").write_text(
        "\ufefftqdm \\\n  >=4\n-r requirements.txt\n--index-url https://x/simple\n"
    )

    spec = read(clean_environment, "requirements: requirements.txt\n").spec

    assert spec.requirements == ("numpy==2.1.0", "tqdm    >=4", "--index-url https://x/simple")
    assert spec.python == "requirements"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"numpy\xff", "UTF-8"),
        (b"x" * (2 << 20), "larger"),
        (b"-e .\n", "path of this machine"),
    ],
)
def test_a_file_that_cannot_serve_is_a_fault(
    clean_environment: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (clean_environment / "r.txt").write_bytes(content)

    with pytest.raises(ManifestError, match=message) as caught:
        read(clean_environment, "requirements: r.txt\n")

    assert caught.value.faults[0].key == "requirements"


@pytest.mark.parametrize("line", ["./mine", "-e git+https://x", "file:///a", "/abs/path"])
def test_a_path_of_this_machine_is_refused(line: str) -> None:
    assert "which a learner does not see" in fault_of(f"requirements: ['{line}']\n")


def test_requirements_that_are_not_used_are_a_warning() -> None:
    (warning,) = warnings_of("python: current\nrequirements: [numpy]\n")

    assert "has no effect" in warning


def test_an_empty_list_is_an_empty_environment() -> None:
    assert spec_of("requirements: []\n").python == "requirements"
