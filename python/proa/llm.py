# SPDX-License-Identifier: Apache-2.0
"""vLLM's LLM and AsyncLLM over an engine."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Any, AsyncIterator, Iterator, Optional, Sequence, Union

from .engine import Engine, Generated, Request
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams

# A text, token ids, or vLLM's objects: {"prompt": ...}, {"prompt_token_ids": ...}, {"encoder_prompt", "decoder_prompt"}
Prompt = Union[str, Sequence[int], dict[str, Any]]

_ALIASES = {
    "quantization": "quant",
    "kv_cache_dtype": "kv_dtype",
    "max_num_seqs": "sequences_max",
    "max_num_batched_tokens": "step_tokens",
    "gpu_memory_utilization": "kv_share",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "enable_expert_parallel": "expert_parallel",
}
_DTYPES = {"float32": "f32", "float": "f32", "bfloat16": "bf16", "float16": "f16", "half": "f16"}
_REASONS = {None: None, "end": "stop", "stop": "stop", "length": "length", "cancelled": "abort", "error": "abort"}


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of vLLM's LLM as those of proa_engine_options; the library's own names pass."""
    named = {_ALIASES.get(name, name): value for name, value in options.items()}
    if "enable_prefix_caching" in named:
        caching = named.pop("enable_prefix_caching")
        named["prefix_cache"] = None if caching is None else "on" if caching else "off"
    if "dtype" in named:
        dtype = str(named["dtype"]).replace("torch.", "")
        named["dtype"] = None if named["dtype"] is None else _DTYPES.get(dtype, dtype)
    return named


