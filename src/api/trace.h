/* SPDX-License-Identifier: Apache-2.0
 * trace.h - inside api: which requests are traced. settings.c samples them by the settings of /v2/trace/setting;
 *           serve/trace.h collects what happens to them; telemetry writes it.
 * Owner:   proa_settings holds the settings and a proa_telemetry.
 * Threads: any.
 * Way in:  a front end calls proa_trace_http or proa_trace_grpc when it has the request; proa_sink_init calls
 *          proa_trace_sample. Both cost one load while nothing is traced. */
#ifndef PROA_API_TRACE_H
#define PROA_API_TRACE_H

#include "api/internal.h"
#include "serve/trace.h"

bool proa_trace_on(void);
/* Whether a request that comes now may be traced with its tensors. It then must not be a typed generation. */
bool proa_trace_shows_tensors(void);
/* Notes where r comes from, while tracing is on. operation: of a route of language models; else NULL. Loop thread, or
 * the worker that has x. */
void proa_trace_http(const proa_http_exchange *x, const char *operation, proa_infer *r);
void proa_trace_grpc(const proa_grpc_call *call, int64_t received_ns, proa_infer *r);
/* Begins a trace of r, which knows its model, if it is sampled. */
void proa_trace_sample(proa_infer *r);

#endif
