#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the guides of fastertransformer_backend and tensorrtllm_backend against Proa, with their own model repositories and clients,
and prints a table: which script, what was changed, what came of it. README.md says what is needed."""
import argparse
import pathlib
import socket
import sys

import fastertransformer
import guide
import tensorrtllm

ROOT = pathlib.Path(__file__).resolve().parents[2]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fastertransformer", type=pathlib.Path, metavar="FT_CHECKOUT",
                        help="fastertransformer_backend, branch dev/t5_gptj_blog; - for none")
    parser.add_argument("tensorrtllm", type=pathlib.Path, nargs="*", metavar="TRTLLM_CHECKOUT",
                        help="tensorrtllm_backend, release 0.5.0 or a later one with all_models")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models",
                        help="a folder with classics-10m and m30k-t5 (default: the shipped ones)")
    parser.add_argument("--gptj", type=pathlib.Path, help="Hugging Face folder of a GPT-J (default: a small random one is made)")
    parser.add_argument("--t5", type=pathlib.Path, help="of a T5 (default: m30k-t5)")
    parser.add_argument("--llama", type=pathlib.Path, help="of a Llama (default: classics-10m)")
    parser.add_argument("--tokenizer-type", default="auto", choices=["auto", "llama", "t5"], help="release 0.5.0's tokenizer_type (default auto)")
    parser.add_argument("--lines", type=int, default=200, help="how many lines T5 translates; 0: all 3,003 (default 200)")
    parser.add_argument("--keep", action="store_true", help="keep the prepared repositories and what the clients wrote")
    o = parser.parse_args()
    o.t5 = (o.t5 or o.models / "m30k-t5").resolve()
    o.llama = (o.llama or o.models / "classics-10m").resolve()
    o.gptj = o.gptj and o.gptj.resolve()
    return o


def check_ports():
    """Some clients know only Triton's usual ports."""
    for port in (8000, 8001, 8002):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"run.py: something listens on port {port} already; the guides' clients ask there")


def main():
    o, table = options(), guide.Table()
    check_ports()
    with guide.work_folder(o.keep) as work:
        if str(o.fastertransformer) != "-":
            fastertransformer.run(table, o.fastertransformer.resolve(), work, o)
        for i, checkout in enumerate(o.tensorrtllm):
            (work / str(i)).mkdir()
            tensorrtllm.run(table, checkout.resolve(), work / str(i), o)
    print(table.markdown())
    sys.exit(1 if table.failed else 0)


if __name__ == "__main__":
    main()
