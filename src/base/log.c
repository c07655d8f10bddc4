/* SPDX-License-Identifier: Apache-2.0
 * log.c - formats log lines and filters them by level. */
#include "base/log.h"

#include "base/limits.h"
#include "base/log_writer.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, LINE_MAX_BYTES = 2 * TEXT_MAX };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the settings and the file */
static proa_log_settings now = {.error = true, .warning = true, .info = true};
static int now_fd = STDERR_FILENO;
static bool background; /* writes that may block are done by the thread of log_writer.c */
static bool may_block;  /* now_fd is no regular file; known once background is set */
static uint64_t lost;   /* lines that could not be written */
static bool torn;       /* the last of them was written in part */
/* The levels as one number for proa_log_on: bits 0 to 2 are the levels, the bits above are verbose. */
static atomic_uint now_levels = 7;

static _Atomic(proa_log_writer *) writer; /* NULL: lines are written here */

static unsigned levels_of(const proa_log_settings *s)
{
    unsigned verbose = s->verbose > 0 ? (unsigned)s->verbose : 0;
    return (unsigned)s->error << PROA_LOG_ERROR | (unsigned)s->warning << PROA_LOG_WARNING |
           (unsigned)s->info << PROA_LOG_INFO | verbose << 3;
}

static bool fd_blocks(int fd)
{
    struct stat st;
    return fstat(fd, &st) != 0 || !S_ISREG(st.st_mode);
}

void proa_log_in_background(void)
{
    pthread_mutex_lock(&lock);
    background = true;
    may_block = fd_blocks(now_fd);
    pthread_mutex_unlock(&lock);
}

void proa_log_flush(void)
{
    proa_log_writer_flush(PROA_LOG_FLUSH_MS);
}

bool proa_log_on(int level)
{
    unsigned levels = atomic_load_explicit(&now_levels, memory_order_relaxed);
    if (level <= PROA_LOG_INFO) return levels >> level & 1;
    return (unsigned)(level - PROA_LOG_INFO) <= levels >> 3;
}

proa_status proa_log_set(const proa_log_settings *settings, proa_err *err)
{
    int fd = STDERR_FILENO;
    if (settings->file[0]) fd = open(settings->file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return PROA_FAIL(err, IO, "cannot open '%s': %s", settings->file, strerror(errno));
    pthread_mutex_lock(&lock);
    int old = now_fd;
    bool waits = may_block;
    now = *settings, now_fd = fd, may_block = background && fd_blocks(fd);
    atomic_store(&now_levels, levels_of(settings));
    pthread_mutex_unlock(&lock);
    if (old != STDERR_FILENO && waits) proa_log_writer_close(old);
    else if (old != STDERR_FILENO) close(old);
    return PROA_OK;
}

void proa_log_get(proa_log_settings *settings)
{
    pthread_mutex_lock(&lock);
    *settings = now;
    pthread_mutex_unlock(&lock);
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static void put_escaped(proa_buf *out, const char *text, bool rows)
{
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '\n') proa_buf_append(out, rows ? "\n" : "\\n", rows ? 1 : 2);
        else if (byte == '"') proa_buf_append(out, "\\\"", 2);
        else if (byte < 0x20 || byte == 0x7f) proa_buf_printf(out, "\\x%02x", byte);
        else proa_buf_char(out, *c);
    }
}

void proa_log_escape(proa_buf *out, const char *text)
{
    put_escaped(out, text, false);
}

static void put_head(proa_buf *out, proa_log_format format, char letter, const char *file, int line)
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    int us = (int)(t.tv_nsec / 1000);
    char stamp[64];
    strftime(stamp, sizeof stamp, format == PROA_LOG_DEFAULT ? "%m%d %H:%M:%S" : "%Y-%m-%dT%H:%M:%S", &tm);
    if (format == PROA_LOG_DEFAULT)
        proa_buf_printf(out, "%c%s.%06d %d %s:%d] ", letter, stamp, us, (int)getpid(), file, line);
    else if (format == PROA_LOG_ISO8601)
        proa_buf_printf(out, "%sZ %c %d %s:%d] ", stamp, letter, (int)getpid(), file, line);
    else proa_buf_printf(out, "{\"time\":\"%s.%06dZ\",", stamp, us);
}

static void print_line(proa_buf *out, proa_log_format format, int level, const char *file, int line,
                       const char *text, bool rows)
{
    static const char letters[] = "EWI";
    static const char *const names[] = {"error", "warning", "info", "verbose"};
    int kind = level > PROA_LOG_VERBOSE ? PROA_LOG_VERBOSE : level;
    put_head(out, format, kind == PROA_LOG_VERBOSE ? 'I' : letters[kind], base_name(file), line);
    if (format == PROA_LOG_JSON) {
        proa_buf_printf(out, "\"level\":\"%s\",\"at\":\"%s:%d\",\"text\":", names[kind], base_name(file), line);
        proa_buf_json_str(out, proa_str_c(text));
        proa_buf_char(out, '}');
    } else {
        proa_buf_char(out, '"');
        put_escaped(out, text, rows);
        proa_buf_char(out, '"');
    }
    proa_buf_char(out, '\n');
}

/* Writes to a regular file; ends a partial line before the next one. The lock is held. */
static bool write_direct(const proa_buf *out)
{
    if (torn && write(now_fd, "\n", 1) == 1) torn = false;
    if (torn) return false;
    ssize_t n = write(now_fd, out->ptr, out->len);
    torn = n > 0 && (size_t)n < out->len;
    return n >= 0 && (size_t)n == out->len;
}

/* A log that cannot be written must not stop the service. Lock held. */
static bool write_line(const proa_buf *out)
{
    return may_block ? proa_log_writer_put(now_fd, out->ptr, out->len) : write_direct(out);
}

static void say_lost(void)
{
    char text[96];
    proa_buf out;
    proa_buf_init(&out, LINE_MAX_BYTES);
    snprintf(text, sizeof text, "%llu lines of this log could not be written and are lost",
             (unsigned long long)lost);
    print_line(&out, now.format, PROA_LOG_WARNING, __FILE__, __LINE__, text, false);
    if (write_line(&out)) lost = 0;
    proa_buf_release(&out);
}

void proa_log_redirect(proa_log_writer *to)
{
    atomic_store(&writer, to);
}

static void log_text(int level, const char *file, int line, const char *text, bool rows)
{
    proa_buf out;
    proa_log_writer *other = atomic_load(&writer);
    if (other) {
        other(level, base_name(file), line, text);
        return;
    }
    proa_buf_init(&out, (size_t)4 * LINE_MAX_BYTES);
    pthread_mutex_lock(&lock);
    print_line(&out, now.format, level, file, line, text, rows);
    if (lost) say_lost();
    if (lost || !write_line(&out)) lost++;
    pthread_mutex_unlock(&lock);
    proa_buf_release(&out);
}

void proa_log_line(int level, const char *file, int line, const char *fmt, ...)
{
    if (!proa_log_on(level)) return;
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    log_text(level, file, line, text, false);
}

void proa_log_rows(int level, const char *file, int line, const char *text)
{
    if (proa_log_on(level)) log_text(level, file, line, text, true);
}
