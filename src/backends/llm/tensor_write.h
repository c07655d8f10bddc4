/* SPDX-License-Identifier: Apache-2.0
 * tensor_write.h - tensors of a reply from generated tokens and text; shared by the contracts. Engine's thread. */
#ifndef PROA_BACKENDS_LLM_TENSOR_WRITE_H
#define PROA_BACKENDS_LLM_TENSOR_WRITE_H

#include "backends/llm/request.h"
#include "backends/tensors/output_spec.h"

/* Adds a tensor of 4-byte elements with this shape, all set to `fill`, and returns its elements. NULL: the request does
 * not want it, or it has no elements. */
int32_t *proa_reply_ints(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, int32_t fill);
float *proa_reply_floats(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, float fill);
/* Adds texts; returns the tensor, whose shape may be changed, or NULL. */
proa_tensor *proa_reply_texts(const proa_llm_request *req, proa_reply *reply, const char *name,
                              const proa_str *texts, int64_t count);
/* Adds numbers of a type that the configuration chose, if the request wants them: any integer type from integers; FP32,
 * FP16 or BF16 from floats. */
void proa_reply_typed_ints(const proa_llm_request *req, proa_reply *reply, const proa_output_spec *spec,
                           const int32_t *from);
void proa_reply_typed_floats(const proa_llm_request *req, proa_reply *reply, const proa_output_spec *spec,
                             const float *from);

#endif
