# SPDX-License-Identifier: Apache-2.0
"""Text in, text out, with the tensors of the GPT-J guide of FasterTransformer's backend.

    proa serve --model-repository examples/repository/gptj-text-ensemble
    python examples/clients/gptj_text.py "It was a dark and stormy night" "The sea"

All prompts go as one batch. INPUT_0 is the text, INPUT_1 how many new tokens, INPUT_2 and INPUT_3 bad words and stop
words, for each prompt one line of comma-separated words as they stand in a text: " wind, rain" with their spaces.
OUTPUT_0 is each prompt with its continuation.
"""

import argparse
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils


def column(values, dtype):
    """One value for each prompt: shape [prompts, 1]."""
    return np.array(values, dtype=dtype).reshape(-1, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=["It was a dark and stormy night"])
    parser.add_argument("--url", help="host:port (default: localhost:8000, with --protocol grpc localhost:8001)")
    parser.add_argument("--protocol", choices=["http", "grpc"], default="http")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--tokens", type=int, default=16, help="new tokens for each prompt")
    parser.add_argument("--bad-words", default="", help="never written; comma-separated")
    parser.add_argument("--stop-words", default="", help="end the text; comma-separated")
    parser.add_argument("--top-k", type=int, default=1, help="1: always the most likely token")
    parser.add_argument("--top-p", type=float, default=0.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[args.protocol]
    client = triton.InferenceServerClient(
        args.url or {"http": "localhost:8000", "grpc": "localhost:8001"}[args.protocol]
    )
    n = len(args.prompts)
    tensors = {
        "INPUT_0": ("BYTES", column([p.encode() for p in args.prompts], object)),
        "INPUT_1": ("UINT32", column([args.tokens] * n, np.uint32)),
        "INPUT_2": ("BYTES", column([args.bad_words.encode()] * n, object)),
        "INPUT_3": ("BYTES", column([args.stop_words.encode()] * n, object)),
        "runtime_top_k": ("UINT32", column([args.top_k] * n, np.uint32)),
        "runtime_top_p": ("FP32", column([args.top_p] * n, np.float32)),
        "temperature": ("FP32", column([args.temperature] * n, np.float32)),
        "random_seed": ("UINT64", column([args.seed] * n, np.uint64)),
    }
    inputs = []
    for name, (datatype, values) in tensors.items():
        inputs.append(triton.InferInput(name, list(values.shape), datatype))
        inputs[-1].set_data_from_numpy(values)
    result = client.infer(args.model, inputs, outputs=[triton.InferRequestedOutput("OUTPUT_0")])
    for text in result.as_numpy("OUTPUT_0").reshape(n, -1)[:, 0]:
        print(text.decode())


if __name__ == "__main__":
    try:
        main()
    except (tritonclient.utils.InferenceServerException, OSError) as error:  # nobody serves there, or it refuses
        sys.exit(f"gptj_text.py: {error}")
