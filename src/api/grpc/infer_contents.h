/* SPDX-License-Identifier: Apache-2.0
 * infer_contents.h - inside api: InferTensorContents, the typed fields of a tensor in protobuf, as the bytes of a
 * tensor.
 * Threads: none of its own. */
#ifndef PROA_API_GRPC_INFER_CONTENTS_H
#define PROA_API_GRPC_INFER_CONTENTS_H

#include "serve/tensor.h"

/* Sets data of t, whose name and type are set. Contiguous floats are not copied (t then holds body), all else is a
 * new buffer. INVALID with Triton's text if a field that is filled does not fit the type, or if two are filled. */
proa_status proa_contents_read(proa_tensor *t, proa_str contents, proa_buffer *body, const char *model,
                               proa_err *err);

#endif
