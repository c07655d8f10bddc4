#!/bin/sh
# Seconds from the start of `proa run` to its first token, of a random GPT-J-6B checkpoint (12.1 GB, f16) that lies in the page cache.
#   bench/gpu/load.sh [-d FOLDER] [-l LAYERS] [-r RUNS] [-b SECONDS] [-- OPTIONS of proa run]
# -d: where the checkpoint is written and, unless it was there before, removed again; a folder under /dev/shm without it.
# -l: fewer layers make a smaller one. -b: the bar, 6 s; exit 1 when the median run takes longer. PROA_BIN names the program.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=/dev/shm/proa-load-$$ layers=28 runs=3 bar=6
while getopts d:l:r:b: option; do
    case $option in
    d) folder=$OPTARG ;;
    l) layers=$OPTARG ;;
    r) runs=$OPTARG ;;
    b) bar=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
proa=${PROA_BIN:-$here/build/release/proa}
[ -x "$proa" ] || { echo "load.sh: no program at $proa: ./do build, or name it with PROA_BIN" >&2; exit 1; }
if [ ! -e "$folder" ]; then
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM
    python3 "$(dirname "$0")/checkpoint.py" "$folder" --layers "$layers" >&2
fi
cat "$folder"/*.safetensors >/dev/null # warm
i=0 took=
while [ "$i" -lt "$runs" ]; do
    start=$(date +%s%N)
    "$proa" run "$folder" --device cuda --ids "464 3290 4966" --max-tokens 1 --verbose "$@" >/dev/null 2>"$folder/said" ||
        { cat "$folder/said" >&2; exit 1; }
    end=$(date +%s%N)
    took="$took $((end - start))"
    awk -v ns="$((end - start))" 'BEGIN { printf "%.2f s to the first token and the end\n", ns / 1e9 }'
    sed 's/^/    /' "$folder/said"
    i=$((i + 1))
done
bytes=$(wc -c "$folder"/*.safetensors | awk "END { print \$1 }")
# shellcheck disable=SC2086 # numbers are words
printf '%s\n' $took | sort -n | awk -v bar="$bar" -v bytes="$bytes" '{ ns[NR] = $1 }
    END { s = ns[int((NR + 1) / 2)] / 1e9
          printf "%.1f GB, median of %d runs %.2f s, bar %g s: %s\n", bytes / 1e9, NR, s, bar, s <= bar ? "ok" : "MISS"
          exit s > bar }'
