# SPDX-License-Identifier: Apache-2.0
"""proa.LLM and proa.AsyncLLM: vLLM's names and meanings."""
import asyncio
import math
import pathlib
import sys

import pytest

import proa
from proa import RequestOutputKind, SamplingParams

ROOT = pathlib.Path(__file__).parents[2]
PROMPT = "translate English to German: A dog runs."
OTHER = "translate English to German: A man reads a newspaper."
GREEDY = SamplingParams(temperature=0, max_tokens=None)


@pytest.fixture(scope="module")
def t5():
    with proa.LLM(ROOT / "models/m30k-t5") as model:
        yield model


@pytest.fixture(scope="module")
def gpt():
    with proa.LLM(ROOT / "models/classics-10m") as model:
        yield model


def test_outputs_are_in_the_order_of_the_prompts(t5):
    outputs = t5.generate([PROMPT, OTHER, PROMPT], GREEDY)
    assert [o.outputs[0].text for o in outputs] == ["Ein Hund rennt.", "Ein Mann liest Zeitung."] + [
        "Ein Hund rennt."
    ]
    assert all(o.finished and o.outputs[0].finish_reason == "stop" for o in outputs)
    assert outputs[0].prompt == PROMPT and outputs[0].prompt_token_ids[-1] == 1


def test_each_prompt_may_have_its_own_params(t5):
    short, whole = t5.generate([PROMPT, PROMPT], [SamplingParams(temperature=0, max_tokens=2), GREEDY])
    assert (short.outputs[0].text, short.outputs[0].finish_reason) == ("Ein Hund", "length")
    assert whole.outputs[0].text == "Ein Hund rennt."
    with pytest.raises(ValueError, match="2 prompts and 1 sampling_params"):
        t5.generate([PROMPT, PROMPT], [GREEDY])
    with pytest.raises(ValueError, match="'max_tokens' is 0, must be at least 1"):
        t5.generate(PROMPT, SamplingParams(max_tokens=0))


def test_ids_give_what_their_text_gives(t5):
    ids = t5.generate(PROMPT, GREEDY)[0].prompt_token_ids
    for prompt in (ids, {"prompt_token_ids": ids}, {"encoder_prompt": PROMPT}):
        assert t5.generate([prompt], GREEDY)[0].outputs[0].text == "Ein Hund rennt."


def test_a_decoder_prompt_begins_the_output(t5):
    prompt = {"encoder_prompt": PROMPT, "decoder_prompt": [0, 13]}
    assert t5.generate(prompt, GREEDY)[0].outputs[0].text == "Hund rennt."


def test_logprobs_are_those_of_the_model(gpt):
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2)
    output = gpt.generate("It was a dark", params)[0]
    completion = output.outputs[0]
    assert len(completion.logprobs) == 5
    for id_, entry in zip(completion.token_ids, completion.logprobs):
        assert len(entry) == 3 and entry[id_].rank == 1 and entry[id_].logprob <= 0
        assert [e.logprob for e in entry.values()] == sorted((e.logprob for e in entry.values()), reverse=True)
    chosen = sum(entry[i].logprob for i, entry in zip(completion.token_ids, completion.logprobs))
    assert math.isclose(completion.cumulative_logprob, chosen, abs_tol=1e-5)
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    for id_, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        assert id_ in entry and len(entry) == 2 + (entry[id_].rank is None)


def test_one_seed_gives_one_text_and_n_gives_several(gpt):
    params = SamplingParams(n=3, temperature=1.0, top_p=0.9, seed=5, max_tokens=12)
    first, second = gpt.generate(["It was", "It was"], params)
    texts = [c.text for c in first.outputs]
    assert texts == [c.text for c in second.outputs]
    assert len(set(texts)) > 1 and [c.index for c in first.outputs] == [0, 1, 2]


def test_stop_strings_are_cut_and_stop_tokens_are_kept(gpt):
    whole = gpt.generate("It was", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0]
    word = whole.text.split()[2]
    stopped = gpt.generate("It was", SamplingParams(temperature=0, max_tokens=12, stop=word))[0].outputs[0]
    assert word not in stopped.text and (stopped.finish_reason, stopped.stop_reason) == ("stop", word)
    token = whole.token_ids[2]
    stopped = gpt.generate("It was", SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[token]))
    assert stopped[0].outputs[0].token_ids[-1] == token and stopped[0].outputs[0].stop_reason == token


