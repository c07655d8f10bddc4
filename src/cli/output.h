/* SPDX-License-Identifier: Apache-2.0
 * output.h - what a command writes: standard output or a file, with every failed write seen; JSON and tables.
 * Owner:   the caller, until proa_output_close. After a failed write the rest is dropped and close says why.
 * Threads: one at a time.
 * Way in:  proa_output_open, the writers, proa_output_close. */
#ifndef PROA_CLI_OUTPUT_H
#define PROA_CLI_OUTPUT_H

#include "base/status.h"
#include "base/str.h"

typedef struct proa_output {
    int fd;
    const char *name; /* for errors */
    proa_buf buf;     /* not yet written */
    int error;        /* errno of the first failed write; 0: none */
    bool terminal;    /* it is one */
} proa_output;

/* path NULL or "-": standard output; else the file is made or emptied. */
PROA_MUST_CHECK proa_status proa_output_open(proa_output *out, const char *path, proa_err *err);
/* Whether proa_output_open would succeed, with its error if not; creates and changes nothing. */
PROA_MUST_CHECK proa_status proa_output_check(const char *path, proa_err *err);
/* Writes the rest and closes. IO if this or an earlier write failed. */
PROA_MUST_CHECK proa_status proa_output_close(proa_output *out, proa_err *err);
/* Writes everything now, for text that a reader waits for. False if a write has failed. */
bool proa_output_flush(proa_output *out);

void proa_output_str(proa_output *out, const char *text);
void proa_output_bytes(proa_output *out, const void *bytes, size_t len);
void proa_output_printf(proa_output *out, const char *fmt, ...) PROA_PRINTF(2, 3);
/* A text of a model or a server. Control characters could change a terminal's state, so there they are visible. */
void proa_output_text(proa_output *out, proa_str text);
/* On one line: newline, carriage return and backslash become \n, \r and \\. */
void proa_output_escaped(proa_output *out, proa_str text);

/* JSON. Floats are written with nine digits, which give the same float back; NaN and infinities become null. */
void proa_output_json_str(proa_output *out, proa_str text);
void proa_output_json_num(proa_output *out, double value);
void proa_output_json_ids(proa_output *out, const int32_t *ids, int64_t count);
void proa_output_json_row(proa_output *out, const float *row, int64_t count);
void proa_output_json_rows(proa_output *out, const float *rows, int64_t rows_count, int64_t columns);

/* Sizes and rates in readable form: "28.1 MB" and "12.3 GB/s" are made with "%s" of this. Written to
 * text[16]. */
const char *proa_output_bytes_text(char text[16], double bytes);

#endif
