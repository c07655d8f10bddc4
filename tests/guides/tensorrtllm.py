# SPDX-License-Identifier: Apache-2.0
"""The guides of tensorrtllm_backend: release 0.5.0, and later ones that still have all_models (the last is 0.19.0)."""
import ast
import json
import re

from guide import Oracle, Repository, byte_texts, expect, post, rows, run_client, serving

PROMPT = "It was a dark and stormy night"
QUESTION = "What is machine learning?"
# What scripts/launch_triton_server.py gives tritonserver, but for the ports, which are the usual ones.
LAUNCHED = ("--disable-auto-complete-config", "--backend-config=python,shm-region-prefix-name=prefix0_")
FILLED = "by its own fill_template.py: "
FRENCH = "How do I count to nine in French?"


def run(table, checkout, work, models):
    if (checkout / "all_models/inflight_batcher_llm/tensorrt_llm_bls").exists():
        later_release(table, checkout, work, models)
    else:
        first_release(table, checkout, work, models)


class Client:
    """Runs the clients of one checkout and compares what they got with `proa run` in TensorRT-LLM's style."""

    def __init__(self, checkout, folder, model, dash):
        self.checkout, self.folder, self.model, self.oracle = checkout, folder, model, Oracle(model)
        self.tokenizer_dir, self.max_input_len = (f"--tokenizer{dash}dir", model), (f"--max{dash}input{dash}len", 500)
        self.dataset = ("--dataset", checkout / "ci/L0_backend_trtllm/simple_data.json")
        folder.mkdir(exist_ok=True)

    def run(self, script, *arguments, **more):
        return run_client(self.checkout / script, *arguments, folder=self.folder, **more)

    def wanted(self, prompt, tokens, **options):
        """New ids without an end token, and the text of them."""
        result = self.oracle.one(prompt=prompt, max_tokens=tokens, style="trtllm", **options)
        result = result["beams"][0] if "beams" in result else result
        ids = result["ids"][:-1] if result.get("finish") == "end" else result["ids"]
        return ids, result["text"]

    def prompt_ids(self, ran):
        """How the client's tokenizer reads its own prompt is its matter: its ids are what it sent."""
        prompt = ran.out.split("Input: ")[1].split("\n")[0]
        return prompt, self.oracle.tokenizer.encode(prompt).ids

    def check_ids(self, ran, got, tokens, stopped=False, prompt_first=True):
        """The ids of one sequence; those of one that was stopped are a beginning."""
        prompt, ids = self.prompt_ids(ran)
        wanted, _ = self.wanted(prompt, tokens)
        got = got[len(ids) :] if prompt_first and got[: len(ids)] == ids else got
        if stopped:
            expect(len(got) < tokens and got == wanted[: len(got)], f"{got} after the stop, proa run says {wanted}")
            return f"stopped after {len(got)} of {tokens} tokens, equal to proa run's so far"
        expect(got == wanted, f"{got}, proa run says {wanted}")
        return f"{len(got)} ids equal proa run's"

    def exits_well(self, script, *arguments, says="[INFO]"):
        """Clients that compare for themselves."""
        ran = self.run(script, *arguments)
        expect(says in ran.out, (ran.out + ran.err)[-300:])
        return [line for line in ran.out.splitlines() if says in line][-1].strip()

    def generate(self, model, body, wanted):
        [answer] = post(f"/v2/models/{model}/generate", body)
        expect(answer["text_output"] == wanted, f"{answer['text_output']!r}, proa run says {wanted!r}")
        return "the text equals proa run's"


# ---- release 0.5.0 ----

LLM_CLIENT = "inflight_batcher_llm/client/inflight_batcher_llm_client.py"
TOOLS = "tools/inflight_batcher_llm/"


def first_release(table, checkout, work, models):
    """The values are those of the guide of October 2023; its tests want one reply for a request, its streams want several."""
    client = Client(checkout, work / "trtllm-client", models.llama, "_")
    for decoupled in ("true", "false"):
        repository = first_repository(checkout, work / f"trtllm-{decoupled}", models, decoupled)
        title = f"tensorrtllm_backend 0.5.0 in {checkout.name}, all_models/inflight_batcher_llm, decoupled {decoupled}"
        table.section(title, FILLED + repository.changed())
        with serving(repository.path, *LAUNCHED):
            (first_streams if decoupled == "true" else first_tests)(table, client)
    table.note("scripts/launch_triton_server.py", "not run: it wants mpirun; Proa is started with the options that it gives tritonserver")
    table.note("tools/gpt/*", "not run: all_models/gpt is a Python model that imports TensorRT-LLM itself")


