# One agent a learner.

take_lock() {
    lockless=false
    if [ ! "$tool_flock" ]; then
        lockless=true
        take_folder
        return
    fi
    exec 9>>"$folder/agent.lock" || exit 66
    tries=0
    # Others hold it for a moment to see whether it is held.
    until "$tool_flock" -n 9 2>/dev/null; do
        if [ $? -ne 1 ]; then # not busy: it cannot lock at all
            lockless=true
            take_folder
            return
        fi
        tries=$((tries + 1))
        [ $tries -lt 10 ] || exit 0
        nap 0.05
    done
}

# Where there is no flock: a folder is made by one only, and says whose it is.
take_folder() {
    exec 9>/dev/null
    tries=0
    until mkdir "$folder/agent.held" 2>/dev/null; do
        if read -r holder holder_ticks holder_boot 2>/dev/null <"$folder/agent.held/by"; then
            if [ "$holder_boot" = "$boot_id" ] && stat_of "$holder" && [ "$stat_ticks" = "$holder_ticks" ]; then exit 0; fi
            rm -rf "$folder/agent.held"
        fi
        tries=$((tries + 1))
        [ $tries -lt 10 ] || exit 0
        nap 0.05
    done
    echo "$$ $own_ticks $boot_id" >"$folder/agent.held/by.new" && mv "$folder/agent.held/by.new" "$folder/agent.held/by"
}
