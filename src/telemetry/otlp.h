/* SPDX-License-Identifier: Apache-2.0
 * otlp.h - traces as spans of OpenTelemetry, in the messages of OTLP.
 *
 * A trace has a span "InferRequest" of kind SERVER, whose parent is the caller's span. Below it is a span for each
 * request to a model, named after the model, and below that one "compute". A request to a language model has the spans
 * "queue", "prefill" and "decode" too, and attributes of the semantic conventions for generative AI:
 * https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/. Times of the monotonic clock become those of the
 * system's clock.
 *
 * Owner:   all memory is of the given arena; texts are those of the trace, which must outlive the messages.
 * Threads: none of its own. */
#ifndef PROA_TELEMETRY_OTLP_H
#define PROA_TELEMETRY_OTLP_H

#include "proto/otlp.pb-c.h"
#include "serve/trace.h"

/* How many spans proa_otlp_add makes of a trace. */
int64_t proa_otlp_count(const proa_trace *trace);
/* Writes the spans of a trace to out[0..]; returns their number. unix_ns: what to add to a monotonic time. */
int64_t proa_otlp_add(Otlp__Span **out, const proa_trace *trace, int64_t unix_ns, proa_arena *arena);
/* What to add to a monotonic time now. */
int64_t proa_otlp_unix_offset(void);
/* An attribute with a text, copied. */
Otlp__KeyValue *proa_otlp_text(proa_arena *arena, proa_str key, proa_str value);

#endif
