# The agent for hosts and images without Python 3.8: POSIX sh and the tools of busybox, nothing else.
#
#   sh agent.sh guard LEARNER_DIR      keeps a learner as launch.sh in its folder says (workbench/learner/launch_sh.py)
#   sh agent.sh version
#
# It keeps output, exit status, stop, grace and time limit, and decides as the others do (workbench/learner/__init__.py).
# Its processes: this shell, which alone decides and writes state.json; a waiter, whose child the command is; a ticker; one
# dd that moves output from a pipe to a file. They tell this shell by lines in a pipe: "exit CODE", "tick".
# Descriptors: 3 passing, 4 and 5 the output pipe's ends, 6 lets the command go, 7 and 8 the events' ends, 9 the lock,
# which nobody else holds: a learner whose guard was killed has nobody who could stop it, and must not look alive.
# Records, the index and the masking of secrets are the reader's work, over these same files.

# Other shells than bash leave SIGINT and SIGQUIT ignored in what runs beside them: the command too, without GNU's env.
if [ ! "${BASH_VERSION-}" ] && command -v bash >/dev/null 2>&1; then exec bash "$0" "$@"; fi

# What the agent was started with is not the command's. First of all: a value of several lines may look like ours.
for inherited in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $inherited in
    PATH | PWD | OLDPWD | SHLVL | _ | PPID | UID | EUID | SHELLOPTS | BASHOPTS) ;;
    *) unset "$inherited" 2>/dev/null ;;
    esac
done

set -u
launch_umask=$(umask)
umask 077
LC_ALL=C
version=1

usage() {
    echo "usage: agent.sh guard LEARNER_DIR | version" >&2
    exit 64
}
