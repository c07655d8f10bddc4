/* SPDX-License-Identifier: Apache-2.0
 * output.c - buffered output of a command, with JSON and sizes for people. */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH_BYTES = 64 * 1024 };

proa_status proa_output_open(proa_output *out, const char *path, proa_err *err)
{
    bool standard = !path || strcmp(path, "-") == 0;
    *out = (proa_output){.fd = STDOUT_FILENO, .name = standard ? "standard output" : path};
    proa_buf_init(&out->buf, (size_t)1 << 30);
    out->terminal = standard && isatty(STDOUT_FILENO);
    if (standard) return PROA_OK;
    out->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd >= 0) return PROA_OK;
    return PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
}

proa_status proa_output_check(const char *path, proa_err *err)
{
    if (!path || strcmp(path, "-") == 0) return PROA_OK;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    bool made = fd < 0 && errno == ENOENT;
    if (made) fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != ENXIO) return PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
    if (fd >= 0) close(fd); /* ENXIO: a pipe without a reader */
    if (fd >= 0 && made) unlink(path);
    return PROA_OK;
}

bool proa_output_flush(proa_output *out)
{
    size_t at = 0;
    while (!out->error && at < out->buf.len) {
        ssize_t n = write(out->fd, out->buf.ptr + at, out->buf.len - at);
        if (n > 0) at += (size_t)n;
        else if (n < 0 && errno != EINTR) out->error = errno;
    }
    proa_buf_clear(&out->buf);
    return !out->error;
}

/* Some file systems report a full disk only on close. Standard output is closed too, since nothing is written after it,
 * but its number stays taken: a connection that got it would receive what a library prints. */
static int close_file(int fd)
{
    int null = fd == STDOUT_FILENO ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    int file = null >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : fd;
    if (null >= 0 && file >= 0) dup2(null, fd);
    if (null >= 0) close(null);
    return close(file >= 0 ? file : fd);
}

proa_status proa_output_close(proa_output *out, proa_err *err)
{
    if (out->buf.full && !out->error) out->error = EOVERFLOW;
    proa_output_flush(out);
    proa_buf_release(&out->buf);
    if (out->fd >= 0 && close_file(out->fd) != 0 && !out->error) out->error = errno;
    out->fd = -1;
    if (!out->error) return PROA_OK;
    return PROA_FAIL(err, IO, "cannot write to %s: %s", out->name, strerror(out->error));
}

static void maybe_flush(proa_output *out)
{
    if (out->buf.len >= FLUSH_BYTES) proa_output_flush(out);
}

void proa_output_bytes(proa_output *out, const void *bytes, size_t len)
{
    proa_buf_append(&out->buf, bytes, len);
    maybe_flush(out);
}

void proa_output_str(proa_output *out, const char *text)
{
    proa_output_bytes(out, text, strlen(text));
}

void proa_output_printf(proa_output *out, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    PROA_ASSERT(n >= 0 && (size_t)n < sizeof text); /* long texts go through proa_output_str */
    proa_output_bytes(out, text, (size_t)n);
}

/* Control characters, except newline and tab: those of ASCII as the signs that Unicode has for them, those of C1 as
 * U+FFFD. */
static void append_visible(proa_buf *out, proa_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        unsigned char next = i + 1 < text.len ? (unsigned char)text.ptr[i + 1] : 0;
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0;
        if (c < ' ' && c != '\n' && c != '\t')
            proa_buf_append(out, (const char[]){'\xe2', '\x90', (char)(0x80 + c)}, 3);
        else if (c == 0x7f) proa_buf_append(out, "\xe2\x90\xa1", 3);
        else if (c1) proa_buf_append(out, "\xef\xbf\xbd", 3), i++;
        else proa_buf_char(out, (char)c);
    }
}

void proa_output_text(proa_output *out, proa_str text)
{
    if (!out->terminal) proa_output_bytes(out, text.ptr, text.len);
    else append_visible(&out->buf, text), maybe_flush(out);
}

void proa_output_escaped(proa_output *out, proa_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '\n') proa_buf_append(&out->buf, "\\n", 2);
        else if (c == '\r') proa_buf_append(&out->buf, "\\r", 2);
        else if (c == '\\') proa_buf_append(&out->buf, "\\\\", 2);
        else proa_buf_char(&out->buf, c);
    }
    maybe_flush(out);
}

void proa_output_json_str(proa_output *out, proa_str text)
{
    proa_buf_json_str(&out->buf, text);
    maybe_flush(out);
}

void proa_output_json_num(proa_output *out, double value)
{
    if (isfinite(value)) proa_buf_printf(&out->buf, "%.9g", value);
    else proa_buf_append(&out->buf, "null", 4);
    maybe_flush(out);
}

void proa_output_json_ids(proa_output *out, const int32_t *ids, int64_t count)
{
    proa_output_str(out, "[");
    for (int64_t i = 0; i < count; i++) proa_output_printf(out, i ? ",%d" : "%d", ids[i]);
    proa_output_str(out, "]");
}

void proa_output_json_row(proa_output *out, const float *row, int64_t count)
{
    proa_output_str(out, "[");
    for (int64_t i = 0; i < count; i++) {
        if (i) proa_output_str(out, ",");
        proa_output_json_num(out, (double)row[i]);
    }
    proa_output_str(out, "]");
}

void proa_output_json_rows(proa_output *out, const float *rows, int64_t rows_count, int64_t columns)
{
    proa_output_str(out, "[");
    for (int64_t i = 0; i < rows_count; i++) {
        if (i) proa_output_str(out, ",");
        proa_output_json_row(out, rows + i * columns, columns);
    }
    proa_output_str(out, "]");
}

const char *proa_output_bytes_text(char text[16], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    while (bytes >= 999.5 && u < 4) bytes /= 1000, u++;
    snprintf(text, 16,
             bytes < 9.995 && u   ? "%.2f %s"
             : bytes < 99.95 && u ? "%.1f %s"
                                  : "%.0f %s",
             bytes, units[u]);
    return text;
}
