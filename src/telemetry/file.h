/* SPDX-License-Identifier: Apache-2.0
 * file.h - traces as Triton writes them: [{"id":1,"model_name":"m",...},{"id":1,"timestamps":[{"name":"QUEUE_START",
 *          "ns":5}]},...]. An entry names the model of a span, and a further one each of its times and tensors.
 * Owner:   the caller of init and release.
 * Threads: one at a time. */
#ifndef PROA_TELEMETRY_FILE_H
#define PROA_TELEMETRY_FILE_H

#include "serve/trace.h"

typedef struct proa_trace_file {
    char *path;          /* "": none */
    int64_t held, files; /* traces in `pending`; PATH.N written */
    bool opened, failed; /* PATH has its "["; it cannot be written, which was logged */
    proa_buf pending;
} proa_trace_file;

void proa_trace_file_init(proa_trace_file *f, const char *path);
/* Adds a trace. With trace->frequency > 0 that many go to one file, PATH.0, PATH.1, ...; so does the rest when
 * the setting's count is used up. False: it does not fit into the file, and is lost. */
bool proa_trace_file_add(proa_trace_file *f, const proa_trace *trace);
void proa_trace_file_release(proa_trace_file *f); /* writes what is pending and the end of PATH */

#endif
