# SPDX-License-Identifier: Apache-2.0
"""transformers' Auto classes over an engine: generate(), and a forward pass."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import types
from typing import Any, Optional, Sequence, TypeVar, Union

import numpy as np

from ._lib import InvalidArgumentError, UnsupportedError, find_model
from .arrays import gpu_of, is_torch, like, to_numpy
from .engine import Engine, Request, Rows
from .generation import Plan, make_output, pad_rows, plan
from .llm import engine_options

# Encoders whose positions are relative: padding on the left changes nothing for them.
_RELATIVE = ("t5", "mt5", "umt5")


class _Config(types.SimpleNamespace):
    """config.json, or generation_config.json, where transformers is not installed."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    to_diff_dict = to_dict


def _read_json(folder: str, name: str) -> Optional[dict[str, Any]]:
    path = pathlib.Path(folder, name)
    return json.loads(path.read_text()) if path.exists() else None


def _load_configs(folder: str) -> tuple[Any, Any]:
    """config and generation_config, as transformers' objects where it is in use."""
    raw = _read_json(folder, "config.json") or {}
    generation = _read_json(folder, "generation_config.json")
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        config = transformers.AutoConfig.from_pretrained(folder)
        if generation is not None:
            return config, transformers.GenerationConfig.from_pretrained(folder)
        return config, transformers.GenerationConfig.from_model_config(config)
    if generation is None:
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
        generation = {name: raw[name] for name in (*names, "forced_eos_token_id") if raw.get(name) is not None}
    return _Config(**raw), _Config(**generation)


def _bytes_to_array(data: bytes, columns: int) -> np.ndarray:
    return np.frombuffer(data, np.float32).reshape(-1, columns)


_Model = TypeVar("_Model", bound="Model")


