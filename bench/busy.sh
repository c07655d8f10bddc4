#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Translation on a busy machine: 1,000 lines by models/m30k-t5 beside 0, 1, 2 and 4 processes that do nothing but use a CPU.
# Appends the medians to a table.
#   bench/busy.sh [-o FILE.csv] [-t THREADS] [-r RUNS] [-b "0 1 2 4"] [PROA...]
# -o: bench/results/busy.csv without it. PROA: programs to compare, in turns; build/release/proa without any. Nothing else should
# run meanwhile.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
results=$here/bench/results/busy.csv threads=2 runs=3 counts="0 1 2 4"
while getopts o:t:r:b: option; do
    case $option in
    o) results=$OPTARG ;;
    t) threads=$OPTARG ;;
    r) runs=$OPTARG ;;
    b) counts=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- "$here/build/release/proa"

work=$(mktemp -d)
busy=
end() {
    # shellcheck disable=SC2086 # a list
    [ -z "$busy" ] || kill $busy
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
gzip -dc "$here/tests/golden/data/test_2016_flickr.en.gz" | sed 's/^/translate English to German: /' >"$work/lines"

# seconds PROGRAM: of one translation, as the program says it
seconds() {
    "$1" run "$here/models/m30k-t5" --input "$work/lines" --output "$work/out" --threads "$threads" 2>&1 |
        sed -n 's/.* lines in \([0-9.]*\) s,.*/\1/p'
}

date=$(date -u +%Y-%m-%dT%H:%MZ)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr -s ' ,' ' ')
machine="$machine x$(getconf _NPROCESSORS_ONLN)"
mkdir -p "$(dirname "$results")"
[ -s "$results" ] || echo "date,machine,commit,load,threads,busy,seconds,least,most" >"$results"

for count in $counts; do
    load=$(cut -d ' ' -f 1 /proc/loadavg) # of others too
    for _ in $(seq "$count"); do
        sh -c 'while :; do :; done' &
        busy="$busy $!"
    done
    for run in $(seq "$runs"); do
        number=0
        for program in "$@"; do
            number=$((number + 1))
            seconds "$program" >>"$work/$count.$number"
            echo "busy $count, run $run, $program: $(tail -n 1 "$work/$count.$number") s" >&2
        done
    done
    # shellcheck disable=SC2086 # a list
    [ -z "$busy" ] || kill $busy
    busy=
    number=0
    for program in "$@"; do
        number=$((number + 1))
        commit=$("$program" version --json | sed -n 's/.*"commit":"\([^"]*\)".*/\1/p')
        sort -n "$work/$count.$number" | awk -v head="$date,$machine,${commit:-unknown},$load,$threads,$count" \
            '{ s[NR] = $1 } END { printf "%s,%s,%s,%s\n", head, s[int((NR + 1) / 2)], s[1], s[NR] }' >>"$results"
    done
done
echo "appended to $results" >&2