def first_repository(checkout, folder, models, decoupled):
    repository, fill = Repository(checkout / "all_models/inflight_batcher_llm", folder), checkout / "tools/fill_template.py"
    tokenizer = {"tokenizer_type": models.tokenizer_type, "tokenizer_dir": models.llama}
    repository.fill(fill, "tensorrt_llm/config.pbtxt", {
        "decoupled_mode": decoupled, "engine_dir": models.llama, "max_tokens_in_paged_kv_cache": "",
        "batch_scheduler_policy": "guaranteed_completion", "kv_cache_free_gpu_mem_fraction": 0.2, "max_num_sequences": 4,
    })
    repository.fill(fill, "preprocessing/config.pbtxt", tokenizer)
    repository.fill(fill, "postprocessing/config.pbtxt", tokenizer)
    return repository


def first_ids(client, arguments, tokens, stopped=False):
    ran = client.run(LLM_CLIENT, *client.tokenizer_dir, "--request-output-len", tokens, *arguments.split())
    return client.check_ids(ran, rows(ran.out.split("output_ids = ")[1].split("\n")[0])[0], tokens, stopped)


def first_stream(client, arguments, streaming):
    ran = client.run(TOOLS + "end_to_end_streaming_client.py", "--prompt", PROMPT, "--output_len", 40, *arguments.split())
    got, (_, wanted) = "".join(byte_texts(ran.out)), client.wanted(PROMPT, 40)
    wanted = wanted if streaming else special(client) + PROMPT + wanted
    expect(got == wanted, f"{got!r}, proa run says {wanted!r}")
    return f"the text of {len(byte_texts(ran.out))} replies equals proa run's"


def special(client):
    """The special tokens before a prompt, which this release's postprocessing writes out."""
    tokenizer = client.oracle.tokenizer
    ids = tokenizer.encode("").ids
    return tokenizer.decode(ids, skip_special_tokens=False)


def first_streams(table, client):
    table.add(LLM_CLIENT, "--streaming", lambda: first_ids(client, "--streaming", 200))
    table.add(LLM_CLIENT, "--streaming --stop-after-ms 100", lambda: first_ids(client, "--streaming --stop-after-ms 100", 900, True))
    table.add(LLM_CLIENT, "", lambda: first_ids(client, "", 200))
    table.add(TOOLS + "end_to_end_streaming_client.py", "--streaming", lambda: first_stream(client, "--streaming", True))
    table.add(TOOLS + "end_to_end_streaming_client.py", "", lambda: first_stream(client, "", False))
    curl(table, client)


def curl(table, client):
    start = special(client)
    table.add("curl /v2/models/ensemble/generate", "tensors as members", lambda: client.generate(
        "ensemble", {"text_input": QUESTION, "max_tokens": 20, "bad_words": "", "stop_words": ""},
        start + QUESTION + client.wanted(QUESTION, 20)[1]))
    table.add("curl /v2/models/ensemble/generate", "tensors in \"parameters\"", lambda: client.generate(
        "ensemble", {"text_input": FRENCH, "parameters": {"max_tokens": 100, "bad_words": [""], "stop_words": [""]}},
        start + FRENCH + client.wanted(FRENCH, 100)[1]))


def first_tests(table, client):
    table.add(LLM_CLIENT, "", lambda: first_ids(client, "", 200))
    table.add(LLM_CLIENT, "--stop-after-ms 100", lambda: first_ids(client, "--stop-after-ms 100", 900, True))
    for protocol in ("http", "grpc"):
        arguments = ["-i", protocol, *client.max_input_len, *client.dataset]
        table.add(TOOLS + "end_to_end_test.py", f"-i {protocol}",
                  lambda a=arguments: client.exits_well(TOOLS + "end_to_end_test.py", *a, says="[INFO] Functionality test succeed"))
        table.add(TOOLS + "identity_test.py", f"-i {protocol}",
                  lambda a=arguments: client.exits_well(TOOLS + "identity_test.py", *a, *client.tokenizer_dir, says="[INFO] Total Latency"))
    curl(table, client)


# ---- later releases ----

GRPC_CLIENT = "inflight_batcher_llm/client/end_to_end_grpc_client.py"


