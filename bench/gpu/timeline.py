#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When does each kernel begin and end? Those of recorded passes and those launched early too, by CUPTI (timeline.c).

    bench/gpu/timeline.py [--last 800] [--show 16] [--keep FILE] -- build/release/proa bench --synthetic bert-large --device cuda ...

Of the last kernels: the first ones one by one, then each kind's mean. `takes` is from its own begin to its end (launched early it
also waits), `adds` from the end of the kernel before to its end: these add up to the time of a pass. It itself costs a tenth or two."""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
Kernel = collections.namedtuple("Kernel", "begin end grid threads shared name")


def cuda_home():
    nvcc = shutil.which("nvcc")
    return pathlib.Path(os.environ.get("CUDA_HOME", pathlib.Path(nvcc).resolve().parents[1] if nvcc else "/usr/local/cuda"))


def build(folder):
    """The library, and where the dynamic linker finds CUPTI."""
    home = cuda_home()
    places = [p for p in (home / "lib64", home / "lib", home / "extras/CUPTI/lib64") if list(p.glob("libcupti.so*"))]
    if not places:
        sys.exit(f"timeline: no libcupti.so under {home} (CUDA_HOME names the toolkit)")
    includes = [f"-I{p}" for p in (home / "include", home / "extras/CUPTI/include") if p.exists()]
    library = folder / "timeline.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", *includes, "-o", library, HERE / "timeline.c", f"-L{places[0]}", "-lcupti"], check=True)
    return library, str(places[0])


def read(path):
    kernels = []
    for line in path.read_text(encoding="utf-8").splitlines():
        begin, end, grid, threads, shared, name = line.split("\t")
        kernels.append(Kernel(int(begin) / 1e3, int(end) / 1e3, grid, int(threads), int(shared), name))
    return sorted(kernels, key=lambda k: k.end)


def short(name):
    """A mangled name's own part."""
    found = re.match(r"_ZN?S?t?L?(\d+)", name)
    while found and name[found.end() :]:
        length = int(found.group(1))
        last, rest = name[found.end() : found.end() + length], name[found.end() + length :]
        found = re.match(r"(\d+)", rest)
        if not found:
            return last
        name = rest
    return name[:40]


def show(kernels, count):
    first, before = kernels[0].begin, None
    print(f"{'begins':>10}{'ends':>10}{'takes':>8}{'adds':>8}  {'grid':<12}{'threads':>8}{'shared':>8}  kernel, us")
    for k in kernels[:count]:
        adds = f"{k.end - before:8.2f}" if before is not None else " " * 8
        print(f"{k.begin - first:10.2f}{k.end - first:10.2f}{k.end - k.begin:8.2f}{adds}  {k.grid:<12}{k.threads:8}{k.shared:8}  {short(k.name)}")
        before = k.end


def sum_up(kernels):
    kinds, before = {}, None
    for k in kernels:
        kind = kinds.setdefault((short(k.name), k.grid), [0, 0.0, 0.0])
        kind[0] += 1
        kind[1] += k.end - k.begin
        kind[2] += k.end - before if before is not None else 0.0
        before = k.end
    print(f"\n{'count':>7}{'takes':>8}{'adds':>8}  {'grid':<12}kernel, us each")
    for (name, grid), (count, takes, adds) in kinds.items():
        print(f"{count:7}{takes / count:8.2f}{adds / count:8.2f}  {grid:<12}{name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--last", type=int, default=800, help="so many kernels at the end of the run")
    parser.add_argument("--show", type=int, default=16, help="of these one by one")
    parser.add_argument("--keep", type=pathlib.Path, help="all lines into this file")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        library, cupti = build(pathlib.Path(place))
        lines = args.keep or pathlib.Path(place) / "kernels.tsv"
        lines.unlink(missing_ok=True)
        paths = os.pathsep.join(filter(None, (cupti, os.environ.get("LD_LIBRARY_PATH"))))
        env = {**os.environ, "CUDA_INJECTION64_PATH": str(library), "PROA_TIMELINE": str(lines), "LD_LIBRARY_PATH": paths}
        code = subprocess.run(args.command, env=env, check=False).returncode
        kernels = read(lines)[-args.last :] if lines.exists() else []
    if not kernels:
        sys.exit(f"timeline: the command (exit status {code}) ran no kernel")
    show(kernels, args.show)
    sum_up(kernels)


if __name__ == "__main__":
    main()