class Model:
    """A model with transformers' interface: `generate()`, a call for a forward pass, `config`, `generation_config`.

    Tensors of torch come back where tensors of torch are given, numpy arrays otherwise. `engine` is the open engine.
    """

    main_input_name = "input_ids"
    input_modalities = output_modalities = ("text",)
    _kinds: tuple[str, ...] = ()
    _noun = "model"

    def __init__(self, path: str, **options: Any) -> None:
        self.name_or_path = path
        self.engine = Engine(path, **engine_options(options))
        kind = self.engine.info["kind"]
        if self._kinds and kind not in self._kinds:
            self.engine.close()
            raise InvalidArgumentError(f"'{path}' holds a model that is {kind}: {self._noun} cannot be made of it")
        self.config, self.generation_config = _load_configs(path)

    @classmethod
    def from_pretrained(cls: type[_Model], path: Union[str, "os.PathLike[str]"], **options: Any) -> _Model:
        """Opens a folder. options: as those of proa.LLM (`device`, `dtype`, `quant`, `threads`, ...); transformers'
        `torch_dtype` and `device_map` are taken too. The object is of a class with the name that config.json gives."""
        for name in ("torch_dtype", "dtype"):
            if name in options and options[name] is not None:
                options["dtype"] = str(options.pop(name)).replace("torch.", "")
        device = options.pop("device_map", None)
        if device is not None and device != "auto":
            options.setdefault("device", str(device))
        folder = find_model(path)
        names = (_read_json(folder, "config.json") or {}).get("architectures") or [cls.__name__]
        kind: type[_Model] = type(names[0], (cls,), {"__doc__": cls.__doc__})
        return kind(folder, **options)

    def close(self) -> None:
        """Frees the model."""
        self.engine.close()

    # ---- what code around a model asks it ----

    @property
    def device(self) -> Any:
        gpu = self.engine.info["gpu"]
        device = "cpu" if gpu < 0 else f"cuda:{gpu}"
        torch = sys.modules.get("torch")
        return torch.device(device) if torch is not None else device

    @property
    def dtype(self) -> Any:
        torch = sys.modules.get("torch")
        return torch.float32 if torch is not None else np.dtype(np.float32)

    def to(self, *unused: Any, **unused_too: Any) -> "Model":
        """The model stays where from_pretrained has opened it."""
        return self

    def eval(self) -> "Model":
        return self

    def can_generate(self) -> bool:
        return bool(self.engine.info["kind"] != "encoder")

    def get_encoder(self) -> "Encoder":
        """The encoder of an encoder-decoder model, to be called like transformers'."""
        return Encoder(self)

    # ---- inputs ----

    def _rows(self, input_ids: Any, attention_mask: Any, pad: Optional[int], sides: str) -> list[list[int]]:
        """The ids of each row without its padding."""
        ids = np.atleast_2d(to_numpy(input_ids))
        if ids.ndim != 2:
            raise InvalidArgumentError(f"argument 'input_ids' has the shape {list(ids.shape)}, must be [batch, tokens]")
        if attention_mask is None:
            guess = pad is not None and bool((ids == pad).any())
            mask = ids != pad if guess else np.ones(ids.shape, bool)
        else:
            mask = np.atleast_2d(to_numpy(attention_mask)) != 0
            if mask.shape != ids.shape:
                raise InvalidArgumentError(
                    f"argument 'attention_mask' has the shape {list(mask.shape)}, must be {list(ids.shape)}"
                )
        _check_mask(mask, "left" in sides)
        return [[int(i) for i in row[keep]] for row, keep in zip(ids, mask)]

    def _embedded_rows(self, inputs_embeds: Any, attention_mask: Any) -> list[dict[str, Any]]:
        """Arguments of Engine.submit for input embeddings [batch, tokens, embedding]: each row is a prompt table, whose
        ids follow those of the vocabulary."""
        shape, vocab, width = np.shape(inputs_embeds), self.engine.info["vocab"], self.engine.info["embedding"]
        if len(shape) != 3 or shape[2] != width:
            raise InvalidArgumentError(
                f"argument 'inputs_embeds' has the shape {list(shape)}, must be [batch, tokens, {width}]"
            )
        if attention_mask is not None:
            _check_mask(np.atleast_2d(to_numpy(attention_mask)) != 0, "left" in self._sides)
        tables = _hidden_rows(inputs_embeds, attention_mask, self.engine.gpu) or []
        return [{"ids": list(range(vocab, vocab + len(t))), "prompt_table": t} for t in tables]

    @property
    def _sides(self) -> str:
        decoder = self.engine.info["kind"] == "decoder"
        relative = getattr(self.config, "model_type", "") in _RELATIVE
        return "left or right" if decoder or relative else "right"

    # ---- generate ----

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        streamer: Any = None,
        *,
        input_ids: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Any = None,
        encoder_outputs: Any = None,
        decoder_input_ids: Any = None,
        token_type_ids: Any = None,
        **arguments: Any,
    ) -> Any:
        """transformers' generate(): its arguments, and its output: ids [batch * sequences, tokens], or with
        return_dict_in_generate an object that also has scores, logits, sequences_scores and beam_indices.

        Greedy search, beam search, sampling and contrastive search; an argument that is not supported raises
        UnsupportedError with its name. Rows of scores and logits of sequences that have ended are 0.
        """
        ids = inputs if input_ids is None else input_ids
        base = self.generation_config if generation_config is None else generation_config
        given = dict(arguments, logits_processor=logits_processor, stopping_criteria=stopping_criteria)
        if not self.can_generate():
            raise UnsupportedError(f"{type(self).__name__} has no generate(): it is an encoder")
        if token_type_ids is not None and to_numpy(token_type_ids).any():
            raise UnsupportedError("generate: argument 'token_type_ids' is not supported by models that generate")
        call = _Call(self, ids, attention_mask, inputs_embeds, encoder_outputs, decoder_input_ids, base, given)
        return call.run(streamer)

    # ---- forward ----

    def __call__(self, input_ids: Any = None, **arguments: Any) -> Any:
        return self.forward(input_ids, **arguments)

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        decoder_input_ids: Any = None,
        encoder_outputs: Any = None,
        return_dict: Optional[bool] = None,
        **arguments: Any,
    ) -> Any:
        """One pass. Decoders and encoder-decoders return logits of all positions; encoders what their head gives:
        last_hidden_state and pooler_output, or logits. Rows of padding are 0."""
        _refuse("forward", arguments)
        kind = self.engine.info["kind"]
        if kind == "encoder-decoder":
            output = self._forward_seq2seq(input_ids, attention_mask, decoder_input_ids, encoder_outputs)
        else:
            output = self._forward_rows(input_ids, attention_mask, token_type_ids, kind)
        return output.to_tuple() if return_dict is False else output

    def _forward_rows(self, input_ids: Any, attention_mask: Any, token_type_ids: Any, kind: str) -> Any:
        ids = np.atleast_2d(to_numpy(input_ids))
        mask = np.ones(ids.shape, bool) if attention_mask is None else np.atleast_2d(to_numpy(attention_mask)) != 0
        _check_mask(mask, "left" in self._sides)
        types_ = None if token_type_ids is None else np.atleast_2d(to_numpy(token_type_ids))
        rows: list[dict[str, Any]] = []
        for i, keep in enumerate(mask):
            rows.append({"task": "rows", "ids": ids[i][keep].tolist()})
            if types_ is not None and kind == "encoder":
                rows[-1]["type_ids"] = types_[i][keep].tolist()
        requests = self.engine.wait(rows)
        return self._rows_output(input_ids, mask, requests, kind)

    def _rows_output(self, sample: Any, mask: np.ndarray, requests: list[Request], kind: str) -> Any:
        info = self.engine.info
        rows = [np.concatenate([_bytes_to_array(data, c) for data, _, c in r.rows]) for r in requests if r.rows]
        pooled = [np.frombuffer(r.pooled, np.float32) for r in requests if r.pooled is not None]
        pooler = like(sample, np.stack(pooled)) if pooled else None
        if kind == "encoder" and info["labels"] and rows and all(len(row) == 1 for row in rows):
            return make_output("SequenceClassifierOutput", {"logits": like(sample, np.concatenate(rows))})
        out = np.zeros((*mask.shape, rows[0].shape[1]), np.float32)
        for to, keep, row in zip(out, mask, rows):
            to[keep] = row
        if kind == "decoder":
            return make_output("CausalLMOutput", {"logits": like(sample, out)})
        if out.shape[-1] == info["hidden"] and not info["labels"]:
            names = {"last_hidden_state": like(sample, out), "pooler_output": pooler}
            return make_output("BaseModelOutputWithPooling", names)
        name = "MaskedLMOutput" if out.shape[-1] == info["vocab"] else "TokenClassifierOutput"
        return make_output(name, {"logits": like(sample, out)})

    def _forward_seq2seq(
        self, input_ids: Any, attention_mask: Any, decoder_input_ids: Any, encoder_outputs: Any
    ) -> Any:
        """The decoder over given tokens, by a session: its logits at every position."""
        from .session import Session

        if decoder_input_ids is None:
            raise InvalidArgumentError("forward: argument 'decoder_input_ids' is missing")
        decoder = np.atleast_2d(to_numpy(decoder_input_ids))
        logits: list[np.ndarray] = []
        hidden: list[np.ndarray] = []
        with Session(self.engine) as session:
            given = _hidden_rows(encoder_outputs, attention_mask)
            if given is None:
                inputs = self._rows(input_ids, attention_mask, None, self._sides)
            for i, ids in enumerate(decoder):
                if given is not None:
                    session.set_encoder_outputs(given[i])
                    hidden.append(given[i])
                else:
                    hidden.append(session.encode(np.array(inputs[i])))
                logits.append(session.step([ids], all_rows=True))
        sample = decoder_input_ids
        memory = np.zeros((len(hidden), max(len(h) for h in hidden), hidden[0].shape[1]), np.float32)
        for to, row in zip(memory, hidden):
            to[: len(row)] = row
        members = {"logits": like(sample, np.stack(logits)), "encoder_last_hidden_state": like(sample, memory)}
        return make_output("Seq2SeqLMOutput", members)