def later_release(table, checkout, work, models):
    """The values are those of the checkout's docs/llama.md."""
    client = Client(checkout, work / "trtllm-later-client", models.llama, "-")
    for decoupled in ("True", "False"):
        repository = later_repository(checkout, work / f"trtllm-later-{decoupled}", models, decoupled)
        title = f"tensorrtllm_backend in {checkout.name}, all_models/inflight_batcher_llm, decoupled {decoupled}"
        table.section(title, FILLED + repository.changed())
        with serving(repository.path, *LAUNCHED):
            (later_streams if decoupled == "True" else later_tests)(table, client)
    later_queue(table, client, checkout, work, models, "False", "http", 8000)
    later_queue(table, client, checkout, work, models, "True", "grpc", 8001)
    table.section("tensorrtllm_backend, what cannot run here", "")
    table.note("inflight_batcher_llm/client/e2e_grpc_speculative_decoding_client.py, tools/inflight_batcher_llm/speculative_decoding_test.py", 
               "not run: Proa takes no draft tokens (501, UNIMPLEMENTED)")
    table.note("tools/multimodal/client.py, tools/whisper/client.py", "not run: Proa has no models of images or sound")
    table.note("tools/gpt/*, all_models/llmapi", "not run: their Python models import TensorRT-LLM itself")
    table.note(TOOLS + "end_to_end_test.py --return-context-logits, --return-generation-logits",
               "not run: it calls CUDA and counts on GPT-2's vocabulary")
    table.note(TOOLS + "benchmark_core_model.py token-norm-dist, token-histogram", "refused: token ids up to 2^31 are outside of every vocabulary")


def later_repository(checkout, folder, models, decoupled, **more):
    repository, fill = Repository(checkout / "all_models/inflight_batcher_llm", folder), checkout / "tools/fill_template.py"
    model, rows_max = models.llama, {"triton_max_batch_size": 64}
    repository.fill(fill, "preprocessing/config.pbtxt", {"tokenizer_dir": model, **rows_max, "preprocessing_instance_count": 1})
    repository.fill(fill, "postprocessing/config.pbtxt", {"tokenizer_dir": model, **rows_max, "postprocessing_instance_count": 1})
    repository.fill(fill, "tensorrt_llm_bls/config.pbtxt", {
        **rows_max, "decoupled_mode": decoupled, "bls_instance_count": 1, "accumulate_tokens": decoupled, "logits_datatype": "TYPE_FP32"})
    repository.fill(fill, "ensemble/config.pbtxt", {**rows_max, "logits_datatype": "TYPE_FP32"})
    repository.fill(fill, "tensorrt_llm/config.pbtxt", {
        "triton_backend": "tensorrtllm", **rows_max, "decoupled_mode": decoupled, "max_beam_width": 1, "engine_dir": model,
        "max_tokens_in_paged_kv_cache": 2560, "max_attention_window_size": 2560, "kv_cache_free_gpu_mem_fraction": 0.5,
        "exclude_input_in_output": "True", "enable_kv_cache_reuse": "False", "batching_strategy": "inflight_fused_batching",
        "max_queue_delay_microseconds": 0, "encoder_input_features_data_type": "TYPE_FP16", "logits_datatype": "TYPE_FP32",
        **more,
    })
    return repository


def later_queue(table, client, checkout, work, models, decoupled, protocol, port):
    """More requests at once than may run and wait: the client wants to see one refused."""
    repository = later_repository(checkout, work / f"trtllm-queue-{decoupled}", models, decoupled, max_queue_size=2)
    script, arguments = TOOLS + "test_max_queue_size.py", ["-p", protocol, "-u", f"localhost:{port}", "--num-requests", 200]
    table.section(f"the same with a queue of 2, decoupled {decoupled}", FILLED + repository.changed())
    with serving(repository.path, "--model-control-mode=explicit", "--load-model=tensorrt_llm"):
        table.add(script, " ".join(map(str, arguments)), lambda: client.run(
            script, *arguments, "--request-output-len", 64, *client.tokenizer_dir) and "a request was refused, as the client wants")


def later_ids(client, arguments, tokens, stopped=False):
    """A request that is to be stopped has an id. Of a sequence above 256 ids the client prints the beginning."""
    ran = client.run(LLM_CLIENT, *client.tokenizer_dir, "--request-output-len", tokens, *arguments.split())
    printed = re.search(r"Output sequence(?: starts with)?: +(\[.*\])", ran.out)
    expect(printed, f"no output sequence: {ran.out[-300:]}")
    return client.check_ids(ran, rows(printed[1])[0], tokens, stopped)


