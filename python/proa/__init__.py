# SPDX-License-Identifier: Apache-2.0
"""Proa: an inference engine for transformer models, as a Python package.

    import proa
    llm = proa.LLM("models/m30k-t5")
    outputs = llm.generate(["translate English to German: A dog runs."], proa.SamplingParams(temperature=0))
    print(outputs[0].outputs[0].text)

The package is a thin binding of the C library (include/proa/proa.h); the options are described in docs/decoding.md.
"""

from ._lib import (
    AlreadyExistsError,
    CancelledError,
    CorruptError,
    DeadlineError,
    InputOutputError,
    InvalidArgumentError,
    LimitError,
    NoMemoryError,
    NotFoundError,
    ProaError,
    UnavailableError,
    UnsupportedError,
    lib,
    text_of,
)
from .engine import Engine
from .llm import LLM, AsyncLLM
from .modeling import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from .session import Session

__version__: str = text_of(lib.proa_version())

__all__ = [
    "AlreadyExistsError",
    "AsyncLLM",
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "CancelledError",
    "CompletionOutput",
    "CorruptError",
    "DeadlineError",
    "Engine",
    "InputOutputError",
    "InvalidArgumentError",
    "LLM",
    "LimitError",
    "Logprob",
    "NoMemoryError",
    "NotFoundError",
    "ProaError",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "Session",
    "StructuredOutputsParams",
    "UnavailableError",
    "UnsupportedError",
]
