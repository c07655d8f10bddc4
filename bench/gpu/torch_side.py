# SPDX-License-Identifier: Apache-2.0
"""PyTorch's half of table.py: a process that holds one model at a time and times what it is told to.

A line of JSON in, a line of JSON out: {"model", "dtype", "work", "prompt", "tokens", "batch", "compiled"} -> {"value"} or
{"error"}. Random weights of the true shapes, made on the card. Rates are a second.
    decode   new tokens, batch x steps over the time of the steps beyond the first eight
    all      new tokens over all of generate(), prompt and encoder included
    prompt   seconds until a prompt's last logits
    encode   sequences
"""
import json
import sys
import time

import torch
from transformers import (BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, GPTJConfig, GPTJForCausalLM, LlamaConfig,
                          LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList, T5Config,
                          T5ForConditionalGeneration)

FIRST = 8  # steps that are not counted: those of the prompt and of warming up

SHAPES = {
    "gptj-6b": (GPTJForCausalLM, GPTJConfig, {}),
    "gpt2-xl": (GPT2LMHeadModel, GPT2Config, {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "llama2-7b": (LlamaForCausalLM, LlamaConfig, {"max_position_embeddings": 4096}),
    "llama3-8b": (LlamaForCausalLM, LlamaConfig,
                  {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 8192,
                   "vocab_size": 128256, "bos_token_id": 128000, "eos_token_id": 128001}),
    "t5-small": (T5ForConditionalGeneration, T5Config, {"decoder_start_token_id": 0}),
    "t5-3b": (T5ForConditionalGeneration, T5Config,
              {"d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32,
               "decoder_start_token_id": 0}),
    "bert-large": (BertModel, BertConfig,
                   {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                    "num_attention_heads": 16}),
}


class StopAfter(StoppingCriteria):
    """Ends every sequence at a length, whatever its tokens are."""

    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((input_ids.shape[0],), input_ids.shape[1] >= self.length, dtype=torch.bool,
                          device=input_ids.device)


class Side:
    """One model at a time."""

    def __init__(self):
        self.key, self.model = None, None

    def load(self, name, dtype):
        if self.key == (name, dtype):
            return
        self.key, self.model = None, None
        torch.cuda.empty_cache()
        kind, config, sizes = SHAPES[name]
        torch.set_default_dtype({"f16": torch.float16, "bf16": torch.bfloat16}[dtype])
        with torch.device("cuda"):
            self.model = kind(config(**sizes)).eval()
        torch.set_default_dtype(torch.float32)
        self.key = (name, dtype)

    def ids(self, ask):
        high = self.model.config.vocab_size
        return torch.randint(16, min(high, 30000), (ask["batch"], ask["prompt"]), device="cuda")

    def generate(self, ids, total, stop, compiled):
        """Seconds for `stop` of `total` tokens: the cache, and so what is compiled, is made for all of them."""
        begins = 1 if self.model.config.is_encoder_decoder else ids.shape[1]
        options = {"max_new_tokens": total, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        if compiled:
            options["cache_implementation"] = "static"
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.model.generate(ids, attention_mask=torch.ones_like(ids),
                            stopping_criteria=StoppingCriteriaList([StopAfter(begins + stop)]), **options)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def decode(self, ask):
        ids, total = self.ids(ask), FIRST + ask["tokens"]
        if not ask.get("again"):
            self.generate(ids, total, FIRST, ask["compiled"])
        short = self.generate(ids, total, FIRST, ask["compiled"])
        return ask["batch"] * ask["tokens"] / (self.generate(ids, total, total, ask["compiled"]) - short)

    def all(self, ask):
        ids, tokens = self.ids(ask), ask["tokens"]
        if not ask.get("again"):
            self.generate(ids, tokens, tokens, ask["compiled"])
        return ask["batch"] * tokens / self.generate(ids, tokens, tokens, ask["compiled"])

    def forward(self, ids, times, **options):
        self.model(ids, **options)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            self.model(ids, **options)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    def prompt(self, ask):
        return self.forward(self.ids(ask), 3, use_cache=True, logits_to_keep=1)

    def encode(self, ask):
        return ask["batch"] / self.forward(self.ids(ask), 10)


def main():
    out = sys.stdout
    sys.stdout = sys.stderr  # libraries print what they like; replies stay alone
    torch.backends.cuda.matmul.allow_tf32 = True
    side = Side()
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            with torch.inference_mode():
                side.load(ask["model"], ask["dtype"])
                reply = {"value": getattr(side, ask["work"])(ask)}
        except Exception as error:  # pylint: disable=broad-except  # told to the other side, which goes on
            reply = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:200]}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
