/* SPDX-License-Identifier: Apache-2.0
 * telemetry.h - where finished traces go: a file in Triton's form, or an OpenTelemetry collector.
 *
 * proa_telemetry_push never blocks: a trace waits in a bounded queue for a thread, which writes the file or sends spans
 * in batches. What finds the queue full is dropped and counted. This is the batch span processor of OpenTelemetry:
 * https://opentelemetry.io/docs/specs/otel/trace/sdk/#batching-processor.
 *
 * Owner:   proa_telemetry_open and proa_telemetry_close; a pushed trace belongs to it.
 * Threads: push and counts on any thread. */
#ifndef PROA_TELEMETRY_TELEMETRY_H
#define PROA_TELEMETRY_TELEMETRY_H

#include "serve/trace.h"

#define PROA_OTLP_URL "http://localhost:4318/v1/traces"

typedef enum proa_trace_mode { PROA_TRACE_TRITON, PROA_TRACE_OPENTELEMETRY } proa_trace_mode;

typedef struct proa_telemetry_options {
    proa_trace_mode mode;
    const char *file; /* TRITON; NULL: none, then nothing can be traced */
    /* OPENTELEMETRY: */
    const char *url;             /* of the collector's traces; NULL: PROA_OTLP_URL */
    const char *const *resource; /* "KEY=VALUE": attributes of the server; a later one replaces an earlier one */
    int resource_count;
    int64_t bsp_max_queue_size;        /* spans that wait; 0: 2048 */
    int64_t bsp_schedule_delay;        /* ms that the first of them waits; 0: 5000 */
    int64_t bsp_max_export_batch_size; /* spans of one request; 0: 512 */
} proa_telemetry_options;

typedef struct proa_telemetry_counts {
    uint64_t exported, dropped; /* spans that were written or sent; that were lost */
    uint64_t failed_exports;    /* requests to the collector that failed for good */
} proa_telemetry_counts;

typedef struct proa_telemetry proa_telemetry;

/* Options are copied. Starts the thread. UNSUPPORTED if OpenTelemetry needs libcurl and there is none. */
PROA_MUST_CHECK proa_status proa_telemetry_open(proa_telemetry **out, const proa_telemetry_options *options,
                                                proa_err *err);
/* A trace has begun: proa_telemetry_push must follow, which may be after proa_telemetry_close. */
void proa_telemetry_expect(proa_telemetry *t);
void proa_telemetry_push(proa_telemetry *t, proa_trace *trace);
/* What options and environment came to: the members of OPENTELEMETRY, without the resource. Texts are t's. */
void proa_telemetry_settings(const proa_telemetry *t, proa_telemetry_options *out);
void proa_telemetry_count(proa_telemetry *t, proa_telemetry_counts *out);
/* Writes what waits, and the end of the file; a collector gets PROA_OTLP_CLOSE_MS for it. NULL is fine. */
void proa_telemetry_close(proa_telemetry *t);

#endif
