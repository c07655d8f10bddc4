#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make.sh - writes what protoc makes of each tests/fuzz/corpus/pbtxt/good-*: NAME.pb, the wire encoding of a ModelConfig
# (made with protoc 3.21.12, Debian's protobuf-compiler). tests/unit/proto/test_pbtxt.c reads them.
set -eu
cd "$(dirname "$0")"
rm -f ./*.pb
for file in ../../fuzz/corpus/pbtxt/good-*; do
    name=${file##*/}
    protoc -I ../../../src/proto --encode=inference.ModelConfig model_config.proto <"$file" >"$name.pb"
done
