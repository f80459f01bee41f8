# Moves output from the pipe to its file.

# keep NAME: moves what comes through the pipe to NAME.log, in blocks so small that a killed dd holds little.
keep() {
    kept_name=$1
    (
        trap '' TERM INT HUP
        exec 4>&- 6>&- 7<&- 8>&- 9>&-
        exec dd bs=4096 <&5 >>"$folder/$kept_name.log" 2>/dev/null
    ) &
    keeper=$! scribe=$!
    ours="$ours $keeper"
}

# A dd that was killed, or that a full disk has ended, is replaced: the guard holds the pipe open meanwhile.
mind_keeper() {
    if [ "$keeper" = null ] || alive "$keeper"; then
        if [ "$stall" ] && [ "$keeper_tries" -gt 0 ]; then
            keeper_tries=$((keeper_tries - 1))
            [ $keeper_tries -eq 0 ] && stall='' && write_state "$phase"
        fi
        return 0
    fi
    wait "$keeper" 2>/dev/null
    keeper_status=$?
    if [ $keeper_status -eq 0 ]; then
        keeper=null # the pipe has ended
        return 0
    fi
    if [ $keeper_status -lt 128 ] && [ ! "$stall" ]; then
        stall="the disk is full: output waits"
    fi
    keeper_tries=2
    keep "$kept_name"
    write_state "$phase"
    return 0
}

# Wait until all that was printed is in the file; somebody out of reach may hold the pipe open.
drain() {
    exec 4>&-
    clock
    give_up_at=$((now + 3000))
    while mind_keeper && [ "$keeper" != null ] && [ "$now" -lt $give_up_at ]; do
        nap 0.02
        clock
        if [ "$stall" ]; then
            give_up_at=$((now + 3000))
            if [ "$stopped" = kill ]; then break; fi
        fi
    done
    [ "$keeper" = null ] || kill -s KILL "$keeper" 2>/dev/null
    exec 5<&-
    keeper=null
}
