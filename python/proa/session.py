# SPDX-License-Identifier: Apache-2.0
"""A decoder as a part: proa_decoder_session, for one's own decoding loop over numpy arrays or torch tensors."""

from __future__ import annotations

import os
import weakref
from typing import Any, Optional, Sequence

import numpy as np

from ._lib import InvalidArgumentError, call, ffi, lib
from .arrays import like, to_numpy
from .engine import Engine


def _floats(array: np.ndarray) -> Any:
    return ffi.cast("float *", array.ctypes.data)


def _ids(array: np.ndarray) -> Any:
    return ffi.cast("int32_t *", array.ctypes.data)


class Session:
    """Sequences of one's own in an engine: their tokens are run, and the caller chooses the next ones.

    >>> session = proa.Session("models/classics-10m", sequences=4)
    >>> logits = session.step([session.engine.encode("It was")])   # [1, vocab]

    model: a path, an Engine, or an LLM, whose requests may run at the same time. sequences: how many there are;
    tokens_max: of each at most, None is the model's context. Tensors of torch come back where tensors of torch were
    given, numpy arrays otherwise; they are f32, on the CPU.
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
        rows = list(tokens) if not isinstance(tokens, np.ndarray) else [*tokens]
        chosen = range(len(rows)) if sequences is None else [int(i) for i in sequences]
        if len(chosen) != len(rows):
            raise InvalidArgumentError(f"{len(rows)} inputs and {len(chosen)} sequences, must be as many")
        inputs = ffi.new("proa_decoder_session_input[]", max(1, len(rows)))
        held: list[Any] = [inputs]
        total = 0
        for raw, sequence, row in zip(inputs, chosen, rows):
            array = to_numpy(row)
            raw.sequence = sequence
            if np.issubdtype(array.dtype, np.floating):
                array = np.ascontiguousarray(array, np.float32).reshape(-1, array.shape[-1])
                if array.shape[1] != width:
                    raise InvalidArgumentError(f"embeddings have {array.shape[1]} columns, must have {width}")
                raw.embeddings = _floats(array)
            else:
                array = np.ascontiguousarray(array, np.int32).reshape(-1)
                raw.ids = _ids(array)
            raw.count = array.shape[0]
            total += array.shape[0]
            held.append(array)
        return inputs, len(rows), total, held

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
        logits = np.empty((rows, info["outputs"]), np.float32) if output != "hidden" else None
        hidden = np.empty((rows, info["hidden"]), np.float32) if output != "logits" else None
        out = ffi.new("proa_decoder_session_output *")
        out.all_rows = all_rows
        if logits is not None:
            out.logits = _floats(logits)
        if hidden is not None:
            out.hidden = _floats(hidden)
        call(lib.proa_decoder_session_step, self.pointer, inputs, count, out)
        del held
        results = [like(tokens, a) for a in (logits, hidden) if a is not None]
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
        count = lib.proa_decoder_session_length(self.pointer, sequence)
        if count < 0:
            raise InvalidArgumentError(f"sequence {sequence}, must be 0 to {self.sequences - 1}")
        return count

    # ---- encoder-decoders ----

    def encode(self, tokens: Any, sequence: int = 0) -> Any:
        """Runs the encoder; its output becomes the encoder memory of the sequence, which begins anew. Returns it:
        [tokens, hidden]. tokens: ids, or input embeddings [tokens, hidden]."""
        inputs, _, total, held = self._inputs([tokens], [sequence], self.engine.info["hidden"])
        hidden = np.empty((total, self.engine.info["hidden"]), np.float32)
        call(lib.proa_decoder_session_encode, self.pointer, inputs, _floats(hidden))
        del held
        return like(tokens, hidden)

    def set_encoder_outputs(self, hidden: Any, sequence: int = 0) -> None:
        """The same with given hidden states [tokens, hidden] in place of the encoder's."""
        array = np.ascontiguousarray(to_numpy(hidden), np.float32)
        width = self.engine.info["hidden"]
        if array.ndim != 2 or array.shape[1] != width:
            raise InvalidArgumentError(f"encoder outputs have the shape {list(array.shape)}, must be [tokens, {width}]")
        call(lib.proa_decoder_session_set_encoder_outputs, self.pointer, sequence, _floats(array), array.shape[0])
