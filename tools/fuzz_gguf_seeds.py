#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the GGUF fuzz target: tiny files, good ones and each kind of lie.

usage: tools/fuzz_gguf_seeds.py [FOLDER]      default: tests/fuzz/corpus/gguf

Needs nothing but Python 3. Running it again writes the same bytes. Files that do not begin with "GG" are the numbers of
values and of tensors, one byte each, and what follows a header (tests/fuzz/fuzz_gguf.c puts it before them).
"""

import pathlib
import struct
import sys

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def element(kind, value):
    if kind == STRING:
        return text(value)
    return struct.pack({U8: "<B", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q"}[kind], value)


def value(key, kind, v):
    if isinstance(v, list):
        data = struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(element(kind, x) for x in v)
    else:
        data = struct.pack("<I", kind) + element(kind, v)
    return text(key) + data


def tensor(name, axes, kind, offset):
    return text(name) + struct.pack("<I", len(axes)) + struct.pack(f"<{len(axes)}Q", *axes) + struct.pack(
        "<IQ", kind, offset)


def short(values, tensors, data=b""):
    body = b"".join(values) + b"".join(tensors)
    pad = -(24 + len(body)) % 32 if tensors else 0
    return bytes([len(values), len(tensors)]) + body + bytes(pad) + data


def whole(values, tensors, data=b"", version=3, counts=None):
    n = counts or (len(tensors), len(values))
    return b"GGUF" + struct.pack("<IQQ", version, *n) + short(values, tensors, data)[2:]


def arch(name, **sizes):
    given = {"embedding_length": 8, "block_count": 1, "attention.head_count": 2, "feed_forward_length": 32,
             "context_length": 64, **sizes}
    return [value("general.architecture", STRING, name)] + [
        value(f"{name}.{key}", F32 if isinstance(v, float) else U32, v) for key, v in given.items()]


def recurrent(name, kv_heads, **sizes):
    """Two layers with recurrent states: Mamba-2's keys, and LFM2's."""
    given = {"block_count": 2, "ssm.conv_kernel": 4, "ssm.state_size": 4, "ssm.group_count": 1, "ssm.time_step_rank": 4,
             "ssm.inner_size": 16, "shortconv.l_cache": 3, **sizes}
    return arch(name, **given) + [value(f"{name}.attention.head_count_kv", U32, kv_heads)]


SPM = [value("tokenizer.ggml.model", STRING, "llama"),
       value("tokenizer.ggml.tokens", STRING, ["<unk>", "<s>", "</s>", "▁a", "a", "<0x41>"]),
       value("tokenizer.ggml.scores", F32, [0.0, 0.0, 0.0, -1.0, -2.0, 0.0]),
       value("tokenizer.ggml.token_type", I32, [2, 3, 3, 1, 1, 6]),
       value("tokenizer.ggml.bos_token_id", U32, 1), value("tokenizer.ggml.eos_token_id", U32, 2)]
BPE = [value("tokenizer.ggml.model", STRING, "gpt2"), value("tokenizer.ggml.pre", STRING, "llama-bpe"),
       value("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "<|x|>"]),
       value("tokenizer.ggml.token_type", I32, [1, 1, 1, 3]),
       value("tokenizer.ggml.merges", STRING, ["a b"]), value("tokenizer.ggml.add_bos_token", BOOL, 1),
       value("tokenizer.ggml.bos_token_id", U32, 3), value("tokenizer.chat_template", STRING, "{{ x }}")]
WPM = [value("tokenizer.ggml.model", STRING, "bert"),
       value("tokenizer.ggml.tokens", STRING, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "b"]),
       value("tokenizer.ggml.token_type", I32, [3, 3, 3, 3, 1, 1])]
UGM = [value("tokenizer.ggml.model", STRING, "t5")] + SPM[1:] + [
    value("tokenizer.ggml.precompiled_charsmap", U8, [0, 0, 0, 0])]
TABLE = [tensor("token_embd.weight", [8, 4], 0, 0)]
ROW = bytes(range(128))

SEEDS = {
    "good-llama": whole(arch("llama", **{"attention.head_count_kv": 1, "rope.freq_base": 5e5}), TABLE + [
        tensor("blk.0.attn_q.weight", [8, 8], 0, 128), tensor("blk.1.attn_qkv.weight", [8, 16], 1, 384)], bytes(640)),
    "good-blocks": short(arch("llama"), TABLE + [
        tensor("blk.0.ffn_up.weight", [32, 2], 2, 128), tensor("blk.0.ffn_down.weight", [256, 1], 12, 192)],
        ROW + bytes(36 + 28 + 144)),
    "good-rope": short(arch("llama"), TABLE + [tensor("rope_freqs.weight", [2], 0, 128)],
                       ROW + struct.pack("<2f", 1, 8)),
    "good-gpt2": short(arch("gpt2"), TABLE + [tensor("blk.0.attn_qkv.bias", [24], 0, 128)], ROW + bytes(96)),
    "good-falcon": short(arch("falcon"), TABLE + [tensor("blk.0.attn_norm_2.weight", [8], 0, 128)], ROW + bytes(32)),
    "good-mpt": short(arch("mpt", **{"attention.max_alibi_bias": 8.0}), TABLE, ROW),
    "good-gptneox": short(arch("gptneox", **{"rope.dimension_count": 2}), TABLE, ROW),
    "good-gemma2": short(arch("gemma2", **{"attention.sliding_window": 16}), TABLE, ROW),
    "good-spm": short(arch("llama") + SPM, TABLE, ROW),
    "good-bpe": short(arch("qwen2") + BPE, TABLE, ROW),
    "good-wpm": short(arch("llama") + WPM, TABLE, ROW),
    "good-ugm": short(arch("llama") + UGM, TABLE, ROW),
    "good-bamba": short(recurrent("granitehybrid", [0, 2], **{"rope.dimension_count": 2}), TABLE + [
        tensor("blk.0.ssm_a", [1, 4], 0, 128), tensor("blk.1.attn_q.weight", [8, 8], 0, 160)], ROW + bytes(288)),
    "good-falcon-h1": short(recurrent("falcon-h1", 2), TABLE + [
        tensor("blk.0.ssm_a", [1, 4], 0, 128), tensor("blk.0.ffn_norm", [8], 0, 160)], ROW + bytes(64)),
    "good-lfm2": short(recurrent("lfm2", [0, 2]), TABLE + [
        tensor("blk.0.shortconv.conv.weight", [3, 8], 0, 128)], ROW + bytes(96)),
    "good-lfm2moe": short(recurrent("lfm2moe", [0, 2], expert_count=2, expert_used_count=1, expert_gating_func=2,
                                    leading_dense_block_count=1, expert_feed_forward_length=8), TABLE + [
        tensor("blk.1.ffn_up_exps.weight", [8, 8, 2], 0, 128), tensor("blk.1.exp_probs_b.bias", [2], 0, 640)],
        ROW + bytes(544)),
    "lie-kv-heads": short(recurrent("lfm2", [0, 2, 2]), TABLE, ROW),
    "lie-kv-heads-bamba": short(recurrent("granitehybrid", [2], **{"rope.dimension_count": 2}), TABLE, ROW),
    "lie-state-heads": short(recurrent("falcon-h1", 2, **{"ssm.time_step_rank": 0}), TABLE, ROW),
    "lie-taps": short([v for v in recurrent("lfm2", [0, 2]) if b"l_cache" not in v], TABLE, ROW),
    "lie-version": whole([], [], version=1),
    "lie-counts": whole([], [], counts=(2**64 - 1, 2**63)),
    "lie-count": whole(arch("llama"), TABLE, ROW, counts=(1, 9)),
    "lie-key": b"\1\0" + struct.pack("<Q", 2**64 - 1) + b"abc",
    "lie-array": b"\1\0" + text("a") + struct.pack("<IIQ", ARRAY, U64, 2**61),
    "lie-array-nested": b"\1\0" + text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(12),
    "lie-strings": b"\1\0" + text("a") + struct.pack("<IIQ", ARRAY, STRING, 3) + text("x"),
    "lie-twice": short(arch("llama") + arch("llama")[:1], TABLE, ROW),
    "lie-alignment": short(arch("llama") + [value("general.alignment", U32, 3)], TABLE, ROW),
    "lie-axis": short(arch("llama"), [tensor("token_embd.weight", [2**40, 2**40], 0, 0)], ROW),
    "lie-offset": short(arch("llama"), [tensor("token_embd.weight", [8, 4], 0, 2**63)], ROW),
    "lie-overlap": short(arch("llama"), TABLE + [tensor("output.weight", [8, 4], 0, 96)], ROW * 2),
    "lie-type": short(arch("llama"), [tensor("token_embd.weight", [8, 4], 99, 0)], ROW),
    "lie-blocks": short(arch("llama"), [tensor("token_embd.weight", [8, 4], 2, 0)], ROW),
    "lie-name": short(arch("llama"), [tensor(b"a\0b", [8, 4], 0, 0)], ROW),
    "lie-split": short(arch("llama") + [value("split.count", U32, 2), value("split.no", U32, 0)], TABLE, ROW),
    "lie-heads": short(arch("llama", **{"attention.head_count": 0}), TABLE + [
        tensor("blk.0.attn_q.weight", [8, 4], 0, 128)], ROW * 2),
    "lie-tokens": short(arch("llama") + SPM[:2] + [value("tokenizer.ggml.scores", F32, [0.0])], TABLE, ROW),
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/gguf")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


main()
