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

# The same for one that asks to end; workers of PyTorch's DataLoader are left to what needs them to save.
ask_all() {
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        name=
        read -r name 2>/dev/null <"$entry/comm"
        [ "$pid" = 1 ] || [ "$pid" = "$2" ] || [ "$name" = pt_data_worker ] || kill -"$1" "$pid" 2>/dev/null
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
        *) ask_all "$word" "$self" ;;
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

# Write which Python is first on the PATH, and the names of what is installed for it.
survey() {
    python=$(command -v python3 || command -v python) || return
    prefix=${python%/bin/*}
    echo "$python"
    for folder in "$prefix"/lib/python3*/site-packages "$prefix"/lib/python3*/dist-packages \
        "$prefix"/local/lib/python3*/dist-packages; do
        for entry in "$folder"/*.dist-info "$folder"/*.egg-info; do
            [ ! -e "$entry" ] || echo "$entry"
        done
    done
}

# Export what a trial of Determined has only now, its last checkpoint: by the Python that it runs with.
#
# Such a Python may print more. "command" keeps a name that is none from ending this shell.
export_start_variables() {
    found=$(python3 -S -m workbench.learner.determined_jobs)
    set -f
    IFS='
'
    for line in $found; do
        case $line in
        DET_*=* | C10D_PORT=*) command export "$line" ;;
        esac
    done
    unset IFS
    set +f
}

# Run an act's script in the foreground and write its exit code to "exit".
#
# The script must not be started with "&": sh then ignores SIGINT and SIGQUIT in it for good. The foreground would keep
# this process from its traps; so a shell between the two, the keeper, has its own parent killed and waits in its place.
keep() {
    read -r parent rest </proc/self/stat
    (
        trap : TERM USR1
        exec 8>&6 6>&- 7<&- 3<&- 5>&-
        # What this shell itself says of an act that a signal has ended ("Terminated") is no output of the job.
        exec >&4 2>/dev/null
        kill -KILL "$parent"
        (
            trap - TERM USR1
            exec 4>&- 8>&-
            if [ "$1" = command ] && [ "${DET_EXPERIMENT_CONFIG:-}" ]; then export_start_variables; fi
            exec 2>&1
            exec "$shell" -c "$(cat "$here/$1.sh")"
        ) </dev/null
        echo $? >&8
    )
    :
}

# Exit with the code that the keeper writes.
await_exit() {
    trap '' TERM
    exec 6>&- 5>&- 4>&- 3<&-
    read -r code <&7
    exit "${code:-137}"
}

run() {
    # Each pipe is opened at both ends first, so that nobody waits for the other: an opening that waits fails in
    # some shells when any process in here ends, and the shell with it.
    exec 6<>"$here/output.$1" 4>"$here/output.$1"
    exec 6<>"$here/result.$1" 5>"$here/result.$1"
    exec 6<>"$here/control.$1" 3<"$here/control.$1"
    # Nothing is run before the agent is there and says so, however early this was started.
    until read -r word <&3; do
        [ "$told" = 0 ] && [ -p "$here/control.$1" ] || exit 137
    done
    # Whoever reads it sees the keeper's end.
    exec 6<>"$here/exit.$1" 7<"$here/exit.$1"
    listen 6>&- 7<&- &
    listener=$!
    shell=sh
    command -v bash >/dev/null 2>&1 && shell=bash
    await_exit &
    child=$!
    (keep "$1") 2>/dev/null
    exec 6>&- 7<&-
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
trap 'told=1; ask_all TERM "$listener"' TERM
trap 'exit 137' USR1
survey >"$here/python" 2>/dev/null
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
