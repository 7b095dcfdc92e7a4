#!/bin/bash
# corral-vm COMMAND: what scenarios run inside the machine, as root. A kill must be quick, so it is
# done here; the other commands are Python (see main.py).
#
#   kill [--all] UNIT…   waits until they run, then SIGKILLs the main process, or every process,
#                        and notes when
#   note                 notes that all services are about to lose their power
set -euo pipefail

python=${CORRAL_VM_PYTHON:-/opt/corral/bin/python}
record=/var/lib/corral-vm/record

process_of() { # UNIT: the name that the judge's rules have for its process
    case $1 in
        cowboy-runner-*) echo runner ;;
        cowboy-*) echo daemon ;;
        redis-*) echo redis ;;
        *) echo "$1" ;;
    esac
}

happened() { # PROCESS WHAT
    mkdir -p "$record"
    printf '{"at_ms": %s, "process": "%s", "what": "%s", "cause": "the scenario", %s}\n' \
        "$(date +%s%3N)" "$1" "$2" '"code": null, "in_flight": 0, "lethal": true' \
        >>"$record/happened.jsonl"
}

# A unit that was killed a moment ago waits for its restart, and has nothing to kill.
wait_until_runs() { # UNIT
    local tries=600
    while [ "$(systemctl show --property=MainPID --value "$1")" = 0 ]; do
        ((tries--)) || {
            printf 'corral-vm: %s does not run\n' "$1" >&2
            exit 1
        }
        sleep 0.1
    done
}

case ${1-} in
    kill)
        shift
        whom=main
        if [ "$1" = --all ]; then
            whom=all
            shift
        fi
        for unit in "$@"; do wait_until_runs "$unit"; done
        for unit in "$@"; do happened "$(process_of "$unit")" killed; done
        systemctl kill --kill-whom="$whom" --signal=KILL "$@"
        ;;
    note)
        for process in daemon runner redis; do happened "$process" 'lost its power'; done
        sync "$record/happened.jsonl"
        ;;
    *) exec "$python" -I -m tests.vm.programs.main "$@" ;;
esac
