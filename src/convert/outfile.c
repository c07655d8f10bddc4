/* SPDX-License-Identifier: Apache-2.0
 * outfile.c - writes a file in chunks, in order, and keeps a journal of how far it is. */
#include "convert/outfile.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10 }; /* that one thread makes at a time */

/* NAME.journal. It is written whole, in one call. */
typedef struct journal {
    char magic[8];
    uint64_t key;
    int64_t bytes, written; /* size of the whole file; how much of it is on the disk */
    uint64_t check;         /* hash of the members before */
} journal;
static const char journal_magic[8] = "proajrn1";

/* A part of an item in the chunk. */
typedef struct piece {
    int64_t item, from, bytes;
    char *to;
} piece;

typedef struct writer {
    const proa_outfile *f;
    const proa_convert_job *job;
    proa_convert_progress *progress;
    char partial[PROA_PATH_MAX], journal[PROA_PATH_MAX];
    uint64_t key;
    int fd, journal_fd;
    int64_t written, synced; /* bytes of the file */
    int64_t item;            /* the first that is not whole */
    char *chunk;
    int64_t chunk_bytes, filled;
    piece *piece;
    int64_t pieces, piece_cap;
    proa_err *err;
} writer;

static proa_status fail_io(const writer *w, const char *what, const char *path)
{
    return PROA_FAIL(w->err, IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* ---- the journal ---- */

static uint64_t check_of(const journal *j)
{
    return proa_str_hash((proa_str){(const char *)j, offsetof(journal, check)});
}

static proa_status write_journal(const writer *w)
{
    journal j = {.key = w->key, .bytes = w->f->bytes, .written = w->synced};
    memcpy(j.magic, journal_magic, sizeof j.magic);
    j.check = check_of(&j);
    if (pwrite(w->journal_fd, &j, sizeof j, 0) == (ssize_t)sizeof j) return PROA_OK;
    return fail_io(w, "write", w->journal);
}

/* What is written is on the disk before the journal says so. */
static proa_status sync_written(writer *w)
{
    if (w->synced == w->written) return PROA_OK;
    if (fdatasync(w->fd) != 0) return fail_io(w, "write", w->partial);
    w->synced = w->written;
    return write_journal(w);
}

/* How much of NAME.partial can be kept. */
static proa_status read_journal(writer *w)
{
    journal j;
    ssize_t n = pread(w->journal_fd, &j, sizeof j, 0);
    off_t size = lseek(w->fd, 0, SEEK_END);
    if (n < 0 || size < 0) return fail_io(w, "read", w->journal);
    bool whole = n == (ssize_t)sizeof j && memcmp(j.magic, journal_magic, sizeof j.magic) == 0 &&
                 j.check == check_of(&j);
    bool same = whole && j.key == w->key && j.bytes == w->f->bytes;
    if (n > 0 && !same && !w->job->overwrite)
        return PROA_FAIL(w->err, EXISTS,
                         "'%s' was begun from another source or with other options: "
                         "remove it, or use --overwrite",
                         w->partial);
    if (same && j.written >= 0 && j.written <= size && j.written <= j.bytes) w->written = j.written;
    return PROA_OK;
}

static proa_status check_progress(const writer *w)
{
    const proa_convert_progress *p = w->progress;
    if (!w->job->progress || w->job->progress(w->job->context, p->done, p->total)) return PROA_OK;
    return PROA_FAIL(w->err, CANCELLED, "interrupted after %.2f of %.2f GB; the same command continues",
                     (double)p->done * 1e-9, (double)p->total * 1e-9);
}

/* One process writes the file. A killed process keeps its lock until the kernel has finished its last write, so the
 * lock is waited for. If the other process finished the file meanwhile, it has removed the journal locked here. */
static proa_status lock_journal(const writer *w)
{
    const int64_t end_ns = proa_clock_ns() + (int64_t)PROA_OUTFILE_LOCK_MS * 1000000;
    struct stat st;
    while (flock(w->journal_fd, LOCK_EX | LOCK_NB) != 0) {
        if (proa_clock_ns() > end_ns)
            return PROA_FAIL(w->err, IO, "another process is writing '%s'", w->partial);
        PROA_TRY(check_progress(w));
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    if (fstat(w->journal_fd, &st) != 0) return fail_io(w, "read", w->journal);
    if (st.st_nlink == 0)
        return PROA_FAIL(w->err, EXISTS, "another process has written '%s' meanwhile", w->f->path);
    return PROA_OK;
}

static proa_status open_files(writer *w)
{
    const char *path = w->f->path;
    int a = snprintf(w->partial, sizeof w->partial, "%s.partial", path);
    int b = snprintf(w->journal, sizeof w->journal, "%s.journal", path);
    if (a >= PROA_PATH_MAX || b >= PROA_PATH_MAX)
        return PROA_FAIL(w->err, INVALID, "path too long: '%.200s...'", path);
    w->journal_fd = open(w->journal, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->journal_fd < 0) return fail_io(w, "write", w->journal);
    PROA_TRY(lock_journal(w));
    w->fd = open(w->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->fd < 0) return fail_io(w, "write", w->partial);
    PROA_TRY(read_journal(w));
    if (ftruncate(w->fd, w->written) != 0) return fail_io(w, "write", w->partial);
    w->synced = w->written;
    return write_journal(w);
}

/* A disk that is full at the end of an hour is found now. */
static proa_status check_space(const writer *w)
{
    struct statvfs fs;
    int64_t needed = w->f->bytes - w->written;
    if (fstatvfs(w->fd, &fs) != 0 || fs.f_blocks == 0) return PROA_OK;
    double left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left >= (double)needed) return PROA_OK;
    return PROA_FAIL(w->err, IO, "cannot write '%s': it needs %.2f GB, the disk has %.2f GB left", w->f->path,
                     (double)needed * 1e-9, left * 1e-9);
}

/* ---- chunks ---- */

static void add_piece(writer *w, int64_t from, int64_t bytes)
{
    if (w->pieces == w->piece_cap) {
        w->piece_cap = w->piece_cap ? 2 * w->piece_cap : 256;
        w->piece = proa_realloc(w->piece, (size_t)w->piece_cap * sizeof *w->piece);
    }
    w->piece[w->pieces++] = (piece){w->item, from, bytes, w->chunk + w->filled};
    w->filled += bytes;
}

/* Adds zeros, or the header's bytes, up to an offset in the file; false: the chunk is full. */
static bool fill_gap(writer *w, int64_t to)
{
    int64_t at = w->written + w->filled, n = proa_min64(to - at, w->chunk_bytes - w->filled);
    int64_t head = proa_min64(proa_max64((int64_t)w->f->header.len - at, 0), n);
    if (n <= 0) return at >= to;
    if (head > 0) memcpy(w->chunk + w->filled, w->f->header.ptr + at, (size_t)head);
    memset(w->chunk + w->filled + head, 0, (size_t)(n - head));
    w->filled += n;
    return at + n >= to;
}

/* Adds pieces of the current item; true: the item ends in this chunk. */
static bool fill_item(writer *w)
{
    const proa_outfile_item *item = &w->f->items[w->item];
    int64_t unit = proa_max64(item->unit, 1), each = proa_max64(PIECE_BYTES / unit, 1) * unit;
    while (w->written + w->filled < item->offset + item->bytes) {
        int64_t from = w->written + w->filled - item->offset;
        int64_t room = (w->chunk_bytes - w->filled) / unit * unit;
        int64_t n = proa_min64(proa_min64(each, room), item->bytes - from);
        if (n <= 0) return false;
        add_piece(w, from, n);
    }
    return true;
}

/* Plans the next chunk. Returns the item after the last one that ends in it. */
static int64_t plan_chunk(writer *w)
{
    w->pieces = w->filled = 0;
    for (; w->item < w->f->count; w->item++) {
        if (!fill_gap(w, w->f->items[w->item].offset) || !fill_item(w)) return w->item;
    }
    fill_gap(w, w->f->bytes);
    return w->item;
}

static void make_pieces(void *arg, int64_t begin, int64_t end, int worker)
{
    const writer *w = arg;
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++) {
        const piece *p = &w->piece[i];
        w->f->fill(w->f->context, p->item, p->from, p->bytes, p->to);
    }
}

static proa_status make_chunk(writer *w)
{
    if (!w->f->make) proa_pool_run(w->job->pool, w->pieces, 1, make_pieces, w);
    for (int64_t i = 0; i < w->pieces && w->f->make; i++)
        PROA_TRY(w->f->make(w->f->context, w->piece[i].item, w->piece[i].to, w->err));
    return PROA_OK;
}

static proa_status write_chunk(writer *w)
{
    for (int64_t done = 0; done < w->filled;) {
        ssize_t n = pwrite(w->fd, w->chunk + done, (size_t)(w->filled - done), w->written + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return PROA_FAIL(w->err, IO, "cannot write '%s': %s; the same command continues it", w->partial,
                             strerror(n < 0 ? errno : ENOSPC));
        done += n;
    }
    w->written += w->filled;
    w->progress->done += w->filled;
    return PROA_OK;
}

static proa_status write_all(writer *w)
{
    while (w->written < w->f->bytes) {
        int64_t first = w->item, next;
        PROA_TRY(check_progress(w));
        next = plan_chunk(w);
        PROA_TRY(make_chunk(w));
        PROA_TRY(write_chunk(w));
        for (int64_t i = first; i < next && w->f->item_done; i++) w->f->item_done(w->f->context, i);
        if (w->written - w->synced >= proa_max64(PROA_OUTFILE_SYNC_BYTES, w->chunk_bytes) || w->f->chunk_bytes)
            PROA_TRY(sync_written(w));
    }
    return check_progress(w);
}

/* The folder of a path, for fsync: the new name is on the disk too. */
static void sync_folder(const char *path)
{
    char folder[PROA_PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

static proa_status finish_file(const writer *w)
{
    if (fsync(w->fd) != 0) return fail_io(w, "write", w->partial);
    if (rename(w->partial, w->f->path) != 0) return fail_io(w, "rename", w->partial);
    unlink(w->journal);
    sync_folder(w->f->path);
    return PROA_OK;
}

/* Skips what was written before. */
static void find_item(writer *w)
{
    while (w->item < w->f->count && w->f->items[w->item].offset + w->f->items[w->item].bytes <= w->written)
        w->item++;
    w->progress->done += w->written;
}

static proa_status write_file(writer *w)
{
    PROA_TRY(open_files(w));
    PROA_TRY(check_space(w));
    find_item(w);
    proa_status status = write_all(w);
    proa_err later = {.status = PROA_OK};
    writer last = *w;
    last.err = status == PROA_OK ? w->err : &later; /* the first failure is reported */
    proa_status synced = sync_written(&last);
    if (status == PROA_OK) status = synced;
    return status == PROA_OK ? finish_file(w) : status;
}

proa_status proa_outfile_write(const proa_outfile *f, const proa_convert_job *job,
                               proa_convert_progress *progress, proa_err *err)
{
    uint64_t keys[2] = {f->key, proa_str_hash(f->header)};
    writer w = {.f = f, .job = job, .progress = progress, .fd = -1, .journal_fd = -1, .err = err};
    int64_t unit = 1;
    for (int64_t i = 0; i < f->count; i++) unit = proa_max64(unit, f->items[i].unit);
    w.key = proa_str_hash((proa_str){(const char *)keys, sizeof keys});
    w.chunk_bytes = proa_max64(f->chunk_bytes ? f->chunk_bytes : PROA_OUTFILE_CHUNK_BYTES, unit);
    w.chunk = proa_malloc((size_t)w.chunk_bytes);
    proa_status status = write_file(&w);
    if (w.fd >= 0) close(w.fd);
    if (w.journal_fd >= 0) close(w.journal_fd);
    free(w.piece);
    free(w.chunk);
    return status;
}

uint64_t proa_convert_key(const proa_convert_job *job, const char *form)
{
    char text[512];
    snprintf(text, sizeof text, "%s %016llx %s %.64s %.64s %.64s %d %lld", form,
             (unsigned long long)proa_weights_fingerprint(job->weights),
             job->dtype_given ? proa_dtype_name(job->dtype) : "stored", job->format ? job->format : "-",
             job->quant ? job->quant : "-", job->device ? job->device : "-", job->ranks,
             (long long)job->shard_bytes);
    return proa_str_hash(proa_str_c(text));
}

static proa_status put_text(int fd, const char *path, proa_str text, proa_err *err)
{
    for (size_t done = 0; done < text.len;) {
        ssize_t n = write(fd, text.ptr + done, text.len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
        done += (size_t)n;
    }
    if (fsync(fd) != 0) return PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
    return PROA_OK;
}

proa_status proa_outfile_put(const char *path, proa_str text, proa_err *err)
{
    char partial[PROA_PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= PROA_PATH_MAX)
        return PROA_FAIL(err, INVALID, "path too long: '%.200s...'", path);
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return PROA_FAIL(err, IO, "cannot write '%s': %s", partial, strerror(errno));
    proa_status status = put_text(fd, path, text, err);
    close(fd);
    if (status == PROA_OK && rename(partial, path) != 0)
        status = PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
    if (status != PROA_OK) unlink(partial);
    return status;
}
