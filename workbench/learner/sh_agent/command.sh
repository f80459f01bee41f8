# Starts the command, and waits for its end.

# become SCRIPT NAME: in a process of its own, with what the launch says it sees; never returns. Held by its input, which
# ends when the guard dies.
become() {
    exec >&4 2>&4 4>&-
    read -r event && [ "$event" = go ] || exit 126
    exec </dev/null
    trap - TERM INT HUP QUIT PIPE CHLD
    umask "$launch_umask"
    unset PATH LC_ALL
    launch_export
    if [ "$launch_secrets_file" ]; then . "$launch_secrets_file" || exit 126; fi
    export FABRIC_LEARNER="$launch_marker"
    cd "$launch_cwd" || exit 126
    unset OLDPWD
    PATH=${PATH-/usr/local/bin:/usr/bin:/bin}
    command -v "$launch_shell" >/dev/null 2>&1 || launch_shell=sh
    if [ ${#1} -gt 30000 ]; then set -- "$launch_shell" "$folder/$2.sh"; else set -- "$launch_shell" -c "$1"; fi
    if [ "$tool_env" ]; then set -- "$tool_env" --default-signal "$@"; fi
    if [ "$tool_taskset" ] && [ "$launch_cpus" ]; then set -- "$tool_taskset" -c "$launch_cpus" "$@"; fi
    if [ "$tool_setsid" ]; then set -- "$tool_setsid" "$@"; fi
    launch_exec "$@"
}

# start PHASE SCRIPT NAME LOG: forks the command, writes its start down, then lets it go: what ran is always recorded.
start() {
    phase=$1 act=$3
    if [ ${#2} -gt 30000 ]; then printf '%s\n' "$2" >"$folder/$3.sh"; fi
    until mkfifo "$folder/pipe.$$" "$folder/go.$$" 2>/dev/null; do
        rm -f "$folder/pipe.$$" "$folder/go.$$"
        wait_for_room
    done
    exec 3<>"$folder/pipe.$$" 4>"$folder/pipe.$$" 5<"$folder/pipe.$$"
    exec 3<>"$folder/go.$$" 6>"$folder/go.$$"
    keep "$4"
    command_pid=null command_ticks=null session= known=
    if [ "$phase" = running ]; then
        now_us
        started_us=$time_us
    fi
    (
        trap '' TERM INT HUP
        exec 3<&0 5<&- 6>&- 7<&- 9>&-
        become "$2" "$3" <&3 3<&- 8>&- &
        exec 3<&- 4>&- </dev/null
        echo "pid $!" >&8
        wait $!
        echo "exit $?" >&8
    ) <"$folder/go.$$" &
    waiter=$!
    ours="$ours $waiter"
    while read -r event rest <&7 && [ "$event" != pid ]; do :; done
    exec 3>&- 4>&-
    rm -f "$folder/pipe.$$" "$folder/go.$$"
    command_pid=$rest
    command_ticks=0
    if stat_of "$command_pid"; then command_ticks=$stat_ticks; fi
    known=$command_pid
    if [ "$tool_setsid" ]; then session=$command_pid; fi
    until write_state "$phase"; do wait_for_room; done
    echo go >&6
    exec 6>&-
}

# Wait for the end of what was started; sets code.
attend() {
    while :; do
        read -r event rest <&7 || continue # a signal came
        case $event in
        exit)
            code=$rest
            wait "$waiter" 2>/dev/null
            return
            ;;
        tick) look ;;
        esac
    done
}
