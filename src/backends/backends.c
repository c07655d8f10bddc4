/* SPDX-License-Identifier: Apache-2.0
 * backends.c - the table of all built-in backends. */
#include "backends/backends.h"

const proa_backend *const proa_backends[] = {
    &proa_backend_identity,    &proa_backend_add_sub,
    &proa_backend_repeat,      &proa_backend_square,
    &proa_backend_sequence,    &proa_backend_dyna_sequence,
    &proa_backend_engine,      &proa_backend_fastertransformer,
    &proa_backend_tensorrtllm, &proa_backend_tokenizer,
    &proa_backend_detokenizer, &proa_backend_transform,
    &proa_backend_python,      &proa_backend_fil,
    &proa_backend_onnxruntime, NULL,
};