class _Job:
    """A prompt on its way through the engine: how it is submitted, and its output so far."""

    def __init__(self, engine: Engine, number: int, prompt: Prompt, params: Optional[SamplingParams]) -> None:
        self.engine = engine
        self.id = str(number)
        self.params = params
        self.options = params.to_options() if params else {"max_tokens": 16}
        self.kind = params.output_kind if params else RequestOutputKind.CUMULATIVE
        self.prompt: Optional[str] = None  # what ids were made of
        self.arguments = self._read_prompt(prompt)
        self._sent: dict[int, tuple[int, int]] = {}  # tokens and characters that a DELTA has yielded already

    def _read_prompt(self, prompt: Prompt) -> dict[str, Any]:
        if isinstance(prompt, str):
            return {"text": prompt}
        if not isinstance(prompt, dict):
            return {"ids": [int(i) for i in prompt]}
        if "encoder_prompt" in prompt:
            arguments = self._read_prompt(prompt["encoder_prompt"])
            decoder = prompt.get("decoder_prompt")
            if decoder is not None:
                inner = self._read_prompt(decoder)
                arguments["decoder_ids"] = inner.get("ids") or self.engine.encode(inner["text"], special=False)
            return arguments
        known = {"prompt": "text", "prompt_token_ids": "ids", "cache_salt": "cache_salt"}
        for name in prompt:
            if name not in known:
                raise TypeError(f"unknown member '{name}' of a prompt, must be one of {', '.join(known)}")
        arguments = {known[name]: value for name, value in prompt.items() if value is not None}
        if "ids" in arguments:
            self.prompt = arguments.pop("text", None)
        return arguments

    @property
    def request(self) -> dict[str, Any]:
        """Arguments of Engine.submit."""
        return {"options": self.options, **self.arguments}

    # ---- outputs ----

    def _logprobs(self, seq: Generated, begin: int, end: int) -> Optional[list[dict[int, Logprob]]]:
        if not self.options.get("logprobs"):
            return None
        entries = []
        for i in range(begin, end):
            top = seq.top[i] if i < len(seq.top) else []
            entries.append(self._entry(seq.ids[i], seq.logprobs[i], top, getattr(self.params, "logprobs", None)))
        return entries

    def _entry(
        self, chosen: int, logprob: float, top: list[tuple[int, float]], count: Optional[int]
    ) -> dict[int, Logprob]:
        """The likeliest `count` tokens at a position, and the chosen one. `top` may have more: requests have one number
        for the tokens of the prompt and those generated."""
        top = top[: count or 0]
        entry = {id_: Logprob(value, rank, self.engine.decode([id_])) for rank, (id_, value) in enumerate(top, 1)}
        entry.setdefault(chosen, Logprob(logprob, None, self.engine.decode([chosen])))
        return entry

    def _stop_reason(self, seq: Generated) -> Union[int, str, None]:
        if seq.stop_string is not None:
            return seq.stop_string
        stops = (self.params.stop_token_ids if self.params else None) or []
        return seq.ids[-1] if seq.finish == "stop" and seq.ids and seq.ids[-1] in stops else None

    def _completion(self, seq: Generated, index: int, delta: bool) -> CompletionOutput:
        finish = seq.finish  # before the tokens: it is set after the last of them
        count, chars = len(seq.ids), len(seq.text)
        tokens, text = self._sent.get(index, (0, 0)) if delta else (0, 0)
        self._sent[index] = (count, chars)
        return CompletionOutput(
            index=index,
            text=seq.text[text:chars],
            token_ids=seq.ids[tokens:count],
            cumulative_logprob=sum(seq.logprobs[:count]) if self.options.get("logprobs") else None,
            logprobs=self._logprobs(seq, tokens, count),
            finish_reason=_REASONS[finish],
            stop_reason=self._stop_reason(seq),
        )

    def _results(self, request: Request) -> list[CompletionOutput]:
        """Beams, or the best of several: the library returns them with its last event."""
        return [
            CompletionOutput(
                index=i,
                text=r.text,
                token_ids=r.ids,
                cumulative_logprob=r.logprob_sum,
                finish_reason=_REASONS[r.finish],
                score=r.score,
            )
            for i, r in enumerate(request.results)
        ]

    def _prompt_logprobs(self, request: Request) -> Optional[list[Optional[dict[int, Logprob]]]]:
        if not self.options.get("prompt_logprobs"):
            return None
        entries: list[Optional[dict[int, Logprob]]] = [None]
        for id_, value, top in request.prompt_logprobs:
            entries.append(self._entry(id_, value, top, getattr(self.params, "prompt_logprobs", None)))
        return entries

    def output(self, request: Request, delta: bool = False) -> RequestOutput:
        finish = request.finish  # before the tokens: it is set after the last of them
        searched = request.results and not any(seq.ids for seq in request.sequences)
        best_of = self.options.get("best_of", 1) > self.options.get("n", 1)
        if finish is not None and (searched or best_of):
            outputs = self._results(request)
        else:
            outputs = [self._completion(seq, i, delta) for i, seq in enumerate(request.sequences)]
        if finish == "cancelled":
            for completion in outputs:
                completion.finish_reason = completion.finish_reason or "abort"
        text, ids = self.arguments.get("text"), self.arguments.get("ids")
        if ids is None and text is not None and self.engine.info["has_tokenizer"]:
            ids = self.engine.encode(text)
        return RequestOutput(
            request_id=self.id,
            prompt=self.prompt if text is None else text,
            prompt_token_ids=list(ids) if ids is not None else None,
            outputs=outputs,
            finished=finish is not None,
            prompt_logprobs=self._prompt_logprobs(request),
            num_cached_tokens=request.cached_tokens,
            metrics=dict(zip(("queue_s", "prompt_s", "decode_s"), request.times)),
        )

    def next_output(self, request: Request) -> Optional[RequestOutput]:
        """What a stream yields now; None: nothing yet. Exactly one output is finished, the last one."""
        if self.kind == RequestOutputKind.FINAL_ONLY and request.finish is None:
            return None
        return self.output(request, delta=self.kind == RequestOutputKind.DELTA)


