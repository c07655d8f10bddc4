/* SPDX-License-Identifier: Apache-2.0
 * collector.h - sends spans to an OpenTelemetry collector: OTLP/HTTP with protobuf bodies, by libcurl.
 *
 * Protobuf, not OTLP's JSON: every receiver takes it, it is smaller, and protobuf-c is there for Triton's messages
 * anyway. Answers 429, 502, 503 and 504 and broken connections are
 * repeated after pauses that double, as https://opentelemetry.io/docs/specs/otlp/#failures says.
 *
 * Owner:   the caller of open and close.
 * Threads: one at a time, but for proa_collector_hurry. */
#ifndef PROA_TELEMETRY_COLLECTOR_H
#define PROA_TELEMETRY_COLLECTOR_H

#include "telemetry/telemetry.h"

typedef struct proa_collector proa_collector;

/* UNSUPPORTED without libcurl; INVALID if the URL or an attribute is none. */
PROA_MUST_CHECK proa_status proa_collector_open(proa_collector **out, const proa_telemetry_options *options,
                                                proa_err *err);
void proa_collector_close(proa_collector *c); /* NULL is fine */
const char *proa_collector_url(const proa_collector *c);
/* Sends the spans of a list of traces, in requests of at most batch_max; adds to counts. Blocks. */
void proa_collector_send(proa_collector *c, const proa_trace *list, int64_t batch_max,
                         proa_telemetry_counts *counts);
/* From now on all sending ends within PROA_OTLP_CLOSE_MS. Any thread. */
void proa_collector_hurry(proa_collector *c);

#endif
