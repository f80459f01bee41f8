"""Scripts and what runs them: the interpreter of a script, and the Python scripts that a command runs by its text.

A word that names a script counts only where it is run: ``ruff check train.py`` and ``cat train.py`` run none. Where a
command may have left its folder in a way that is not understood, nothing that follows is known; nor is what a program
starts that has an option which is not in the table.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from workbench.spec import JobSpec
from workbench.values import dataclass

_INTERPRETERS: Final = {
    ".sh": ("bash",),
    ".bash": ("bash",),
    ".r": ("Rscript",),
    ".R": ("Rscript",),
    ".jl": ("julia",),
}
_PYTHON: Final = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS: Final = frozenset({"!", "{", "if", "then", "elif", "else", "while", "until", "do"})
_BEFORE_A_COMMAND: Final = frozenset({"exec", "env", "command", *_KEYWORDS})
"""The word after one of these is a command, too."""
_MAY_BE_SKIPPED: Final = frozenset({*_KEYWORDS, "for", "case", "select", "function"})
"""After one of these a ``cd`` may be one that is not run, or that is run later."""
_MARKS: Final = ";()<>|&\n"
"""The characters that stand between the words of commands."""
_IN_TURN: Final = frozenset({"&&", ";", "\n"})
"""What stands between two commands of which the second is run in the folder of the first."""
_LEAVING: Final = frozenset({"cd", "pushd", "popd", ".", "source", "eval"})
"""What may change the folder."""
_PLAIN_FOLDER: Final = re.compile(r"[\w.][\w./ +@-]*")
"""The name of a folder in which a shell has nothing to fill in."""
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


@dataclass(frozen=True, slots=True)
class _Starter:
    """A program that starts the command behind its own words."""

    first: tuple[str, ...] = ()
    """Words that come before its options."""
    flags: str = ""
    """Options without a value, with spaces between them."""
    values: str = ""
    """Options with one."""
    operands: int = 0
    """So many words come between the options and the command."""
    runs_python: bool = False
    """Whether it runs a script or a module as Python does, too."""


_STARTERS: Final = {
    "nohup": _Starter(),
    "time": _Starter(flags="-p --portability -v --verbose -a --append", values="-f --format -o --output"),
    "timeout": _Starter(
        flags="-f --foreground -p --preserve-status -v --verbose",
        values="-k --kill-after -s --signal",
        operands=1,
    ),
    "nice": _Starter(values="-n --adjustment"),
    "stdbuf": _Starter(values="-i --input -o --output -e --error"),
    "uv": _Starter(
        first=("run",),
        flags="--active --all-extras --all-groups --all-packages --exact --frozen --isolated --locked --managed-python"
        " -n --no-cache --no-config --no-default-groups --no-dev --no-editable --no-env-file --no-progress --no-project"
        " --no-sync --offline -q --quiet -s --script -U --upgrade -v --verbose",
        values="--env-file --extra --group --index --package --project -p --python -w --with --with-editable"
        " --with-requirements",
        runs_python=True,
    ),
    "poetry": _Starter(first=("run",)),
    "pipenv": _Starter(first=("run",)),
    "conda": _Starter(
        first=("run",),
        flags="--live-stream --no-capture-output -v --verbose",
        values="-n --name -p --prefix",
    ),
}
"""Those that leave the folder as it is. An option which is not here may be one that does not."""
_PREFIXES_MAX: Final = 200
"""What stands behind more words that only start another one is not known: each of them copies the rest."""
_SHELL: Final = _Starter(flags="-c -e -l -u -x --login --noprofile --norc --posix", values="-o")
_SHELLS: Final = frozenset({"sh", "bash", "dash"})


@dataclass(frozen=True, slots=True)
class RunScript:
    """A script that a command runs, or one of Determined's launchers."""

    name: str
    """As the command has it, below the folder of the code."""
    path: Path | None
    """Its file; None for a launcher."""
    folder: Path
    """In which it is run."""


