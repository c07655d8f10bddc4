#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
#> ./do COMMAND: installs what is missing (Debian and Ubuntu), then builds, runs, tests.
#>
set -eu
cd "$(dirname "$0")"
program=build/release/proa

# What a command needs, each as PROBE:PACKAGE. A probe is a program, a /file, a pkg-config NAME.pc, ...
build_needs='cc:gcc /usr/include/stdio.h:libc6-dev cmake:cmake ninja:ninja-build pkg-config:pkg-config
  json-c.pc:libjson-c-dev libpcre2-8.pc:libpcre2-dev libutf8proc.pc:libutf8proc-dev
  libprotobuf-c.pc:libprotobuf-c-dev protoc-c:protobuf-c-compiler zlib.pc:zlib1g-dev cmocka.pc:libcmocka-dev
  libevent.pc:libevent-dev libnghttp2.pc:libnghttp2-dev openssl.pc:libssl-dev
  libarchive.pc:libarchive-dev libcurl.pc:libcurl4-openssl-dev expat.pc:libexpat1-dev
  libedit.pc:libedit-dev'
test_needs='python3:python3 venv.py:python3-venv'
lint_needs='g++:g++ python3:python3 venv.py:python3-venv clang-format:clang-format clang-tidy:clang-tidy
  pmccabe:pmccabe shellcheck:shellcheck
  codespell:codespell'
browser_needs='chromium:chromium'
mpi_needs='ompi-c.pc:libopenmpi-dev mpirun:openmpi-bin'
fuzz_needs='clang:clang fuzzer.a:libclang-rt-dev'

say() { printf '%s\n' "$*" >&2; }
cpus() { nproc 2>/dev/null || echo 1; }

have() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *.pc) pkg-config --exists "${1%.pc}" 2>/dev/null ;;
    fuzzer.a) ls "$(clang -print-runtime-dir 2>/dev/null)"/libclang_rt.fuzzer* >/dev/null 2>&1 ;;
    libpython.so)
        python3 -c 'import ctypes, os, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
own = os.path.join(sysconfig.get_config_var("LIBDIR") or "", name)
ctypes.CDLL(own if os.path.exists(own) else name)' 2>/dev/null
        ;;
    venv.py) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# Installs the packages whose probe finds nothing: as root, through sudo, or says the line to type and exits 3.
need() {
    missing=
    for pair in "$@"; do have "${pair%%:*}" || missing="$missing ${pair#*:}"; done
    [ -n "$missing" ] || return 0
    line="apt-get update && apt-get install -y --no-install-recommends$missing"
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "missing (Debian's names of the packages):$missing"
        exit 3
    elif [ "${PROA_NO_INSTALL:-0}" = 1 ]; then
        say "missing:$missing"
        say "PROA_NO_INSTALL=1 forbids to install; as root: $line"
        exit 3
    fi
    root=
    if [ "$(id -u)" != 0 ]; then
        if ! { sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; }; }; then
            say "some packages are missing; type this once as root, then ./do again:"
            say "$line"
            exit 3
        fi
        root=sudo
    fi
    say "installing:$missing"
    mkdir -p build
    # shellcheck disable=SC2086 # $root and $missing are lists
    if ! { $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends $missing; } >build/install.log 2>&1; then
        tail -n 20 build/install.log >&2
        say "could not install; the whole log is build/install.log; as root: $line"
        exit 3
    fi
}

# configure PRESET: PROA_CMAKE adds options of cmake.
configure() {
    # shellcheck disable=SC2086 # lists
    need $build_needs
    mkdir -p "build/$1"
    # shellcheck disable=SC2086 # a list
    if ! cmake --preset "$1" ${PROA_CMAKE:-} >"build/$1/configure.log" 2>&1; then
        cat "build/$1/configure.log" >&2
        exit 1
    fi
    if [ "$1" = release ]; then ln -sf build/release/compile_commands.json compile_commands.json; fi
}

