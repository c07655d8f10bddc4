/* SPDX-License-Identifier: Apache-2.0
 * log.h - lines of a log: to standard error or a file, in Triton's form, ISO 8601, or JSON.
 * Owner:   one log for the process.
 * Threads: any; a line is one write, so lines never mix.
 * Way in:  PROA_LOG(INFO, "loading '%s'", name). */
#ifndef PROA_BASE_LOG_H
#define PROA_BASE_LOG_H

#include "base/status.h"
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

/* Until the first set: errors, warnings and info to standard error. Opens the file; on failure nothing changes. */
proa_status proa_log_set(const proa_log_settings *settings, proa_err *err);
void proa_log_get(proa_log_settings *settings);
bool proa_log_on(int level);
/* Control characters of text are escaped: outside names cannot forge a line. */
void proa_log_line(int level, const char *file, int line, const char *fmt, ...) PROA_PRINTF(4, 5);
/* The name after the last slash of __FILE__. */
#define PROA_LOG(level, ...)                                                                                 \
    do {                                                                                                     \
        if (proa_log_on(PROA_LOG_##level)) proa_log_line(PROA_LOG_##level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#endif
