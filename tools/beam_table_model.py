# SPDX-License-Identifier: Apache-2.0
"""The made-up language model of the beam search goldens (tests/unit/engine/table_model.h has the same).

The state after a prefix is a 32-bit hash of it, the log-probability of a token a multiple of 2^-grain made from a hash
of state and token. These are exact in f32, so that all sides search the same model; grain 4 makes many equal sums,
grain 20 makes sums that round.
"""
import numpy as np

MASK = 0xFFFFFFFF


def mix(x):
    """The finaliser of MurmurHash3."""
    x ^= x >> 16
    x = x * 0x85EBCA6B & MASK
    x ^= x >> 13
    x = x * 0xC2B2AE35 & MASK
    return x ^ x >> 16


def follow(state, token):
    return mix(state ^ (token + 1) * 0x9E3779B9 & MASK)


def state_of(case, sequence):
    state = mix(case["seed"])
    for token in sequence:
        state = follow(state, int(token))
    return state


def row(case, sequence):
    """Log-probabilities of all tokens: minus 1/8 to 8, end tokens shifted by a number of eighths."""
    state = state_of(case, sequence)
    out = np.empty(case["vocab"])
    for token in range(case["vocab"]):
        steps = (mix(state ^ (token * 0x7FEB352D + 1) & MASK) >> 8) % (63 << (case["grain"] - 3))
        value = -(1 / 8 + steps / 2.0 ** case["grain"])
        if token in case["end_ids"]:
            value -= case["end_eighths"] / 8
        out[token] = value
    return out
