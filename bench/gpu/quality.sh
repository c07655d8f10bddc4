#!/bin/sh
# What each format costs in quality: BLEU of m30k-t5 on Multi30k test 2016 (English to German), and perplexity of a
# language model, on the CPU in f32 and on the GPU in every format. Prints a table; formats that this build does not
# have are named as such.
#   bench/gpu/quality.sh [-m LANGUAGE_MODEL] [-t TRANSLATOR] [-l LINES] [-w WINDOWS] [-d DEVICE]
# -m: ../shared/models/classics-28m where it is, else models/classics-10m. -l, -w: only so many lines and windows.
# PROA_BIN names the program.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
lm=$here/../shared/models/classics-28m translator=$here/models/m30k-t5 lines=0 windows=0 device=cuda
[ -d "$lm" ] || lm=$here/models/classics-10m
while getopts m:t:l:w:d: option; do
    case $option in
    m) lm=$OPTARG ;;
    t) translator=$OPTARG ;;
    l) lines=$OPTARG ;;
    w) windows=$OPTARG ;;
    d) device=$OPTARG ;;
    *) exit 2 ;;
    esac
done
proa=${PROA_BIN:-$here/build/release/proa}
data=$here/tests/golden/data
[ -x "$proa" ] || { echo "quality.sh: no program at $proa: ./do build, or name it with PROA_BIN" >&2; exit 1; }

# value KEY OPTIONS...: one number of the report, "-" with the reason on standard error
value() {
    key=$1
    shift
    if out=$("$proa" eval "$@" --json); then
        echo "$out" | sed "s/.*\"$key\":\([-0-9.e]*\).*/\1/"
    else
        echo -
    fi
}

# Greedy translation is the CPU's reference too; --dtype auto would be the checkpoint's own type.
row() {
    where=$1 dtype=$2 quant=$3 pages=${4:-auto}
    bleu=$(value bleu "$translator" --source "$data/test_2016_flickr.en.gz" --target "$data/test_2016_flickr.de.gz" \
        --prefix "translate English to German: " --limit "$lines" --device "$where" --dtype "$dtype" --quant "$quant" --kv-dtype "$pages")
    perplexity=$(value perplexity "$lm" --data "$data/classics-validation.txt.gz" --limit "$windows" \
        --device "$where" --dtype "$dtype" --quant "$quant" --kv-dtype "$pages")
    [ -n "${bleu0:-}" ] || { bleu0=$bleu perplexity0=$perplexity; }
    echo "$where $dtype $quant$([ "$pages" = auto ] || echo "+$pages") $bleu $perplexity $bleu0 $perplexity0" | awk '
        function less(a, b) { return a == "-" || b == "-" ? "-" : sprintf("%+.3f", a - b) }
        function per(a, b) { return a == "-" || b == "-" ? "-" : sprintf("%+.3f %%", 100 * (a / b - 1)) }
        { printf "%-8s %-6s %-8s %8s %8s   %11s %10s\n", $1, $2, $3, $4 == "-" ? $4 : sprintf("%.2f", $4), less($4, $6),
          $5 == "-" ? $5 : sprintf("%.4f", $5), per($5, $7) }'
}

echo "$(basename "$translator") and $(basename "$lm")"
echo "device   dtype  quant        BLEU   change    perplexity     change"
row cpu f32 none
row "$device" f32 none
row "$device" f16 none
row "$device" bf16 none
row "$device" f16 fp8
row "$device" f16 fp8 fp8 # keys and values too
row "$device" f16 int8
row "$device" f16 int4
