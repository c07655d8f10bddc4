# SPDX-License-Identifier: Apache-2.0
"""generate() with torch tensors on the model's GPU gives what tensors of the host give, and gives it there. Needs a GPU,
torch, and the plug-in; without one of them everything is skipped."""
import pathlib

import numpy as np
import pytest

import proa

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

ARCH = pathlib.Path(__file__).parents[1] / "golden/arch"
IDS = [[5, 9, 13, 17], [44, 45, 46, 47], [3, 4, 5, 6]]
LEFT = [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]
PAIRS = [[2, 31, 42, 53, 64, 75, 86, 1], [2, 19, 28, 2, 0, 0, 0, 0]]
RIGHT = [[1] * 8, [1] * 4 + [0] * 4]


@pytest.fixture(scope="module")
def gpt2():
    model = proa.AutoModelForCausalLM.from_pretrained(ARCH / "gpt2", dtype="f32", device="cuda", max_num_seqs=32)
    yield model
    model.close()


@pytest.fixture(scope="module", params=["t5", "bart"])
def seq2seq(request):
    model = proa.AutoModelForSeq2SeqLM.from_pretrained(ARCH / request.param, dtype="f32", device="cuda", max_num_seqs=32)
    yield model
    model.close()


def same(gpu, host):
    assert gpu.is_cuda and not host.is_cuda
    np.testing.assert_allclose(gpu.cpu().numpy(), host.numpy(), atol=1e-5)


def compare(model, inputs, **options):
    options = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True, **options}
    host = {name: torch.tensor(value) for name, value in inputs.items()}
    b = model.generate(**host, **options)
    a = model.generate(**{name: value.cuda() for name, value in host.items()}, **options)
    same(a.sequences, b.sequences)
    assert len(a.scores) == len(a.logits) == len(b.scores)
    for rows in ("scores", "logits"):
        for x, y in zip(a[rows], b[rows]):
            same(x, y)
    if "sequences_scores" in b:
        same(a.sequences_scores, b.sequences_scores)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eos_token_id": [88, 37, 60, 61, 62], "pad_token_id": 0},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "suppress_tokens": [88, 37], "min_new_tokens": 6},
        {"do_sample": True, "seed": 5, "top_k": 20, "num_return_sequences": 2},
        {"do_sample": True, "seed": 6, "top_p": 0.8, "temperature": 1.4},
        {"do_sample": True, "seed": 7, "top_k": 0, "min_p": 0.02, "repetition_penalty": 1.2},
        {"do_sample": True, "seed": 8, "typical_p": 0.9},
        {"num_beams": 4, "num_return_sequences": 3},
        {"num_beams": 3, "eos_token_id": [88, 37, 60], "pad_token_id": 0},
        {"num_beams": 3, "repetition_penalty": 1.3},
        {"num_beams": 3, "do_sample": True, "seed": 5},
    ],
    ids=str,
)
def test_scores_and_logits(gpt2, options):
    compare(gpt2, {"input_ids": IDS, "attention_mask": LEFT}, max_new_tokens=12, **options)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 3, "num_return_sequences": 2}])
def test_input_embeddings(gpt2, options):
    embeds = np.random.RandomState(1).randn(3, 4, gpt2.engine.info["embedding"]).astype(np.float32) / 20
    compare(gpt2, {"inputs_embeds": embeds, "attention_mask": LEFT}, max_new_tokens=12, **options)


def test_the_order_of_the_stream(gpt2):
    """Embeddings that kernels still write when generate is called, and that are overwritten right after it."""
    rows = torch.randn(3, 6, gpt2.engine.info["embedding"], generator=torch.Generator().manual_seed(1)) / 20
    expected, source = gpt2.generate(inputs_embeds=rows, max_new_tokens=6), rows.cuda()
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(10):
        late = torch.zeros_like(source)
        torch.cuda.synchronize()
        for _ in range(20):
            x = x @ x * 1e-3
        late.copy_(source)
        out = gpt2.generate(inputs_embeds=late, max_new_tokens=6)
        late.fill_(9.0)
        same(out, expected)


def test_memory_that_torch_uses_again(gpt2):
    for _ in range(40):
        out = gpt2.generate(
            torch.tensor(IDS).cuda(), max_new_tokens=12, output_scores=True, return_dict_in_generate=True
        )
        best, ids = torch.stack(out.scores).argmax(-1).T, out.sequences[:, 4:]
        del out
        torch.full((12, 3, 200), -1.0, device="cuda")
        assert torch.equal(best, ids)


def test_encoders(seq2seq):
    compare(seq2seq, {"input_ids": PAIRS, "attention_mask": RIGHT}, max_new_tokens=12)
    ids, mask = torch.tensor(PAIRS), torch.tensor(RIGHT)
    memory = seq2seq.get_encoder()(ids.cuda(), attention_mask=mask.cuda()).last_hidden_state
    same(memory, seq2seq.get_encoder()(ids, attention_mask=mask).last_hidden_state)
    for beams in (1, 3):
        options = {"num_beams": beams, "max_new_tokens": 12}
        a = seq2seq.generate(encoder_outputs=(memory,), attention_mask=mask.cuda(), **options)
        same(a, seq2seq.generate(ids, attention_mask=mask, **options))
    rows = torch.randn(2, 9, seq2seq.engine.info["embedding"], generator=torch.Generator().manual_seed(2))
    same(
        seq2seq.get_encoder()(inputs_embeds=rows.cuda()).last_hidden_state,
        seq2seq.get_encoder()(inputs_embeds=rows).last_hidden_state,
    )
