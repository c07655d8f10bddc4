/* SPDX-License-Identifier: Apache-2.0
 * log.h - lines of a log: to standard error or a file, in Triton's form, ISO 8601, or JSON.
 * Owner:   one log for the process.
 * Threads: any; lines never mix.
 * Way in:  PROA_LOG(INFO, "loading '%s'", name). */
#ifndef PROA_BASE_LOG_H
#define PROA_BASE_LOG_H

#include "base/status.h"
#include "base/str.h"
#include <stdbool.h>

typedef enum proa_log_level {
    PROA_LOG_ERROR,
    PROA_LOG_WARNING,
    PROA_LOG_INFO,
    PROA_LOG_VERBOSE /* level 1; n + 1 is level n */
} proa_log_level;

typedef enum proa_log_format {
    PROA_LOG_DEFAULT, /* I1121 19:05:40.123456 4711 file.c:12] "text" */
    PROA_LOG_ISO8601, /* 2026-11-21T19:05:40Z I 4711 file.c:12] "text" */
    PROA_LOG_JSON /* {"time":"2026-11-21T19:05:40.123456Z","level":"info","at":"file.c:12","text":"..."} */
} proa_log_format;

typedef struct proa_log_settings {
    bool error, warning, info; /* which levels are written */
    int verbose;               /* verbose lines up to this level; 0: none */
    proa_log_format format;
    char file[4096]; /* "": standard error; else appended to */
} proa_log_settings;

/* Pipes, terminals and sockets are written by a thread from now on, so that a thread that logs does not wait for the
 * reader of the log. Lines beyond PROA_LOG_QUEUED_MAX are lost, and a line says later how many. For servers:
 * elsewhere a line is written when proa_log_line returns. */
void proa_log_in_background(void);
/* Waits for that thread, at most PROA_LOG_FLUSH_MS: before the program ends. */
void proa_log_flush(void);

/* Until the first set: errors, warnings and info to standard error. Opens the file; on failure nothing changes. */
proa_status proa_log_set(const proa_log_settings *settings, proa_err *err);
void proa_log_get(proa_log_settings *settings);
bool proa_log_on(int level);
/* Control characters of the text are escaped, line ends as \n: outside names cannot forge a line. A line that cannot
 * be written (a full disk, a limit of file size) is lost, and the next one that can says how many were. */
void proa_log_line(int level, const char *file, int line, const char *fmt, ...) PROA_PRINTF(4, 5);
/* Text of our own in several rows, as a table: line ends stay as they are, except in JSON. */
void proa_log_rows(int level, const char *file, int line, const char *text);
/* Appends text to out as a line of the log shows it: for what comes from outside into the rows of a table. */
void proa_log_escape(proa_buf *out, const char *text);
/* From now on lines of enabled levels are given to `to`, on the thread that logs, and not written; NULL: written again.
 * For a process whose log is that of another one. text: not escaped. */
typedef void proa_log_writer(int level, const char *file, int line, const char *text);
void proa_log_redirect(proa_log_writer *to);
/* The name after the last slash of __FILE__. */
#define PROA_LOG(level, ...)                                                                                 \
    do {                                                                                                     \
        if (proa_log_on(PROA_LOG_##level)) proa_log_line(PROA_LOG_##level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#endif
