# SPDX-License-Identifier: Apache-2.0
"""A session's step as an operator of torch.library, inside a function that torch.compile compiles as one graph.

    python torch_op.py MODEL TEXT [--max-tokens 20]
"""

import argparse

import torch

import proa

_sessions = []


def register(session):
    """Makes a session known to the operator. The state is what a graph carries from step to step: the number of the
    session and the tokens that it has. The operator changes it, so torch keeps the order of the steps."""
    _sessions.append(session)
    return torch.tensor([len(_sessions) - 1, 0])


@torch.library.custom_op("proa::step", mutates_args={"state"})
def step(tokens: torch.Tensor, state: torch.Tensor, vocab: int) -> torch.Tensor:
    """Runs one token of each sequence: tokens [sequences] -> logits [sequences, vocab]."""
    session = _sessions[int(state[0])]
    logits = session.step(tokens[:, None])
    state[1] = session.length(0)
    return logits


@step.register_fake
def _(tokens, state, vocab):
    return tokens.new_empty((tokens.shape[0], vocab), dtype=torch.float32)


@torch.compile(fullgraph=True)
def next_tokens(tokens, state, bias, vocab: int):
    """A token of each sequence, by a rule of one's own: here the likeliest one after a bias is added."""
    logits = torch.ops.proa.step(tokens, state, vocab)
    return torch.argmax(torch.log_softmax(logits, -1) + bias, -1)


def generate(session, ids, count, bias=None):
    """Greedy tokens of sequence 0, each by the compiled function."""
    vocab = session.engine.info["outputs"]
    state = register(session)
    if len(ids) > 1:
        session.step([ids[:-1]], [0])
    tokens, out = torch.tensor(ids[-1:]), []
    bias = torch.zeros(vocab) if bias is None else bias
    for _ in range(count):
        tokens = next_tokens(tokens, state, bias, vocab)
        out.append(int(tokens[0]))
    assert int(state[1]) == len(ids) + count - 1
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--max-tokens", type=int, default=20)
    options = parser.parse_args()
    with proa.Session(options.model) as session:
        ids = session.engine.encode(options.text)
        print(session.engine.decode(generate(session, ids, options.max_tokens)))


if __name__ == "__main__":
    main()