class Encoder:
    """The encoder of an encoder-decoder model: its last hidden states."""

    main_input_name = "input_ids"

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Any = None,
        return_dict: Optional[bool] = None,
        **arguments: Any,
    ) -> Any:
        """Hidden states [batch, tokens, hidden]; rows of padding are 0."""
        _refuse("encoder", arguments)
        if (input_ids is None) == (inputs_embeds is None):
            raise InvalidArgumentError("encoder: one of the arguments 'input_ids' and 'inputs_embeds' is needed")
        sample = input_ids if inputs_embeds is None else inputs_embeds
        rows: list[dict[str, Any]]
        if inputs_embeds is None:
            ids = self.model._rows(input_ids, attention_mask, None, self.model._sides)
            rows = [{"ids": row} for row in ids]
            shape = np.atleast_2d(to_numpy(input_ids)).shape
        else:
            rows = self.model._embedded_rows(inputs_embeds, attention_mask)
            shape = np.shape(inputs_embeds)[:2]
        mask = np.ones(shape, bool) if attention_mask is None else np.atleast_2d(to_numpy(attention_mask)) != 0
        engine = self.model.engine
        out = Rows(sample, engine.gpu, (*shape, engine.info["hidden"]))
        if out.gpu >= 0:
            out.array.zero_()
        for i, (row, keep) in enumerate(zip(rows, mask)):
            row.update(task="encode", rows={"hidden": (out, (i, int(np.flatnonzero(keep)[0]), 0))})
        engine.wait(rows)
        output = make_output("BaseModelOutput", {"last_hidden_state": out.take_all()})
        return output.to_tuple() if return_dict is False else output


