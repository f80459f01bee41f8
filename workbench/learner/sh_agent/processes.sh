# The processes of the learner: found, signalled, ended until none is left.

# Sets members to the pids of all its living processes: by marker, by session, by descent. A process shows no variables
# in the midst of an exec: unclear has those that show none, and are no older than the command.
find_members() {
    members= unclear=
    if [ ! -d /proc/self ]; then
        kill -0 "$command_pid" 2>/dev/null && members=$command_pid
        return
    fi
    # One sed and one head for all processes: a shell's own read takes a system call a byte.
    table= young=
    for entry in $(sed -nE 's/^([0-9]+) \(.*\) ([A-Za-z]) ([0-9]+) [0-9]+ ([0-9]+)( [-0-9]+){15} ([0-9]+) .*/\1:\3:\4:\2:\6/p' \
        /proc/[0-9]*/stat 2>/dev/null); do
        pid=${entry%%:*}
        case " $ours " in *" $pid "*) continue ;; esac
        case $entry in
        *:[ZX]:*) continue ;;
        "$pid":*:"$session":*) members="$members $pid" ;;
        "$known":*) members="$members $pid" ;;
        *:2:*) ;; # one of the kernel's never has variables
        *) if [ "${entry##*:}" -ge "$command_ticks" ] 2>/dev/null; then young="$young $pid"; fi ;;
        esac
        parent=${entry#*:}
        table="$table $pid:${parent%%:*}"
    done
    # The pid of each, then + where it has variables, then = with its marker where it has one.
    pid=- has_variables=yes
    for word in $(head -c 10000000 /proc/[0-9]*/environ 2>/dev/null | tr '\000' '\n' | sed -nE '
        /^==> \/proc\/[0-9]+\/environ <==$/{s/[^0-9]//g;p;s/.*/+/;h;d;}
        /./{x;/./p;s/.*//;x;}
        s/^FABRIC_LEARNER=([^ ]*)$/=\1/p') end; do
        case $word in
        +) has_variables=yes ;;
        "=$launch_marker")
            case " $members " in *" $pid "*) continue ;; esac
            case " $table " in *" $pid:"*) members="$members $pid" ;; esac
            ;;
        =*) ;;
        *)
            if [ ! "$has_variables" ]; then
                case " $young " in *" $pid "*) unclear="$unclear $pid" ;; esac
            fi
            pid=$word has_variables=
            ;;
        esac
    done
    more=yes
    while [ "$more" ] && [ "$members" ]; do
        more=
        for pair in $table; do
            case " $members " in
            *" ${pair%:*} "*) ;;
            *" ${pair#*:} "*) members="$members ${pair%:*}" more=yes ;;
            esac
        done
    done
}

# signal_members NAME: signals each once a name; the second time only those that were not there before.
signal_members() {
    find_members
    for pid in $members; do
        case " $asked " in *" $pid:$1 "*) continue ;; esac
        asked="$asked $pid:$1"
        kill -s "$1" "$pid" 2>/dev/null
        if [ "$1" = TERM ]; then kill -s CONT "$pid" 2>/dev/null; fi # a stopped process hears nothing
    done
    if [ ! -d /proc/self ] && [ "$session" ]; then kill -s "$1" -- "-$session" 2>/dev/null; fi
}

# end_members: one step of ending them all; fails as long as some are left, or may be in the midst of an exec.
end_members() {
    clock
    if [ "$now" -ge "$kill_at" ]; then
        asked=
        signal_members KILL
        pass=0
        while [ "$members" ] && [ $pass -lt 5 ]; do
            nap 0.02
            asked=
            signal_members KILL
            pass=$((pass + 1))
        done
    elif [ ! "$asked" ]; then
        signal_members TERM
        signal_members TERM # what was forked meanwhile
    else
        find_members
    fi
    if [ "$members" ]; then return 1; fi
    [ ! "$unclear" ] || [ $((looks_again -= 1)) -lt 0 ]
}

# begin_ending CENTISECONDS: of two grace periods the one that is over first counts.
begin_ending() {
    clock
    if [ ! "$ending" ] || [ $((now + $1)) -lt "$kill_at" ]; then kill_at=$((now + $1)); fi
    ending=yes looks_again=10
}
