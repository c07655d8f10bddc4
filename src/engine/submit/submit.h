/* SPDX-License-Identifier: Apache-2.0
 * submit.h - the parts of making a request from the caller's. Private to src/engine/submit.
 * Owner:   the request that is made; what was allocated before an error is freed by proa_engine_request_free.
 * Threads: the caller's. They read only what never changes after open, and take adapters, sessions and grammars, which
 *          have locks of their own.
 * Way in:  make_request in submit.c calls them in this order.
 * Errors:  INVALID, LIMIT and UNSUPPORTED name the field or option of the request. */
#ifndef PROA_ENGINE_SUBMIT_SUBMIT_H
#define PROA_ENGINE_SUBMIT_SUBMIT_H

#include "engine/sched/request.h"

/* prompt.c. Takes the session that the request names, which no other request may use until it ends. */
PROA_MUST_CHECK proa_status proa_submit_hold_session(proa_engine *e, proa_engine_request *req,
                                                     const proa_request *r, proa_err *err);
/* Sets input (of an encoder), prompt (of a decoder) and virtuals. The adapter and the session are set. */
PROA_MUST_CHECK proa_status proa_submit_read_prompt(proa_engine *e, proa_engine_request *req,
                                                    const proa_request *r, proa_err *err);
/* state.c. Sets the sizes (sequences, new tokens, pages that it may need) and allocates what decoding will use. */
PROA_MUST_CHECK proa_status proa_submit_plan(const proa_engine *e, proa_engine_request *req,
                                             const proa_options *options, proa_err *err);
/* options.c, for state.c. Checks the options, fills in defaults, and checks again: the model's own defaults can
 * contradict what was given. */
PROA_MUST_CHECK proa_status proa_submit_read_options(const proa_engine *e, proa_engine_request *req,
                                                     const proa_options *given, proa_err *err);

#endif
