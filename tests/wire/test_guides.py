# SPDX-License-Identifier: Apache-2.0
"""The contracts of the known guides, written anew: the tensors, types and shapes of their repositories, Python models before and
behind the engine as theirs are (replies of fewer dimensions than configured among them), and clients that send what theirs send.
What comes through is what `proa run` says. tests/guides runs the guides' own files."""
import functools
import json
import queue
import subprocess
import sys

import numpy as np
import pytest
import requests
import tokenizers
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype
from wire import PROA, ROOT, Server

LM, T5 = ROOT / "models/classics-10m", ROOT / "models/m30k-t5"
TEXT = tokenizers.Tokenizer.from_file(str(LM / "tokenizer.json"))
END = 2  # classics-10m's end token
NIGHT = "It was a dark and stormy night"
PROMPTS = [NIGHT, "The sea", "Chapter 1\n\n", NIGHT]

# ---- repositories ----


def io(field, rows):
    """Tensors from lines "NAME TYPE DIMS [optional] [scalar]"; scalar: one element without a dimension of its own."""
    made = []
    for name, kind, dims, *flags in (line.split() for line in rows.strip().splitlines()):
        more = (" optional: true" if "optional" in flags else "") + (" reshape { shape: [ ] }" if "scalar" in flags else "")
        made.append(f'{{ name: "{name}" data_type: TYPE_{kind} dims: {dims}{more} }}')
    return f"{field} [ {', '.join(made)} ]\n"


