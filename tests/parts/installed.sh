#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# installed.sh CMAKE BUILD CC SOURCE LIBDIR - installs a build into a folder of its own, moves it, compiles examples/generate.c
# against it with pkg-config and with CMake's find_package, and runs it.
set -eu
cmake=$1 build=$2 cc=$3 source=$4 libdir=$5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/first" >"$folder/log" || { cat "$folder/log" && exit 1; }
mv "$folder/first" "$folder/prefix"
"$folder/prefix/bin/proa" version
gzip -dc "$folder/prefix/share/man/man1/proa-run.1.gz" | grep -q temperature
PKG_CONFIG_PATH=$folder/prefix/$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # lists
"$cc" "$source/examples/generate.c" $(pkg-config --cflags --libs proa) -o "$folder/generate"
mkdir "$folder/project"
cat >"$folder/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(proa 0.1 REQUIRED)
add_executable(user $source/examples/generate.c)
target_link_libraries(user PRIVATE proa::proa)
END
if ! { "$cmake" -S "$folder/project" -B "$folder/project/build" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$folder/prefix" && "$cmake" --build "$folder/project/build"; } >"$folder/log"; then
    cat "$folder/log"
    exit 1
fi
ldd "$folder/project/build/user" | grep -q "$folder/prefix/"
LD_LIBRARY_PATH=$folder/prefix/$libdir "$folder/generate" "$source/models/classics-10m" "It was a dark and stormy night"
