"""What commands do to their output and with their processes: nothing is lost, and nothing is left."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable

import pytest

from tests.learner.agent import Learner
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.journal.output import HEADER
from workbench.learner.platform import system

Make = Callable[..., Learner]


def test_stderr_opened_by_name_truncates_nothing(learner: Make, python: str) -> None:
    one = learner("echo one; echo two > /dev/stderr; echo three > /dev/stdout; echo four", python=python)

    one.run()

    assert one.output() == b"one\ntwo\nthree\nfour\n"


def test_a_line_of_50_mb_is_kept(learner: Make, python: str) -> None:
    one = learner("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last", python=python)

    assert one.run()["exit_code"] == 0

    output = one.output()
    assert len(output) == 50_000_001 + 5
    assert output.count(b"x") == 50_000_000 and output.endswith(b"x\nlast\n")
    assert one.entries()[-1][2] == 2


def test_much_output_is_kept_byte_for_byte(learner: Make, python: str) -> None:
    code = "import os; block = bytes(range(256)) * 400; [os.write(1, block) for _ in range(1000)]"
    one = learner(f"exec \"$PYTHON\" -c '{code}'", python=python)

    assert one.run()["exit_code"] == 0

    assert hashlib.sha256(one.output()).digest() == hashlib.sha256(bytes(range(256)) * 400_000).digest()
    ends = [entry[0] for entry in one.entries()]
    assert all(before < after for before, after in itertools.pairwise(ends))


def test_progress_bars_nul_bytes_and_escapes_are_kept_as_they_are(learner: Make) -> None:
    printed = b"\r 10%\r 20%\r100%\n\0\0nul\x1b[31mred\x1b]0;title\x07\xff\xfe no text\r\nlast without an end"
    one = learner(f"""exec "$PYTHON" -c 'import os; os.write(1, bytes.fromhex("{printed.hex()}"))'""")

    one.run()

    assert one.output() == printed
    assert one.entries()[-1][2] == printed.count(b"\n")


def test_a_command_may_close_its_output_and_go_on(learner: Make) -> None:
    one = learner(
        NAP
        + 'echo before; exec >&- 2>&-; touch "$WORK/closed"; until [ -e "$WORK/go" ]; do nap 0.01; done; exit 5'
    )
    one.start()
    until(lambda: (one.work / "closed").exists())
    one.until_printed(b"before\n")
    assert one.state()["phase"] == "running"

    (one.work / "go").touch()

    assert one.wait()["exit_code"] == 5


def test_a_line_is_published_while_the_command_runs(learner: Make, python: str) -> None:
    one = learner(NAP + 'echo early; until [ -e "$WORK/go" ]; do nap 0.01; done; echo late', python=python)
    one.start()

    one.until_printed(b"early\n")

    assert one.output() == b"early\n"
    (one.work / "go").touch()
    one.wait()
    assert one.output() == b"early\nlate\n"


def test_each_line_is_published_though_nothing_follows_it(learner: Make) -> None:
    """Each is printed when the one before it is published; how soon that is, ``tests/bench/output.py`` measures."""
    code = (
        "import os, time\n"
        f"index, size = os.environ['INDEX'], {HEADER.size}\n"
        "for number in range(20):\n"
        " print(number, flush=True)\n"
        " while not os.path.exists(index) or os.path.getsize(index) <= size: time.sleep(0.0005)\n"
        " size = os.path.getsize(index)\n"
    )
    one = learner(f'exec "$PYTHON" -c "{code}"')
    one.rewrite(env={**one.launch["env"], "INDEX": str(one.folder / "output.idx")})

    assert one.run()["exit_code"] == 0
    assert one.output() == b"".join(b"%d\n" % number for number in range(20))
    assert len(one.entries()) == 20


def test_children_that_fork_twice_and_ignore_sigterm_are_ended_and_heard(learner: Make, python: str) -> None:
    one = learner(
        NAP + "(setsid sh -c \"trap '' TERM; echo deep; touch $WORK/deep; exec sleep 1000\" &) ;"
        ' (setsid sleep 1000 >/dev/null 2>&1 &); until [ -e "$WORK/deep" ]; do nap 0.01; done; echo main; exit 3',
        python=python,
    )

    state = one.run()

    assert (state["exit_code"], one.left()) == (3, [])
    assert sorted(one.output().split()) == [b"deep", b"main"]


def test_a_child_that_keeps_the_pipe_open_does_not_keep_the_learner(learner: Make) -> None:
    one = learner("sleep 100000 & echo main")

    assert one.run()["exit_code"] == 0

    assert one.output() == b"main\n"


def test_a_child_without_our_marker_is_ended_too(learner: Make) -> None:
    one = learner(
        NAP
        + '(env -i WORK="$WORK" sh -c \'echo $$ > "$WORK/new"; mv "$WORK/new" "$WORK/pid"; exec sleep 1000\' &);'
        ' until [ -e "$WORK/pid" ]; do nap 0.01; done'
    )

    assert one.run()["exit_code"] == 0

    assert not system.start_ticks(int((one.work / "pid").read_text()))


def test_what_is_printed_as_it_is_ended_is_kept(learner: Make, python: str) -> None:
    code = (
        "import os, signal, time\n"
        "def end(*_): os.write(1, b'saving\\n'); time.sleep(0.2); os.write(1, b'saved\\n'); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    one = learner(f'exec "$PYTHON" -c "{code}"', python=python)
    one.start()
    one.until_printed(b"ready")

    one.stop()
    state = one.wait()

    assert one.output() == b"ready\nsaving\nsaved\n"
    assert (state["exit_code"], state["stopped"]) == (0, "halt")


@pytest.mark.parametrize("secret", ["correct horse battery", "p@ss/w%rd+1"])
def test_secrets_reach_the_command_and_not_its_output(learner: Make, secret: str, python: str) -> None:
    one = learner(
        'echo "the token is $TOKEN."; echo -n "$TOKEN" | base64 -w 0; printf "\\n%s" "${TOKEN:0:6}";'
        ' sleep 0.05; printf "%s\\n" "${TOKEN:6}"; echo "$TOKEN" >&2; exit 9',
        python=python,
        secrets_file="secrets.json",
    )
    path = one.work / "secrets.json"
    path.write_text(json.dumps({"TOKEN": secret}))
    one.rewrite(secrets_file=str(path))

    state = one.run()

    output = one.output()
    assert b"the token is " + b"*" * len(secret) + b"." in output
    assert output.split(b"\n")[2] == b"*" * len(secret)
    for file in one.folder.iterdir():
        assert secret.encode() not in file.read_bytes(), file
    assert state["reason"]["text"].endswith("*" * len(secret))


def test_a_lines_time_is_when_it_was_printed(learner: Make) -> None:
    one = learner(NAP + 'echo a; until [ -e "$WORK/go" ]; do nap 0.01; done; echo b')
    before = time.time_ns() // 1000
    one.start()
    one.until_printed(b"a\n")
    between = time.time_ns() // 1000
    (one.work / "go").touch()

    one.wait()

    (_, first, _), (_, second, _) = one.entries()
    assert before <= first <= between <= second
