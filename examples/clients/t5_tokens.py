# SPDX-License-Identifier: Apache-2.0
"""Translation where the client makes the tokens and reads them, with the tensors of the T5 guide of
FasterTransformer's backend.

    proa serve --model-repository examples/repository/t5-client-tokens
    python examples/clients/t5_tokens.py --tokenizer models/m30k-t5 "translate English to German: A dog runs."

All texts go as one batch, padded to the longest; sequence_length says how much of each row counts. output_ids comes
back as [texts, beams, tokens], the best beam first.
"""

import argparse
import pathlib
import sys

import numpy as np
import tokenizers
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", default=["translate English to German: A dog runs on the beach."])
    parser.add_argument("--tokenizer", default="models/m30k-t5", help="the model's folder, for its tokenizer.json")
    parser.add_argument("--url", help="host:port (default: localhost:8000, with --protocol grpc localhost:8001)")
    parser.add_argument("--protocol", choices=["http", "grpc"], default="http")
    parser.add_argument("--model", default="fastertransformer")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens at most")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="print all beams, with their log-probabilities")
    args = parser.parse_args()

    triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[args.protocol]
    client = triton.InferenceServerClient(
        args.url or {"http": "localhost:8000", "grpc": "localhost:8001"}[args.protocol]
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(args.tokenizer) / "tokenizer.json"))
    rows = [e.ids for e in tokenizer.encode_batch(args.texts)]
    n, width = len(rows), max(map(len, rows))
    tensors = {
        "input_ids": ("UINT32", np.array([row + [0] * (width - len(row)) for row in rows], dtype=np.uint32)),
        "sequence_length": ("UINT32", np.array([[len(row)] for row in rows], dtype=np.uint32)),
        "max_output_len": ("UINT32", np.full([n, 1], args.tokens, dtype=np.uint32)),
        "beam_width": ("UINT32", np.full([n, 1], args.beams, dtype=np.uint32)),
        "is_return_log_probs": ("BOOL", np.full([n, 1], args.all)),
    }
    inputs = []
    for name, (datatype, values) in tensors.items():
        inputs.append(triton.InferInput(name, list(values.shape), datatype))
        inputs[-1].set_data_from_numpy(values)
    result = client.infer(args.model, inputs)
    ids, lengths = result.as_numpy("output_ids"), result.as_numpy("sequence_length")
    scores = result.as_numpy("cum_log_probs")
    for row in range(n):
        for beam in range(args.beams if args.all else 1):
            text = tokenizer.decode(ids[row, beam, : lengths[row, beam]].tolist(), skip_special_tokens=True)
            print(f"{scores[row, beam]:.4f} {text}" if args.all else text)


if __name__ == "__main__":
    try:
        main()
    except (tritonclient.utils.InferenceServerException, OSError) as error:  # nobody serves there, or it refuses
        sys.exit(f"t5_tokens.py: {error}")
