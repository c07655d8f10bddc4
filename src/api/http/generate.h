/* SPDX-License-Identifier: Apache-2.0
 * generate.h - inside api/http: requests and replies of the generate extension. A model that takes typed generations
 * gets one, read straight from the JSON, and its typed replies are written straight to JSON; other models get tensors.
 * Threads: none of its own.
 * Way in:  proa_v2_generate (generate.c). */
#ifndef PROA_API_HTTP_GENERATE_H
#define PROA_API_HTTP_GENERATE_H

#include "api/http/v2.h"

/* generate_read.c: finds the model of r (its name and version are set) and reads the body of x into r. Texts of errors
 * are Triton's. */
PROA_MUST_CHECK proa_status proa_generate_read(proa_api *api, proa_http_exchange *x, proa_infer *r,
                                               proa_err *err);
/* generate_typed.c: the inputs that were read, [count], and the parameters of r as the generation of r. `options`: the
 * model generates, so options are read. Options that cannot be read are the generation's `refused`. */
PROA_MUST_CHECK proa_status proa_generate_type(proa_infer *r, const proa_jlist *inputs, int count,
                                               bool options, proa_err *err);
/* generate_reply.c: ,"NAME":VALUE for each output of the backend `engine`, in the order and form of its tensors. */
PROA_MUST_CHECK proa_status proa_generated_json(proa_buf *out, const proa_generated *g, proa_err *err);

#endif