def later_texts(client, arguments, prompts=(PROMPT,), **options):
    """The client compares for itself: it gets what proa run says as what to expect."""
    wanted = json.dumps([client.wanted(prompt, 32, **options)[1] for prompt in prompts])
    ran = client.run(GRPC_CLIENT, "--prompt", json.dumps(prompts) if len(prompts) > 1 else prompts[0], "--output-len", 32,
                     *ast.literal_eval(arguments), "--check-outputs", "--expected-outputs", wanted)
    expect("error" not in ran.out.lower(), ran.out[-300:])
    return "the client's own check: the text is proa run's"


def later_both(table, client, streaming):
    texts = [
        ([], {}),
        (["--model-name", "tensorrt_llm_bls"] + (["--overwrite-output-text"] if streaming else []), {}),
        (["--stop-words", " sun", " wind"], {"stop_strings_kept": [" sun", " wind"]}),
        (["--repetition-penalty", "1.3", "--presence-penalty", "0.2"], {"repetition_penalty": 1.3, "presence_penalty": 0.2}),
        (["--return-log-probs"], {}),
        (["--return-generation-logits", "--return-perf-metrics"], {}),
        (["--exclude-input-in-output"], {}),
    ]
    for arguments, options in texts:
        arguments = arguments + (["--streaming"] if streaming else [])
        options = words_of(client, options)
        table.add(GRPC_CLIENT, " ".join(arguments), lambda a=repr(arguments), o=options: later_texts(client, a, **o))


def words_of(client, options):
    words = options.pop("stop_strings_kept", [])
    return {**options, "stop_words": [client.oracle.tokenizer.encode(one, add_special_tokens=False).ids for one in words]} if words else options


def later_streams(table, client):
    for arguments in ("--streaming", "--streaming --return-log-probs --return-generation-logits", "", "--exclude-input-in-output"):
        table.add(LLM_CLIENT, arguments, lambda a=arguments: later_ids(client, a, 200))
    for arguments in ("--streaming --request-id 1 --stop-after-ms 100", "--streaming --stop-via-request-cancel --stop-after-ms 100"):
        table.add(LLM_CLIENT, arguments, lambda a=arguments: later_ids(client, a, 900, True))
    later_both(table, client, streaming=True)
    for batch in (["--batch-inputs"], ["--batch-inputs", "--streaming"]):
        table.add(GRPC_CLIENT, " ".join(batch), lambda b=repr(batch): later_texts(client, b, (PROMPT, "The sea")))
    table.add("curl /v2/models/ensemble/generate_stream", "\"stream\": true", lambda: later_curl_stream(client))


def later_curl_stream(client):
    answers = post("/v2/models/ensemble/generate_stream", {
        "text_input": QUESTION, "max_tokens": 20, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2, "stream": True})
    got, (_, wanted) = "".join(one["text_output"] for one in answers), client.wanted(QUESTION, 20)
    expect(got == wanted, f"{got!r}, proa run says {wanted!r}")
    return f"the text of {len(answers)} events equals proa run's"


def later_tests(table, client):
    for arguments in ("", "--return-log-probs --return-context-logits --return-generation-logits", "--return-perf-metrics", "--beam-width 1"):
        table.add(LLM_CLIENT, arguments, lambda a=arguments: later_ids(client, a, 200))
    table.add(LLM_CLIENT, "--request-id 1 --stop-after-ms 100",
              lambda: later_ids(client, "--request-id 1 --stop-after-ms 100", 900, True))
    later_both(table, client, streaming=False)
    for protocol in ("http", "grpc"):
        arguments = ["-i", protocol, *client.max_input_len]
        for more in ((), ("--test-bls",), ("--return-log-probs",)):
            table.add(TOOLS + "end_to_end_test.py", " ".join(["-i", protocol, *more]), lambda a=arguments, m=more: client.exits_well(
                TOOLS + "end_to_end_test.py", *a, *client.dataset, *m, says="[INFO] Functionality test succeed"))
        table.add(TOOLS + "benchmark_core_model.py", f"-i {protocol} dataset", lambda a=arguments: client.exits_well(
            TOOLS + "benchmark_core_model.py", *a, "dataset", *client.dataset, *client.tokenizer_dir, says="[INFO] Total Latency"))
    for model in ("ensemble", "tensorrt_llm_bls"):
        table.add(f"curl /v2/models/{model}/generate", "", lambda m=model: client.generate(
            m, {"text_input": QUESTION, "max_tokens": 20, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2}, client.wanted(QUESTION, 20)[1]))