def _refuse(function: str, arguments: dict[str, Any]) -> None:
    """Raises for an argument that would have an effect in transformers."""
    for name, value in arguments.items():
        if value is not None and value is not False and name != "use_cache":
            raise UnsupportedError(f"{function}: argument '{name}' is not supported")


def _check_mask(mask: np.ndarray, left: bool) -> None:
    """A mask may hide tokens at one end only: what transformers makes of holes is no sequence."""
    for row in mask:
        at = np.flatnonzero(row)
        if at.size == 0:
            raise InvalidArgumentError("argument 'attention_mask' hides all tokens of a row")
        if at[-1] - at[0] + 1 != at.size:
            raise UnsupportedError("argument 'attention_mask' hides tokens between others")
        if at[0] > 0 and not left:
            raise UnsupportedError("argument 'attention_mask': this model is padded on the right")


def _hidden_rows(encoder_outputs: Any, attention_mask: Any, gpu: int = -1) -> Optional[list[Any]]:
    """Hidden states of each row, from transformers' BaseModelOutput, a tuple, or an array [batch, tokens, hidden].
    Those of torch on the GPU of that number stay there."""
    if encoder_outputs is None:
        return None
    states = encoder_outputs
    if hasattr(states, "last_hidden_state"):
        states = states.last_hidden_state
    elif isinstance(states, (tuple, list)):
        states = states[0]
    elif isinstance(states, dict):
        states = states["last_hidden_state"]
    in_place = gpu >= 0 and is_torch(states) and gpu_of(states) == gpu
    array = states if in_place else to_numpy(states)
    if attention_mask is None:
        return list(array)
    keeps = np.atleast_2d(to_numpy(attention_mask)) != 0
    if in_place:
        return [row[sys.modules["torch"].from_numpy(keep).to(row.device)] for row, keep in zip(array, keeps)]
    return [row[keep] for row, keep in zip(array, keeps)]


