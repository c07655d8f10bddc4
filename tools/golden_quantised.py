#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/arch/deepseek_v3_fp8, gpt_oss_mxfp4 and llama4_fp8: tiny random checkpoints whose matrices are quantised as those
that are published, with what transformers computes from the dequantised numbers in float32.

deepseek_v3_fp8: e4m3 with one float32 scale (`weight_scale_inv`) for each block of 128 x 128, as in DeepSeek-V3. Its sizes are
no multiples of the block, and no head of kv_b_proj begins at one.
gpt_oss_mxfp4: the experts as `_blocks` [E, N, K/32, 16] of two e2m1 codes a byte, the lower half first, and `_scales` [E, N,
K/32], exponents of 2 biased by 127, as in openai/gpt-oss-20b. The order of the codes is checked with transformers' own decoder.
llama4_fp8: e4m3 with one bfloat16 scale for each row of each expert's matrices, which are tensors of their own, as in
Llama-4-Maverick-17B-128E-Instruct-FP8 (compressed-tensors; names after the loaders of transformers and vLLM).

All other tensors are bfloat16, so that the numbers are exact. Seeds as in golden_arch.py. Needs torch and transformers 5.17.0,
llama4_fp8 5.24.0:
    python3 tools/golden_quantised.py [NAME...]
"""
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from golden_arch import CLEAR, FOLDER, IDS, LLAMA4, PROMPTS, VOCAB, case
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

BLOCK, GROUP = 128, 32
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"]}


def arguments(**those):
    return {"num_bits": 8, "type": "float", "symmetric": True, "group_size": None, "block_structure": None, "actorder": None, **those}


CHANNELS = {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
            "global_compression_ratio": None, "kv_cache_scheme": None, "ignore": ["re:.*self_attn", "re:.*router", "re:.*lm_head",
                                                                                  "re:.*vision_model.*", "re:.*shared_expert.*"],
            "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": None, "weights": arguments(
                strategy="channel", dynamic=False, observer="minmax"), "input_activations": arguments(strategy="token", dynamic=True)}}}


def deepseek():
    return transformers.DeepseekV3Config(
        hidden_size=160, intermediate_size=144, moe_intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=2, topk_group=1,
        first_k_dense_replace=1, kv_lora_rank=136, q_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=24,
        max_position_embeddings=96, **IDS)


def gpt_oss():
    return transformers.GptOssConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=16, max_position_embeddings=256,
        layer_types=["sliding_attention", "full_attention"], **IDS)


def llama4():
    """Maverick's: experts in every second layer, heads that are not normed, one expert for each row."""
    return transformers.Llama4TextConfig(**dict(
        LLAMA4, use_qk_norm=False, no_rope_layers=[1, 1, 1, 0], attention_chunk_size=8, floor_scale=8, attn_scale=0.1))


def fill(model, seed):
    """As golden_arch.py's; experts' matrices are scaled by their inputs, too."""
    random = torch.Generator().manual_seed(seed)
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        values = torch.randn(p.shape, generator=random)
        if p.dim() == 3 or (p.dim() == 2 and not name.endswith("bias")):
            inputs = p.shape[1] if p.dim() == 3 and "GptOss" in type(model).__name__ else p.shape[-1]
            p.data = values * ((0.4 if p.shape[0] == VOCAB else 2.0) / inputs ** 0.5)
        elif name.endswith("weight"):
            p.data = (8.0 if name == "model.norm.weight" else 1.0) * (1.0 + 0.2 * values)
        elif name.endswith(("bias", "sinks")):
            p.data = 0.2 * values


def fp8(name, w):
    """The tensors that are stored, and their numbers."""
    n, k = w.shape
    rows, cols = -(-n // BLOCK), -(-k // BLOCK)
    padded = torch.zeros(rows * BLOCK, cols * BLOCK)
    padded[:n, :k] = w
    blocks = padded.view(rows, BLOCK, cols, BLOCK)
    scale = blocks.abs().amax((1, 3)) / 448
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:n, :k]
    codes = (w / wide).to(torch.float8_e4m3fn)
    return {name: codes, name + "_scale_inv": scale}, codes.float() * wide


