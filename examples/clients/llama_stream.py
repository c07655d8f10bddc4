# SPDX-License-Identifier: Apache-2.0
"""Text token by token over a gRPC stream, with the tensors of TensorRT-LLM's ensemble.

    proa serve --model-repository examples/repository/llama-streaming
    python examples/clients/llama_stream.py "It was a dark and stormy night" --stop-words "." --tokens 40

Several prompts share one stream; their replies carry the request's id. The last reply of a request says
triton_final_response. Stop words and bad words are given as they stand in a text: " wind" with its space.
"""
import argparse
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def tensor(name, datatype, values):
    made = triton.InferInput(name, [1, len(values)], datatype)
    dtype = {"BYTES": object, "INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": bool}[datatype]
    made.set_data_from_numpy(np.array([values], dtype=dtype))
    return made


def inputs_of(prompt, args):
    inputs = [
        tensor("text_input", "BYTES", [prompt.encode()]),
        tensor("max_tokens", "INT32", [args.tokens]),
        tensor("stream", "BOOL", [not args.whole]),
    ]
    for name, words in (("bad_words", args.bad_words), ("stop_words", args.stop_words)):
        if words:
            inputs.append(tensor(name, "BYTES", [word.encode() for word in words]))
    for name, datatype, value in (
        ("temperature", "FP32", args.temperature),
        ("top_k", "INT32", args.top_k),
        ("top_p", "FP32", args.top_p),
        ("seed", "UINT64", args.seed),
    ):
        if value is not None:
            inputs.append(tensor(name, datatype, [value]))
    return inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=["It was a dark and stormy night"])
    parser.add_argument("--url", default="localhost:8001", help="host:port of gRPC")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens at most")
    parser.add_argument("--stop-words", nargs="+", default=[], help="end the text")
    parser.add_argument("--bad-words", nargs="+", default=[], help="never written")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--whole", action="store_true", help="one reply for each prompt")
    args = parser.parse_args()

    replies = queue.Queue()
    texts = [""] * len(args.prompts)
    running = len(args.prompts)
    with triton.InferenceServerClient(args.url) as client:
        client.is_server_live()  # the error of a stream would not say why nobody answers
        client.start_stream(lambda result, error: replies.put((result, error)))
        for i, prompt in enumerate(args.prompts):
            client.async_stream_infer(
                args.model, inputs_of(prompt, args), request_id=str(i), enable_empty_final_response=True
            )
        while running:
            result, error = replies.get()
            if error:
                sys.exit(str(error))
            response = result.get_response()
            if response.outputs:
                piece = b"".join(result.as_numpy("text_output").reshape(-1)).decode()
                texts[int(response.id)] += piece
                if len(texts) == 1:
                    print(piece, end="", flush=True)
            running -= response.parameters["triton_final_response"].bool_param
    if len(texts) == 1:
        print()
    else:
        print("\n".join(prompt + text for prompt, text in zip(args.prompts, texts)))


if __name__ == "__main__":
    try:
        main()
    except InferenceServerException as error:  # nobody serves there
        sys.exit(f"llama_stream.py: {error}")