_FOR_PEOPLE: Final[dict[str, frozenset[str]]] = {
    "jupyter": frozenset({"lab", "notebook", "nbclassic", "server"}),
    "code": frozenset({"tunnel", "serve-web"}),
    "marimo": frozenset({"edit", "run"}),
    "mlflow": frozenset({"server", "ui"}),
    "ollama": frozenset({"serve"}),
    "sleep": frozenset({"inf", "infinity"}),
    "streamlit": frozenset({"run"}),
    "tail": frozenset({"/dev/null"}),
    "vllm": frozenset({"serve"}),
    **dict.fromkeys(
        (
            *("jupyter-lab", "jupyter-notebook", "jupyter-nbclassic", "jupyter-server", "tensorboard"),
            *("code-server", "openvscode-server", "rserver", "sshd", "ttyd"),
            *("gradio", "gunicorn", "text-generation-launcher", "tritonserver", "uvicorn"),
        ),
        frozenset[str](),
    ),
}
"""Programs that people work with, or that keep a job for its shells; where a word decides, one of these is among it."""
_MODULES_FOR_PEOPLE: Final = {
    "jupyter": "jupyter",
    "jupyterlab": "jupyter-lab",
    "notebook": "jupyter-notebook",
    "jupyter_server": "jupyter-server",
    "marimo": "marimo",
    "mlflow": "mlflow",
    "streamlit": "streamlit",
    "tensorboard": "tensorboard",
    "tensorboard.main": "tensorboard",
    "uvicorn": "uvicorn",
    "vllm.entrypoints.openai.api_server": "uvicorn",
}
"""Modules that Python runs for the same, by the program that each is."""


_OPENING: Final = frozenset({"then", "do", "else", "{"})
"""Words of the shell that a command may follow at once."""
_AFTERWARDS: Final = frozenset({"fi", "done", "esac", "}", "wait", "exit", "echo", "true", ":"})
"""What may come behind the program that a text is there for."""


@lru_cache(maxsize=1024)
def serves_people(command: str) -> bool:
    """Say whether a command ends in a program that people work with: a notebook, a service, or what a shell needs.

    The program that is run last decides: what is only started beside a training does not.
    """
    words = _last_words(command)
    if text := _shell_text(words) if words else "":
        return serves_people(text)
    if not words:
        return False
    name, is_module = _run_by(words)
    program = _MODULES_FOR_PEOPLE.get(name, "") if is_module else words[0].rpartition("/")[2]
    deciding = _FOR_PEOPLE.get(program)
    return deciding is not None and (not deciding or not deciding.isdisjoint(words[1:]))


def may_be_preempted(spec: JobSpec) -> bool:
    """Say whether a job may have to end for one of a higher priority, by its keys and by its command.

    People work with what its command may be there for, as with what serves on ports: no policy ends that.
    """
    return spec.may_be_preempted and (spec.preemptible or not serves_people(spec.framework.command))


def _last_words(command: str) -> list[str]:
    """Return the last command of a shell text, of a pipeline the first; nothing where the text is not understood."""
    last: list[str] = []
    words: list[str] = []
    is_file = is_piped = False
    for token in [*_tokens(command), "\n"]:
        marks = bool(token) and not token.strip(_MARKS)
        if marks and "<<" in token:
            return []  # what follows may be the text of a file
        if marks and ("<" in token or ">" in token):
            is_file = True
        elif is_file and not marks:
            is_file = False
        elif marks:
            while words and words[0] in _OPENING:
                del words[0]
            last = words if words and words[0] not in _AFTERWARDS and not is_piped else last
            words, is_piped = [], token in {"|", "|&"}
        else:
            words.append(token)
    return _without_prefixes(last)


def interpreter_of(script: str) -> tuple[str, ...] | None:
    """Return the command that a script's name is an argument of; None where it is not a script by its name."""
    suffix = Path(script).suffix
    if suffix == ".py":
        return ("python" if shutil.which("python") or not shutil.which("python3") else "python3",)
    return _INTERPRETERS.get(suffix)


def scripts_of(command: str, code: Path) -> Iterator[RunScript]:
    """Yield the scripts that a command runs, as far as they lie in its code.

    The modules that Determined calls launchers are yielded as well, each before the script that it runs.
    """
    yield from _scripts(command, os.path.normpath(code.absolute()), "")


def _scripts(command: str, root: str, folder: str) -> Iterator[RunScript]:
    """Yield the scripts that a shell text runs which begins in a folder below the root."""
    for words, within in _simple_commands(command, root, folder):
        if text := _shell_text(words):
            yield from _scripts(text, root, within)
            continue
        at = Path(root, within)
        name, is_module = _run_by(words)
        if is_module and name.startswith(_DETERMINED_LAUNCHERS):
            yield RunScript(name, None, at)
            name, is_module = _launched(words[words.index(name) + 1 :]) if name in words else ("", False)
        below = name.replace(".", "/")
        for file in (f"{below}.py", f"{below}/__main__.py") if is_module else (name,):
            path = Path(os.path.normpath(os.path.join(at, file)))  # noqa: PTH118 (as below)
            # A word may be anything: Path.is_file() raises for one that is too long for a name.
            if file.endswith(".py") and path.is_relative_to(root) and os.path.isfile(path):  # noqa: PTH113
                yield RunScript(os.path.relpath(path, root) if within else file, path, at)