# build PRESET [TARGET...]: everything where no target is named.
build() {
    preset=$1
    shift
    # shellcheck disable=SC2086 # an option only where there are targets
    cmake --build --preset "$preset" ${1:+--target} "$@" >&2
}

configure_build() { configure "$1" && build "$@"; }

#>   run [--once]                       build, serve the shipped models, send a request by each protocol, and stay up until
#>                                      Ctrl-C (--once: end)
#>   run MODEL [PROMPT] [OPTION...]     build, then `proa run` with these arguments
cmd_run() {
    configure_build release proa
    case ${1:-} in
    '' | --once) exec tools/serve-tour "$@" ;;
    *) exec $program run "$@" ;;
    esac
}

#>   build [PRESET]                     release (default), dev, asan, tsan or fuzz, into build/PRESET
#>   build torch                        the plug-in of the backend pytorch, build/torch/libproa_torch.so, against the torch
#>                                      of python3, of $PROA_TORCH_PYTHON, or in the folder $PROA_TORCH
cmd_build() {
    case ${1:-release} in
    release | dev | asan | tsan | fuzz) ;;
    torch) build_torch && return ;;
    *)
        say "no build is called '$1': release, dev, asan, tsan, fuzz or torch"
        exit 2
        ;;
    esac
    configure_build "${1:-release}"
    if [ -x "build/${1:-release}/proa" ]; then say "built: build/${1:-release}/proa"; fi
}

# The folder of the Python package torch; nothing if there is none.
torch_folder() {
    if [ -n "${PROA_TORCH:-}" ]; then echo "$PROA_TORCH" && return; fi
    "${PROA_TORCH_PYTHON:-python3}" -c 'import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.submodule_search_locations[0] if spec else "")' 2>/dev/null
}

build_torch() {
    need g++:g++ cmake:cmake ninja:ninja-build
    torch=$(torch_folder || true)
    if [ -z "$torch" ]; then
        say "no torch: install it (pip install torch), or name its Python by PROA_TORCH_PYTHON"
        exit 3
    fi
    launcher=
    if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
    mkdir -p build/torch
    # shellcheck disable=SC2086 # an option only where there is ccache
    if ! cmake -G Ninja -S plugins/torch -B build/torch -DPROA_TORCH="$torch" $launcher >build/torch/configure.log 2>&1; then
        cat build/torch/configure.log >&2
        exit 1
    fi
    cmake --build build/torch >&2
}

#>   test                               build everything, run all tests
#>   test [--floor FLOOR]... [NAME...] [CTEST OPTION...]
#>                                      build and run some: the unit tests of a folder of src/ (--floor base), tests whose
#>                                      name or Python file contains NAME (base/test_str, wire/test_http), or what ctest's
#>                                      options choose (-L engine). Only what these tests need is built, never CUDA
#>   test --build-only ...              builds what such a line would build, and runs nothing
#>   test triton [--short] [OPTION...]  the server beside a real tritonserver, from PyPI (tests/triton/README.md)
#>   test torch                         TorchScript and AOTInductor models against torch itself, where torch is installed
cmd_test() {
    if [ "${1:-}" = torch ]; then
        if [ -z "$(torch_folder || true)" ]; then
            say "skipped, since no torch is installed (PROA_TORCH_PYTHON names a Python that has it)"
            say "0 passed, 0 failed, 1 skipped"
            return
        fi
        # shellcheck disable=SC2086 # a list
        need $test_needs
        configure_build "${PROA_PRESET:-release}" proa && build_torch
        exec tools/test tests/torchscript/
    fi
    if [ "${1:-}" = triton ]; then
        # shellcheck disable=SC2086 # a list
        need $test_needs libpython.so:libpython3-dev
        configure_build "${PROA_PRESET:-release}" proa
        exec tools/test "$@"
    fi
    run=1
    if [ "${1:-}" = --build-only ]; then run=0 && shift; fi
    # Before cmake looks for it. Where MPI cannot be installed its plug-in is left out, and its tests are skipped.
    # shellcheck disable=SC2086 # a list
    case "$*" in '' | *rank*) (need $mpi_needs) || say "tests/cli/test_rank_processes.py needs Open MPI" ;; esac
    configure "${PROA_PRESET:-release}"
    targets=$(tools/test --targets "$@")
    # the Python tests need the program, or nothing of the build; "all" are all tests
    # shellcheck disable=SC2086 # a list
    case $targets in '' | all | *proa*) need $test_needs ;; esac
    # Where Chromium cannot be installed the tests of the console are skipped.
    # shellcheck disable=SC2086 # a list
    case "$targets $*" in all* | *console*) (need $browser_needs) || say "tests/wire/test_console.py needs Chromium" ;; esac
    # shellcheck disable=SC2086 # a list
    if [ -n "$targets" ]; then build "${PROA_PRESET:-release}" $targets; fi
    if [ $run = 1 ]; then exec tools/test "$@"; fi
}

