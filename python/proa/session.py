# SPDX-License-Identifier: Apache-2.0
"""A decoder as a part: proa_decoder_session, for one's own decoding loop over numpy arrays or torch tensors."""

from __future__ import annotations

import math
import os
import weakref
from typing import Any, Optional, Sequence

import numpy as np

from ._lib import InvalidArgumentError, call, ffi, lib
from .arrays import Array, GpuArray, empty_like, gpu_of, is_floating, is_torch, joined_ids, like, to_numpy
from .engine import Engine, set_memory


def _ids(array: Array) -> Any:
    return ffi.cast("int32_t *", array.ctypes.data)


class _Outputs:
    """Arrays that a call fills, of the kind of a sample: on the engine's GPU if the sample is there too."""

    def __init__(self, sample: Any, gpu: int) -> None:
        self.raw = ffi.new("proa_decoder_session_output *")
        self._sample = sample
        self._on_gpu = gpu >= 0 and gpu_of(sample) == gpu
        self._arrays: list[Any] = []

    def add(self, name: str, rows: int, columns: int) -> None:
        if not self._on_gpu:
            array = np.empty((rows, columns), np.float32)
            setattr(self.raw, name, ffi.cast("float *", array.ctypes.data))
            self._arrays.append(array)
            return
        tensor = empty_like(self._sample, (rows, columns))
        memory = GpuArray(tensor)
        setattr(self.raw, name, ffi.cast("float *", memory.address))
        set_memory(self.raw.memory, memory, gpu_of(self._sample))
        self._arrays.append(tensor)

    def take(self) -> list[Any]:
        return self._arrays if self._on_gpu else [like(self._sample, array) for array in self._arrays]


