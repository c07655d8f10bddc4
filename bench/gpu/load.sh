#!/bin/sh
# Seconds from the start of `proa run` to its first token, of a random GPT-J-6B checkpoint (12.1 GB, f16) that lies in the page cache.
#   bench/gpu/load.sh [-d FOLDER] [-l LAYERS] [-r RUNS] [-- OPTIONS of proa run]
# -d: where the checkpoint is written and, unless it was there before, removed again; a folder under /dev/shm without it.
# -l: fewer layers make a smaller one. PROA_BIN names the program.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
folder=/dev/shm/proa-load-$$ layers=28 runs=3
while getopts d:l:r: option; do
    case $option in
    d) folder=$OPTARG ;;
    l) layers=$OPTARG ;;
    r) runs=$OPTARG ;;
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
i=0
while [ "$i" -lt "$runs" ]; do
    start=$(date +%s%N)
    "$proa" run "$folder" --device cuda --ids "464 3290 4966" --max-tokens 1 --verbose "$@" >/dev/null 2>"$folder/said" ||
        { cat "$folder/said" >&2; exit 1; }
    end=$(date +%s%N)
    awk -v ns="$((end - start))" 'BEGIN { printf "%.2f s to the first token and the end\n", ns / 1e9 }'
    sed 's/^/    /' "$folder/said"
    i=$((i + 1))
done
