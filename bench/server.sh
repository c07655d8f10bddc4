#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures what the server itself costs, with an identity model and clients on the same machine, and appends the numbers to a
# table; about two minutes. Nothing else should run meanwhile. Needs python3, wrk, nginx and h2load (Debian: wrk,
# nginx-light, nghttp2-client).
#   bench/server.sh [-o FILE.csv] [-p FOLDER] [-r ROUNDS] [-s SECONDS]
# -o: bench/results/server.csv without it. -p: where the plots go, bench/results without it. -r, -s: 3 rounds of 2 seconds.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
results=$here/bench/results/server.csv plots=$here/bench/results rounds=3 seconds=2
while getopts o:p:r:s: option; do
    case $option in
    o) results=$OPTARG ;;
    p) plots=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    *) exit 2 ;;
    esac
done
proa=${PROA_BIN:-$here/build/release/proa}
[ -x "$proa" ] || { echo "server.sh: no program at $proa: ./do build, or name it with PROA_BIN" >&2; exit 1; }
for tool in python3 wrk nginx h2load; do
    command -v $tool >/dev/null || { echo "server.sh: $tool is not installed" >&2; exit 1; }
done
mkdir -p "$(dirname "$results")" "$plots"
exec python3 "$here/bench/server.py" --proa "$proa" --csv "$results" --plots "$plots" --rounds "$rounds" --seconds "$seconds"