def test_structured_output_and_biases(gpt):
    choice = proa.StructuredOutputsParams(choice=["yes", "no"])
    text = gpt.generate("Is it?", SamplingParams(temperature=0, structured_outputs=choice))[0].outputs[0].text
    assert text in ("yes", "no")
    id_ = gpt.engine.encode(" sea", special=False)[0]
    params = SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=[id_], ignore_eos=True)
    assert gpt.generate("It was", params)[0].outputs[0].token_ids == [id_] * 3
    params = SamplingParams(temperature=0, max_tokens=3, logit_bias={id_: 100.0})
    assert gpt.generate("It was", params)[0].outputs[0].token_ids == [id_] * 3


def test_beams_by_the_library_s_own_names(t5):
    outputs = t5.generate(PROMPT, SamplingParams(temperature=0, max_tokens=20, extra_args={"beams": 4}))[0].outputs
    assert len(outputs) == 4 and outputs[0].text == "Ein Hund rennt."
    assert [o.score for o in outputs] == sorted((o.score for o in outputs), reverse=True)


def test_a_stream_grows_to_what_generate_returns(t5):
    parts = list(t5.stream(OTHER, GREEDY))
    assert parts[-1].finished and parts[-1].outputs[0].text == "Ein Mann liest Zeitung."
    assert all(b.outputs[0].text.startswith(a.outputs[0].text) for a, b in zip(parts, parts[1:]))
    delta = SamplingParams(temperature=0, max_tokens=None, output_kind=RequestOutputKind.DELTA)
    parts = list(t5.stream(OTHER, delta))
    assert "".join(p.outputs[0].text for p in parts) == "Ein Mann liest Zeitung."
    whole = t5.generate(OTHER, GREEDY)[0].outputs[0].token_ids
    assert [i for p in parts for i in p.outputs[0].token_ids] == whole


def test_a_stream_reads_tokens_while_they_come(gpt):
    """Threads switch after each instruction: no output may have a token without what belongs to it, and one is the last."""
    kind = RequestOutputKind.DELTA
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=2, output_kind=kind)
    whole = gpt.generate("It was", params)[0].outputs[0]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            parts = list(gpt.stream("It was", params))
            assert [p.finished for p in parts] == [False] * (len(parts) - 1) + [True]
            assert [i for p in parts for i in p.outputs[0].token_ids] == whole.token_ids
            assert [entry for p in parts for entry in p.outputs[0].logprobs] == whole.logprobs
    finally:
        sys.setswitchinterval(before)


def test_a_stream_that_is_left_is_cancelled(gpt):
    for _ in gpt.stream("It was", SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)):
        break
    before = gpt.engine.stats()["cancelled"]
    gpt.generate("The sea", SamplingParams(temperature=0, max_tokens=2))
    assert gpt.engine.stats()["cancelled"] >= max(before, 1)


def test_asyncio_requests_run_together():
    async def text_of(model, prompt):
        async for output in model.generate(prompt, GREEDY, request_id=prompt):
            last = output
        return last.request_id, last.outputs[0].text

    async def run():
        with proa.AsyncLLM(ROOT / "models/m30k-t5", max_num_seqs=4, dtype="float32") as model:
            return await asyncio.gather(*(text_of(model, p) for p in (PROMPT, OTHER)))

    assert asyncio.run(run()) == [(PROMPT, "Ein Hund rennt."), (OTHER, "Ein Mann liest Zeitung.")]


def test_asyncio_cancellation_cancels_the_request():
    async def run():
        with proa.AsyncLLM(ROOT / "models/classics-10m") as model:

            begun = asyncio.Event()

            async def endless():
                async for _ in model.generate("It was", SamplingParams(max_tokens=900, ignore_eos=True)):
                    begun.set()

            task = asyncio.create_task(endless())
            await asyncio.wait_for(begun.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(3000):
                stats = model.engine.stats()
                if stats["running"] == 0 and stats["cancelled"]:
                    return stats["cancelled"]
                await asyncio.sleep(0.01)

    assert asyncio.run(run()) == 1


def test_chat_uses_the_model_s_template(gpt, tmp_path):
    for file in (ROOT / "models/classics-10m").iterdir():
        (tmp_path / file.name).symlink_to(file)
    template = "{{ bos_token }}"
    template += "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} was{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    with proa.LLM(tmp_path) as model:
        params = SamplingParams(temperature=0, max_tokens=6)
        output = model.chat([{"role": "user", "content": "It"}], params)[0]
        assert output.prompt.endswith("It was")
        assert output.outputs[0].text == gpt.generate("It was", params)[0].outputs[0].text
    with pytest.raises(proa.NotFoundError, match="chat template"):
        gpt.chat([{"role": "user", "content": "It"}])