def parameters(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def step(model, inputs, outputs):
    """Pairs of the step's name and the ensemble's; one word is both."""
    pairs = [("input", *(one.split("=") * 2)[:2]) for one in inputs.split()] + [("output", *(one.split("=") * 2)[:2]) for one in outputs.split()]
    maps = " ".join(f'{way}_map {{ key: "{key}" value: "{value}" }}' for way, key, value in pairs)
    return f'{{ model_name: "{model}" model_version: -1 {maps} }}'


def ensemble(*steps):
    return f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"


def write(folder, name, config, model=None):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(f'name: "{name}"\n{config}')
    if model:
        (folder / name / "1/model.py").write_text(model)


# Texts to ids, padded with the end token; words are one line of CSV a row.
PREPROCESSING = '''
import csv
import json

import numpy as np
import tokenizers
import triton_python_backend_utils as pb_utils


class TritonPythonModel:

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.tokenizer = tokenizers.Tokenizer.from_file(config["parameters"]["tokenizer"]["string_value"])
        self.types = {one["name"]: pb_utils.triton_string_to_numpy(one["data_type"]) for one in config["output"]}

    def execute(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        texts = self.column(request, "QUERY")
        ids = [self.tokenizer.encode(text).ids for text in texts]
        made = {
            "INPUT_ID": [one + [2] * (max(map(len, ids)) - len(one)) for one in ids],
            "REQUEST_INPUT_LEN": [[len(one)] for one in ids],
            "REQUEST_OUTPUT_LEN": pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy(),
            "BAD_WORDS_IDS": self.words(self.column(request, "BAD_WORDS_DICT")),
            "STOP_WORDS_IDS": self.words(self.column(request, "STOP_WORDS_DICT")),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.array(made[name], self.types[name])) for name in made])

    def column(self, request, name):
        return [row[0].decode() for row in pb_utils.get_input_tensor_by_name(request, name).as_numpy()]

    def words(self, lines):
        """[rows, 2, n]: all ids of a row's words, and where each word ends."""
        lists = []
        for line in lines:
            ids = [self.tokenizer.encode(word, add_special_tokens=False).ids for word in next(csv.reader([line]), []) if word]
            lists.append((sum(ids, []), np.cumsum([len(one) for one in ids]).tolist()))
        width = max(1, *(len(ids) for ids, _ in lists), 1)
        return [[ids + [0] * (width - len(ids)), ends + [-1] * (width - len(ends))] for ids, ends in lists]
'''

# Ids to texts: one dimension where the configuration says two behind the batch.
POSTPROCESSING = '''
import json

import numpy as np
import tokenizers
import triton_python_backend_utils as pb_utils


class TritonPythonModel:

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.tokenizer = tokenizers.Tokenizer.from_file(config["parameters"]["tokenizer"]["string_value"])

    def execute(self, requests):
        answers = []
        for one in requests:
            batch = pb_utils.get_input_tensor_by_name(one, "TOKENS_BATCH").as_numpy()
            texts = [self.tokenizer.decode([i for i in ids if i >= 0], skip_special_tokens=False).encode() for row in batch for ids in row]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))]))
        return answers
'''


def write_processing(folder, ids, lengths):
    """The Python models; `ids` is the type of ids on both sides, `lengths` of REQUEST_INPUT_LEN and, by its pair, OUTPUT_LEN."""
    of_input, of_output = lengths
    tokenizer = 'backend: "python"\nmax_batch_size: 128\n' + parameters(tokenizer=LM / "tokenizer.json")
    inputs = io("input", f"QUERY STRING [-1]\nBAD_WORDS_DICT STRING [-1]\nSTOP_WORDS_DICT STRING [-1]\nREQUEST_OUTPUT_LEN {of_output} [-1]")
    outputs = io("output", f"""
        INPUT_ID {ids} [-1]
        REQUEST_INPUT_LEN {of_input} [1]
        BAD_WORDS_IDS INT32 [2,-1]
        STOP_WORDS_IDS INT32 [2,-1]
        REQUEST_OUTPUT_LEN {of_output} [-1]""")
    write(folder, "preprocessing", tokenizer + inputs + outputs, PREPROCESSING)
    tensors = io("input", f"TOKENS_BATCH {ids} [-1,-1]") + io("output", "OUTPUT STRING [-1,-1]")
    write(folder, "postprocessing", tokenizer + tensors, POSTPROCESSING)


SAMPLING = """
    runtime_top_k UINT32 [1] {0}
    runtime_top_p FP32 [1] {0}
    beam_search_diversity_rate FP32 [1] {0}
    temperature FP32 [1] {0}
    len_penalty FP32 [1] {0}
    repetition_penalty FP32 [1] {0}
    random_seed INT32 [1] {0}
    is_return_log_probs BOOL [1] {0}
    beam_width UINT32 [1] {0}
    start_id UINT32 [1] {0}
    end_id UINT32 [1] {0}"""
SAMPLED = " ".join(line.split()[0] for line in SAMPLING.split("\n")[1:])
GENERATED = io("output", "output_ids UINT32 [-1,-1]\nsequence_length UINT32 [-1]\ncum_log_probs FP32 [-1]\noutput_log_probs FP32 [-1,-1]")
WORDS = "bad_words_list INT32 [2,-1] optional\nstop_words_list INT32 [2,-1] optional"


@pytest.fixture(scope="module")
def gptj(tmp_path_factory):
    """GPT-J's three models and their ensemble, said to be a backend as some write it. All options must come in the ensemble."""
    folder = tmp_path_factory.mktemp("gptj")
    write_processing(folder, "UINT32", ("UINT32", "UINT32"))
    engine = parameters(model_type="GPT-J", model_checkpoint_path=LM, tensor_para_size="4", is_half="1", max_seq_len="528")
    inputs = "input_ids UINT32 [-1]\ninput_lengths UINT32 [1] scalar\nrequest_output_len UINT32 [-1]\n" + WORDS + SAMPLING.format("scalar optional")
    write(folder, "fastertransformer", 'backend: "fastertransformer"\nmax_batch_size: 128\n' + io("input", inputs) + GENERATED + engine)
    inputs = "INPUT_0 STRING [-1]\nINPUT_1 UINT32 [-1]\nINPUT_2 STRING [-1]\nINPUT_3 STRING [-1]" + SAMPLING.format("")
    outputs = "OUTPUT_0 STRING [-1,-1]\nsequence_length UINT32 [-1]\ncum_log_probs FP32 [-1]\noutput_log_probs FP32 [-1,-1]"
    steps = ensemble(
        step("preprocessing", "QUERY=INPUT_0 REQUEST_OUTPUT_LEN=INPUT_1 BAD_WORDS_DICT=INPUT_2 STOP_WORDS_DICT=INPUT_3",
             "INPUT_ID=_I BAD_WORDS_IDS=_B STOP_WORDS_IDS=_S REQUEST_INPUT_LEN=_L REQUEST_OUTPUT_LEN=_N"),
        step("fastertransformer", "input_ids=_I input_lengths=_L request_output_len=_N bad_words_list=_B stop_words_list=_S " + SAMPLED,
             "output_ids=_T sequence_length cum_log_probs output_log_probs"),
        step("postprocessing", "TOKENS_BATCH=_T", "OUTPUT=OUTPUT_0"))
    write(folder, "ensemble", 'backend: "ensemble"\nmax_batch_size: 128\n' + io("input", inputs) + io("output", outputs) + steps)
    with Server(repositories=[folder], env={"PROA_PYTHON": sys.executable}) as one:
        yield one


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    inputs = "input_ids UINT32 [-1]\nsequence_length UINT32 [1] scalar\nmax_output_len UINT32 [1] scalar\n"
    inputs += WORDS + SAMPLING.format("scalar optional")
    engine = parameters(model_type="T5", model_checkpoint_path=T5, tensor_para_size="2", is_half="1")
    write(folder, "fastertransformer", 'backend: "fastertransformer"\nmax_batch_size: 128\n' + io("input", inputs) + GENERATED + engine)
    with Server(repositories=[folder]) as one:
        yield one


OPTIONS = "end_id={0} pad_id={0} runtime_top_k={0} runtime_top_p=FP32 temperature=FP32 len_penalty=FP32 repetition_penalty=FP32 " \
    "min_length={0} presence_penalty=FP32 random_seed=UINT64 beam_width={0}"
OUTER = {"runtime_top_k": "top_k", "runtime_top_p": "top_p", "len_penalty": "length_penalty"}


def write_inflight(folder, kind, decoupled, **more):
    """TensorRT-LLM's ensemble. `kind` is UINT32 in its first release and INT32 in later ones: of lengths, ids and numbers."""
    options = dict(one.split("=") for one in OPTIONS.format(kind).split())
    write_processing(folder, "INT32", ("INT32", kind))
    inner = f"input_ids INT32 [-1]\ninput_lengths INT32 [1] scalar\nrequest_output_len {kind} [1]\nstop BOOL [1] optional\nstreaming BOOL [1] optional\n"
    inner += "\n".join(f"{name} {type_} [1] scalar optional" for name, type_ in options.items())
    policy = f"model_transaction_policy {{ decoupled: {decoupled} }}\n"
    engine = {"gpt_model_type": "inflight_fused_batching", "gpt_model_path": LM, "max_tokens_in_paged_kv_cache": "", "max_num_sequences": 4,
              "batch_scheduler_policy": "guaranteed_completion", "enable_trt_overlap": "${enable_trt_overlap}", **more}
    write(folder, "tensorrt_llm", 'backend: "tensorrtllm"\nmax_batch_size: 128\n' + policy + io("input", inner) +
          io("output", "output_ids INT32 [-1,-1]") + parameters(**engine))
    outer = f"text_input STRING [-1]\nmax_tokens {kind} [-1]\nbad_words STRING [-1]\nstop_words STRING [-1]\nstream BOOL [1] optional\n"
    outer += "\n".join(f"{OUTER.get(name, name)} {type_} [1] optional" for name, type_ in options.items())
    steps = ensemble(
        step("preprocessing", "QUERY=text_input REQUEST_OUTPUT_LEN=max_tokens BAD_WORDS_DICT=bad_words STOP_WORDS_DICT=stop_words",
             "REQUEST_INPUT_LEN=_L INPUT_ID=_I REQUEST_OUTPUT_LEN=_N"),
        step("tensorrt_llm", "input_ids=_I input_lengths=_L request_output_len=_N streaming=stream " +
             " ".join(f"{name}={OUTER.get(name, name)}" for name in options), "output_ids=_T"),
        step("postprocessing", "TOKENS_BATCH=_T", "OUTPUT=text_output"))
    write(folder, "ensemble", 'platform: "ensemble"\nmax_batch_size: 128\n' + io("input", outer) + io("output", "text_output STRING [-1,-1]") + steps)


@pytest.fixture(scope="module", params=["UINT32", "INT32"])
def inflight(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inflight")
    write_inflight(folder, request.param, "false")
    with Server(repositories=[folder], env={"PROA_PYTHON": sys.executable}) as one:
        one.kind = request.param
        yield one


@pytest.fixture(scope="module")
def streaming(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streaming")
    write_inflight(folder, "UINT32", "true")
    with Server(repositories=[folder], env={"PROA_PYTHON": sys.executable}) as one:
        yield one


# ---- clients ----


def said(model, asked):
    """What proa run says to these requests, in their order."""
    return run(model, "".join(json.dumps(one) + "\n" for one in asked))


@functools.lru_cache
def run(model, text):
    ran = subprocess.run([PROA, "run", model, "--dtype", "exact", "--input", "-", "--json"], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Client:
    """A tritonclient of either protocol; arrays by name go in, arrays by name come out."""

    def __init__(self, server, protocol="http"):
        self.triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
        self.client = self.triton.InferenceServerClient(getattr(server, protocol))

    def tensors(self, arrays):
        made = []
        for name, array in arrays.items():
            made.append(self.triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            made[-1].set_data_from_numpy(array)
        return made

    def __call__(self, model, **arrays):
        result = self.client.infer(model, self.tensors(arrays))
        response = result.get_response()
        outputs = [one["name"] for one in response["outputs"]] if isinstance(response, dict) else [one.name for one in response.outputs]
        return {name: result.as_numpy(name) for name in outputs}


def column(values, dtype):
    return np.array(values, dtype=dtype).reshape(-1, 1)


def sampling(rows, **values):
    """The options that the guides' clients send with each row, all of them every time."""
    usual = dict(runtime_top_k=1, runtime_top_p=0, beam_search_diversity_rate=0, temperature=1, len_penalty=1, repetition_penalty=1,
                 random_seed=0, is_return_log_probs=True, beam_width=1, start_id=1, end_id=END)
    types = {"UINT32": np.uint32, "FP32": np.float32, "INT32": np.int32, "BOOL": bool}
    kinds = {line.split()[0]: types[line.split()[1]] for line in SAMPLING.split("\n")[1:]}
    return {name: column([value] * rows, kinds[name]) for name, value in {**usual, **values}.items()}


def no_words(rows):
    return np.tile(np.array([[[0], [-1]]], np.int32), (rows, 1, 1))


# ---- GPT-J ----

TOKENS = 16


def gptj_request(bad=(), stop=(), **options):
    """Several prompts, each with one line of bad words and one of stop words."""
    def lines(words):
        return column([*words, *[""] * (len(PROMPTS) - len(words))], object)

    return dict(INPUT_0=column(PROMPTS, object), INPUT_1=column([TOKENS] * len(PROMPTS), np.uint32), INPUT_2=lines(bad), INPUT_3=lines(stop),
                **sampling(len(PROMPTS), **options))


def check_texts(texts, results):
    """Prompt and continuation, then end tokens up to the longest row: what the guide's postprocessing writes out."""
    assert len(texts) == len(results)
    for text, prompt, result in zip(texts, PROMPTS, results):
        whole = TEXT.decode(TEXT.encode(prompt).ids + result["ids"], skip_special_tokens=False)
        assert text.decode().replace("</s>", "") == whole.replace("</s>", "")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_gptj_ensemble(gptj, protocol):
    results = said(LM, [{"prompt": one, "style": "ft", "max_tokens": TOKENS} for one in PROMPTS])
    got = Client(gptj, protocol)("ensemble", **gptj_request())
    assert got["OUTPUT_0"].shape == (len(PROMPTS),)  # as the model made it, though the configuration says three dimensions
    check_texts(got["OUTPUT_0"], results)
    lengths = [len(TEXT.encode(one).ids) + len(result["ids"]) for one, result in zip(PROMPTS, results)]
    assert got["sequence_length"].dtype == np.uint32 and got["sequence_length"].ravel().tolist() == lengths
    assert got["cum_log_probs"].shape == (len(PROMPTS), 1) and (got["cum_log_probs"] < 0).all()
    assert got["output_log_probs"].shape == (len(PROMPTS), 1, TOKENS)


def test_gptj_step_by_step(gptj):
    """The guide's client calls each model itself and hands on what it got."""
    ask, rows = Client(gptj), len(PROMPTS)
    first = ask("preprocessing", QUERY=column(PROMPTS, object), BAD_WORDS_DICT=column([""] * rows, object),
                STOP_WORDS_DICT=column([""] * rows, object), REQUEST_OUTPUT_LEN=column([TOKENS] * rows, np.uint32))
    assert {name: str(one.dtype) for name, one in first.items()} == {
        "INPUT_ID": "uint32", "REQUEST_INPUT_LEN": "uint32", "REQUEST_OUTPUT_LEN": "uint32", "BAD_WORDS_IDS": "int32", "STOP_WORDS_IDS": "int32"}
    second = ask("fastertransformer", input_ids=first["INPUT_ID"], input_lengths=first["REQUEST_INPUT_LEN"],
                 request_output_len=first["REQUEST_OUTPUT_LEN"], bad_words_list=first["BAD_WORDS_IDS"],
                 stop_words_list=first["STOP_WORDS_IDS"], **sampling(rows))
    assert second["output_ids"].dtype == np.uint32 and second["output_ids"].ndim == 3
    third = ask("postprocessing", TOKENS_BATCH=second["output_ids"])
    assert third["OUTPUT"].tolist() == ask("ensemble", **gptj_request())["OUTPUT_0"].tolist()


def test_gptj_words_beams_and_sampling(gptj):
    ask = Client(gptj)
    wind, sun = (TEXT.encode(word, add_special_tokens=False).ids for word in (" wind", " sun"))
    asked = [{"prompt": one, "style": "ft", "max_tokens": TOKENS} for one in PROMPTS]
    asked[0] |= {"banned_words": [wind, sun]}
    asked[3] |= {"stop_words": [sun, wind]}
    results = said(LM, asked)
    assert " wind" not in results[0]["text"] and results[3]["text"].endswith(" wind")
    check_texts(ask("ensemble", **gptj_request(bad=[" wind, sun"], stop=["", "", "", " sun, wind"]))["OUTPUT_0"], results)
    drawn = [{"prompt": one, "style": "ft", "max_tokens": TOKENS, "top_k": 8, "top_p": 0.9, "seed": 5} for one in PROMPTS]
    request = gptj_request(runtime_top_k=8, runtime_top_p=0.9, random_seed=5)
    check_texts(ask("ensemble", **request)["OUTPUT_0"], said(LM, drawn))
    beams = [{"prompt": one, "style": "ft", "max_tokens": TOKENS, "beams": 2, "length_penalty": 1} for one in PROMPTS]
    texts = ask("ensemble", **gptj_request(beam_width=2))["OUTPUT_0"]
    results = said(LM, beams)
    for i in (0, 1):
        check_texts(texts[i::2], [one["beams"][i] for one in results])


def test_gptj_ensemble_is_reported_as_a_platform(gptj):
    config = requests.get(gptj.url("/v2/models/ensemble/config"), timeout=20).json()
    assert (config["platform"], config["backend"]) == ("ensemble", "")


# ---- T5 ----


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("beams", [1, 4])
def test_t5_batch(t5, protocol, beams):
    """Padded ids with their lengths, all options in every request, and ids that the client decodes as far as the length says."""
    text = tokenizers.Tokenizer.from_file(str(T5 / "tokenizer.json"))
    sources = [f"translate English to German: {one}" for one in ("A dog runs.", "Two young women are playing with a dog on the beach.", "A man reads.")]
    ids = [text.encode(one).ids for one in sources]
    rows, width = len(ids), max(map(len, ids))
    got = Client(t5, protocol)(
        "fastertransformer", input_ids=np.array([one + [0] * (width - len(one)) for one in ids], np.uint32),
        sequence_length=column([len(one) for one in ids], np.uint32), max_output_len=column([128] * rows, np.uint32),
        bad_words_list=no_words(rows), stop_words_list=no_words(rows), **sampling(rows, start_id=0, end_id=1, beam_width=beams))
    search = {"beams": beams, "length_penalty": 1} if beams > 1 else {}
    results = said(T5, [{"prompt": one, "style": "ft", "max_tokens": 128, **search} for one in sources])
    for row, length, result in zip(got["output_ids"], got["sequence_length"], results, strict=True):
        best = result["beams"][0] if beams > 1 else result
        assert row.dtype == np.uint32 and row.shape[0] == beams
        assert text.decode(row[0][: length[0]].tolist()) == best["text"]


def test_t5_with_the_options_left_out(t5):
    """What the guide's notebook sends: four tensors, the rest is optional."""
    text, source = tokenizers.Tokenizer.from_file(str(T5 / "tokenizer.json")), "translate English to German: A dog runs."
    ids = text.encode(source).ids
    got = Client(t5)("fastertransformer", input_ids=np.array([ids], np.uint32), sequence_length=column([len(ids)], np.uint32),
                     max_output_len=column([128], np.uint32), runtime_top_k=column([1], np.uint32))
    assert text.decode(got["output_ids"][0][0][: got["sequence_length"][0][0]].tolist()) == said(T5, [{"prompt": source}])[0]["text"]
    assert "divided among 2 ranks" in t5.log_text()  # tensor_para_size


# ---- TensorRT-LLM's ensemble ----


def llama_request(kind, prompt, tokens, **more):
    dtype = {"UINT32": np.uint32, "INT32": np.int32}[kind]
    return dict(text_input=column([prompt], object), max_tokens=column([tokens], dtype), bad_words=column([""], object),
                stop_words=column([""], object), **more)


def ids_request(kind, ids, tokens, **more):
    dtype = {"UINT32": np.uint32, "INT32": np.int32}[kind]
    return dict(input_ids=np.array([ids], np.int32), input_lengths=column([len(ids)], np.int32), request_output_len=column([tokens], dtype), **more)


def llama_ids(prompt, tokens, **more):
    return said(LM, [{"prompt": prompt, "style": "trtllm", "max_tokens": tokens, **more}])[0]["ids"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_inflight_by_steps_and_by_ensemble(inflight, protocol):
    """What the guide's end to end test compares; ids come behind those of the prompt."""
    ask, ids = Client(inflight, protocol), TEXT.encode(NIGHT).ids
    first = ask("preprocessing", QUERY=column([NIGHT], object), BAD_WORDS_DICT=column([""], object), STOP_WORDS_DICT=column([""], object),
                REQUEST_OUTPUT_LEN=llama_request(inflight.kind, NIGHT, 24)["max_tokens"])
    second = ask("tensorrt_llm", input_ids=first["INPUT_ID"], input_lengths=first["REQUEST_INPUT_LEN"], request_output_len=first["REQUEST_OUTPUT_LEN"])
    assert second["output_ids"].dtype == np.int32 and second["output_ids"][0][0].tolist() == ids + llama_ids(NIGHT, 24)
    third = ask("postprocessing", TOKENS_BATCH=second["output_ids"])
    whole = ask("ensemble", **llama_request(inflight.kind, NIGHT, 24))["text_output"]
    assert whole.shape == (1,) and third["OUTPUT"] == whole
    assert whole[0].decode() == TEXT.decode(ids + llama_ids(NIGHT, 24), skip_special_tokens=False)


def test_inflight_types_are_the_configuration_s(inflight):
    other = {"UINT32": "INT32", "INT32": "UINT32"}[inflight.kind]
    with pytest.raises(InferenceServerException, match=f"'TYPE_{inflight.kind}'|'{inflight.kind}'|{inflight.kind}"):
        Client(inflight)("ensemble", **llama_request(other, NIGHT, 8))


def test_inflight_options(inflight):
    dtype = {"UINT32": np.uint32, "INT32": np.int32}[inflight.kind]
    request = ids_request(inflight.kind, TEXT.encode(NIGHT).ids, 24, beam_width=column([1], dtype), temperature=column([0.8], np.float32),
                          runtime_top_k=column([8], dtype), runtime_top_p=column([0.9], np.float32), random_seed=column([11], np.uint64),
                          len_penalty=column([1], np.float32), repetition_penalty=column([1.1], np.float32), min_length=column([2], dtype),
                          presence_penalty=column([0.1], np.float32), end_id=column([END], dtype), pad_id=column([0], dtype))
    wanted = llama_ids(NIGHT, 24, temperature=0.8, top_k=8, top_p=0.9, seed=11, repetition_penalty=1.1, min_tokens=2, presence_penalty=0.1)
    assert Client(inflight, "grpc")("tensorrt_llm", **request)["output_ids"][0][0].tolist() == TEXT.encode(NIGHT).ids + wanted


@pytest.mark.parametrize("body", [
    {"max_tokens": 20, "bad_words": "", "stop_words": ""},
    {"parameters": {"max_tokens": 20, "bad_words": [""], "stop_words": [""]}},
])
def test_inflight_generate(inflight, body):
    """Both forms of the guides' curl: tensors as members, and below "parameters"."""
    answer = requests.post(inflight.url("/v2/models/ensemble/generate"), json={"text_input": NIGHT, **body}, timeout=60)
    ids = TEXT.encode(NIGHT).ids + llama_ids(NIGHT, 20)
    assert answer.status_code == 200 and answer.json()["text_output"] == TEXT.decode(ids, skip_special_tokens=False)


# ---- streams ----


@pytest.fixture
def stream(streaming):
    """stream(model, arrays, ...) gives the next answer's arrays, None at the final empty one."""
    ask, answers = Client(streaming, "grpc"), queue.Queue()
    ask.client.start_stream(lambda result, error: answers.put(error or result))

    def start(model, arrays, **more):
        ask.client.async_stream_infer(model, ask.tensors(arrays), **more)

    def take():
        one = answers.get(timeout=60)
        assert not isinstance(one, Exception), one
        return one

    yield start, take
    ask.client.stop_stream()


def test_stream_of_ids(stream):
    start, take = stream
    start("tensorrt_llm", ids_request("UINT32", TEXT.encode(NIGHT).ids, 24, streaming=column([True], bool)), request_id="1")
    wanted = llama_ids(NIGHT, 24)
    assert [take().as_numpy("output_ids").ravel().tolist() for _ in wanted] == [[one] for one in wanted]


def test_stream_of_texts(stream):
    """Each piece is decoded alone by a Python model whose reply has one dimension."""
    start, take = stream
    start("ensemble", llama_request("UINT32", NIGHT, 24, stream=column([True], bool)))
    pieces = [take().as_numpy("text_output") for _ in range(24)]
    assert all(one.shape == (1,) for one in pieces)
    assert b"".join(one[0] for one in pieces).decode() == TEXT.decode(llama_ids(NIGHT, 24))
    start("ensemble", llama_request("UINT32", NIGHT, 24, stream=column([False], bool)))
    assert take().as_numpy("text_output")[0].decode() == TEXT.decode(TEXT.encode(NIGHT).ids + llama_ids(NIGHT, 24), skip_special_tokens=False)


def test_stop_ends_the_request_of_its_id(stream):
    """The guide's client asks for a stop by the same id; ids and lengths come along and mean nothing. What it gets for the stop has no
    output, and of the request no more than it had."""
    start, take = stream
    long = ids_request("UINT32", TEXT.encode(NIGHT).ids, 900, streaming=column([True], bool))
    start("tensorrt_llm", long, request_id="7", enable_empty_final_response=True)
    got = take().as_numpy("output_ids").ravel().tolist()
    stop = dict(ids_request("UINT32", [0], 0), input_lengths=column([0], np.int32), stop=column([True], bool))
    start("tensorrt_llm", stop, request_id="7", parameters={"Streaming": True}, enable_empty_final_response=True)
    finals = 0
    while finals < 2:
        response = take()
        finals += response.get_response().parameters["triton_final_response"].bool_param
        if response.as_numpy("output_ids") is not None:
            got += response.as_numpy("output_ids").ravel().tolist()
    assert 0 < len(got) < 900 and got == llama_ids(NIGHT, len(got))


def test_one_reply_of_a_decoupled_model(streaming):
    """The same client without a stream: ModelInfer of a decoupled model gives the whole."""
    request = ids_request("UINT32", TEXT.encode(NIGHT).ids, 24, streaming=column([False], bool))
    got = Client(streaming, "grpc")("tensorrt_llm", **request)["output_ids"]
    assert got[0][0].tolist() == TEXT.encode(NIGHT).ids + llama_ids(NIGHT, 24)


def test_streaming_needs_a_decoupled_model(inflight):
    request = ids_request(inflight.kind, TEXT.encode(NIGHT).ids, 4, streaming=column([True], bool))
    with pytest.raises(InferenceServerException, match="Streaming is only supported if model is deployed using decoupled mode"):
        Client(inflight)("tensorrt_llm", **request)


def test_a_full_queue_in_the_words_of_both(tmp_path):
    """One of the guide's clients looks for Triton's words, the other for TensorRT-LLM's."""
    write_inflight(tmp_path, "INT32", "false", max_num_sequences=1, max_queue_size=2)
    with Server("--model-control-mode=explicit", "--load-model=tensorrt_llm", repositories=[tmp_path]) as one:
        client = tritonclient.http.InferenceServerClient(one.http, concurrency=16)
        inputs = Client(one).tensors(ids_request("INT32", TEXT.encode(NIGHT).ids, 100))
        waiting, refused = [client.async_infer("tensorrt_llm", inputs) for _ in range(16)], []
        for answer in waiting:
            try:
                answer.get_result()
            except InferenceServerException as error:
                refused.append(error.message())
        client.close()
    assert refused and all("Exceeds maximum queue size" in text and "Maximum queue size of 2" in text for text in refused)