class _Front:
    """What LLM and AsyncLLM share."""

    def __init__(self, model: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        self.engine = Engine(model, **engine_options(options))
        self._numbers = itertools.count()

    def close(self) -> None:
        """Frees the model; it also happens when the object is no longer used."""
        self.engine.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def _job(self, prompt: Prompt, params: Optional[SamplingParams]) -> _Job:
        return _Job(self.engine, next(self._numbers), prompt, params)

    def _chat_prompt(self, messages: list[dict[str, Any]], request: dict[str, Any]) -> Prompt:
        text = self.engine.chat({"messages": messages, **request})
        return {"prompt_token_ids": self.engine.encode(text, special=False), "prompt": text}


class LLM(_Front):
    """A model for offline use, with vLLM's interface.

    >>> llm = LLM("models/m30k-t5")
    >>> llm.generate("translate English to German: A dog runs.", SamplingParams(temperature=0))[0].outputs[0].text
    'Ein Hund rennt.'

    model: a Hugging Face folder, or a .gguf file. options: those of proa_engine_options (`device="cuda"`,
    `dtype`, `quant`, `threads`, `kv_tokens`, `adapters={"name": folder}`, ...); vLLM's names `quantization`,
    `kv_cache_dtype`, `max_num_seqs`, `max_num_batched_tokens`, `gpu_memory_utilization`, `tensor_parallel_size` and
    `enable_prefix_caching` are taken too.
    """

    def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Generates for all prompts in one batch; the outputs are in the order of the prompts.

        sampling_params: for all, or one for each prompt. None: the model's generation_config.json and 16 new tokens.
        use_tqdm is taken for vLLM's sake and shows nothing.
        """
        many = not isinstance(prompts, (str, dict)) and not (prompts and isinstance(prompts[0], int))
        chosen: list[Prompt] = list(prompts) if many else [prompts]  # type: ignore[arg-type,list-item]
        if isinstance(sampling_params, SamplingParams) or sampling_params is None:
            params: list[Optional[SamplingParams]] = [sampling_params] * len(chosen)
        else:
            params = list(sampling_params)
        if len(params) != len(chosen):
            raise ValueError(f"{len(chosen)} prompts and {len(params)} sampling_params, must be as many")
        jobs = [self._job(prompt, p) for prompt, p in zip(chosen, params)]
        requests = self.engine.wait([job.request for job in jobs])
        return [job.output(request) for job, request in zip(jobs, requests)]

    def chat(
        self,
        messages: Union[list[dict[str, Any]], list[list[dict[str, Any]]]],
        sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        use_tqdm: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Optional[list[dict[str, Any]]] = None,
        chat_template_kwargs: Optional[dict[str, Any]] = None,
    ) -> list[RequestOutput]:
        """Answers one chat or several, by the model's chat template. A message is {"role": ..., "content": ...}."""
        chats = [messages] if messages and isinstance(messages[0], dict) else messages
        request: dict[str, Any] = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
        if tools:
            request["tools"] = tools
        if chat_template_kwargs:
            request["chat_template_kwargs"] = chat_template_kwargs
        prompts = [self._chat_prompt(chat, request) for chat in chats]  # type: ignore[arg-type]
        return self.generate(prompts, sampling_params)

    def stream(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None) -> Iterator[RequestOutput]:
        """Yields the output of one prompt as it grows. Leaving the loop cancels the request."""
        job = self._job(prompt, sampling_params)
        with contextlib.closing(self.engine.watch(**job.request)) as changes:
            for request in changes:
                output = job.next_output(request)
                if output:
                    yield output
                if output and output.finished:
                    return


class AsyncLLM(_Front):
    """The same for asyncio, with the interface of vLLM's AsyncLLM: each call of `generate` is one request."""

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: Optional[SamplingParams] = None,
        request_id: Optional[str] = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yields the output of one prompt as it grows. Leaving the loop, or cancelling the task, cancels the
        request."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        job = self._job(prompt, sampling_params)
        job.id = request_id or job.id

        def wake(_: Request, __: bool) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        request = self.engine.submit(wake, **job.request)
        try:
            output = None
            while not (output and output.finished):
                await changed.wait()
                changed.clear()
                if request.error:
                    raise request.error
                output = job.next_output(request)
                if output:
                    yield output
        finally:
            self.engine.abandon(request)

    async def chat(
        self, messages: list[dict[str, Any]], sampling_params: Optional[SamplingParams] = None, **request: Any
    ) -> AsyncIterator[RequestOutput]:
        """As LLM.chat for one chat; `request` has tools, add_generation_prompt and the like."""
        prompt = self._chat_prompt(messages, request)
        async for output in self.generate(prompt, sampling_params):
            yield output
