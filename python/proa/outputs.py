# SPDX-License-Identifier: Apache-2.0
"""vLLM's output classes."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union


@dataclasses.dataclass
class Logprob:
    """Natural logarithm of a token's probability, of the model's own distribution."""

    logprob: float
    rank: Optional[int] = None  # 1: the likeliest; None: not among those that were asked for
    decoded_token: Optional[str] = None


@dataclasses.dataclass
class CompletionOutput:
    """One sequence of a request. With DELTA it has what is new since the output before."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[list[dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None  # "stop", "length", "abort"; None: it goes on
    stop_reason: Union[int, str, None] = None  # the stop string or stop token that ended it
    score: Optional[float] = None  # of a beam

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """The output of a request for one prompt."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: Optional[list[int]]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: Optional[list[Optional[dict[int, Logprob]]]] = None
    num_cached_tokens: Optional[int] = None
    metrics: Optional[dict[str, Any]] = None
    encoder_prompt: Optional[str] = None
    encoder_prompt_token_ids: Optional[list[int]] = None
