#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# curl.sh [--url URL] [--metrics URL] - one request with curl to each face of
#     proa serve models/m30k-t5 models/classics-10m models/polarity-bert
# and what it answers. URL is http://localhost:8000, that of the metrics http://localhost:8002.
set -eu
url=http://localhost:8000 metrics=http://localhost:8002
usage() { sed -n '3,5s/^# //p' "$0"; }
while [ $# -gt 0 ]; do
    case $1 in
    --url) url=$2 && shift 2 ;;
    --metrics) metrics=$2 && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done

# ask WHAT PATH [BODY]: the request as one may type it, then its answer.
ask() {
    printf '\n%s\n$ curl -sN %s' "$1" "$url$2"
    if [ $# -gt 2 ]; then
        printf " -d '%s'\n" "$3"
        curl -fsSN "$url$2" -d "$3"
    else
        printf '\n'
        curl -fsSN "$url$2"
    fi
    printf '\n'
}

printf 'ready: %s\n' "$(curl -s -o /dev/null -w '%{http_code}' "$url/v2/health/ready")"
ask "KServe v2: what is this model?" /v2/models/polarity-bert
ask "KServe v2: tensors as JSON" /v2/models/polarity-bert/infer \
    '{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["a warm and funny film"]}],"outputs":[{"name":"scores"}]}'
ask "Triton's generate: a translation" /v2/models/m30k-t5/generate \
    '{"text_input":"translate English to German: A dog runs on the beach."}'
ask "the same by beam search" /v2/models/m30k-t5/generate \
    '{"text_input":"translate English to German: A dog runs on the beach.","beams":4,"beams_returned":2}'
ask "Triton's generate_stream: an event for each token" /v2/models/classics-10m/generate_stream \
    '{"text_input":"The sea","max_tokens":3,"stream":true}'
ask "OpenAI: models" /v1/models
ask "OpenAI: a completion" /v1/completions \
    '{"model":"classics-10m","prompt":"It was a dark and stormy","max_tokens":8,"temperature":0}'
ask "OpenAI: the same, streamed" /v1/completions \
    '{"model":"classics-10m","prompt":"It was a dark and stormy","max_tokens":3,"temperature":0,"stream":true}'
ask "OpenAI: a vector" /v1/embeddings \
    '{"model":"polarity-bert","input":"a warm and funny film","encoding_format":"base64"}'
printf '\nmetrics\n$ curl -s %s/metrics\n' "$metrics"
curl -fsS "$metrics/metrics" | grep '^proa_requests_in_flight'
