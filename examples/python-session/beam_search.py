# SPDX-License-Identifier: Apache-2.0
"""A hand-written beam search over proa.Session, in numpy.

    python beam_search.py MODEL TEXT [--beams 4] [--max-tokens 40]
"""

import argparse

import numpy as np

import proa


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def start(session, ids, beams):
    """Runs the prompt once, in sequence 0, and lets all beams go on from it. Returns the logits behind it."""
    info = session.engine.info
    if info["kind"] == "encoder-decoder":
        session.encode(ids)
        ids = [info["decoder_start_id"]]
    logits = session.step([ids], [0])
    for beam in range(1, beams):
        session.fork(0, beam)
    return logits


def beam_search(session, ids, beams, max_tokens, length_penalty=1.0):
    """The finished sequences as [(score, ids), ...], best first; a score is the sum of log-probabilities over
    length^length_penalty, as transformers has it."""
    end = session.engine.info["eos_id"]
    logits = start(session, ids, beams)
    scores, texts, finished = np.zeros(1, np.float32), [[]], []
    for length in range(1, max_tokens + 1):
        sums = (scores[:, None] + log_softmax(logits)).ravel()
        running = []
        for rank, at in enumerate(np.argsort(-sums, kind="stable")[: 2 * beams]):
            parent, token = divmod(int(at), logits.shape[1])
            if token != end and length < max_tokens:
                running.append((sums[at], parent, token))
            elif rank < beams:
                finished.append((float(sums[at]) / length**length_penalty, texts[parent] + [token]))
        finished = sorted(finished, key=lambda beam: -beam[0])[:beams]
        if not running or (len(finished) == beams and running[0][0] / length**length_penalty <= finished[-1][0]):
            break
        running = running[:beams]
        parents, tokens = [parent for _, parent, _ in running], [token for _, _, token in running]
        session.reorder(parents)
        logits = session.step([[token] for token in tokens])
        scores = np.array([score for score, _, _ in running], np.float32)
        texts = [texts[parent] + [token] for parent, token in zip(parents, tokens)]
    return finished


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=40)
    options = parser.parse_args()
    with proa.Session(options.model, options.beams) as session:
        ids = session.engine.encode(options.text)
        for score, tokens in beam_search(session, ids, options.beams, options.max_tokens):
            print(f"{score:8.4f}  {session.engine.decode(tokens)}")


if __name__ == "__main__":
    main()
