/* SPDX-License-Identifier: Apache-2.0
 * download.c - pieces of a file: requested in parallel, written in order, checked at the end. */
#include "hub/download.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes [begin, begin + size) of the file. */
struct proa_hub_piece {
    proa_hub_transfer transfer;
    proa_hub_download *download;
    proa_hub_piece *next;
    int64_t begin, size;
    char *held;         /* [size]: what has arrived before its turn; NULL: nothing */
    int64_t held_bytes; /* a prefix of the piece; what was written when it was its turn is not in it */
    bool complete;
};

void proa_hub_download_init(proa_hub_download *d, const proa_hub_cache *cache, proa_hub_client *client,
                            const char *commit, const proa_hub_entry *entry)
{
    *d = (proa_hub_download){
        .cache = cache, .client = client, .commit = commit, .entry = entry, .fd = -1, .lock_fd = -1};
}

static void free_piece(proa_hub_piece *p)
{
    proa_hub_transfer_release(&p->transfer);
    free(p->held);
    free(p);
}

static void drop_pieces(proa_hub_download *d)
{
    for (proa_hub_piece *p = d->pieces, *next; p; p = next) {
        next = p->next;
        if (p->transfer.client) proa_hub_stop(&p->transfer);
        free_piece(p);
    }
    d->pieces = NULL;
}

void proa_hub_download_release(proa_hub_download *d)
{
    drop_pieces(d);
    proa_hub_digest_release(&d->digest);
    if (d->fd >= 0) close(d->fd);
    if (d->lock_fd >= 0) close(d->lock_fd); /* which gives the lock back */
    free(d->url);
    d->fd = d->lock_fd = -1, d->url = NULL;
}

int64_t proa_hub_download_bytes(const proa_hub_download *d)
{
    int64_t bytes = d->stage == PROA_HUB_READY ? d->entry->size : d->written;
    for (const proa_hub_piece *p = d->pieces; p; p = p->next) bytes += p->held_bytes;
    return bytes;
}

/* Ends the download; what has been written stays for the next time, unless its checksum is wrong. */
static void fail_download(proa_hub_download *d, const proa_err *why)
{
    if (d->err.status == PROA_OK) d->err = *why;
    drop_pieces(d);
    d->stage = PROA_HUB_FAILED;
    proa_hub_download_release(d);
}

static bool cut_file(proa_hub_download *d)
{
    proa_hub_digest_release(&d->digest);
    proa_hub_digest_init(&d->digest, d->entry->etag, d->entry->size);
    d->written = d->next = d->resumed = 0;
    return ftruncate(d->fd, 0) == 0;
}

static void finish_download(proa_hub_download *d)
{
    proa_err err = {0};
    bool unchecked = d->opaque || d->entry->size == 0; /* of an empty file no request tells whether it is opaque */
    proa_status status = unchecked ? PROA_OK : proa_hub_digest_check(&d->digest, d->entry->path, &err);
    bool again = status == PROA_CORRUPT && d->resumed > 0 && !d->restarted;
    if (again && cut_file(d)) { /* its beginning was another program's, or damaged: once more from the start */
        d->restarted = true;
        return;
    }
    if (status != PROA_OK) proa_hub_cache_drop_blob(d->cache, d->entry->etag);
    if (status == PROA_OK) status = proa_hub_cache_finish_blob(d->cache, d->entry->etag, d->fd, &err);
    if (status != PROA_OK) {
        fail_download(d, &err);
        return;
    }
    d->stage = PROA_HUB_READY;
    proa_hub_download_release(d);
}

/* ---- bytes ---- */

static proa_status write_bytes(proa_hub_download *d, const char *bytes, size_t len, proa_err *err)
{
    proa_hub_digest_add(&d->digest, bytes, len);
    while (len > 0) {
        ssize_t n = pwrite(d->fd, bytes, len, d->written);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return PROA_FAIL(err, IO, "cannot write to the cache %s: %s", d->cache->root,
                             strerror(n < 0 ? errno : ENOSPC));
        bytes += n, len -= (size_t)n, d->written += n;
    }
    return PROA_OK;
}

/* The first bytes of a response: what they say about the whole file. */
static proa_status check_reply(proa_hub_piece *p, proa_err *err)
{
    proa_hub_download *d = p->download;
    const proa_hub_transfer *t = &p->transfer;
    int64_t size = d->entry->size, total = t->reply.code == 206 ? t->reply.range_total : t->reply.length;
    if (total >= 0 && total != size)
        return PROA_FAIL(err, CORRUPT, "the server has %lld bytes, its list names %lld", (long long)total,
                         (long long)size);
    if (strncmp(t->reply.encryption, "aws:kms", 7) == 0) d->opaque = true;
    if (t->reply.code == 206) d->ranges = true;
    else p->size = d->next = size; /* it sends the whole file */
    if (!d->url) d->url = proa_strdup(t->url);
    return PROA_OK;
}

static proa_status take_piece(proa_hub_transfer *t, const char *bytes, size_t len, proa_err *err)
{
    proa_hub_piece *p = t->arg;
    proa_hub_download *d = p->download;
    if (t->received == t->received_before) PROA_TRY(check_reply(p, err));
    if ((int64_t)len > p->size - t->received)
        return PROA_FAIL(err, CORRUPT, "the server sends more than the %lld bytes that were requested",
                         (long long)p->size);
    if (p == d->pieces) return write_bytes(d, bytes, len, err);
    if (!p->held) p->held = proa_realloc_try(NULL, (size_t)p->size);
    if (!p->held) return PROA_FAIL(err, NO_MEMORY, "no memory for a piece of %lld bytes", (long long)p->size);
    memcpy(p->held + p->held_bytes, bytes, len);
    p->held_bytes += (int64_t)len;
    return PROA_OK;
}