class _Call:
    """One call of generate()."""

    def __init__(
        self,
        model: Model,
        ids: Any,
        attention_mask: Any,
        inputs_embeds: Any,
        encoder_outputs: Any,
        decoder_input_ids: Any,
        base: Any,
        given: dict[str, Any],
    ) -> None:
        self.model, self.engine = model, model.engine
        self.targets: dict[str, Rows] = {}  # of logits and scores: [steps, sequences or beams of all rows, vocabulary]
        self.prefix: np.ndarray  # what the returned ids begin with
        self.rows: list[dict[str, Any]]  # of the batch: arguments of Engine.submit
        self.decoder = self.engine.info["kind"] == "decoder"
        self.sample = next(
            (x for x in (ids, inputs_embeds, decoder_input_ids, attention_mask) if x is not None),
            getattr(encoder_outputs, "last_hidden_state", encoder_outputs),
        )
        start = given.get("decoder_start_token_id")
        start = getattr(base, "decoder_start_token_id", None) if start is None else start
        own = self.engine.info["decoder_start_id"]
        self.start: int = own if start is None else int(np.ravel(to_numpy(start))[0])
        pad = given.get("pad_token_id", getattr(base, "pad_token_id", None))
        ends = given.get("eos_token_id", getattr(base, "eos_token_id", None))
        known = pad is not None and (ends is None or pad not in np.ravel(to_numpy(ends)))
        self.pad_shown = int(str(pad)) if known else None  # padding of a decoder's prompt that comes without a mask
        if self.decoder:
            self._read_decoder(ids, attention_mask, inputs_embeds, encoder_outputs, base, given)
        else:
            self._read_encoder(ids, attention_mask, inputs_embeds, encoder_outputs, decoder_input_ids)
        length = self.prefix.shape[1] if inputs_embeds is None else np.shape(inputs_embeds)[1]
        context = getattr(model.config, "max_position_embeddings", None)
        self.plan: Plan = plan(base, given, length, context, self.decoder)
        if inputs_embeds is None or not self.decoder:
            return
        self.prefix = np.zeros((len(self.rows), 0), np.int64)  # transformers returns the new ids only

    def _read_decoder(
        self, ids: Any, mask: Any, embeds: Any, encoder_outputs: Any, base: Any, given: dict[str, Any]
    ) -> None:
        if encoder_outputs is not None:
            raise UnsupportedError("generate: argument 'encoder_outputs' is for models with an encoder")
        if embeds is not None:
            self.rows = self.model._embedded_rows(embeds, mask)
            self.prefix = np.zeros((len(self.rows), 0), np.int64)
            return
        if ids is None:
            bos = given.get("bos_token_id", getattr(base, "bos_token_id", None))
            bos = self.engine.info["bos_id"] if bos is None else bos
            if bos < 0:
                raise InvalidArgumentError("generate: argument 'input_ids' is missing, and there is no 'bos_token_id'")
            ids = np.array([[bos]])
        self.prefix = np.atleast_2d(to_numpy(ids)).astype(np.int64)
        rows = self.model._rows(ids, mask, self.pad_shown, "left or right")
        self.rows = [{"ids": row} for row in rows]

    def _read_encoder(self, ids: Any, mask: Any, embeds: Any, encoder_outputs: Any, decoder_ids: Any) -> None:
        hidden = _hidden_rows(encoder_outputs, mask, self.engine.gpu)
        if hidden is not None:
            self.rows = [{"encoder_outputs": row} for row in hidden]
        elif embeds is not None:
            self.rows = self.model._embedded_rows(embeds, mask)
        elif ids is None:
            raise InvalidArgumentError("generate: argument 'input_ids' is missing")
        else:
            self.rows = [{"ids": row} for row in self.model._rows(ids, mask, None, self.model._sides)]
        if decoder_ids is None:
            self.prefix = np.full((len(self.rows), 1), self.start, np.int64)
        else:
            self.prefix = np.atleast_2d(to_numpy(decoder_ids)).astype(np.int64)
            if (self.prefix[:, 0] != self.start).all():
                begin = np.full((len(self.prefix), 1), self.start, np.int64)
                self.prefix = np.concatenate([begin, self.prefix], 1)
        if len(self.prefix) != len(self.rows):
            raise InvalidArgumentError(
                f"generate: argument 'decoder_input_ids' has {len(self.prefix)} rows, must have {len(self.rows)}"
            )
        for row, prefix in zip(self.rows, self.prefix):
            row["decoder_ids"] = prefix.tolist()

    # ---- running ----

    def _make_targets(self) -> None:
        width = self.plan.beams if self.plan.beams > 1 else self.plan.sequences
        shape = (self.plan.options["max_tokens"], len(self.rows) * width, self.engine.info["outputs"])
        for name, wanted in (("scores", self.plan.scores), ("logits", self.plan.logits)):
            if wanted and self.plan.as_dict:
                self.targets[name] = Rows(self.sample, self.engine.gpu, shape)

    def run(self, streamer: Any) -> Any:
        self._make_targets()
        if streamer is not None:
            requests = [self._stream(streamer)]
        else:
            requests = self.engine.wait([self._request(i) for i in range(len(self.rows))])
        sequences = self._sequences(requests)
        if not self.plan.as_dict:
            return like(self.sample, sequences)
        return self._output(requests, sequences)

    def _request(self, index: int) -> dict[str, Any]:
        """Arguments of Engine.submit for a row of the batch; each row draws random numbers of its own."""
        options = dict(self.plan.options, seed=(self.plan.options["seed"] + index) % 2**63)
        width = self.plan.beams if self.plan.beams > 1 else self.plan.sequences
        targets = {name: (target, (0, index * width, 0)) for name, target in self.targets.items()}
        return {"options": options, "rows": targets, **self.rows[index]}

    def _stream(self, streamer: Any) -> Request:
        """A streamer is fed on the caller's thread, token by token, as transformers does."""
        if len(self.rows) > 1 or self.plan.sequences > 1 or self.plan.beams > 1:
            raise InvalidArgumentError("generate: argument 'streamer' takes one prompt and one sequence, without beams")
        streamer.put(like(self.sample, self.prefix))
        sent = 0
        with contextlib.closing(self.engine.watch(**self._request(0))) as changes:
            for request in changes:
                for id_ in request.sequences[0].ids[sent:]:
                    streamer.put(like(self.sample, np.array([id_], np.int64)))
                    sent += 1
        streamer.end()
        return request

    # ---- outputs ----

    def _beams(self, request: Request) -> list[tuple[list[int], float, list[int]]]:
        """Ids, score and parents of each result. If fewer hypotheses than sequences are possible, as when an end token
        is forced at once, the others are empty, with transformers' score of such a beam."""
        found = [(result.ids, result.score, result.parents) for result in request.results]
        return found + [([], -1e9, [])] * (self.plan.sequences - len(found))

    def _new_ids(self, request: Request) -> list[list[int]]:
        if self.plan.beams > 1:
            return [ids for ids, _, _ in self._beams(request)]
        return [seq.ids for seq in request.sequences]

    def _sequences(self, requests: Sequence[Request]) -> np.ndarray:
        new = pad_rows([ids for r in requests for ids in self._new_ids(r)], self.plan.pad)
        prefix = np.repeat(self.prefix, self.plan.sequences, 0)
        return np.concatenate([prefix, new], 1)

    def _steps(self, requests: Sequence[Request], name: str) -> Any:
        """Scores or logits of each step, [sequences or beams of all prompts, vocabulary]."""
        target, lengths = self.targets[name], []
        for request in requests:
            beams = [request.new_tokens] * self.plan.beams
            lengths += beams if self.plan.beams > 1 else [len(seq.ids) for seq in request.sequences]
        steps = min(max(lengths, default=0), target.shape[0])
        for row, length in enumerate(lengths):
            if length < steps:
                target.array[length:steps, row] = 0
        return tuple(target.take(steps))

    def _output(self, requests: Sequence[Request], sequences: np.ndarray) -> Any:
        p = self.plan
        members: dict[str, Any] = {"sequences": like(self.sample, sequences)}
        if p.beams > 1 and p.scores:
            found = [score for r in requests for _, score, _ in self._beams(r)]
            members["sequences_scores"] = like(self.sample, np.array(found, np.float32))
        members["scores"] = self._steps(requests, "scores") if "scores" in self.targets else None
        members["logits"] = self._steps(requests, "logits") if "logits" in self.targets else None
        if p.beams > 1 and p.scores:
            parents = [(i, row) for i, r in enumerate(requests) for _, _, row in self._beams(r)]
            rows = [[parent + i * p.beams for parent in row] for i, row in parents]
            members["beam_indices"] = like(self.sample, pad_rows(rows, -1))
        search = "Beam" if p.beams > 1 else ""
        kind = "DecoderOnly" if self.decoder else "EncoderDecoder"
        return make_output(f"Generate{search}{kind}Output", members)


class AutoModelForCausalLM(Model):
    """A decoder: Llama, GPT-2, ... `AutoModelForCausalLM.from_pretrained(folder).generate(input_ids, ...)`."""

    _kinds = ("decoder",)
    _noun = "AutoModelForCausalLM"


class AutoModelForSeq2SeqLM(Model):
    """An encoder-decoder: T5, BART, ..."""

    _kinds = ("encoder-decoder",)
    _noun = "AutoModelForSeq2SeqLM"


class AutoModel(Model):
    """Any model; of an encoder the call gives hidden states, or what its head gives."""

    _noun = "AutoModel"


class AutoModelForSequenceClassification(Model):
    """An encoder with a head that classifies."""

    _kinds = ("encoder",)
    _noun = "AutoModelForSequenceClassification"


class AutoModelForMaskedLM(Model):
    """An encoder with a head over the vocabulary."""

    _kinds = ("encoder",)
    _noun = "AutoModelForMaskedLM"


class AutoModelForTokenClassification(Model):
    """An encoder with a head over labels of each token."""

    _kinds = ("encoder",)
    _noun = "AutoModelForTokenClassification"
