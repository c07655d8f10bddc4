# SPDX-License-Identifier: Apache-2.0
"""The same beam search over tensors of torch: all of a step is tensor arithmetic, on the CPU or on a GPU.

    python beam_search_torch.py MODEL TEXT [--beams 4] [--max-tokens 40] [--device cuda]
"""

import argparse

import torch

import proa


def start(session, ids, beams):
    info = session.engine.info
    if info["kind"] == "encoder-decoder":
        session.encode(ids)
        ids = ids.new_tensor([info["decoder_start_id"]])
    logits = session.step([ids], [0])
    for beam in range(1, beams):
        session.fork(0, beam)
    return logits


def beam_search(session, ids, beams, max_tokens):
    """Returns the finished sequences as (scores [beams], ids [beams, max_tokens], filled up with the end token)."""
    end = session.engine.info["eos_id"]
    logits = start(session, ids, beams)
    none = torch.finfo(torch.float32).min
    scores = torch.zeros(1, device=ids.device)
    texts = torch.full((1, max_tokens), end, device=ids.device)
    best = torch.full((beams,), none, device=ids.device)
    results = torch.full((beams, max_tokens), end, device=ids.device)
    for length in range(1, max_tokens + 1):
        sums = (scores[:, None] + torch.log_softmax(logits, -1)).flatten()
        top, at = sums.topk(2 * beams)
        parents, tokens = at // logits.shape[1], at % logits.shape[1]
        candidates = texts[parents]
        candidates[:, length - 1] = tokens
        ended = (tokens == end) | (length == max_tokens)
        counts = ended & (torch.arange(2 * beams, device=ids.device) < beams)
        best, order = torch.cat([best, torch.where(counts, top / length, none)]).topk(beams)
        results = torch.cat([results, candidates])[order]
        scores, order = torch.where(ended, none, top).topk(beams)
        if scores[0] / length <= best[-1] or scores[0] == none:
            break
        session.reorder(parents[order])
        logits = session.step(tokens[order][:, None])
        texts = candidates[order]
    return best, results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    with proa.Session(options.model, options.beams, device=options.device) as session:
        ids = torch.tensor(session.engine.encode(options.text), device=options.device)
        best, results = beam_search(session, ids, options.beams, options.max_tokens)
        for score, tokens in zip(best.tolist(), results.tolist()):
            print(f"{score:8.4f}  {session.engine.decode(tokens)}")


if __name__ == "__main__":
    main()