def _simple_commands(command: str, root: str, folder: str) -> Iterator[tuple[list[str], str]]:
    """Yield the commands of a shell text, each as its words and the folder below the root that it is run in.

    They end with the first after which the folder is not known.
    """
    tokens = _tokens(command)
    if not tokens:
        return
    words: list[str] = []
    before, is_file, is_straight, is_sure = "\n", False, True, True
    for token in [*tokens, "\n"]:
        marks = bool(token) and not token.strip(_MARKS)
        if marks and "<<" in token:
            return  # what follows may be the text of a file
        if marks and ("<" in token or ">" in token) and not set(token) & set(";()|\n"):
            is_file = True
        elif is_file and not marks:
            is_file = False
        elif marks:
            after = token.strip("\n") or "\n"
            is_straight &= "(" not in token and not (words and words[0] in _MAY_BE_SKIPPED)
            if found := _without_prefixes(words):
                if found[0] not in _LEAVING:
                    yield found, folder
                else:
                    entered = _entered(words, root, folder) if is_straight else None
                    is_sure &= before != "&&"
                    if entered is None or before not in _IN_TURN or after not in _IN_TURN:
                        return
                    folder = entered
            # Where what comes before a cd failed, it is left out, and so is all to the end of that chain.
            if not is_sure and after != "&&":
                return
            words, before = [], after
        else:
            words.append(token)


def _tokens(command: str) -> list[str]:
    """Return the words and marks of a shell text; none where it is not understood."""
    lexer = shlex.shlex(command.replace("\\\n", ""), posix=True, punctuation_chars=_MARKS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:
        return []


def _entered(words: Sequence[str], root: str, folder: str) -> str | None:
    """Return the folder below the root that a plain ``cd`` enters; None for another one."""
    if len(words) != 2 or words[0] != "cd" or not _PLAIN_FOLDER.fullmatch(words[1]):
        return None
    entered = Path(os.path.normpath(os.path.join(root, folder, words[1])))  # noqa: PTH118
    is_below = entered.is_relative_to(root) and os.path.isdir(entered)  # noqa: PTH112 (as above)
    return str(entered.relative_to(root)) if is_below else None


def _shell_text(words: Sequence[str]) -> str:
    """Return the text that a shell is given by ``-c``; an empty one where the command is none of those."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return ""
    rest = _behind_options(words[1:], _SHELL)
    options = words[1 : len(words) - len(rest)]
    return rest[0] if rest and any(re.match("-[a-z]*c", each) for each in options) else ""


def _without_prefixes(words: Sequence[str]) -> list[str]:
    """Return a command without the variables that it is given, and without what only starts another one."""
    rest = list(words)
    for _ in range(_PREFIXES_MAX):
        if not rest:
            return []
        name = rest[0].rpartition("/")[2]
        if name in _STARTERS:
            rest = _started(rest[1:], _STARTERS[name])
        elif name in _BEFORE_A_COMMAND or _ASSIGNMENT.match(rest[0]):
            del rest[0]
        else:
            return rest
    return []


def _started(words: Sequence[str], starter: _Starter) -> list[str]:
    """Return the command that a program starts which has these words; nothing where one of them is not known."""
    first = len(starter.first)
    if tuple(words[:first]) != starter.first:
        return []
    rest = _behind_options(words[first:], starter)[starter.operands :]
    if not starter.runs_python or not rest:
        return rest
    if rest[0] in {"-m", "--module"}:
        return ["python", "-m", *rest[1:]]
    return ["python", *rest] if rest[0].endswith(".py") else rest


def _behind_options(words: Sequence[str], starter: _Starter) -> list[str]:
    """Return what follows the options of a program; nothing where one of them is not known."""
    flags, values, rest = starter.flags.split(), starter.values.split(), list(words)
    while rest and rest[0].startswith("-"):
        if starter.runs_python and rest[0] in {"-m", "--module"}:
            break
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, given, _ = word.partition("=")
            if name not in values and (given or name not in flags):
                return []
            del rest[: name in values and not given]
            continue
        for at, letter in enumerate(word[1:], 2):
            if f"-{letter}" in values:
                del rest[: not word[at:]]
                break
            if f"-{letter}" not in flags:
                return []
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
