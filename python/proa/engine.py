# SPDX-License-Identifier: Apache-2.0
"""An open model: proa_engine with a thread of its own, and requests to it."""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import weakref
from typing import Any, Callable, Generator, Mapping, Optional, Sequence, Union

import numpy as np

from ._lib import NotFoundError, ProaError, UnavailableError, call, error_of, ffi, find_model, find_plugin, lib, text_of
from .arrays import GpuArray, empty_like, gpu_of, like, to_numpy

_KINDS = {
    lib.PROA_KIND_DECODER: "decoder",
    lib.PROA_KIND_ENCODER_DECODER: "encoder-decoder",
    lib.PROA_KIND_ENCODER: "encoder",
}
_TASKS = {
    "generate": lib.PROA_TASK_GENERATE,
    "score": lib.PROA_TASK_SCORE,
    "rows": lib.PROA_TASK_ROWS,
    "encode": lib.PROA_TASK_ENCODE,
}
_FINISHES = {
    lib.PROA_FINISH_NONE: None,
    lib.PROA_FINISH_END: "end",
    lib.PROA_FINISH_STOP: "stop",
    lib.PROA_FINISH_LENGTH: "length",
    lib.PROA_FINISH_CANCELLED: "cancelled",
    lib.PROA_FINISH_ERROR: "error",
}

# Called with a request after each of its events, and whether that was the last.
Changed = Callable[["Request", bool], None]

_open_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    """A child has the memory of its parent's engines but none of their threads."""
    for engine in list(_open_engines):
        engine._forked = True


def _at_exit() -> None:
    """Threads of engines must not call into an interpreter that is being torn down."""
    for engine in list(_open_engines):
        engine.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class Generated:
    """What one sequence of a request has generated so far."""

    __slots__ = ("ids", "text", "logprobs", "top", "logits", "scores", "hidden", "finish", "stop_string")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.text = ""
        self.logprobs: list[float] = []
        self.top: list[list[tuple[int, float]]] = []
        self.logits: list[bytes] = []  # a row of f32 for each token
        self.scores: list[bytes] = []
        self.hidden: list[bytes] = []
        self.finish: Optional[str] = None
        self.stop_string: Optional[str] = None


class Result:
    """One finished sequence of a beam search, or of several: proa_beam_result."""

    __slots__ = ("ids", "text", "score", "logprob_sum", "finish", "sequence", "parents")

    def __init__(self, raw: Any) -> None:
        self.ids = ffi.unpack(raw.ids, raw.count) if raw.count else []
        self.text = text_of(raw.text, raw.text_len) if raw.text else ""
        self.score = raw.score
        self.logprob_sum = raw.logprob_sum
        self.finish = _FINISHES[raw.finish]
        self.sequence = raw.sequence
        self.parents = ffi.unpack(raw.parents, raw.count) if raw.parents and raw.count else []


