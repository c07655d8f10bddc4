/* SPDX-License-Identifier: Apache-2.0
 * trace.h - inside api: what settings.c sets and trace.c does: a sample of the requests, with their times and tensors,
 * in a file, in Triton's form:
 * [{"id":1,"model_name":"m",...},{"id":1,"timestamps":[{"name":"QUEUE_START","ns":5},...]},...].
 * Owner:   proa_settings holds the settings and a proa_tracer; the tracer holds the file.
 * Threads: any; settings and the file under the lock of proa_settings.
 * Way in:  sink.c calls proa_trace_on at each final reply, which costs one load while nothing is traced. */
#ifndef PROA_API_TRACE_H
#define PROA_API_TRACE_H

#include "api/internal.h"

typedef struct proa_tracer {
    char *file;
    int64_t last_id, in_file, files; /* ids given; traces in `pending`; FILE.N written */
    bool opened, failed;             /* FILE has its "["; it cannot be written, which was logged */
    proa_buf pending;
} proa_tracer;

void proa_tracer_init(proa_tracer *t, const char *file);
void proa_tracer_release(proa_tracer *t); /* writes what is pending and the end of FILE */
/* One trace; with frequency > 0 so many go to a file of their own, FILE.0, FILE.1, ... */
void proa_tracer_write(proa_tracer *t, const proa_infer *r, const proa_reply *reply, unsigned level,
                       int64_t frequency);

bool proa_trace_on(void);
/* settings.c: a request has its last reply (which may be NULL); it is traced if its turn has come. */
void proa_trace_note(const proa_infer *r, const proa_reply *reply);

#endif
