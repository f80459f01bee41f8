"""What training code may say to fabric (metrics, checkpoints, progress) and ask (to stop? parameters?).

Outside a job nothing here has an effect. Inside, each call appends one line to a file that the learner's
agent reads; threads and forked processes may call it freely, and it raises nothing for a full disk. It
imports next to nothing and runs on Python 3.6, since training code may have an older interpreter than the
agent.
"""

import contextlib
import os
import sys
import time

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Set

REPORT_VARIABLE = "FABRIC_REPORT"
"""Names the file to append to; set in a job."""
STOP_VARIABLE = "FABRIC_STOP_FILE"
"""Names the file whose presence asks the command to stop."""
STOP_ANSWER = "stop-answer"
"""Beside it: what the command makes of the request. Each process that looks for one holds a shared lock on it."""
PARAMS_VARIABLE = "FABRIC_PARAMS"
"""All parameters as one JSON object, with their names and types as the manifest has them."""
PARAM_PREFIX = "FABRIC_PARAM_"

WARNING_LIMIT = 5
TEXT_LIMIT = 1000

_warned: "Set[str]" = set()
_torn = False
_looking = (0, False)
"""Which process has looked for a request to stop, and whether it counts as one that ends by itself."""
_answer_file = -1
_waiting_handlers: "Set[Any]" = set()
"""Handlers of SIGTERM that only wait for the next look."""


def report(
    metrics: "Optional[Mapping[str, Any]]" = None,
    *,
    step: "Optional[float]" = None,
    group: str = "",
    **more: "Any",
) -> None:
    """Report metrics: ``report(loss=0.5, accuracy=0.9, step=3)`` or ``report({"loss": 0.5}, step=3)``.

    Numbers are plotted over ``step``; anything with ``.item()`` counts as one (numpy, torch), NaN and
    infinities too. Among others, ``iteration``, ``step``, ``global_step``, ``epoch`` and ``tick`` say
    where the point is instead of being plotted, and serve as the step if none is given. Texts are kept
    with the numbers.

    Args:
        metrics: names and values, in addition to those given by keyword.
        step: where on the axis the values belong.
        group: which kind of values these are, ``train`` or ``test``, say.
        **more: names and values.
    """
    if not os.environ.get(REPORT_VARIABLE):
        return
    values = {}
    for source in (metrics or {}, more):
        for name in source:
            value = _plain(source[name])
            if value is None:
                _warn("report(): %s is neither a number nor a string; it is left out" % (name,))
            else:
                values[_name(name)] = _value(value)
    if values:
        _append({"kind": "metrics", "step": _fraction(step), "group": _name(group), "values": values})


def checkpoint(
    path: "Any",
    step: "Optional[int]" = None,
    metrics: "Optional[Mapping[str, Any]]" = None,
    **metadata: "Any",
) -> None:
    """Say that a checkpoint, a file or a folder, was saved after ``step``, and what is to be known of it.

    ``checkpoint(path, step=3, val_loss=0.2, note="warm")`` records the metric ``val_loss``, and a note.

    Args:
        path: the file or folder.
        step: the step after which it was saved.
        metrics: names and values, in addition to the numbers given by keyword.
        **metadata: what else is to be known of it; numbers are metrics, too.
    """
    if not os.environ.get(REPORT_VARIABLE):
        return
    message = {
        "kind": "checkpoint",
        "path": os.path.abspath(os.fsdecode(path)),
        "step": _step(step),
        "metrics": {**_mapping(_numbers(metadata)), **_mapping(metrics or {})},
        "metadata": _mapping(metadata),
    }
    _append(message)


def progress(fraction: float, text: str = "") -> None:
    """Say how far the training is, from 0 to 1, and what it is doing."""
    if not os.environ.get(REPORT_VARIABLE):
        return
    done = _plain(fraction)
    if isinstance(done, (int, float)) and done == done:
        _append({"kind": "progress", "fraction": min(1.0, max(0.0, float(done))), "text": _text(str(text))})


def note(text: str, level: str = "info") -> None:
    """Have a line kept with the job, where people look; the level is ``info``, ``warning`` or ``error``."""
    if os.environ.get(REPORT_VARIABLE):
        _append({"kind": "note", "level": level, "text": _text(str(text))})


def should_stop() -> bool:
    """Say whether the job was asked to stop: save a checkpoint, end before the grace period does. Cheap.

    Code that asks and has no handler of its own for SIGTERM is sent none until the grace period is nearly over.
    """
    path = os.environ.get(STOP_VARIABLE)
    if not path:
        return False
    announce_looking(path)
    return os.path.lexists(path)  # on a full disk it is a link to nothing