/* Writes what has become first. */
static proa_status advance_pieces(proa_hub_download *d, proa_err *err)
{
    while (d->pieces) {
        proa_hub_piece *p = d->pieces;
        int64_t held = p->held_bytes;
        p->held_bytes = 0;
        if (held) PROA_TRY(write_bytes(d, p->held, (size_t)held, err));
        free(p->held);
        p->held = NULL;
        if (!p->complete) return PROA_OK;
        d->pieces = p->next;
        free_piece(p);
    }
    return PROA_OK;
}

/* ---- requests ---- */

static void start_piece(proa_hub_download *d, proa_hub_piece *p);

static void restart_whole(proa_hub_transfer *t)
{
    proa_hub_piece *p = t->arg;
    if (cut_file(p->download)) return;
    (void)PROA_FAIL(&t->err, IO, "cannot write to the cache: %s", strerror(errno));
}

/* A signed address may have expired: once more from the hub. */
static bool is_stale_url(const proa_hub_download *d, const proa_hub_transfer *t)
{
    long code = t->reply.code;
    return d->url && !d->fresh_url_tried && t->err.status != PROA_OK &&
           (code == 401 || code == 403 || code == 404 || code == 410);
}

static void piece_done(proa_hub_transfer *t)
{
    proa_hub_piece *p = t->arg;
    proa_hub_download *d = p->download;
    proa_err err = t->err;
    t->client = NULL;
    if (t->range_ignored && !d->whole) {
        drop_pieces(d); /* with this one */
        d->whole = true;
        if (!cut_file(d)) fail_download(d, &err);
        return;
    }
    if (is_stale_url(d, t)) {
        d->fresh_url_tried = true;
        free(d->url);
        d->url = NULL;
        start_piece(d, p);
        return;
    }
    p->complete = err.status == PROA_OK;
    if (err.status == PROA_OK) advance_pieces(d, &err);
    if (err.status != PROA_OK) fail_download(d, &err);
}

static void start_piece(proa_hub_download *d, proa_hub_piece *p)
{
    int64_t received = p->transfer.received;
    proa_hub_transfer_release(&p->transfer);
    p->transfer = (proa_hub_transfer){.url = d->url ? proa_strdup(d->url)
                                                    : d->client->site->address(d->client, d->commit, d->entry),
                                      .what = d->entry->path,
                                      .match = d->entry->match,
                                      .first = p->begin,
                                      .end = d->whole ? -1 : p->begin + p->size,
                                      .bytes_max = d->entry->size,
                                      .on_body = take_piece,
                                      .on_restart = restart_whole,
                                      .on_done = piece_done,
                                      .received = received,
                                      .arg = p};
    proa_hub_start(d->client, &p->transfer);
}

static void add_piece(proa_hub_download *d, int64_t size)
{
    proa_hub_piece *p = proa_calloc(1, sizeof *p), **end = &d->pieces;
    while (*end) end = &(*end)->next;
    *end = p;
    p->download = d, p->begin = d->next, p->size = size;
    d->next += size;
    start_piece(d, p);
}

void proa_hub_download_fill(proa_hub_download *d, int connections_max)
{
    int64_t size = d->entry->size,
            window = (int64_t)connections_max * PROA_HUB_WINDOW_PIECES * PROA_HUB_PIECE_BYTES;
    while (d->stage == PROA_HUB_MOVING && d->next < size && d->client->active < connections_max &&
           d->next < d->written + window) {
        if (d->pieces && !d->ranges) return; /* the first response says whether parts are sent */
        add_piece(d, d->whole ? size : proa_min64(PROA_HUB_PIECE_BYTES, size - d->next));
    }
    if (d->stage == PROA_HUB_MOVING && !d->pieces && d->written == size) finish_download(d);
}

/* Continues the file ETAG.incomplete. */
static proa_status open_file(proa_hub_download *d, proa_err *err)
{
    struct stat st;
    PROA_TRY(proa_hub_cache_open_blob(&d->fd, d->cache, d->entry->etag, err));
    if (fstat(d->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return PROA_FAIL(err, CORRUPT, "%s/blobs/%s.incomplete is no file: remove it", d->cache->folder,
                         d->entry->etag);
    proa_hub_digest_init(&d->digest, d->entry->etag, d->entry->size);
    if (st.st_size > d->entry->size && ftruncate(d->fd, 0) != 0)
        return PROA_FAIL(err, IO, "cannot shorten %s.incomplete: %s", d->entry->etag, strerror(errno));
    if (st.st_size > d->entry->size) st.st_size = 0;
    PROA_TRY(proa_hub_digest_add_file(&d->digest, d->fd, st.st_size, d->entry->path, err));
    d->resumed = d->written = d->next = st.st_size;
    return PROA_OK;
}

void proa_hub_download_begin(proa_hub_download *d)
{
    proa_err err = {0};
    if (proa_hub_cache_lock(&d->lock_fd, d->cache, d->entry->etag, &err) != PROA_OK) {
        fail_download(d, &err);
        return;
    }
    if (d->lock_fd < 0) return;
    if (proa_hub_cache_has_blob(d->cache, d->entry)) { /* another process has just finished it */
        d->stage = PROA_HUB_READY;
        proa_hub_download_release(d);
        return;
    }
    d->stage = PROA_HUB_MOVING;
    if (open_file(d, &err) != PROA_OK) fail_download(d, &err);
}
