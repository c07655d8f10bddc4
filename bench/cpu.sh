#!/bin/sh
# Measures the shipped models on this machine with `proa bench` and appends the numbers to a table.
#   bench/cpu.sh [-o FILE.csv] [-p FOLDER] [-a "OPTIONS of proa bench"] [MODEL...]
# -o: bench/results/cpu.csv without it. -p: also draws FOLDER/MODEL.svg. Nothing else should run meanwhile.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
results=$here/bench/results/cpu.csv plots='' options=''
usage() { sed -n '2,4s/^# //p' "$0"; }
while getopts ho:p:a: option; do
    case $option in
    o) results=$OPTARG ;;
    p) plots=$OPTARG ;;
    a) options=$OPTARG ;;
    h) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
proa=${PROA_BIN:-$here/build/release/proa}
[ -x "$proa" ] || { echo "cpu.sh: no program at $proa: ./do build, or name it with PROA_BIN" >&2; exit 1; }
[ $# -gt 0 ] || set -- "$here/models/classics-10m" "$here/models/m30k-t5" "$here/models/polarity-bert"

[ -z "$plots" ] || mkdir -p "$plots"
date=$(date -u +%Y-%m-%dT%H:%MZ)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr -s ' ,' ' ')
machine="$machine x$(getconf _NPROCESSORS_ONLN)"
# what was measured is the program, not the checkout that this script lies in: it knows its own commit
commit=$("$proa" version --json | sed -n 's/.*"commit":"\([^"]*\)".*/\1/p')
commit=${commit:-unknown}

for model in "$@"; do
    echo "$model" >&2
    load=$(cut -d ' ' -f 1 /proc/loadavg) # of others too: a number from a busy machine must show it
    name=$(basename "$model")
    # shellcheck disable=SC2086 # options are words
    table=$("$proa" bench "$model" --csv ${plots:+--plot "$plots/$name.svg"} $options)
    mkdir -p "$(dirname "$results")"
    [ -s "$results" ] || echo "date,machine,commit,load,$(echo "$table" | head -n 1)" >"$results"
    echo "$table" | tail -n +2 | sed "s|^|$date,$machine,$commit,$load,|" >>"$results"
done
echo "appended to $results" >&2