def mxfp4(name, w):
    """w [E, K, N]: the codes are along K."""
    w = w.transpose(1, 2).contiguous()
    groups = w.view(*w.shape[:2], -1, GROUP)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
    scaled = groups / torch.exp2(exponent)
    codes = (scaled.unsqueeze(-1) - E2M1).abs().argmin(-1).to(torch.uint8)
    blocks = codes[..., 0::2] | codes[..., 1::2] << 4
    scales = (exponent.squeeze(-1) + 127).to(torch.uint8)
    back = (E2M1[codes.long()] * torch.exp2(exponent)).reshape(w.shape).transpose(1, 2).contiguous()
    assert torch.equal(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32), back)
    return {name + "_blocks": blocks, name + "_scales": scales}, back


def channels(name, w):
    """Stacked experts [E, K, N] as a matrix with a scale of each row for each; gate and up apart."""
    parts, back = {}, torch.empty_like(w)
    before, _, last = name.rpartition(".")
    for e, matrix in enumerate(w.transpose(1, 2)):
        scale = (matrix.abs().amax(1, keepdim=True) / 448).bfloat16()
        codes = (matrix / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
        back[e] = (codes.float() * scale.float()).T
        for i, one in enumerate(("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)):
            rows = slice(i * len(codes) // 2, (i + 1) * len(codes) // 2) if last == "gate_up_proj" else slice(None)
            parts[f"{before}.{e}.{one}.weight"] = codes[rows].contiguous()
            parts[f"{before}.{e}.{one}.weight_scale"] = scale[rows].contiguous()
    return parts, back


def is_fp8(name):
    return "proj" in name and name.endswith("weight")


def is_mxfp4(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


ROWS = {"deepseek_v3_fp8": (deepseek, is_fp8, fp8, FP8), "gpt_oss_mxfp4": (gpt_oss, is_mxfp4, mxfp4, MXFP4),
        "llama4_fp8": (llama4, is_mxfp4, channels, CHANNELS)}


def quantise(folder, convert, chosen):
    """Stored tensors; the model of their numbers."""
    stored, numbers = {}, {}
    for name, w in load_file(folder / "model.safetensors").items():
        if chosen(name):
            parts, numbers[name] = convert(name, w.float())
            stored.update(parts)
        else:
            keep = w if name.endswith("e_score_correction_bias") else w.bfloat16()
            stored[name], numbers[name] = keep, keep.float()
    save_file(numbers, folder / "model.safetensors", {"format": "pt"})
    return stored, transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                     dtype=torch.float32).eval()


def attempt(row, seed):
    config, chosen, convert, quantisation = ROWS[row]
    model = transformers.AutoModelForCausalLM.from_config(config(), attn_implementation="eager").float().eval()
    fill(model, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder)
        stored, exact = quantise(folder, convert, chosen)
        random = torch.Generator().manual_seed(seed + 1000)
        prompts = [torch.randint(3, VOCAB, (n,), generator=random).tolist() for n in PROMPTS]
        cases = [case(exact, ids) for ids in prompts]
        config = {**json.loads((folder / "config.json").read_text()), "quantization_config": quantisation,
                  "dtype": "bfloat16"}
        generation = (folder / "generation_config.json").read_text()
    if row == "llama4_fp8":  # as part of the multimodal model
        stored = {"language_model." + name: tensor for name, tensor in stored.items()}
        config = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "dtype": "bfloat16",
                  "quantization_config": config.pop("quantization_config"), "text_config": config}
    return stored, config, generation, cases, type(exact).__name__


@torch.no_grad()
def make(row):
    for seed in range(300):
        stored, config, generation, cases, kind = attempt(row, seed)
        gap = min(gap for _, gap in cases)
        if gap > CLEAR and len(set(cases[2][0]["greedy"])) > 6:
            break
    (FOLDER / row).mkdir(exist_ok=True)
    save_file(stored, FOLDER / row / "model.safetensors", {"format": "pt"})
    (FOLDER / row / "config.json").write_text(json.dumps(config, indent=2))
    (FOLDER / row / "generation_config.json").write_text(generation)
    golden = {"transformers": transformers.__version__, "class": kind, "kind": "lm",
              "note": "computed from the dequantised numbers", "cases": [c for c, _ in cases]}
    (FOLDER / row / "golden.json").write_text(json.dumps(golden))
    print(f"{row}: seed {seed}, least gap {gap:.3g}, {len(set(cases[2][0]['greedy']))} different tokens")


if __name__ == "__main__":
    for name in sys.argv[1:] or ROWS:
        make(name)
