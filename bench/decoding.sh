#!/bin/sh
# What decoding options cost: bench-decoding over a model, and the sampler at a vocabulary of 128,000. Appends the
# numbers to a table, each with its bar.
#   bench/decoding.sh [-o FILE.csv] [-t THREADS] [-r RUNS] [MODEL...]
# -o: bench/results/decoding.csv without it. Programs are those of the build folder that PROA_BUILD names (build/release
# without it): ninja -C FOLDER proa bench-decoding bench-sampler. Nothing else should run meanwhile.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
results=$here/bench/results/decoding.csv threads=2 runs=7
while getopts o:t:r: option; do
    case $option in
    o) results=$OPTARG ;;
    t) threads=$OPTARG ;;
    r) runs=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
build=${PROA_BUILD:-$here/build/release}
for program in proa tests/bench-decoding tests/bench-sampler; do
    [ -x "$build/$program" ] || { echo "decoding.sh: no program at $build/$program" >&2; exit 1; }
done
[ $# -gt 0 ] || set -- "$here/models/classics-10m"

date=$(date -u +%Y-%m-%dT%H:%MZ)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr -s ' ,' ' ')
machine="$machine x$(getconf _NPROCESSORS_ONLN)"
commit=$("$build/proa" version --json | sed -n 's/.*"commit":"\([^"]*\)".*/\1/p')
commit=${commit:-unknown}

# append MODEL LOAD: lines of standard input behind what they were measured with
append() {
    mkdir -p "$(dirname "$results")"
    [ -s "$results" ] || echo "date,machine,commit,load,model,threads,what,value,unit,bar" >"$results"
    sed "s|^|$date,$machine,$commit,$2,$1,$threads,|" >>"$results"
}

for model in "$@"; do
    echo "$model" >&2
    load=$(cut -d ' ' -f 1 /proc/loadavg) # of others too
    table=$("$build/tests/bench-decoding" "$model" "$threads" "$runs")
    echo "$table" | append "$(basename "$model")" "$load"
done
echo "sampler" >&2
load=$(cut -d ' ' -f 1 /proc/loadavg)
table=$("$build/tests/bench-sampler" "$threads")
echo "$table" | sed -n 's/^\(top_k 40 + top_p 0.9\),128000,64,[0-9]*,\([a-z]*\),\([^,]*\),\(.*\)/\1 \2: 64 rows of 128000; median,\3,ms,< 2\
\1 \2: 64 rows of 128000; least,\4,ms,< 2/p' | append - "$load"
echo "appended to $results" >&2
