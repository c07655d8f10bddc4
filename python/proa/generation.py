# SPDX-License-Identifier: Apache-2.0
"""transformers' generate(): its arguments as options of the library, and its output classes."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from ._lib import InvalidArgumentError, UnsupportedError
from .arrays import to_numpy

# ---- arguments ----

# transformers' defaults (GenerationConfig._get_default_generation_params of 5.24), as far as they are options here.
DEFAULTS: dict[str, Any] = {
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "num_return_sequences": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
}
# Arguments with the option that they are; do_sample, lengths and the like need more than a name.
_SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "epsilon_cutoff": "epsilon_cutoff",
    "eta_cutoff": "eta_cutoff",
}
_DIRECT = {
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "encoder_no_repeat_ngram_size": "encoder_no_repeat_ngram",
    "encoder_repetition_penalty": "encoder_repetition_penalty",
    "bad_words_ids": "banned_words",
    "suppress_tokens": "suppress_tokens",
    "begin_suppress_tokens": "begin_suppress_tokens",
    "forced_bos_token_id": "forced_bos_id",
    "renormalize_logits": "renormalize_logits",
    "stop_strings": "stop_strings",
}
_BEAMS = {
    "num_beams": "beams",
    "length_penalty": "length_penalty",
    "num_beam_groups": "beam_groups",
    "diversity_penalty": "diversity_penalty",
}
# The library's own options may be given too, under names that transformers does not use.
_OWN = ("presence_penalty", "frequency_penalty", "logit_bias", "json_schema", "regex", "grammar", "choice", "adapter")
_READ = {
    *("do_sample", "max_length", "max_new_tokens", "min_length", "min_new_tokens", "early_stopping", "seed"),
    *("num_return_sequences", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("sequence_bias", "exponential_decay_length_penalty", "forced_eos_token_id", "penalty_alpha"),
    *("prompt_lookup_num_tokens", "output_scores", "output_logits", "return_dict_in_generate"),
}
# Without effect here: how transformers computes, not what.
_IGNORED = {
    *("use_cache", "synced_gpus", "tokenizer", "cache_implementation", "cache_config", "max_cache_len"),
    *("disable_compile", "compile_config", "low_memory", "remove_invalid_values", "return_legacy_cache"),
    *("transformers_version", "prefill_chunk_size", "continuous_batching_config", "max_matching_ngram_size"),
    *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "is_assistant"),
    *("assistant_lookbehind", "target_lookbehind", "trust_remote_code"),
}
KNOWN = {*_SAMPLING, *_DIRECT, *_BEAMS, *_OWN, *_READ, *_IGNORED}
# transformers' arguments that are not supported, with the value that changes nothing, where None is not the only one.
_UNSUPPORTED: dict[str, Union[float, bool, None]] = {
    "guidance_scale": 1.0,
    **dict.fromkeys(("output_attentions", "output_hidden_states", "token_healing", "use_mtp"), False),
    **dict.fromkeys(("constraints", "force_words_ids", "watermarking_config", "dola_layers", "max_time", "top_h")),
    **dict.fromkeys(("assistant_model", "assistant_tokenizer", "assistant_early_exit", "assistant_ensemble_weight")),
    **dict.fromkeys(("speculation_type", "prefix_allowed_tokens_fn", "custom_generate", "past_key_values")),
    **dict.fromkeys(("negative_prompt_ids", "negative_prompt_attention_mask")),
}


def _changes(name: str, value: Any) -> bool:
    """Whether an argument that is not supported has an effect in transformers."""
    neutral = _UNSUPPORTED.get(name)
    return value is not None and not (isinstance(value, (bool, int, float)) and value == neutral)


def check_arguments(given: dict[str, Any], configured: dict[str, Any]) -> None:
    """Raises for what has an effect in transformers and none here: arguments of the call, and members of its generation
    config, in which other names mean nothing to transformers either."""
    unknown = {name: value for name, value in given.items() if name not in KNOWN}
    unknown.update((name, value) for name, value in configured.items() if name in _UNSUPPORTED and name not in given)
    for name, value in unknown.items():
        if _changes(name, value):
            raise UnsupportedError(f"generate: argument '{name}' is not supported (its value is {value!r})")


def _bias_list(bias: Any) -> list[list[Any]]:
    """transformers' sequence_bias, a dictionary by tuples or a list of pairs, as the library's."""
    pairs = bias.items() if isinstance(bias, dict) else bias
    return [[[int(i) for i in ids], float(value)] for ids, value in pairs]


def _list_of(value: Any) -> Any:
    """Tensors within an argument as plain numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_list_of(v) for v in value] if isinstance(value, (list, tuple)) else value


