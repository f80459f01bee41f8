from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quick.data.support import make_tree, packed_names
from workbench.data.code.snapshot import SnapshotOptions, take_snapshot
from workbench.paths import Home

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def kept(tree: Path, home: Home) -> set[str]:
    names = packed_names(home.snapshot(take_snapshot(tree, home).code_hash))
    return {name for name in names if not name.endswith("/")} - {".gitignore", ".fabricignore"}


@pytest.fixture
def tree(clean_environment: Path) -> Path:
    return make_tree(
        clean_environment / "code",
        {
            "train.py": "",
            "run.log": "",
            "keep.log": "",
            "data/big.bin": "",
            "data/small.txt": "",
            "src/build/out.o": "",
            "src/x.log": "",
            "build/out.o": "",
        },
    )


def test_without_patterns_everything_is_kept(tree: Path, home: Home) -> None:
    assert len(kept(tree, home)) == 8


def test_gitignore_is_respected(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": "# logs\n*.log\n!keep.log\n/build/\ndata/*.bin\n"})

    assert kept(tree, home) == {"train.py", "keep.log", "data/small.txt", "src/build/out.o"}


def test_the_file_of_determined_counts_at_the_top_alone_and_ours_goes_before_it(
    tree: Path, home: Home
) -> None:
    files = {
        ".gitignore": "*.log\n",
        ".detignore": "!keep.log\nbuild/\ndata/*\n",
        "src/.detignore": "x.log\n",
    }
    make_tree(tree, {**files, ".fabricignore": "!data/small.txt\n"})

    expected = {"train.py", "keep.log", "data/small.txt", ".detignore", "src/.detignore"}
    assert kept(tree, home) == expected
    assert kept(tree / "src", home) == {"build/out.o", ".detignore"}


def test_more_is_left_out_of_the_code_of_an_experiment_of_determined(tree: Path, home: Home) -> None:
    more = {"a.pyc": "", "lib/a.pyo": "", "lib/terraform.tf": "", "lib/.idea/x": "", ".vscode/x": ""}
    make_tree(tree, {**more, ".mypy_cache/x": "", "shared_fs/x": "", "lib/shared_fs/x": "", ".idea.txt": ""})
    whole = kept(tree, home)
    options = SnapshotOptions(is_of_determined=True)

    def kept_of_experiment(folder: Path) -> set[str]:
        names = packed_names(home.snapshot(take_snapshot(folder, home, options).code_hash))
        return {name for name in names if not name.endswith("/")}

    left_out = {*more, ".mypy_cache/x", "shared_fs/x"}
    assert left_out < whole
    assert kept_of_experiment(tree) == whole - left_out
    assert kept(tree, home) == whole
    assert kept_of_experiment(tree / "lib") == set()
    make_tree(tree, {".detignore": "!terraform.tf\n", ".fabricignore": "!/shared_fs\n"})
    assert {"lib/terraform.tf", "shared_fs/x"} < kept_of_experiment(tree)


@needs_git
def test_what_an_experiment_leaves_out_counts_in_a_folder_of_a_repository(tree: Path, home: Home) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    make_tree(tree, {"src/shared_fs/x": "", "src/a.pyc": "", ".gitignore": "build/\n", "build/terraform": ""})
    options = SnapshotOptions(is_of_determined=True)

    for folder, names in ((tree / "src", {"x.log"}), (tree / "build", {"out.o"})):
        packed = packed_names(home.snapshot(take_snapshot(folder, home, options).code_hash))
        assert {name for name in packed if not name.endswith("/")} == names


@needs_git
def test_the_top_may_be_a_folder_of_a_repository(tree: Path, home: Home) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    make_tree(tree, {".detignore": "*\n", "src/.detignore": "x.log\n"})

    assert kept(tree / "src", home) == {"build/out.o", ".detignore"}


def test_a_nested_file_goes_before_the_one_above(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": "*.log\n", "src/.gitignore": "!x.log\nbuild\n"})

    assert kept(tree, home) == {
        "train.py",
        "data/big.bin",
        "data/small.txt",
        "src/x.log",
        "src/.gitignore",
        "build/out.o",
    }


def test_fabricignore_adds_and_takes_back(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": "data/\n*.log\n", ".fabricignore": "!data/\n/build\n"})

    assert kept(tree, home) == {"train.py", "data/big.bin", "data/small.txt", "src/build/out.o"}


def test_the_repository_s_patterns_hold_in_its_folders(tree: Path, home: Home) -> None:
    make_tree(
        tree, {".git/info/exclude": "secret*\n", ".gitignore": "*.o\n/src/x.log\n", "src/secret.txt": ""}
    )

    assert kept(tree / "src", home) == set()
    assert "src/x.log" not in kept(tree, home)


def test_a_folder_that_is_left_out_but_named_is_taken(tree: Path, home: Home) -> None:
    make_tree(tree, {".git/HEAD": "", ".gitignore": "build/\n"})

    assert kept(tree / "build", home) == {"out.o"}


def test_bytecode_can_be_brought_back(tree: Path, home: Home) -> None:
    make_tree(tree, {"__pycache__/a.pyc": "", ".fabricignore": "!__pycache__/\n"})

    assert "__pycache__/a.pyc" in kept(tree, home)


def test_lines_that_are_no_patterns_do_no_harm(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": b"!\n\\\n[\n*.log\n\xff\xfe\n///\n**\\\n"})

    assert "run.log" not in kept(tree, home)


def test_a_folder_called_gitignore_does_no_harm(tree: Path, home: Home) -> None:
    make_tree(tree, {"src/.gitignore/": ""})

    assert "src/x.log" in kept(tree, home)


@pytest.mark.usefixtures("settled")
def test_changed_patterns_are_seen_in_a_remembered_folder(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": "*.log\n"})
    assert "src/x.log" not in kept(tree, home)

    (tree / ".gitignore").write_text("*.bin\n")

    assert "src/x.log" in kept(tree, home)
    assert "data/big.bin" not in kept(tree, home)


@pytest.mark.usefixtures("settled")
def test_an_entry_that_turns_from_file_to_folder_is_decided_anew(tree: Path, home: Home) -> None:
    make_tree(tree, {".gitignore": "thing/\n", "thing": "a file"})
    assert "thing" in kept(tree, home)

    (tree / "thing").unlink()
    make_tree(tree, {"thing/inside": ""})

    assert "thing/inside" not in kept(tree, home)


PATTERNS = [
    "b/**",
    "**",
    "*/",
    "**/",
    "a*",
    "a/**/c",
    "/*",
    "!/*/",
    "*.log",
    "!*.log",
    "a/",
    "/a",
    "!a",
    "a/b",
    "**/b",
    "!b/",
    "x*",
    "?",
    "[ab]",
    "a/*/c",
    "!/a/b/c",
    "#",
    "",
]
NAMES = ["a", "b", "c", "x.log", "xy"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)


@needs_git
@settings(max_examples=25, deadline=None)
@given(
    paths=st.lists(PATHS, min_size=1, max_size=8, unique=True),
    above=st.lists(st.sampled_from(PATTERNS), max_size=4),
    nested=st.lists(st.sampled_from(PATTERNS), max_size=3),
)
def test_the_same_files_are_left_out_as_git_leaves_out(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], above: list[str], nested: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    files = {path: "" for path in paths if not any(other.startswith(path + "/") for other in paths)}
    tree = make_tree(root / "code", {**files, ".gitignore": "\n".join(above)})
    if (tree / "a").is_dir():
        (tree / "a" / ".gitignore").write_text("\n".join(nested))
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(tree), "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = packed_names((home := Home(root / "home")).snapshot(take_snapshot(tree, home).code_hash))

    assert {name for name in ours if not name.endswith("/")} == set(listed.stdout.split("\0")) - {""}
