"""Scripts and what runs them: the interpreter of a script, and the Python scripts that a command runs by its text.

A word that names a script counts only where it is run: ``ruff check train.py`` and ``cat train.py`` run none. Where a
command may have left its folder, nothing that follows is known.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_INTERPRETERS: Final = {
    ".sh": ("bash",),
    ".bash": ("bash",),
    ".r": ("Rscript",),
    ".R": ("Rscript",),
    ".jl": ("julia",),
}
_PYTHON: Final = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_BEFORE_A_COMMAND: Final = frozenset(
    {
        *("exec", "env", "command", "nohup", "time"),
        *("!", "{", "if", "then", "elif", "else", "while", "until", "do"),
    }
)
"""The word after one of these is a command, too."""
_LEAVING: Final = frozenset({"cd", "pushd", "popd", ".", "source", "eval"})
"""What may change the folder."""
_LAUNCHERS: Final = {"torchrun": (), "deepspeed": (), "accelerate": ("launch",)}
"""Programs whose first script they run in Python, with the words that come first."""
_LAUNCHING_MODULES: Final = frozenset(
    {
        *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
        *("deepspeed.launcher.runner", "cProfile", "profile", "pdb"),
    }
)
"""Modules that do the same."""
_DETERMINED_LAUNCHERS: Final = "determined.launch."
_PYTHON_VALUES: Final = "WX"
"""Short options of Python's that have a value."""


def interpreter_of(script: str) -> tuple[str, ...] | None:
    """Return the command that a script's name is an argument of; None where it is not a script by its name."""
    suffix = Path(script).suffix
    if suffix == ".py":
        return ("python" if shutil.which("python") or not shutil.which("python3") else "python3",)
    return _INTERPRETERS.get(suffix)


def scripts_of(command: str, code: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield the scripts that a command runs and their files, as far as they lie in its code.

    The modules that Determined calls launchers are yielded by their names, without a file.
    """
    root = os.path.normpath(code.absolute())
    for words in _simple_commands(command):
        name, is_module = _run_by(words)
        if is_module and name.startswith(_DETERMINED_LAUNCHERS):
            yield name, None
            continue
        below = name.replace(".", "/")
        for file in (f"{below}.py", f"{below}/__main__.py") if is_module else (name,):
            path = Path(os.path.normpath(os.path.join(root, file)))  # noqa: PTH118 (as below)
            # A word may be anything: Path.is_file() raises for one that is too long for a name.
            if file.endswith(".py") and path.is_relative_to(root) and os.path.isfile(path):  # noqa: PTH113
                yield file, path


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the commands of a shell text, each as its words, up to the first that may leave the folder."""
    lexer = shlex.shlex(command.replace("\\\n", ""), posix=True, punctuation_chars=";()<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return
    words: list[str] = []
    is_file = False
    for token in [*tokens, "\n"]:
        marks = bool(token) and not token.strip(";()<>|&\n")
        if marks and "<<" in token:
            return  # what follows may be the text of a file
        if marks and ("<" in token or ">" in token) and not set(token) & set(";()|\n"):
            is_file = True
        elif is_file and not marks:
            is_file = False
        elif marks:
            words = _without_prefixes(words)
            if words and words[0] in _LEAVING:
                return
            if words:
                yield words
            words = []
        else:
            words.append(token)


def _without_prefixes(words: Sequence[str]) -> list[str]:
    """Return a command without the variables that it is given, and without what only starts another one."""
    rest = list(words)
    while rest and (rest[0].rpartition("/")[2] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(rest[0])):
        del rest[0]
    return rest


def _run_by(words: Sequence[str]) -> tuple[str, bool]:
    """Return the script or module that a command runs, and whether it is a module; an empty text where it runs none."""
    program = words[0].rpartition("/")[2]
    if _PYTHON.fullmatch(program):
        return _run_by_python(words[1:])
    if program in _LAUNCHERS:
        end = 1 + len(_LAUNCHERS[program])
        return _launched(words[end:]) if tuple(words[1:end]) == _LAUNCHERS[program] else ("", False)
    # Without a slash it would be looked for elsewhere.
    return (words[0] if "/" in words[0] else ""), False


def _run_by_python(arguments: Sequence[str]) -> tuple[str, bool]:
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            continue
        if not word.startswith("-"):
            return word, False
        if word == "-":
            break
        for at, letter in enumerate(word[1:], 2):
            if letter == "m":
                module = word[at:] or (rest.pop(0) if rest else "")
                return _launched(rest) if module in _LAUNCHING_MODULES else (module, True)
            if letter == "c":
                return "", False
            if letter in _PYTHON_VALUES:
                del rest[: not word[at:]]
                break
    return "", False


def _launched(arguments: Sequence[str]) -> tuple[str, bool]:
    """Return what a launcher runs. Which of its options have a value is its own matter: a script ends with ``.py``."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        if before in {"-m", "--module"} and not word.startswith("-"):
            return word, True
        if word.endswith(".py") and not word.startswith("-"):
            return word, False
    return "", False
