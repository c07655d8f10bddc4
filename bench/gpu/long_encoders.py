#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""long_encoders.py - Longformer and LongT5 (transient-global) of base size beside PyTorch, 4,096 tokens an input.

Writes checkpoints with random weights into the folder given as the argument, times transformers' classes on them, then
`proa bench`. Prints CSV: model, batch, ms of a pass by each, and how many times as fast Proa is. The tokens are random.
"""
import os
import subprocess
import sys
import time

import torch
from transformers import (
    LongformerConfig,
    LongformerForSequenceClassification,
    LongT5Config,
    LongT5EncoderModel,
)

TOKENS, BATCHES, REPEATS = 4096, (1, 8), 5


def longformer():
    config = LongformerConfig(attention_window=[512] * 12, max_position_embeddings=TOKENS + 2, vocab_size=50265,
                              type_vocab_size=1, num_labels=2)
    return LongformerForSequenceClassification(config).half()


def longt5():
    config = LongT5Config(vocab_size=32128, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12,
                          encoder_attention_type="transient-global", feed_forward_proj="gated-gelu")
    return LongT5EncoderModel(config).bfloat16()


def pass_of_torch(model, batch, global_token):
    ids = torch.randint(5, 32000, (batch, TOKENS), device="cuda")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if global_token:
        inputs["global_attention_mask"] = torch.zeros_like(ids)
        inputs["global_attention_mask"][:, 0] = 1
    with torch.no_grad():
        model(**inputs)
        torch.cuda.synchronize()
        begin = time.time()
        for _ in range(REPEATS):
            model(**inputs)
        torch.cuda.synchronize()
    return 1e3 * (time.time() - begin) / REPEATS


def rates_of_proa(folder, dtype):
    command = [os.environ.get("PROA_BIN", "proa"), "bench", folder, "--device", "cuda", "--csv", "--dtype", dtype]
    command += ["--prompt", str(TOKENS), "--batches", ",".join(map(str, BATCHES))]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    head, *lines = [line.split(",") for line in out.splitlines()]
    return [float(line[head.index("sequences_s")]) for line in lines]


def main():
    torch.manual_seed(0)
    print("model,dtype,batch,torch_ms,proa_ms,times")
    for name, make, dtype in (("longformer", longformer, "f16"), ("longt5", longt5, "bf16")):
        folder, model = os.path.join(sys.argv[1], name), make()
        model.save_pretrained(folder)
        model = model.cuda().eval()
        torch_ms = [pass_of_torch(model, batch, name == "longformer") for batch in BATCHES]
        del model
        torch.cuda.empty_cache()
        for batch, theirs, rate in zip(BATCHES, torch_ms, rates_of_proa(folder, dtype)):
            ours = 1e3 * batch / rate
            print(f"{name},{dtype},{batch},{theirs:.1f},{ours:.2f},{theirs / ours:.1f}", flush=True)


if __name__ == "__main__":
    main()
