#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decoding at batch 1 on the CPU with llama.cpp, on the same GGUF file and in turns.

    bench/llama_cpp.py --llama FOLDER [--proa PROGRAM] [--types q8_0,q4_0,q4_k_m] [--rounds 5] [--threads 2]

FOLDER holds llama.cpp built with the flags of this CPU (-DGGML_NATIVE=ON): its headers in include/ (those of include/
and of ggml/include/ of the sources) and libllama.so in lib/. The model has the shape of a Llama of 1.1 billion
parameters (22 layers, hidden size 2048, 4 of 32 heads for keys and values) and random codes; the files are made in
--folder and kept there. The rows go to results/llama_cpp.csv. Nothing else should run meanwhile.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = ["date", "machine", "commit", "llama_cpp", "type", "threads", "prompt", "tokens", "proa_tokens_s", "llama_tokens_s", "ratio",
           "proa_prompt_tokens_s", "llama_prompt_tokens_s", "prompt_ratio", "rounds"]
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCABULARY = 2048, 5632, 22, 32, 4, 32000


def random_blocks(rng, kind, rows, cols):
    """Blocks of a matrix as they are stored: random codes and scales, sizes such that a product keeps its size."""
    import numpy as np

    def f16(value):
        return np.frombuffer(np.float16(value / cols**0.5).tobytes(), np.uint8)

    if kind == "bf16":  # uniform, in [-1, 1) over the root of the inputs
        values = rng.random((rows, cols), dtype=np.float32)
        values *= 2
        values -= 1
        values *= 1 / cols**0.5
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(rows, -1)
    numbers, size = {"q8_0": (32, 34), "q4_0": (32, 18), "q4_k": (256, 144), "q6_k": (256, 210)}[kind]
    blocks = rng.integers(0, 256, (rows * cols // numbers, size), dtype=np.uint8)
    if kind == "q8_0":
        blocks[:, 2:][blocks[:, 2:] == 128] = 0  # no quantizer writes -128
        blocks[:, :2] = f16(1 / 127)
    elif kind == "q4_0":
        blocks[:, :2] = f16(1 / 8)
    elif kind == "q4_k":
        blocks[:, :2], blocks[:, 2:4] = f16(1 / (8 * 32)), f16(1 / 32)
    else:
        blocks[:, -2:] = f16(1 / (32 * 64))
    return blocks.reshape(rows, -1)


def stored_type(kind, name, layer):
    """q4_k_m is the mixture that llama.cpp's quantizer makes: the head and half of the layers' sensitive matrices in Q6_K."""
    if kind != "q4_k_m":
        return kind
    sensitive = ("attn_v" in name or "ffn_down" in name) and (layer < LAYERS // 8 or layer >= 7 * LAYERS // 8 or layer % 3 == 2)
    return "q6_k" if sensitive or name == "output.weight" else "q4_k"


def make_model(path, kind):
    """Writes the GGUF file."""
    import gguf
    import numpy as np

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("synthetic-1.1b")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")

    def matrix(name, rows, cols, layer=0):
        stored = stored_type(kind, name, layer)
        writer.add_tensor(name, random_blocks(rng, stored, rows, cols), raw_dtype=gguf.GGMLQuantizationType[stored.upper()])

    def ones(name):
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        matrix(block + "attn_q.weight", HIDDEN, HIDDEN, layer)
        matrix(block + "attn_k.weight", HIDDEN * KV_HEADS // HEADS, HIDDEN, layer)
        matrix(block + "attn_v.weight", HIDDEN * KV_HEADS // HEADS, HIDDEN, layer)
        matrix(block + "attn_output.weight", HIDDEN, HIDDEN, layer)
        ones(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", INNER, HIDDEN, layer)
        matrix(block + "ffn_up.weight", INNER, HIDDEN, layer)
        matrix(block + "ffn_down.weight", HIDDEN, INNER, layer)
    ones("output_norm.weight")
    matrix("output.weight", VOCABULARY, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build_peer(llama, folder):
    program = folder / "llama_cpp"
    library = llama / "lib"
    subprocess.run(["cc", "-O2", f"-I{llama}/include", ROOT / "bench/peers/llama_cpp.c", "-o", program, f"-L{library}", "-lllama", "-lggml",
                    "-lggml-base", f"-Wl,-rpath,{library}"], check=True)
    return program


def run_peer(program, model, args):
    out = subprocess.run([program, model, str(args.threads), str(args.prompt), str(args.tokens)], check=True, capture_output=True, text=True)
    return [float(number) for number in out.stdout.split(",")]


def run_proa(model, args):
    out = subprocess.run([args.proa, "bench", model, "--batches", "1", "--prompt", str(args.prompt), "--tokens", str(args.tokens), "--repeats",
                          "1", "--threads", str(args.threads), "--csv"], check=True, capture_output=True, text=True)
    row = next(csv.DictReader(out.stdout.splitlines()))
    return float(row["decode_tokens_s"]), float(row["prompt_tokens_s"])


def machine_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":", 1)[1] for line in lines if line.startswith("model name")), "unknown")
    return f"{' '.join(name.replace(',', ' ').split())} x{os.cpu_count()}"


def commit_of(program):
    return json.loads(subprocess.run([program, "version", "--json"], check=True, capture_output=True, text=True).stdout)["commit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=pathlib.Path, required=True)
    parser.add_argument("--llama-version", default="")
    parser.add_argument("--proa", default=str(ROOT / "build/release/proa"))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/proa-llama-cpp"))
    parser.add_argument("--types", default="q8_0,q4_0,q4_k_m")
    for name, value in [("rounds", 5), ("threads", 2), ("prompt", 128), ("tokens", 96)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/llama_cpp.csv")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    peer = build_peer(args.llama, args.folder)
    fresh = not args.csv.exists()
    with open(args.csv, "a", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        if fresh:
            table.writerow(COLUMNS)
        for kind in args.types.split(","):
            model = args.folder / f"llama-1.1b-{kind}.gguf"
            if not model.exists():
                make_model(model, kind)
            pairs = [(run_peer(peer, model, args), run_proa(model, args)) for _ in range(args.rounds)]
            (llama, llama_prompt), (proa, proa_prompt) = ([statistics.median(pair[side][column] for pair in pairs) for column in (0, 1)]
                                                          for side in (0, 1))
            print(f"{kind}: Proa {proa:.1f} tokens/s, llama.cpp {llama:.1f}: {proa / llama:.2f} times; "
                  f"prompt {proa_prompt:.0f} and {llama_prompt:.0f}: {proa_prompt / llama_prompt:.2f} times")
            table.writerow([datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), machine_name(),
                            commit_of(args.proa), args.llama_version, kind, args.threads, args.prompt, args.tokens, proa, llama,
                            f"{proa / llama:.3f}", proa_prompt, llama_prompt, f"{proa_prompt / llama_prompt:.3f}", args.rounds])
    return 0


if __name__ == "__main__":
    sys.exit(main())
