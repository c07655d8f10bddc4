/* SPDX-License-Identifier: Apache-2.0
 * lines.h - text files line by line or whole; files that end in .gz (or are gzip inside) are unpacked as they are read.
 * Owner:   the caller; a line is valid until the next call.
 * Threads: one at a time.
 * Way in:  proa_lines_open and proa_lines_next, or proa_text_read. */
#ifndef PROA_CLI_LINES_H
#define PROA_CLI_LINES_H

#include "base/status.h"
#include "base/str.h"

typedef struct proa_lines {
    void *gz;
    const char *path;   /* for errors */
    int64_t number;     /* of the line last given, from 1 */
    int64_t file_bytes; /* packed; 0: unknown (a pipe) */
    char *chunk;
    size_t at, end;
    proa_buf line;
} proa_lines;

/* path "-": standard input. */
PROA_MUST_CHECK proa_status proa_lines_open(proa_lines *lines, const char *path, proa_err *err);
/* The next line without its end (\n or \r\n). *more is false at the end of the file. LIMIT if a line is longer than
 * PROA_LINE_BYTES_MAX, CORRUPT if the gzip data is. */
PROA_MUST_CHECK proa_status proa_lines_next(proa_lines *lines, proa_str *line, bool *more, proa_err *err);
/* Part of the file that has been read, or -1 if its length is unknown. */
double proa_lines_part(const proa_lines *lines);
void proa_lines_close(proa_lines *lines);

/* A whole file of at most bytes_max unpacked bytes; buf is initialised here, release it also on failure. */
PROA_MUST_CHECK proa_status proa_text_read(proa_buf *buf, const char *path, int64_t bytes_max, proa_err *err);

/* A whole file as lines. Owner: the caller, proa_line_list_release. */
typedef struct proa_line_list {
    proa_buf text;
    proa_str *line;
    int64_t count;
} proa_line_list;
PROA_MUST_CHECK proa_status proa_line_list_read(proa_line_list *list, const char *path, proa_err *err);
void proa_line_list_release(proa_line_list *list);

#endif
