/* SPDX-License-Identifier: Apache-2.0
 * tensor_write.h - tensors of a reply from generated tokens and text; shared by the contracts. Engine's thread. */
#ifndef PROA_BACKENDS_LLM_TENSOR_WRITE_H
#define PROA_BACKENDS_LLM_TENSOR_WRITE_H

#include "backends/llm/request.h"

/* Adds a tensor of 4-byte elements with this shape, every element set to `fill`; NULL: the request does not want it. */
int32_t *proa_reply_ints(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, int32_t fill);
float *proa_reply_floats(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, float fill);
/* Adds texts; returns the tensor, whose shape may be changed, or NULL. */
proa_tensor *proa_reply_texts(const proa_llm_request *req, proa_reply *reply, const char *name,
                              const proa_str *texts, int64_t count);
/* Adds numbers of a type that the configuration chose (integers or FP32 and FP16), from integers or floats. */
void proa_reply_typed_ints(const proa_llm_request *req, proa_reply *reply, const char *name, proa_type type,
                           const int64_t *shape, int32_t rank, const int32_t *from);
void proa_reply_typed_floats(const proa_llm_request *req, proa_reply *reply, const char *name, proa_type type,
                             const int64_t *shape, int32_t rank, const float *from);

#endif
