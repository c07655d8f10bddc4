#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# http.sh [ROUNDS [SECONDS [BYTES]]] - requests per second of a static reply of BYTES (100) under wrk -t1 -c64: nginx with
# one worker and ours with one loop, in turn, ROUNDS (5) times for SECONDS (3) each, since other work on the machine makes
# single runs lie. Prints each round, the medians and their ratio. Needs nginx and wrk.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-3} bytes=${3:-100}
for tool in nginx wrk; do
    command -v $tool >/dev/null || { echo "http.sh: $tool is not installed" >&2 && exit 2; }
done
ninja -C build/release bench-http-static >/dev/null
server=$(find build/release -name bench-http-static -type f)
folder=$(mktemp -d)
body=$(head -c "$bytes" /dev/zero | tr '\0' x)
cat >"$folder/nginx.conf" <<EOF
worker_processes 1;
daemon off;
pid $folder/pid;
error_log $folder/error.log;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 1000000000;
    server { listen 127.0.0.1:18090; location / { default_type text/plain; return 200 "$body"; } }
}
EOF
nginx -c "$folder/nginx.conf" -p "$folder" 2>/dev/null &
nginx_pid=$!
"$server" 18091 "$bytes" &
our_pid=$!
trap 'kill $nginx_pid $our_pid 2>/dev/null; rm -rf "$folder"' EXIT INT TERM
sleep 1

# rate PORT: what wrk counts
rate() { wrk -t1 -c64 -d"${seconds}s" "http://127.0.0.1:$1/" | awk '/Requests\/sec/ { print $2 }'; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

i=0
while [ "$i" -lt "$rounds" ]; do
    theirs=$(rate 18090)
    ours=$(rate 18091)
    echo "$theirs" >>"$folder/theirs"
    echo "$ours" >>"$folder/ours"
    echo "nginx $theirs  ours $ours"
    i=$((i + 1))
done
awk -v n="$(median <"$folder/theirs")" -v o="$(median <"$folder/ours")" \
    'BEGIN { printf "median: nginx %.0f, ours %.0f requests/s: %.0f %%\n", n, o, 100 * o / n }'