# transformers' processors and criteria by their class: the argument that one is made of, and the attribute that has it.
_OBJECTS: dict[str, dict[str, tuple[str, str]]] = {
    "logits_processor": {
        "MinLengthLogitsProcessor": ("min_length", "min_length"),
        "MinNewTokensLengthLogitsProcessor": ("min_new_tokens", "min_new_tokens"),
        "TemperatureLogitsWarper": ("temperature", "temperature"),
        "RepetitionPenaltyLogitsProcessor": ("repetition_penalty", "penalty"),
        "TopKLogitsWarper": ("top_k", "top_k"),
        "TopPLogitsWarper": ("top_p", "top_p"),
        "MinPLogitsWarper": ("min_p", "min_p"),
        "TypicalLogitsWarper": ("typical_p", "mass"),
        "EpsilonLogitsWarper": ("epsilon_cutoff", "epsilon"),
        "EtaLogitsWarper": ("eta_cutoff", "epsilon"),
        "NoRepeatNGramLogitsProcessor": ("no_repeat_ngram_size", "ngram_size"),
        "SequenceBiasLogitsProcessor": ("sequence_bias", "sequence_bias"),
        "NoBadWordsLogitsProcessor": ("bad_words_ids", "bad_word_ids"),
        "ForcedBOSTokenLogitsProcessor": ("forced_bos_token_id", "bos_token_id"),
        "ForcedEOSTokenLogitsProcessor": ("forced_eos_token_id", "eos_token_id"),
        "SuppressTokensLogitsProcessor": ("suppress_tokens", "suppress_tokens"),
        "SuppressTokensAtBeginLogitsProcessor": ("begin_suppress_tokens", "begin_suppress_tokens"),
    },
    "stopping_criteria": {
        "MaxLengthCriteria": ("max_length", "max_length"),
        "EosTokenCriteria": ("eos_token_id", "eos_token_id"),
        "StopStringCriteria": ("stop_strings", "stop_strings"),
    },
}


def _read_objects(argument: str, objects: Any) -> dict[str, Any]:
    """The arguments that a list of processors or of criteria is made of."""
    arguments: dict[str, Any] = {}
    for value in objects or []:
        kind = type(value).__name__
        if kind == "LogitNormalization":
            arguments["renormalize_logits"] = True
        elif kind in _OBJECTS[argument]:
            name, attribute = _OBJECTS[argument][kind]
            arguments[name] = _list_of(getattr(value, attribute))
        elif kind != "InfNanRemoveLogitsProcessor":  # the library's logits have none
            raise UnsupportedError(f"generate: argument '{argument}' has a {kind}, which is not supported")
    return arguments


def _seed() -> int:
    """From torch's generator if torch is used, so that torch.manual_seed makes a run repeatable; else numpy's."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.randint(0, 2**62, (1,)))
    return int(np.random.randint(0, 2**62))


@dataclasses.dataclass
class Plan:
    """A call of generate() for the library."""

    options: dict[str, Any]
    sequences: int  # returned for each prompt
    beams: int
    pad: int  # what rows are filled up with
    end: list[int]
    scores: bool
    logits: bool
    as_dict: bool


def config_values(config: Any) -> dict[str, Any]:
    """What a generation config sets: transformers', or a dictionary."""
    if config is None:
        return {}
    values = config if isinstance(config, dict) else config.to_dict() if hasattr(config, "to_dict") else vars(config)
    return {name: value for name, value in values.items() if value is not None and not name.startswith("_")}


def plan(base: Any, given: dict[str, Any], length: int, context: Optional[int], decodes: bool) -> Plan:
    """Options for a call. base: the generation config; given: the call's own arguments; length: of the prompt with its
    padding, which max_length and min_length count; context: max_position_embeddings; decodes: without an encoder."""
    given = {name: value for name, value in given.items() if value is not None}
    for argument in _OBJECTS:
        given.update(_read_objects(argument, given.pop(argument, None)))
    configured = config_values(base)
    check_arguments(given, configured)
    get: Callable[[str], Any] = {**DEFAULTS, **configured, **given}.get
    sampled, beams = bool(get("do_sample")), int(get("num_beams"))
    options = _lengths(get, {**configured, **given}, length, context)
    for name, option in _DIRECT.items():
        if get(name) is not None:
            options[option] = _list_of(get(name))
    options.update({name: given[name] for name in _OWN if name in given})
    _set_lists(options, get)
    contrast = float(get("penalty_alpha") or 0.0)
    options["temperature"] = float(get("temperature")) if sampled else 0.0
    for name, option in _SAMPLING.items():
        if sampled and name != "temperature" and get(name) is not None:
            options[option] = get(name)
    if contrast > 0 and not sampled and beams == 1:
        options.update(penalty_alpha=contrast, top_k=int(get("top_k")))
    elif not sampled:
        options.update(top_k=0, top_p=1.0, penalty_alpha=0.0)
    options["seed"] = int(given.get("seed", _seed() if sampled else 0))
    count = _returned(options, get, sampled, beams)
    ends = get("eos_token_id")
    end = [] if ends is None else [int(i) for i in np.ravel(to_numpy(ends))]
    if end and end[0] >= 0:
        options["end_ids"] = end
    else:
        end, options["ignore_eos"] = [], True
    if get("prompt_lookup_num_tokens"):
        options.update(speculation="ngram", draft_tokens=int(get("prompt_lookup_num_tokens")))
    pad = get("pad_token_id")
    return Plan(
        options=options,
        sequences=count,
        beams=beams,
        pad=_filler(pad, end, beams),
        end=end,
        scores=bool(get("output_scores")),
        logits=bool(get("output_logits")),
        as_dict=bool(get("return_dict_in_generate")),
    )