class Session:
    """Sequences of one's own in an engine: their tokens are run, and the caller chooses the next ones.

    >>> session = proa.Session("models/classics-10m", sequences=4)
    >>> logits = session.step([session.engine.encode("It was")])   # [1, vocab]

    model: a path, an Engine, or an LLM, whose requests may run at the same time. sequences: how many there are;
    tokens_max: of each at most, None is the model's context. Tensors of torch come back where tensors of torch were
    given, numpy arrays otherwise; they are f32. With an engine on a GPU, arrays of that GPU (torch's, or others that
    speak DLPack) stay there: token ids of torch, embeddings, encoder outputs, logits and hidden states do not pass
    through the host, and calls return before the GPU has ended. Such ids are not checked: they must be in the
    vocabulary. Calls are ordered with the current stream of torch, with the default stream of other libraries.
    """

    def __init__(self, model: Any, sequences: int = 1, tokens_max: Optional[int] = None, **options: Any) -> None:
        if isinstance(model, (str, os.PathLike)):
            options.setdefault("sequences_max", max(sequences, 16))
            model = Engine(model, **options)
        elif options:
            raise TypeError(f"unknown argument '{next(iter(options))}': the model is open already")
        self.engine: Engine = getattr(model, "engine", model)
        self.sequences = sequences
        raw = ffi.new("proa_decoder_session_options *", {"sequences": sequences, "tokens_max": tokens_max or 0})
        out = ffi.new("proa_decoder_session **")
        call(lib.proa_decoder_session_open, out, self.engine.pointer, raw)
        self._pointer = out[0]
        self._close = weakref.finalize(self, Session._close_pointer, self.engine, out[0])
        self.engine.closes_first(self._close)

    @staticmethod
    def _close_pointer(engine: Engine, pointer: Any) -> None:
        if engine.is_usable:
            lib.proa_decoder_session_close(pointer)

    def close(self) -> None:
        """Returns the pages of all sequences."""
        self._close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    @property
    def pointer(self) -> Any:
        self.engine.pointer  # noqa: B018  raises where the engine cannot be used
        if not self._close.alive:
            raise InvalidArgumentError("the session is closed")
        return self._pointer

    # ---- steps ----

    def _inputs(self, tokens: Any, sequences: Optional[Sequence[int]], width: int) -> tuple[Any, int, int, list[Any]]:
        """The inputs of a step, how many there are, their rows, and what must live until the call returns."""
        if self._has_gpu_ids(tokens):
            ids, counts = joined_ids(tokens)
            rows = list(ids.split(counts))
        else:
            rows = [*tokens]
        chosen = range(len(rows)) if sequences is None else [int(i) for i in sequences]
        if len(chosen) != len(rows):
            raise InvalidArgumentError(f"{len(rows)} inputs and {len(chosen)} sequences, must be as many")
        inputs = ffi.new("proa_decoder_session_input[]", max(1, len(rows)))
        held: list[Any] = [inputs]
        for raw, sequence, row in zip(inputs, chosen, rows):
            raw.sequence = sequence
            held.append(self._set_input(raw, row, width))
        return inputs, len(rows), sum(raw.count for raw in inputs), held

    def _has_gpu_ids(self, tokens: Any) -> bool:
        """Whether all ids are tensors of torch on the engine's GPU, where they stay."""
        gpu = self.engine.gpu
        rows = tokens if isinstance(tokens, (list, tuple)) else [tokens]
        return gpu >= 0 and all(is_torch(r) and gpu_of(r) == gpu and not is_floating(r) for r in rows) and len(rows) > 0

    def _set_input(self, raw: Any, row: Any, width: int) -> Any:
        """An input's ids or embeddings; returns what must live until the call returns."""
        gpu = self.engine.gpu
        if gpu >= 0 and gpu_of(row) == gpu and (is_floating(row) or is_torch(row)):
            tensor = GpuArray(row if is_floating(row) else joined_ids([row])[0])
            if is_floating(row):
                self._set_embeddings(raw, tensor.address, tensor.shape, width)
            else:
                raw.ids, raw.count = ffi.cast("int32_t *", tensor.address), math.prod(tensor.shape)
            set_memory(raw.memory, tensor, gpu)
            return tensor
        array = to_numpy(row)
        if np.issubdtype(array.dtype, np.floating):
            array = np.ascontiguousarray(array, np.float32)
            self._set_embeddings(raw, array.ctypes.data, array.shape, width)
            return array
        array = np.ascontiguousarray(array, np.int32).reshape(-1)
        raw.ids, raw.count = _ids(array), array.size
        return array

    @staticmethod
    def _set_embeddings(raw: Any, address: int, shape: Sequence[int], width: int) -> None:
        columns = shape[-1] if shape else 1
        if columns != width:
            raise InvalidArgumentError(f"embeddings have {columns} columns, must have {width}")
        raw.embeddings, raw.count = ffi.cast("float *", address), math.prod(shape[:-1])

    def step(
        self,
        tokens: Any,
        sequences: Optional[Sequence[int]] = None,
        *,
        output: str = "logits",
        all_rows: bool = False,
    ) -> Any:
        """Runs tokens behind those that the sequences have.

        tokens: for each sequence a row of ids, or of embeddings [tokens, embedding]; the rows may differ in length.
        sequences: whose rows they are; None: 0, 1, ... output: "logits" [rows, vocab], "hidden" [rows, hidden] (what
        the head reads), or "both". There is one row for each sequence, that of its last token; with all_rows one for
        each token.
        """
        if output not in ("logits", "hidden", "both"):
            raise InvalidArgumentError(f"output is '{output}', must be logits, hidden or both")
        info = self.engine.info
        inputs, count, total, held = self._inputs(tokens, sequences, info["embedding"])
        rows = total if all_rows else count
        outputs = _Outputs(tokens, self.engine.gpu)
        outputs.raw.all_rows = all_rows
        if output != "hidden":
            outputs.add("logits", rows, info["outputs"])
        if output != "logits":
            outputs.add("hidden", rows, info["hidden"])
        call(lib.proa_decoder_session_step, self.pointer, inputs, count, outputs.raw)
        del held
        results = outputs.take()
        return results[0] if len(results) == 1 else tuple(results)

    def reorder(self, parents: Any) -> None:
        """Sequence i becomes what parents[i] was."""
        array = np.ascontiguousarray(to_numpy(parents), np.int32).reshape(-1)
        call(lib.proa_decoder_session_reorder, self.pointer, _ids(array), array.size)

    def fork(self, source: int, target: int) -> None:
        """Sequence `target` becomes what `source` is; they share memory until one of them goes on."""
        call(lib.proa_decoder_session_fork, self.pointer, source, target)

    def truncate(self, sequence: int, tokens: int = 0) -> None:
        """The sequence keeps its first tokens; with 0 it is as new."""
        call(lib.proa_decoder_session_truncate, self.pointer, sequence, tokens)

    def length(self, sequence: int = 0) -> int:
        """Tokens that the sequence has."""
        count = int(lib.proa_decoder_session_length(self.pointer, sequence))
        if count < 0:
            raise InvalidArgumentError(f"sequence {sequence}, must be 0 to {self.sequences - 1}")
        return count

    # ---- encoder-decoders ----

    def encode(self, tokens: Any, sequence: int = 0) -> Any:
        """Runs the encoder; its output becomes the encoder memory of the sequence, which begins anew. Returns it:
        [tokens, hidden]. tokens: ids, or input embeddings [tokens, hidden]."""
        width = self.engine.info["hidden"]
        inputs, _, total, held = self._inputs([tokens], [sequence], width)
        outputs = _Outputs(tokens, self.engine.gpu)
        outputs.add("hidden", total, width)
        call(lib.proa_decoder_session_encode, self.pointer, inputs, outputs.raw)
        del held
        return outputs.take()[0]

    def set_encoder_outputs(self, hidden: Any, sequence: int = 0) -> None:
        """The same with given hidden states [tokens, hidden] in place of the encoder's."""
        shape, width = np.shape(hidden), self.engine.info["hidden"]
        if len(shape) != 2 or shape[1] != width:
            raise InvalidArgumentError(f"encoder outputs have the shape {list(shape)}, must be [tokens, {width}]")
        inputs, _, _, held = self._inputs([hidden], [sequence], width)
        call(lib.proa_decoder_session_set_encoder_outputs, self.pointer, inputs)
        del held