def announce_looking(path: str) -> None:
    """Let the agent see whether this process looks for requests to stop and ends by itself, as long as it lives.

    A lock that belongs to this process says so: neither what it forks nor what it starts holds it. Where there are no
    such locks the process gets its signal at once, as all others do, and as does code that has a handler for it.

    Args:
        path: the file whose presence asks the command to stop.
    """
    global _looking
    import signal

    handler = signal.getsignal(signal.SIGTERM)
    looking = (os.getpid(), handler in (signal.SIG_DFL, signal.SIG_IGN) or handler in _waiting_handlers)
    if looking == _looking:
        return
    _looking = looking
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        file = _answers(path)
        if not looking[1]:
            fcntl.lockf(file, fcntl.LOCK_UN)
            return
        for _ in range(3):  # the agent, too, locks it for a moment when it looks who does
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.001)


def wait_for_look(handler: "Any") -> None:
    """Let a process count as one that ends by itself though it has this handler for SIGTERM."""
    _waiting_handlers.add(handler)


def note_answer(word: str) -> None:
    """Note for the agent what the command makes of a request to stop: it reads that once the command has ended."""
    path = os.environ.get(STOP_VARIABLE)
    if path:
        with contextlib.suppress(OSError):
            os.write(_answers(path), (word + "\n").encode())


def _answers(path: str) -> int:
    """Return the open file of answers. It is never closed: that would give up this process's lock on it."""
    global _answer_file
    if _answer_file < 0:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        _answer_file = os.open(os.path.join(os.path.dirname(path), STOP_ANSWER), flags, 0o600)
    return _answer_file


def hparams() -> "Dict[str, Any]":
    """Return the job's parameters by name (``params`` of the manifest); none outside a job."""
    import json

    params_text = os.environ.get(PARAMS_VARIABLE)
    if params_text:
        try:
            found = json.loads(params_text)
            if isinstance(found, dict):
                return found
        except ValueError:
            pass
    params = {}
    for name, text in os.environ.items():
        if name.startswith(PARAM_PREFIX):
            try:
                params[name[len(PARAM_PREFIX) :].lower()] = json.loads(text)
            except ValueError:
                params[name[len(PARAM_PREFIX) :].lower()] = text
    return params


def _plain(value: "Any") -> "Any":
    """Return a number or a text for what training code calls one, infinities as texts; else None."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if not isinstance(value, float):
        try:
            value = value.item() if hasattr(value, "item") else float(value)
        except Exception:  # whatever a tensor of many elements, or on a lost device, raises
            return None
        if isinstance(value, (bool, int)):
            return int(value)
        if not isinstance(value, float):
            return value if isinstance(value, str) else None
    if value - value != 0 and value == value:
        return "inf" if value > 0 else "-inf"
    return float(value)


def _numbers(given: "Mapping[str, Any]") -> "Dict[str, Any]":
    """Return what is a number; a truth value is none."""
    return {
        name: given[name]
        for name in given
        if not isinstance(given[name], (bool, str)) and _plain(given[name]) is not None
    }


def _mapping(given: "Mapping[str, Any]") -> "Dict[str, Any]":
    plain = {}
    for name in given:
        value = _plain(given[name])
        plain[_name(name)] = _text(str(given[name])) if value is None else _value(value)
    return plain


def _name(name: "Any") -> str:
    from workbench.learner.texts import clean_name

    return clean_name(str(name))


def _text(text: str) -> str:
    from workbench.learner.texts import clean

    return clean(text, TEXT_LIMIT)


def _value(value: "Any") -> "Any":
    if isinstance(value, str):
        return _text(value)
    return None if value != value else value


def _step(step: "Any") -> "Optional[int]":
    try:
        return None if step is None else int(step)
    except Exception:  # a tensor of many elements, a text
        _warn("report(): the step %.50r is not a whole number; it is left out" % (step,))
        return None


def _fraction(step: "Any") -> "Optional[float]":
    """Return a step that may be a fraction, of an epoch say."""
    found = None if isinstance(step, str) else _plain(step)
    if isinstance(found, float) and found == found:
        return int(found) if found.is_integer() else found
    return found if isinstance(found, int) else _step(step)


def _append(message: "Dict[str, Any]") -> None:
    """Append one line with one write, which no other process's or thread's can come into."""
    global _torn
    import json

    message["time"] = int(time.time() * 1e6)
    path = os.environ[REPORT_VARIABLE]
    try:
        line = json.dumps(message).encode() + b"\n"
        # Opened for each line: training code forks, and closes descriptors that it does not know.
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600
        )
        try:
            line = b"\n" + line if _torn else line
            if os.write(descriptor, line) < len(line):
                _torn = True
                raise OSError("the disk is full")
            _torn = False
        finally:
            os.close(descriptor)
    except Exception as error:  # training goes on whatever happens to its metrics
        _warn("report(): %s" % error)


def _warn(text: str) -> None:
    """Say it once, and not many such things: training prints what is its own."""
    if text in _warned or len(_warned) >= WARNING_LIMIT:
        return
    _warned.add(text)
    with contextlib.suppress(Exception):  # stderr may be closed
        sys.stderr.write("fabric: %s\n" % text)