class Rows:
    """Memory for rows of requests (proa_request_rows): an array of f32 of the kind of a sample, on the engine's GPU if
    the sample is there too. There its numbers are undefined at first, on the host they are 0."""

    def __init__(self, sample: Any, gpu: int, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.gpu = gpu if gpu >= 0 and gpu_of(sample) == gpu else -1
        self._sample = sample
        self.array: Any = np.zeros(self.shape, np.float32) if self.gpu < 0 else empty_like(sample, self.shape)
        self._memory = None if self.gpu < 0 else GpuArray(self.array)

    def address(self, *index: int) -> Any:
        """Of an element."""
        begin = self.array.ctypes.data if self._memory is None else self._memory.address
        return ffi.cast("float *", begin + 4 * int(np.ravel_multi_index(index, self.shape)))

    def set_memory(self, raw: Any) -> None:
        if self._memory is not None:
            set_memory(raw, self._memory, self.gpu)

    def take_all(self) -> Any:
        return self.array if self.gpu >= 0 else like(self._sample, self.array)

    def take(self, steps: int) -> list[Any]:
        """The first steps, each as the kind of the sample."""
        return [self.array[i] if self.gpu >= 0 else like(self._sample, self.array[i]) for i in range(steps)]


def set_memory(raw: Any, array: GpuArray, gpu: int) -> None:
    """Fills a proa_tensor_memory."""
    raw.kind, raw.gpu, raw.stream = lib.PROA_MEMORY_CUDA, gpu, ffi.cast("void *", array.stream)


class Request:
    """A submitted request. Its events come on the engine's thread; `changed` is called there after each.

    Other threads read it meanwhile, without a lock. Therefore a token's id is appended after all that belongs to it,
    and `finish` is set last: a reader who sees them finds the rest.
    """

    def __init__(self, sequences: int, changed: Changed, keep: frozenset[str]) -> None:
        self.id = 0
        self._widths: dict[str, int] = {}
        self.sequences = [Generated() for _ in range(sequences)]
        self.results: list[Result] = []
        self.rows: list[tuple[bytes, int, int]] = []  # f32 rows, their count, their columns
        self.pooled: Optional[bytes] = None
        # of a beam search: for each step the rows of its beams, of f32
        self.beam_logits: list[list[bytes]] = []
        self.beam_scores: list[list[bytes]] = []
        self.prompt_logprobs: list[tuple[int, float, list[tuple[int, float]]]] = []
        self.finish: Optional[str] = None
        self.error: Optional[ProaError] = None
        self.prompt_tokens = self.new_tokens = self.cached_tokens = 0
        self.logprob_sum = 0.0
        self.times = (0.0, 0.0, 0.0)  # waiting, prompt, decoding: seconds
        self._changed = changed
        self._ended: Callable[[Request], None]  # called before the last `changed`
        self._keep = keep  # which rows of floats are copied
        self._handle: Any = None
        self._held: list[Any] = []  # memory of the caller that the library uses until the end

    def _take_token(self, event: Any) -> None:
        seq = self.sequences[event.sequence]
        if event.text_len:
            seq.text += text_of(event.text, event.text_len)
        if "logprobs" in self._keep:
            seq.logprobs.append(event.logprob)
        if event.top_count and event.top:
            seq.top.append([(event.top[i].id, event.top[i].logprob) for i in range(event.top_count)])
        for name in ("logits", "scores", "hidden"):
            if name in self._keep and getattr(event, name):
                getattr(seq, name).append(self._floats(getattr(event, name), self._widths[name]))
        if event.stop_string:
            seq.stop_string = text_of(event.stop_string)
        seq.ids.append(event.id)
        seq.finish = _FINISHES[event.finish]

    @staticmethod
    def _floats(pointer: Any, count: int) -> bytes:
        return bytes(ffi.buffer(pointer, 4 * count))

    def _take_rows(self, event: Any) -> None:
        if event.rows:
            data = self._floats(event.rows, event.rows_count * event.columns)
            self.rows.append((data, event.rows_count, event.columns))
        if event.pooled:
            self.pooled = self._floats(event.pooled, event.columns)

    def _take_scores(self, event: Any) -> None:
        steps, row = (self.beam_logits, event.logits) if event.logits else (self.beam_scores, event.scores)
        if event.rows_first == 0:
            steps.append([])
        steps[-1].append(self._floats(row, event.columns))

    def _take_prompt(self, event: Any) -> None:
        n = event.top_count
        for i in range(event.rows_count):
            top = [(event.prompt_top[i * n + j].id, event.prompt_top[i * n + j].logprob) for j in range(n)]
            self.prompt_logprobs.append((event.prompt_ids[i], event.prompt_logprobs[i], top))

    def _take_done(self, event: Any) -> None:
        if event.text_len and len(self.sequences) == 1:
            self.sequences[0].text += text_of(event.text, event.text_len)
        self.results = [Result(event.beams[i]) for i in range(event.beams_count)]
        self.error = error_of(event.error) if event.error else None
        self.prompt_tokens, self.new_tokens = event.prompt_tokens, event.new_tokens
        self.cached_tokens, self.logprob_sum = event.cached_tokens, event.logprob_sum
        self.times = (event.queue_s, event.prompt_s, event.decode_s)
        self.finish = _FINISHES[event.finish]

    def _take(self, event: Any) -> None:
        kind = event.kind
        if kind == lib.PROA_EVENT_TOKEN:
            self._take_token(event)
        elif kind == lib.PROA_EVENT_ROWS:
            self._take_rows(event)
        elif kind == lib.PROA_EVENT_SCORES:
            self._take_scores(event)
        elif kind == lib.PROA_EVENT_PROMPT:
            self._take_prompt(event)
        elif kind == lib.PROA_EVENT_DONE:
            self._take_done(event)
            self._handle, self._held = None, []
            self._ended(self)
        else:
            return
        self._changed(self, kind == lib.PROA_EVENT_DONE)


def _take_event(event: Any) -> None:
    request: Request = ffi.from_handle(event.arg)
    request._take(event)


_on_event = ffi.callback("void(const proa_event *)", _take_event)


class Engine:
    """A model folder, opened. `options` are the fields of proa_engine_options by name; None is the default.

    All methods may be called from any thread. An engine does not survive a fork: the child gets an error that says so,
    and may open the model again.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        self._pointer: Any = ffi.NULL
        self._forked = False
        self._lock = threading.Lock()
        self._live: set[Request] = set()
        self._closes_first: list[Callable[[], None]] = []
        self._texts: list[Any] = []  # C strings that the options name
        self.path = find_model(path)
        if not os.path.exists(self.path):
            raise NotFoundError(f"cannot open '{self.path}': No such file or directory")
        if str(options.get("device") or "").startswith("cuda"):
            find_plugin()
        out = ffi.new("proa_engine **")
        call(lib.proa_engine_open, out, self.path.encode(), self._make_options(options))
        self._pointer = out[0]
        _open_engines.add(self)
        self._read_info()
        # of which GPU sessions take tensors in place; -1: of none
        self.gpu: int = -1 if (options.get("tensor_parallel") or 1) > 1 else self.info["gpu"]
        call(lib.proa_engine_start, self._pointer)

    def _make_options(self, options: dict[str, Any]) -> Any:
        o = ffi.new("proa_engine_options *")
        fields = dict(ffi.typeof("proa_engine_options").fields)
        hidden = {"progress", "progress_arg", "adapters_count"}
        for name, value in options.items():
            if name not in fields or name in hidden:
                known = ", ".join(sorted(set(fields) - hidden))
                raise TypeError(f"unknown engine option '{name}', must be one of {known}")
            if value is None:
                continue
            if name == "adapters":
                self._set_adapters(o, value)
            elif fields[name].type.kind == "pointer":
                setattr(o, name, self._text(os.fspath(value)))
            else:
                setattr(o, name, value)
        return o

    def _set_adapters(self, o: Any, adapters: Union[dict[str, Any], Sequence[tuple[str, Any]]]) -> None:
        pairs = list(adapters.items()) if isinstance(adapters, dict) else list(adapters)
        sources = ffi.new("proa_adapter_source[]", len(pairs))
        for i, (name, path) in enumerate(pairs):
            sources[i].name, sources[i].path = self._text(name), self._text(os.fspath(path))
        self._texts.append(sources)
        o.adapters, o.adapters_count = sources, len(pairs)

    def _text(self, value: str) -> Any:
        text = ffi.new("char[]", str(value).encode())
        self._texts.append(text)
        return text

    def _read_info(self) -> None:
        info = ffi.new("proa_info *")
        lib.proa_engine_info(self._pointer, info)
        self.info: dict[str, Any] = {}
        for name, field in ffi.typeof("proa_info").fields:
            value = getattr(info, name)
            self.info[name] = text_of(value) if field.type.kind == "pointer" else value
        self.info["kind"] = _KINDS[info.kind]

    @property
    def pointer(self) -> Any:
        """The proa_engine; raises where it cannot be used."""
        if self._forked:
            raise UnavailableError("this engine was opened before a fork: open the model again in the child process")
        if self._pointer == ffi.NULL:
            raise UnavailableError("the engine is closed")
        return self._pointer

    @property
    def is_usable(self) -> bool:
        return not self._forked and self._pointer != ffi.NULL

    def closes_first(self, close: Callable[[], None]) -> None:
        """To be called before the engine is closed; more than once does no harm."""
        self._closes_first.append(close)

    def close(self) -> None:
        """Ends the engine's thread and frees the model. Requests that run are cancelled."""
        if self.is_usable:
            for close in self._closes_first:
                close()
        with self._lock:
            pointer, self._pointer = self._pointer, ffi.NULL
        if pointer == ffi.NULL or self._forked:
            return
        _open_engines.discard(self)
        for request in list(self._live):
            lib.proa_engine_cancel(pointer, request.id)
        lib.proa_engine_stop(pointer)
        lib.proa_engine_run(pointer)  # cancelled requests get their last event
        lib.proa_engine_close(pointer)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", ffi.NULL) != ffi.NULL:
            self.close()

    # ---- requests ----

    def submit(self, changed: Changed, **arguments: Any) -> Request:
        """Queues a request: `arguments` are those of _fill. `changed(request, done)` is called on the engine's thread
        after each event, so it must be quick."""
        return self.submit_all([arguments], changed)[0]

    def submit_all(self, requests: Sequence[dict[str, Any]], changed: Changed) -> list[Request]:
        """Queues several requests at once, which begin in the same step. After an error none is queued."""
        raw = ffi.new("proa_request[]", len(requests))
        numbers = ffi.new("uint64_t[]", len(requests))
        made: list[Request] = []
        try:
            for to, arguments in zip(raw, requests):
                made.append(self._fill(to, changed, **arguments))
            self._live.update(made)
            call(lib.proa_engine_submit_all, self.pointer, raw, len(made), numbers)
        except BaseException:
            self._live.difference_update(made)
            raise
        for request, number in zip(made, numbers):
            request.id = number
        return made

    def _fill(
        self,
        raw: Any,
        changed: Changed,
        *,
        task: str = "generate",
        text: Optional[str] = None,
        text_pair: Optional[str] = None,
        ids: Optional[Sequence[int]] = None,
        decoder_ids: Optional[Sequence[int]] = None,
        type_ids: Optional[Sequence[int]] = None,
        cache_salt: Optional[str] = None,
        encoder_outputs: Optional[Any] = None,
        prompt_table: Optional[Any] = None,
        scores: bool = False,
        rows: Optional[Mapping[str, tuple[Rows, tuple[int, ...]]]] = None,
        options: Optional[dict[str, Any]] = None,
    ) -> Request:
        """Fills a proa_request. `options` have the names of docs/decoding.md. encoder_outputs [tokens, hidden] and
        prompt_table [rows, embedding] are f32 and may be on the engine's GPU; the rows of a prompt table are the ids
        from the vocabulary's size on. rows: where "logits", "scores" [steps, sequences of all requests, vocab] or
        "hidden" go, and the index of the request's first element."""
        o = options or {}
        keep = {name for name in ("logprobs",) if o.get(name)}
        keep |= {name for name in ("logits", "hidden") if o.get("return_" + name)}
        keep |= {"scores"} if scores else set()
        count = max(o.get("n") or 1, o.get("best_of") or 1)
        request = Request(count, changed, frozenset(keep))
        vocab = self.info["outputs"]
        request._widths = {"logits": vocab, "scores": vocab, "hidden": self.info["hidden"]}
        held: list[Any] = [rows]
        raw.task = _TASKS[task]
        for name, value in (("text", text), ("text_pair", text_pair)):
            if value is not None:
                encoded = value.encode()
                held.append(ffi.new("char[]", encoded))
                setattr(raw, name, held[-1])
                setattr(raw, name + "_len", len(encoded))
        for name, numbers in (("ids", ids), ("decoder_ids", decoder_ids), ("type_ids", type_ids)):
            if numbers is not None:
                held.append(ffi.new("int32_t[]", numbers))
                setattr(raw, name, held[-1])
                if name != "type_ids":
                    setattr(raw, name + "_count", len(numbers))
        if encoder_outputs is not None:
            held.append(self._set_floats(raw, "encoder_outputs", encoder_outputs))
            raw.ids_count = held[-1].shape[0]
        if prompt_table is not None:
            held.append(self._set_floats(raw, "prompt_table", prompt_table))
            raw.prompt_table_rows = held[-1].shape[0]
        raw.scores = scores
        for name, (target, index) in (rows or {}).items():
            setattr(raw.rows, name, target.address(*index))
            raw.rows.steps, raw.rows.stride = target.shape[0], target.shape[1]
            target.set_memory(raw.rows.memory)
        if cache_salt is not None:
            held.append(ffi.new("char[]", cache_salt.encode()))
            raw.cache_salt = held[-1]
        parsed = ffi.new("proa_options **")
        call(lib.proa_options_new, parsed, json.dumps(o).encode())
        held.append(ffi.gc(parsed[0], lib.proa_options_free))
        raw.options = held[-1][0]
        raw.on_event = _on_event
        request._held = held
        request._handle = raw.arg = ffi.new_handle(request)
        request._ended = self._live.discard
        return request

    def _set_floats(self, raw: Any, name: str, values: Any) -> Any:
        """Fills an array of f32 and its memory; returns what must live until the request is done."""
        if self.gpu >= 0 and gpu_of(values) == self.gpu:
            array = GpuArray(values)
            setattr(raw, name, ffi.cast("float *", array.address))
            set_memory(getattr(raw, name + "_memory"), array, self.gpu)
            return array
        copied = np.ascontiguousarray(to_numpy(values), np.float32)
        setattr(raw, name, ffi.cast("float *", copied.ctypes.data))
        return copied

    def cancel(self, request: Request) -> None:
        """The request ends with finish "cancelled" before the next step. One that has ended is left alone."""
        lib.proa_engine_cancel(self.pointer, request.id)

    def abandon(self, request: Request) -> None:
        """Cancels a request whose output is no longer wanted, if it still runs."""
        if request.finish is None and self.is_usable:
            self.cancel(request)

    def watch(self, **arguments: Any) -> Generator[Request, None, None]:
        """Submits a request and yields it after its events, the last time when it is done; events that come between two
        turns of the loop are one. Raises its error. Leaving the loop cancels it."""
        changes: "queue.SimpleQueue[bool]" = queue.SimpleQueue()
        request = self.submit(lambda _, done: changes.put(done), **arguments)
        try:
            done = False
            while not done:
                changes.get()
                while not changes.empty():
                    changes.get()
                done = request.finish is not None
                if request.error:
                    raise request.error
                yield request
        finally:
            self.abandon(request)

    def wait(self, requests: Sequence[dict[str, Any]]) -> list[Request]:
        """Runs requests together until all are done. Raises the first error; an interruption cancels them all."""
        left = threading.Semaphore(0)

        def changed(_: Request, done: bool) -> None:
            if done:
                left.release()

        submitted = self.submit_all(requests, changed) if requests else []
        try:
            for _ in submitted:
                left.acquire()
        except BaseException:
            for request in submitted:
                self.abandon(request)
            raise
        for request in submitted:
            if request.error:
                raise request.error
        return submitted

    # ---- text ----

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of a text; `special`: with the special tokens that the tokenizer adds."""
        function = lib.proa_engine_encode if special else lib.proa_engine_encode_plain
        raw, cap = text.encode(), len(text.encode()) + 16
        while True:
            ids, count = ffi.new("int32_t[]", cap), ffi.new("int64_t *")
            call(function, self.pointer, raw, len(raw), ids, cap, count)
            if count[0] <= cap:
                return ffi.unpack(ids, count[0]) if count[0] else []
            cap = count[0]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        raw = ffi.new("int32_t[]", list(ids))
        return self._read_text(16 * len(ids) + 64, lib.proa_engine_decode, raw, len(ids))

    def chat(self, request: dict[str, Any]) -> str:
        """The prompt that the model's chat template makes of a chat: an object with OpenAI's names."""
        return self._read_text(1 << 16, lib.proa_engine_chat, json.dumps(request).encode())

    def _read_text(self, cap: int, function: Any, *arguments: Any) -> str:
        """The text that a function writes into a buffer. One that is too small grows to the length that it returns."""
        length = ffi.new("size_t *")
        while True:
            text = ffi.new("char[]", cap)
            call(function, self.pointer, *arguments, text, cap, length)
            if length[0] <= cap:
                return text_of(text, length[0])
            cap = length[0]

    def stats(self) -> dict[str, Any]:
        """The counters of proa_stats."""
        stats = ffi.new("proa_stats *")
        lib.proa_engine_stats(self.pointer, stats)
        return {name: getattr(stats, name) for name, _ in ffi.typeof("proa_stats").fields}
