#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/gptq.json: small matrices rounded to codes by GPTQ and coordinate descent, and scales of inputs
by AWQ and SmoothQuant.

Frantar et al. 2022 (arXiv 2210.17323), algorithm 1 with the inputs in the order of the Hessian's diagonal, and Behdin et
al. 2023 (arXiv 2309.01885), equation 7, in numpy and f64, by the textbook's formulas: the factor is numpy's Cholesky
factor of numpy's inverse. Lin et al. 2023 (arXiv 2306.00978), equation 5, and Xiao et al. 2022 (arXiv 2211.10438),
equation 4. A case is left out when a choice in it hangs on a difference that f32 could lose.
Needs numpy only:  python3 tools/golden_gptq.py > tests/golden/gptq.json
"""
import json

import numpy as np

N, K, GROUP, DAMPING, SWEEPS = 8, 32, 8, 0.01, 3
E4M3 = np.array(sorted({(-1) ** s * (2.0 ** (e - 7) * (1 + m / 8) if e else m / 512)
                        for s in (0, 1) for e in range(16) for m in range(8) if (e, m) != (15, 7)}))


class Close(Exception):
    """A choice that f32 could make otherwise."""


def round_scale(kind, scale):
    return float(np.float16(scale)) if kind == "int4" else float(np.float32(scale))


def nearest(values, v):
    distance = np.abs(values - v)
    first, second = np.sort(distance)[:2]
    if second - first < 1e-3 * np.abs(values[1] - values[0]):
        raise Close
    return values[np.argmin(distance)]


def levels(kind, zero):
    if kind == "fp8":
        return E4M3
    return np.arange(-127.0, 128) if kind == "int8" else np.arange(16.0) - zero


def round_to(kind, scale, zero, v):
    """The level of v."""
    values = levels(kind, zero)
    at = v / scale
    if at >= values[-1] or at <= values[0]:
        return values[-1] if at > 0 else values[0]
    return nearest(values[np.argsort(np.abs(values - at))[:2]], at)


def scale_of(kind, asymmetric, w, weight, close=1e-4):
    """(scale, zero) of a group of int4: ranges from the whole one down to 0.54 of it, by weighted squared error."""
    low, high = min(w.min(), 0), max(w.max(), 0)
    span, zero = np.abs(w).max() / 7, 8
    if asymmetric:
        span = (high - low) / 15
        zero = int(np.clip(np.rint(-low / span), 0, 15))
    errors, scales = [], []
    for i in range(24):
        scale = round_scale(kind, span * (1 - 0.02 * i))
        level = np.clip(np.rint(w / scale), -zero, 15 - zero)
        errors.append((weight * (w - scale * level) ** 2).sum())
        scales.append(scale)
    first, second = np.sort(errors)[:2]
    if second - first < close * first:
        raise Close
    return scales[int(np.argmin(errors))], zero


def scales_of(kind, asymmetric, W, weight):
    if kind != "int4":
        return np.array([[round_scale(kind, np.abs(w).max() / (127 if kind == "int8" else 448))] for w in W]), None
    pairs = [[scale_of(kind, asymmetric, w[g:g + GROUP], weight[g:g + GROUP]) for g in range(0, K, GROUP)] for w in W]
    return np.array([[p[0] for p in row] for row in pairs]), np.array([[p[1] for p in row] for row in pairs])


def feed_back(kind, w, scale, zero, order, U):
    """Levels of a row; scale and zero are those of each input."""
    v, level = w[order].copy(), np.zeros(K)
    for j, k in enumerate(order):
        level[k] = round_to(kind, scale[k], zero[k], v[j])
        v[j + 1:] -= (v[j] - level[k] * scale[k]) / U[j, j] * U[j, j + 1:]
    return level


def descend(kind, w, level, scale, zero, H):
    """Codes, then scales, in turns; the last time codes only. scale: of each input, changed in place."""
    for sweep in range(SWEEPS):
        moved = False
        for k in range(K):
            slope = H[k] @ (level * scale - w)
            new = round_to(kind, scale[k], zero[k], level[k] * scale[k] - slope / H[k, k])
            moved |= new != level[k]
            level[k] = new
        if not moved:
            break
        for g in range(0, K, GROUP) if kind == "int4" and sweep < SWEEPS - 1 else ():
            q = np.zeros(K)
            q[g:g + GROUP] = level[g:g + GROUP]
            if q @ H @ q > 0:
                new = scale[g] - q @ H @ (level * scale - w) / (q @ H @ q)
                step = float(np.spacing(np.float16(new)))
                if abs(abs(new / step - np.floor(new / step)) - 0.5) < 1e-3:
                    raise Close
                if round_scale(kind, new) > 0:
                    scale[g:g + GROUP] = round_scale(kind, new)
    return level


def error_of(V, W, H):
    return float(np.einsum("nk,kl,nl->", V - W, H, V - W))


def round_matrix(kind, W, scales, zeros, order, U, H, sweeps):
    """Levels and scales as lists, and the error."""
    each = np.repeat(scales, K // scales.shape[1], axis=1)
    zero = np.repeat(zeros, GROUP, axis=1) if zeros is not None else np.zeros((N, K))
    level = np.array([feed_back(kind, W[n], each[n], zero[n], order, U) for n in range(N)])
    if sweeps:
        level = np.array([descend(kind, W[n], level[n], each[n], zero[n], H) for n in range(N)])
    return {"levels": level.ravel().tolist(), "scales": each[:, ::K // scales.shape[1]].ravel().tolist(),
            "error": error_of(level * each, W, H)}


def make(seed, kind, asymmetric):
    r = np.random.default_rng(seed)
    X = r.normal(size=(64, 12)) @ r.normal(size=(12, K)) * np.exp(r.normal(size=K)) + 0.1 * r.normal(size=(64, K))
    X[:, 5] = 0  # an input that the text does not reach
    hessian = (X.T @ X).astype(np.float32)
    W = (r.normal(size=(N, K)) * 0.05).astype(np.float32).astype(float)
    if asymmetric:
        W = (W + 0.03).astype(np.float32).astype(float)
    H = hessian.astype(float)
    H += DAMPING * np.diag(H).mean() * np.eye(K)
    order = np.argsort(-np.diag(H), kind="stable")
    U = np.linalg.cholesky(np.linalg.inv(H[np.ix_(order, order)])).T
    scales, zeros = scales_of(kind, asymmetric, W, np.diag(H))
    case = {"kind": kind, "asymmetric": asymmetric, "N": N, "K": K, "group": GROUP if kind == "int4" else K,
            "sweeps": SWEEPS, "hessian": hessian.ravel().tolist(), "numbers": W.ravel().tolist(),
            "order": order.tolist(), "factor": [float(f"{u:.9g}") for u in U.ravel()]}
    if asymmetric:
        case["zeros"] = zeros.ravel().tolist()
    case["feedback"] = round_matrix(kind, W, scales, zeros, order, U, H, 0)
    case["descent"] = round_matrix(kind, W, scales, zeros, order, U, H, SWEEPS)
    return case


def try_scale(W, X, scale, kind, asymmetric):
    """The error of the products when the scaled rows are rounded to nearest, as a sum over H = X^T X."""
    H, scaled = X.T @ X, W * scale
    if kind == "int4":
        V = np.empty_like(W)
        for n in range(N):
            for g in range(0, K, GROUP):
                part = slice(g, g + GROUP)
                step, zero = scale_of("f32", asymmetric, scaled[n, part], np.diag(H)[part] / scale[part] ** 2, close=0)
                V[n, part] = step * np.clip(np.rint(scaled[n, part] / step), -zero, 15 - zero)
    return error_of(V / scale, W, H)


def make_awq(seed, kind, asymmetric):
    r = np.random.default_rng(seed)
    X = r.normal(size=(64, K)) * np.exp(1.5 * r.normal(size=K))
    W = (r.normal(size=(N, K)) * 0.05 + 0.03 * asymmetric).astype(np.float32).astype(float)
    mean = np.abs(X).mean(0)
    errors, scales = [], []
    for i in range(20):
        scale = mean ** (i / 20)
        scale /= np.sqrt(scale.max() * scale.min())
        errors.append(try_scale(W, X, scale, kind, asymmetric))
        scales.append(scale)
    best = int(np.argmin(errors))
    first, second = np.sort(errors)[:2]
    if second - first < 1e-3 * first or best in (0, 19):
        raise Close
    return {"kind": kind, "asymmetric": asymmetric, "N": N, "K": K, "group": GROUP, "numbers": W.ravel().tolist(),
            "hessian": [float(f"{h:.9g}") for h in (X.T @ X).ravel()], "mean": mean.tolist(), "power": best / 20,
            "scale": scales[best].tolist(), "most_x": np.abs(X).max(0).tolist(), "most_w": np.abs(W).max(0).tolist(),
            "smoothquant": (np.abs(X).max(0) ** 0.5 / np.abs(W).max(0) ** 0.5).tolist()}


def first_of(make, kind, asymmetric):
    for seed in range(10000):
        try:
            return make(seed, kind, asymmetric)
        except Close:
            continue
    raise SystemExit(f"no seed gives a case of {kind}")


if __name__ == "__main__":
    kinds = [("int4", False), ("int4", True), ("int8", False), ("fp8", False)]
    print(json.dumps({"cases": [first_of(make, *k) for k in kinds],
                      "smooth": [first_of(make_awq, *k) for k in kinds[:2]]}))