# ruff and mypy, of the versions in tests/lint/requirements.txt.
lint_venv() {
    list=tests/lint/requirements.txt stamp=build/lint-venv/requirements.txt
    if cmp -s "$list" "$stamp"; then return; fi
    python3 -m venv build/lint-venv
    build/lint-venv/bin/python -m pip install -q --disable-pip-version-check --no-compile -r "$list"
    cp "$list" "$stamp"
}

#>   lint                               form, names, layers, circles, complexity, headers, banned functions, clang-tidy, shell,
#>                                      prose, ruff and mypy over the Python code
cmd_lint() {
    # shellcheck disable=SC2086 # lists
    need $build_needs $lint_needs
    configure_build release
    lint_venv
    tools/lint
}

#>   fmt                                clang-format over the C files, in place
cmd_fmt() { need clang-format:clang-format && tools/fmt; }

#>   wheel [--cuda]                     the Python package as build/wheel/dist/*.whl; --cuda: and that of the plug-in
cmd_wheel() {
    # shellcheck disable=SC2086 # a list
    need $test_needs
    configure_build release proa_shared
    if [ "${1:-}" = --cuda ]; then build release proa_cuda; fi
    exec tools/wheel "$@"
}

#>   docs                               the documentation site as build/site, the manual pages as build/docs/man1
cmd_docs() {
    # shellcheck disable=SC2086 # a list
    need $test_needs mandoc:mandoc
    configure_build release proa
    exec tools/docs/build
}

#>   bench [OPTION...]                  `proa bench` on models/classics-10m (give another MODEL first)
cmd_bench() {
    configure_build release proa
    case ${1:-} in '' | -*) set -- models/classics-10m "$@" ;; esac
    exec $program bench "$@"
}

#>   fuzz [SECONDS]                     each libFuzzer target for so long (default 60)
cmd_fuzz() {
    # shellcheck disable=SC2086 # lists
    need $build_needs $fuzz_needs
    tools/fuzz "$@"
}

#>   doctor                             what this machine has, and what each missing thing would give
cmd_doctor() { tools/doctor; }

#>   clean                              removes build/, .venv/ and .venv-triton/
cmd_clean() { rm -rf build .venv .venv-triton compile_commands.json; }

#>   help                               this
#>
#> PROA_NO_INSTALL=1 forbids to install packages, PROA_CMAKE="-D..." adds options of cmake, PROA_PRESET=asan
#> makes `test` use that build.
cmd_help() { sed -n 's/^#> \{0,1\}//p' ./do; }

command=${1:-help}
if [ $# -gt 0 ]; then shift; fi
case $command in
run | build | test | lint | fmt | bench | wheel | docs | fuzz | doctor | clean | help) "cmd_$command" "$@" ;;
-h | --help) cmd_help ;;
*)
    say "unknown command '$command'"
    cmd_help >&2
    exit 2
    ;;
esac
