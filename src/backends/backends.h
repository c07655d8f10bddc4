/* SPDX-License-Identifier: Apache-2.0
 * backends.h - the tables of all backends that are built in.
 * Way in:  proa_backends, given to proa_server_new by the program. */
#ifndef PROA_BACKENDS_BACKENDS_H
#define PROA_BACKENDS_BACKENDS_H

#include "serve/backend.h"

/* For tests and examples: testing/simple.c, testing/decoupled.c, testing/sequence.c. */
extern const proa_backend proa_backend_identity, proa_backend_add_sub, proa_backend_repeat,
    proa_backend_square, proa_backend_sequence, proa_backend_dyna_sequence;
extern const proa_backend proa_backend_engine;            /* llm/contract_native.c */
extern const proa_backend proa_backend_fastertransformer; /* the engine with FasterTransformer's tensors */
extern const proa_backend proa_backend_tensorrtllm;       /* the engine with TensorRT-LLM's tensors */
extern const proa_backend proa_backend_tokenizer,
    proa_backend_detokenizer;                     /* text/tokenizer.c, text/detokenizer.c */
extern const proa_backend proa_backend_transform; /* transform/transform.c: text features and simple arithmetic */
extern const proa_backend proa_backend_fil;       /* forests: fil/fil.c */

extern const proa_backend proa_backend_onnxruntime; /* ONNX models, by ONNX Runtime's library: onnx/onnx.c */

extern const proa_backend proa_backend_python; /* python/python.c */

/* What --backend-config engine,KEY=VALUE may set (llm/model.c), NULL-terminated. */
extern const char *const proa_engine_setting_names[];

/* What --backend-config BACKEND,KEY=VALUE may set, NULL-terminated; NULL: nobody knows (libraries of others). */
const char *const *proa_backend_setting_names(const char *backend);

/* NULL-terminated. */
extern const proa_backend *const proa_backends[];

#endif
