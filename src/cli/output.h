/* SPDX-License-Identifier: Apache-2.0
 * output.h - what a command writes: standard output or a file, with every failed write seen; JSON and tables.
 * Owner:   the caller, until proa_out_close. After a failed write the rest is dropped and close says why.
 * Threads: one at a time.
 * Way in:  proa_out_open, the writers, proa_out_close. */
#ifndef PROA_CLI_OUTPUT_H
#define PROA_CLI_OUTPUT_H

#include "base/status.h"
#include "base/str.h"

typedef struct proa_out {
    int fd;
    const char *name; /* for errors */
    proa_buf buf;     /* not yet written */
    int error;        /* errno of the first failed write; 0: none */
} proa_out;

/* path NULL or "-": standard output; else the file is made or emptied. */
PROA_MUST_CHECK proa_status proa_out_open(proa_out *out, const char *path, proa_err *err);
/* Whether proa_out_open would succeed, with its error where not; makes, empties and leaves nothing. */
PROA_MUST_CHECK proa_status proa_out_check(const char *path, proa_err *err);
/* Writes what is left. IO if that or any write before failed. */
PROA_MUST_CHECK proa_status proa_out_close(proa_out *out, proa_err *err);
/* Hands all to the system now: for text that a reader waits for. False if a write has failed. */
bool proa_out_flush(proa_out *out);

void proa_out_str(proa_out *out, const char *text);
void proa_out_bytes(proa_out *out, const void *bytes, size_t len);
void proa_out_printf(proa_out *out, const char *fmt, ...) PROA_PRINTF(2, 3);
/* On one line: newline, carriage return and backslash become \n, \r and \\. */
void proa_out_escaped(proa_out *out, proa_str text);

/* JSON. Floats are written with nine digits, which give the same float back; NaN and infinities become null. */
void proa_out_json_str(proa_out *out, proa_str text);
void proa_out_json_num(proa_out *out, double value);
void proa_out_json_ids(proa_out *out, const int32_t *ids, int64_t count);
void proa_out_json_row(proa_out *out, const float *row, int64_t count);
void proa_out_json_rows(proa_out *out, const float *rows, int64_t rows_count, int64_t columns);

/* Bytes and rates for people: "28.1 MB", "12.3 GB/s" are "%s" of this. Written to text[16]. */
const char *proa_out_bytes_text(char text[16], double bytes);

#endif
