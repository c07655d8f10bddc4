/* SPDX-License-Identifier: Apache-2.0
 * lines.c - reads text files line by line or whole, through zlib. */
#include "cli/lines.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK_BYTES = 64 * 1024 };
static const int64_t TEXT_FILE_BYTES_MAX = 1 * PROA_GIB; /* test sets and corpora are held in memory */

proa_status proa_lines_open(proa_lines *l, const char *path, proa_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    *l = (proa_lines){.path = standard ? "standard input" : path};
    proa_buf_init(&l->line, (size_t)PROA_LINE_BYTES_MAX);
    int fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return PROA_FAIL(err, NOT_FOUND, "cannot open '%s': %s", l->path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return PROA_FAIL(err, INVALID, "cannot read '%s': it is a folder", path);
    }
    if (S_ISREG(st.st_mode)) l->file_bytes = st.st_size;
    l->gz = gzdopen(fd, "rb");
    PROA_ASSERT(l->gz); /* fails only without memory */
    l->chunk = proa_malloc(CHUNK_BYTES);
    return PROA_OK;
}

void proa_lines_close(proa_lines *l)
{
    if (l->gz) gzclose_r(l->gz);
    free(l->chunk);
    proa_buf_release(&l->line);
    l->gz = NULL;
    l->chunk = NULL;
}

/* *more is false at the end of the file. */
static proa_status fill_lines(proa_lines *l, bool *more, proa_err *err)
{
    int n = gzread(l->gz, l->chunk, CHUNK_BYTES);
    int code = Z_OK;
    const char *why = gzerror(l->gz, &code);
    /* a truncated gzip file reads to its end and then reports Z_BUF_ERROR */
    if (n < 0 || (n == 0 && code == Z_BUF_ERROR)) {
        if (code == Z_ERRNO) return PROA_FAIL(err, IO, "cannot read '%s': %s", l->path, strerror(errno));
        return PROA_FAIL(err, CORRUPT, "cannot unpack '%s': %s", l->path, why);
    }
    l->at = 0;
    l->end = (size_t)n;
    *more = n > 0;
    return PROA_OK;
}

proa_status proa_lines_next(proa_lines *l, proa_str *line, bool *more, proa_err *err)
{
    proa_buf_clear(&l->line);
    bool started = false;
    for (;;) {
        if (l->at == l->end) {
            bool filled = false;
            PROA_TRY(fill_lines(l, &filled, err));
            if (!filled) break;
        }
        started = true;
        const char *from = l->chunk + l->at;
        const char *stop = memchr(from, '\n', l->end - l->at);
        size_t len = stop ? (size_t)(stop - from) : l->end - l->at;
        if (!proa_buf_append(&l->line, from, len))
            return PROA_FAIL(err, LIMIT, "%s:%lld: the line is longer than %lld bytes", l->path,
                             (long long)l->number + 1, (long long)PROA_LINE_BYTES_MAX);
        l->at += len + (stop != NULL);
        if (stop) break;
    }
    *more = started;
    l->number += started;
    if (l->line.len && l->line.ptr[l->line.len - 1] == '\r') l->line.ptr[--l->line.len] = '\0';
    *line = proa_buf_view(&l->line);
    return PROA_OK;
}

double proa_lines_part(const proa_lines *l)
{
    if (l->file_bytes <= 0) return -1;
    /* gzoffset counts the bytes that zlib has fetched; subtract an estimate of what is not used yet */
    double fetched = (double)gzoffset(l->gz) - (gzdirect(l->gz) ? (double)(l->end - l->at) : 0);
    return fetched / (double)l->file_bytes;
}

static proa_status read_all(proa_lines *l, proa_buf *buf, int64_t bytes_max, proa_err *err)
{
    for (;;) {
        bool more = false;
        PROA_TRY(fill_lines(l, &more, err));
        if (!more) return PROA_OK;
        if (!proa_buf_append(buf, l->chunk, l->end))
            return PROA_FAIL(err, LIMIT, "'%s' holds more than %lld bytes", l->path, (long long)bytes_max);
    }
}

proa_status proa_text_read(proa_buf *buf, const char *path, int64_t bytes_max, proa_err *err)
{
    proa_lines l;
    proa_buf_init(buf, (size_t)bytes_max);
    proa_status status = proa_lines_open(&l, path, err);
    if (status == PROA_OK) status = read_all(&l, buf, bytes_max, err);
    proa_lines_close(&l);
    return status;
}

proa_status proa_line_list_read(proa_line_list *list, const char *path, proa_err *err)
{
    *list = (proa_line_list){.line = NULL};
    PROA_TRY(proa_text_read(&list->text, path, TEXT_FILE_BYTES_MAX, err));
    proa_str all = proa_buf_view(&list->text);
    int64_t cap = 0;
    for (size_t at = 0; at < all.len;) {
        const char *from = all.ptr + at, *stop = memchr(from, '\n', all.len - at);
        size_t len = stop ? (size_t)(stop - from) : all.len - at;
        if (list->count == cap)
            list->line = proa_realloc(list->line, (size_t)(cap = cap ? 2 * cap : 256) * sizeof *list->line);
        bool cr = len && from[len - 1] == '\r';
        list->line[list->count++] = (proa_str){from, len - cr};
        at += len + (stop != NULL);
    }
    return PROA_OK;
}

void proa_line_list_release(proa_line_list *list)
{
    proa_buf_release(&list->text);
    free(list->line);
    *list = (proa_line_list){.line = NULL};
}
