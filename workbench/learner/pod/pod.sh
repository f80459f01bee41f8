#!/bin/sh
trap 'exit 143' TERM INT # the first process of a container gets only the signals that it handles, and each comes once
# What every container of a learner's pod begins with: finds a Python for the agent, else goes on in sh.
#
#   sh pod.sh ROLE [ARGUMENT...]      ROLE: prepare, learner, journal, host, exec

# A variable of the pod hides that of its image. The job's own paths come under another name, so that the image's follow.
if [ "${FABRIC_PYTHONPATH-}" ]; then
    export PYTHONPATH="$FABRIC_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH}"
    unset FABRIC_PYTHONPATH
fi
case $1 in
prepare | learner | journal)
    # What is begun here is a child, which a signal ends before it has a handler, and while a search for Python hangs.
    sh "$0" begin "$@" &
    child=$!
    trap 'kill -TERM $child' TERM INT
    exec 2>/dev/null # "Terminated", which a shell says of such a child, is not the learner's output
    wait $child
    code=$?
    # A signal interrupts the waiting, not the child.
    while kill -0 $child 2>/dev/null; do
        wait $child
        code=$?
    done
    exit $code
    ;;
begin)
    trap - TERM INT
    shift
    ;;
esac

given=/.fabric/given
journal=/.fabric/journal

# Say whether this is a Python that the agent can run on.
serves() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -I -S -c 'import sys, json, zipfile, zlib; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1
}

python=
if [ -r "$journal/python" ]; then
    read -r python <"$journal/python"
else
    for name in python3 python /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3 /opt/venv/bin/python3; do
        if serves "$name"; then
            python=$(command -v "$name")
            break
        fi
    done
    # Appears whole: another container may read it now.
    echo "$python" >"$journal/python.$1" 2>/dev/null && mv "$journal/python.$1" "$journal/python" 2>/dev/null
fi
if [ "$python" ]; then
    program=$journal/agent/__main__.py
    [ -r "$program" ] || program=$given/agent.pyz
    exec "$python" -I -S "$program" pod "$@"
fi
role=$1
shift
. "$given/pod_plain.sh"
