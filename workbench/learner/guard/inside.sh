#!/bin/sh
# The first process of a learner's container, for any sh and with nothing but /proc, cat and sleep.
#
# It runs what is asked for (setup.sh, command.sh), reaps, passes signals on, ends what was left behind, and
# says how it ended. Named pipes join it to the learner's agent outside: when the agent's end of "control" is
# closed, everything here ends. Arguments: the acts, in their order.
here=/.fabric/learner
listener=
told=0

# Send a signal to every process but this one and the listener.
signal_all() {
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        [ "$pid" = 1 ] || [ "$pid" = "$2" ] || kill -"$1" "$pid" 2>/dev/null
    done
}

pause() { sleep 0.1 2>/dev/null || sleep 1; }

# Obey the agent until it says that the act is over; without it nothing may go on.
listen() {
    trap '' TERM
    read -r self rest </proc/self/stat
    while read -r word <&3; do
        case $word in
        over) exit 0 ;;
        *) signal_all "$word" "$self" ;;
        esac
    done
    kill -USR1 1
    while :; do
        signal_all KILL "$self"
        pause
    done
}

# Say whether any process is left but this one and the listener; the dead do not count.
is_left() {
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        if [ "$pid" != 1 ] && [ "$pid" != "$listener" ]; then
            stat=
            read -r stat 2>/dev/null <"$entry/stat"
            case ${stat##*) } in
            '' | Z* | X*) ;;
            *) return 0 ;;
            esac
        fi
    done
    return 1
}

end_leftovers() {
    is_left || return
    signal_all TERM "$listener"
    tries=20
    while is_left; do
        pause
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || signal_all KILL "$listener"
    done
}

# Print how often memory ran out here, and the most that was used.
memory() {
    ran_out=0
    most=0
    for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
        if [ -r "$file" ]; then
            while read -r key value; do [ "$key" = oom_kill ] && ran_out=$value; done <"$file"
        fi
    done
    for file in /sys/fs/cgroup/memory/memory.max_usage_in_bytes /sys/fs/cgroup/memory.peak; do
        [ -r "$file" ] && read -r most <"$file"
    done
    echo "$ran_out $most"
}

run() {
    # Nothing is run before the agent is there, however early this was started.
    exec 3<"$here/control.$1" 4>"$here/output.$1" 5>"$here/result.$1"
    listen &
    listener=$!
    shell=sh
    command -v bash >/dev/null 2>&1 && shell=bash
    (
        trap - TERM USR1
        exec 3<&- 5>&-
        exec "$shell" -c "$(cat "$here/$1.sh")"
    ) >&4 2>&1 4>&- </dev/null &
    child=$!
    # A trap ends a wait early; then the child is still there.
    while :; do
        wait "$child"
        code=$?
        kill -0 "$child" 2>/dev/null || break
    done
    # It may have ended in the same moment as the trap: its own code is still known.
    if [ "$told" = 1 ]; then
        wait "$child"
        again=$?
        [ "$again" = 127 ] || code=$again
    fi
}

if [ -r /.fabric/secrets.sh ]; then . /.fabric/secrets.sh; fi
trap 'told=1; signal_all TERM "$listener"' TERM
trap 'exit 137' USR1
for act in "$@"; do
    run "$act"
    if [ "$act" = command ] || [ "$code" != 0 ]; then
        end_leftovers
        echo "$code $(memory) $told" >&5
        exit "$code"
    fi
    echo "$code 0 0 $told" >&5
    exec 4>&- 5>&-
    wait "$listener"
    exec 3<&-
done