def _filler(pad: Any, end: list[int], beams: int) -> int:
    """The padding token, or where there is none the end token. Beam searches of transformers (`pad_token_id or
    eos_token_id[0]`) also take the end token in the place of a padding token 0."""
    number = -1 if pad is None else int(pad)
    known = number >= 0 and not (beams > 1 and number == 0 and end)
    return number if known else end[0] if end else 0


def _lengths(get: Any, set_: dict[str, Any], length: int, context: Optional[int]) -> dict[str, Any]:
    """max_length and min_length count the prompt; without any of the two limits there are 20 new tokens."""
    if get("max_new_tokens") is not None:
        most = int(get("max_new_tokens"))
    elif "max_length" in set_:
        most = int(set_["max_length"]) - length
        if most < 1:
            raise InvalidArgumentError(
                f"generate: argument 'max_length' is {set_['max_length']}, and the prompt has {length} tokens"
            )
    else:
        most = DEFAULTS["max_length"]
        if context is not None:
            most = min(most, context - length)
    least = get("min_new_tokens")
    least = int(least) if least is not None else int(get("min_length")) - length
    return {"max_tokens": most, "min_tokens": max(0, least)}


def _set_lists(options: dict[str, Any], get: Any) -> None:
    if get("sequence_bias") is not None:
        options["sequence_bias"] = _bias_list(get("sequence_bias"))
    if get("forced_eos_token_id") is not None:
        forced = np.ravel(to_numpy(get("forced_eos_token_id")))
        if forced.size != 1:
            raise UnsupportedError("generate: argument 'forced_eos_token_id' is a list of several ids")
        options["forced_eos_id"] = int(forced[0])
    decay = get("exponential_decay_length_penalty")
    if decay is not None:
        options["exponential_decay_start"], options["exponential_decay_factor"] = int(decay[0]), float(decay[1])


def _returned(options: dict[str, Any], get: Any, sampled: bool, beams: int) -> int:
    count = int(get("num_return_sequences"))
    options["beams"], options["n"] = beams, 1
    if beams > 1:
        if count > beams:
            raise InvalidArgumentError(
                f"generate: argument 'num_return_sequences' is {count}, must be at most 'num_beams' ({beams})"
            )
        for name, option in _BEAMS.items():
            options[option] = get(name)
        early = get("early_stopping")
        options["early_stopping"] = early if isinstance(early, str) else bool(early)
        options["beams_returned"] = count
    elif count > 1 and not sampled:
        raise InvalidArgumentError(
            f"generate: argument 'num_return_sequences' is {count}, must be 1 without 'do_sample' or 'num_beams'"
        )
    else:
        options["n"] = count
    return count


# ---- outputs ----


class ModelOutput(dict[str, Any]):
    """transformers' ModelOutput where that is not installed: members by attribute, by name and by position."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return dict.__getitem__(self, key) if isinstance(key, str) else self.to_tuple()[key]

    def __iter__(self) -> Any:
        return iter(list(self.keys()))

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(dict.__getitem__(self, name) for name in self.keys())


def make_output(kind: str, members: dict[str, Any]) -> Any:
    """An object of transformers' class of that name if transformers is in use, else a ModelOutput. None is left out."""
    members = {name: value for name, value in members.items() if value is not None}
    transformers = sys.modules.get("transformers")
    if transformers is not None and "torch" in sys.modules:
        found = getattr(transformers.generation.utils, kind, None)
        found = found or getattr(transformers.modeling_outputs, kind, None)
        if found is not None:
            return found(**members)
    return ModelOutput(members)


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> np.ndarray:
    """Rows of ids as one array, filled up on the right."""
    out = np.full((len(rows), max((len(row) for row in rows), default=0)), pad, np.int64)
    for to, row in zip(out, rows):
        to[: len(row)] = row
    return out
