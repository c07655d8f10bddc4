/* SPDX-License-Identifier: Apache-2.0
 * backends.c - the table of all built-in backends. */
#include "backends/backends.h"

#include <string.h>

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

static const char *const python_settings[] = {"python",
                                              "stub-timeout-seconds",
                                              "execute-timeout-ms",
                                              "memory-limit-mb",
                                              "strict-outputs",
                                              "shm-default-byte-size",
                                              "shm-growth-byte-size",
                                              "shm_message_queue_size",
                                              "thread-pool-size",
                                              NULL};
/* with those of a process of its own */
static const char *const onnx_settings[] = {"library",
                                            "default-max-batch-size",
                                            "enable-global-threadpool",
                                            "intra_op_thread_count",
                                            "inter_op_thread_count",
                                            "execute-timeout-ms",
                                            "memory-limit-mb",
                                            NULL};

const char *const *proa_backend_setting_names(const char *backend)
{
    if (strcmp(backend, "engine") == 0) return proa_engine_setting_names;
    if (strcmp(backend, "python") == 0) return python_settings;
    return strcmp(backend, "onnxruntime") == 0 ? onnx_settings : NULL;
}
