# SPDX-License-Identifier: Apache-2.0
"""vLLM's SamplingParams, as options of the library."""

from __future__ import annotations

import dataclasses
import enum
import json
import secrets
from typing import Any, Optional, Union

from ._lib import InvalidArgumentError


class RequestOutputKind(enum.Enum):
    """What a stream yields: all text so far, only what is new, or one output at the end."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclasses.dataclass
class StructuredOutputsParams:
    """Constrained output; exactly one is given. `json` is a schema, as text or as an object."""

    json: Union[str, dict[str, Any], None] = None
    regex: Optional[str] = None
    choice: Optional[list[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None

    def to_options(self) -> dict[str, Any]:
        schema = self.json if self.json is None or isinstance(self.json, str) else json.dumps(self.json)
        options = {
            "json_schema": schema,
            "regex": self.regex,
            "choice": self.choice,
            "grammar": self.grammar,
            "json_object": self.json_object,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclasses.dataclass
class SamplingParams:
    """How to generate, with vLLM's names, defaults and meanings.

    `extra_args` are options of docs/decoding.md by their own names (`beams`, `typical_p`, ...). A value that the
    library does not accept raises InvalidArgumentError when the request is submitted, with the option's name and range.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: all tokens
    min_p: float = 0.0
    seed: Optional[int] = None  # None: another one for each request
    stop: Union[str, list[str], None] = None
    stop_token_ids: Optional[list[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16  # None: until the end token or the context is full
    min_tokens: int = 0
    logprobs: Optional[int] = None  # of the chosen token and so many of the likeliest; None: none
    prompt_logprobs: Optional[int] = None
    bad_words: Optional[list[str]] = None
    logit_bias: Optional[dict[int, float]] = None
    allowed_token_ids: Optional[list[int]] = None  # and end tokens, but with ignore_eos
    structured_outputs: Optional[StructuredOutputsParams] = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    extra_args: Optional[dict[str, Any]] = None

    def to_options(self) -> dict[str, Any]:
        """The options of the library, by their names in docs/decoding.md."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidArgumentError(f"'max_tokens' is {self.max_tokens}, must be at least 1, or None")
        options: dict[str, Any] = {
            "n": self.n,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": max(self.top_k, 0) if self.top_k == -1 else self.top_k,
            "min_p": self.min_p,
            "seed": secrets.randbits(63) if self.seed is None else self.seed,
            "ignore_eos": self.ignore_eos,
            "max_tokens": self.max_tokens or 0,
            "min_tokens": self.min_tokens,
        }
        if self.stop:
            options["stop_strings"] = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        if self.stop_token_ids:
            options["stop_words"] = [[i] for i in self.stop_token_ids]
        if self.logprobs is not None:
            options["logprobs"], options["top_logprobs"] = True, self.logprobs
        if self.prompt_logprobs is not None:
            options["prompt_logprobs"] = True
            options["top_logprobs"] = max(self.prompt_logprobs, options.get("top_logprobs", 0))
        if self.bad_words:
            options["banned_strings"] = list(self.bad_words)
        if self.logit_bias:
            options["logit_bias"] = {str(i): value for i, value in self.logit_bias.items()}
        if self.allowed_token_ids is not None:
            options["allowed_words"] = [[i] for i in self.allowed_token_ids]
        if self.structured_outputs is not None:
            options.update(self.structured_outputs.to_options())
        options.update(self.extra_args or {})
        return options
