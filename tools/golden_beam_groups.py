#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/beam_groups.json: diverse beam searches that transformers 4.56.2 itself ran (the last release
with _group_beam_search in its core), over the made-up model of beam_table_model.py.

generate() runs unchanged, but for two functions that it calls: log_softmax does nothing, since the model's values are
log-probabilities already, exact in f32, and shall stay so; and topk, which leaves the order of equals open, takes the
lower index first.
Needs torch and transformers 4.56.2:  python3 tools/golden_beam_groups.py > tests/golden/beam_groups.json
"""
import json
import types
import warnings

import numpy as np
import torch
import transformers
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.generation import utils
from transformers.modeling_outputs import CausalLMOutput

from beam_table_model import row

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")


def stable_topk(x, k, dim=-1, largest=True, sorted=True):
    values, indices = torch.sort(x, dim=dim, descending=True, stable=True)
    return values[:, :k], indices[:, :k]


def replace_functions():
    torch.topk = stable_topk
    functional = types.SimpleNamespace(**{k: getattr(torch.nn.functional, k) for k in dir(torch.nn.functional)})
    functional.log_softmax = lambda x, dim: x
    utils.nn = types.SimpleNamespace(**{k: getattr(torch.nn, k) for k in dir(torch.nn)})
    utils.nn.functional = functional


class Config(PretrainedConfig):
    model_type = "made_up"


class Model(PreTrainedModel, GenerationMixin):
    config_class = Config

    def __init__(self, case):
        super().__init__(Config(vocab_size=case["vocab"], is_decoder=True))
        self.case = case
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}

    def forward(self, input_ids, **kwargs):
        rows = [row(self.case, sequence[1:]) for sequence in input_ids.tolist()]
        logits = torch.tensor(np.stack(rows), dtype=torch.float32)
        return CausalLMOutput(logits=logits[:, None, :])


def search(case):
    out = Model(case).generate(
        torch.zeros(1, 1, dtype=torch.long), num_beams=case["beams"], num_beam_groups=case["groups"],
        diversity_penalty=case["diversity_penalty"], length_penalty=case["length_penalty"],
        early_stopping={"true": True, "false": False, "never": "never"}[case["early"]],
        num_return_sequences=case["returned"], max_new_tokens=case["max_new"], eos_token_id=case["end_ids"] or None,
        pad_token_id=case["pad_id"] if case["pad_id"] >= 0 else None, do_sample=False, use_cache=False,
        return_dict_in_generate=True, output_scores=True)
    results = []
    for sequence, score in zip(out.sequences.tolist(), out.sequences_scores):
        # up to the end token (transformers writes the first end id, whichever came); without one it is not padded
        ids = sequence[1:]
        ends = [i for i, token in enumerate(ids) if token in case["end_ids"]]
        results.append((ids[: ends[0] + 1] if ends else ids, float(score)))
    return len(out.scores), results


def main():
    random = np.random.default_rng(23)
    replace_functions()
    cases = []
    while len(cases) < 160:
        size, groups = int(random.integers(1, 5)), int(random.choice([2, 2, 3, 4]))
        ends = int(random.choice([0, 1, 1, 1, 1, 2]))
        V = int(random.choice([5, 8, 11, 30, 50]))
        case = {
            "seed": int(random.integers(0, 1 << 31)), "beams": size * groups, "groups": groups, "vocab": V,
            "max_new": int(random.choice([1, 2, 3, 5, 8, 12])),
            "length_penalty": float(random.choice([-1, 0, 0.5, 1, 1, 2])),
            "early": str(random.choice(["false", "true", "never"])),
            "diversity_penalty": float(random.choice([0.125, 0.5, 1, 2, 5, 0.7])),
            "end_ids": sorted(random.choice(V, ends, replace=False).tolist()),
            "end_eighths": int(random.choice([-40, -28, -20, -12, -8, -4, 0])),
            "grain": int(random.choice([6, 10, 20, 20])), "returned": int(random.integers(1, size * groups + 1)),
        }
        case["diversity_penalty"] = float(np.float32(case["diversity_penalty"]))
        case["pad_id"] = int(random.choice([-1, int(random.integers(0, V))])) if ends else -1
        case["steps"], results = search(case)
        case["ids"] = [ids for ids, _ in results]
        case["scores"] = [float(f"{score:.9g}") for _, score in results]
        cases.append(case)
    head = {"made_by": "tools/golden_beam_groups.py", "transformers": transformers.__version__,
            "torch": torch.__version__, "numpy": np.__version__}
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}")


main()
