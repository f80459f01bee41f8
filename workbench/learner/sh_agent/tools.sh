# Small tools: time, processes, waiting.

# The time in hundredths of a second on a clock that counts sleep and cannot jump, where the system has one.
clock() {
    if read -r clock_text clock_rest 2>/dev/null </proc/uptime; then
        centiseconds "$clock_text" 0
        now=$centi
    else
        now=$(date +%s)00
    fi
}

# centiseconds TEXT DEFAULT: sets centi to a JSON number of seconds as hundredths.
centiseconds() {
    centi=$2
    case $1 in
    '' | . | *[!0-9.]* | *.*.*) return ;;
    *.*)
        centi_fraction=${1#*.}00
        centi_fraction=${centi_fraction%"${centi_fraction#??}"}
        centi=$((${1%%.*}00 + 1$centi_fraction - 100))
        ;;
    *) centi=${1}00 ;;
    esac
}

now_us() {
    time_us=$(date +%s%N 2>/dev/null)
    case $time_us in
    '' | *[!0-9]*) time_us=$(date +%s)000000 ;; # busybox knows no nanoseconds
    *) time_us=${time_us%???} ;;
    esac
}

# stat_of PID: sets stat_state, stat_parent, stat_session, stat_ticks; fails when there is no such process.
stat_of() {
    stat_ticks=0
    read -r stat_line 2>/dev/null <"/proc/$1/stat" || return 1
    # The name in brackets may hold blanks and brackets itself.
    set -- ${stat_line##*) }
    [ $# -ge 20 ] || return 1
    stat_state=$1 stat_parent=$2 stat_session=$4
    shift 19
    stat_ticks=$1
}

alive() {
    if [ -d /proc/self ]; then
        stat_of "$1" && [ "$stat_state" != Z ] && [ "$stat_state" != X ]
    else
        kill -0 "$1" 2>/dev/null
    fi
}

# A full disk may get room again; a folder that is gone will not come back.
wait_for_room() {
    [ -d "$folder" ] || abandon
    nap 0.5
}

nap() {
    sleep "$1" 2>/dev/null || sleep 1
}
