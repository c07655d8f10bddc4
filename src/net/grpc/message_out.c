/* SPDX-License-Identifier: Apache-2.0
 * message_out.c - messages of a gRPC call that are sent: prefixed, compressed if the client takes that and it makes
 * them shorter, and queued until the connection reads them. */
#include "net/grpc/grpc.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "net/grpc/session.h"
#include <string.h>

#define COPY_BYTES_MAX                                                                                       \
    ((size_t)4096) /* so short a message is copied rather than kept: cheaper than its release */
#define GZIP_BYTES_MIN ((size_t)256) /* below that gzip's own head eats the gain */
#define IOV_MAX_PIECES 32            /* of one write */

static void put_prefix(char *to, bool packed, size_t bytes)
{
    to[0] = (char)packed;
    for (int i = 0; i < 4; i++) to[1 + i] = (char)(bytes >> (24 - 8 * i));
}

static grpc_out *out_new(int pieces, size_t inline_bytes)
{
    size_t head = sizeof(grpc_out) + (size_t)pieces * sizeof(struct iovec);
    grpc_out *out = proa_block_get(head + inline_bytes);
    PROA_ASSERT(out);
    *out = (grpc_out){.refs = 1, .count = pieces};
    return out;
}

/* Prefix and bytes in one piece after the struct. */
static grpc_out *out_copy(const struct iovec *iov, int count, size_t bytes)
{
    grpc_out *out = out_new(1, GRPC_PREFIX + bytes);
    char *at = (char *)(out->iov + 1);
    out->bytes = GRPC_PREFIX + bytes;
    out->iov[0] = (struct iovec){at, out->bytes};
    put_prefix(at, false, bytes);
    at += GRPC_PREFIX;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len) memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return out;
}

static grpc_out *out_keep(const struct iovec *iov, int count, size_t bytes, bool packed,
                          void (*release)(void *arg), void *arg)
{
    grpc_out *out = out_new(count + 1, GRPC_PREFIX);
    char *prefix = (char *)(out->iov + count + 1);
    put_prefix(prefix, packed, bytes);
    out->iov[0] = (struct iovec){prefix, GRPC_PREFIX};
    memcpy(out->iov + 1, iov, (size_t)count * sizeof *iov);
    out->bytes = GRPC_PREFIX + bytes;
    out->release = release;
    out->arg = arg;
    return out;
}

static int gzip_level(const grpc_call *c)
{
    static const int levels[] = {0, 1, 5, 9};
    int wanted = c->session->server->compression_level;
    return levels[wanted > 3 ? 3 : wanted];
}

/* Any thread. False: gzip does not make it shorter. */
static bool pack_message(proa_buf *packed, const grpc_out *plain, int level)
{
    size_t bytes = plain->bytes - GRPC_PREFIX;
    char *all = proa_malloc(plain->bytes), *at = all;
    for (int i = 0; i < plain->count; i++) {
        if (plain->iov[i].iov_len) memcpy(at, plain->iov[i].iov_base, plain->iov[i].iov_len);
        at += plain->iov[i].iov_len;
    }
    proa_buf_init(packed, bytes - 1);
    bool shorter = proa_compress(packed, PROA_CODING_GZIP, level, all + GRPC_PREFIX, bytes, NULL) == PROA_OK;
    free(all);
    if (!shorter) proa_buf_release(packed);
    return shorter;
}

/* The message in its packed form, which takes the place of the plain one. */
static grpc_out *replace_plain(grpc_out *plain, const proa_buf *packed)
{
    proa_grpc_out_drop(plain);
    return out_keep(&(struct iovec){packed->ptr, packed->len}, 1, packed->len, true, free, packed->ptr);
}

static grpc_out *make_out(const grpc_call *c, const struct iovec *iov, int count, size_t bytes,
                          void (*release)(void *arg), void *arg)
{
    grpc_out *out;
    if (release && bytes > COPY_BYTES_MAX) out = out_keep(iov, count, bytes, false, release, arg);
    else {
        out = out_copy(iov, count, bytes);
        if (release) release(arg);
    }
    out->pack = c->gzip && bytes >= GZIP_BYTES_MIN;
    return out;
}

static void append_out(grpc_call *c, grpc_out *out)
{
    out->next = NULL;
    *c->out_last = out;
    c->out_last = &out->next;
    c->queued += out->bytes;
}

static void packing_done(proa_work_item *work);

static void run_packing(proa_work_item *work)
{
    grpc_packing *p = (grpc_packing *)work;
    p->shorter = pack_message(&p->packed, p->plain, p->level);
}

/* False: no worker takes it. */
static bool pack_elsewhere(grpc_call *c, grpc_out *out)
{
    proa_workers *workers = c->session->server->workers;
    if (out->bytes < PROA_WORKER_GZIP_BYTES_MIN || !workers) return false;
    grpc_packing *p = proa_calloc(1, sizeof *p);
    *p = (grpc_packing){.call = c, .plain = out, .level = gzip_level(c)};
    p->work = (proa_work_item){.loop = c->session->loop, .run = run_packing, .done = packing_done};
    if (proa_workers_start(workers, &p->work)) {
        c->packing = p;
        c->unready += out->bytes;
        return true;
    }
    free(p);
    return false;
}

/* Puts a message into the queue, or has it compressed first. */
static void queue_out(grpc_call *c, grpc_out *out)
{
    proa_buf packed;
    if (out->pack && pack_elsewhere(c, out)) return;
    if (out->pack && pack_message(&packed, out, gzip_level(c))) out = replace_plain(out, &packed);
    append_out(c, out);
}

static void wait_behind(grpc_call *c, grpc_out *out)
{
    out->next = NULL;
    *c->behind_last = out;
    c->behind_last = &out->next;
    c->unready += out->bytes;
}

/* Queues the messages that were sent after it, up to the next one that a worker compresses. */
static void queue_behind(grpc_call *c)
{
    while (c->behind && !c->packing) {
        grpc_out *out = c->behind;
        c->behind = out->next;
        if (!c->behind) c->behind_last = &c->behind;
        c->unready -= out->bytes;
        queue_out(c, out);
    }
}

static void packing_done(proa_work_item *work)
{
    grpc_packing *p = (grpc_packing *)work;
    grpc_call *c = p->call;
    size_t bytes = p->plain->bytes;
    grpc_out *out = p->shorter ? replace_plain(p->plain, &p->packed) : p->plain;
    if (c) {
        c->packing = NULL;
        c->unready -= bytes;
        append_out(c, out);
        queue_behind(c);
        proa_grpc_call_wake(c);
        proa_grpc_session_flush_soon(c->session);
    } else proa_grpc_out_drop(out);
    free(p);
}

/* nghttp2 asks how many bytes of the queue it may send now; proa_grpc_call_write then writes them. */
static ssize_t read_queue(nghttp2_session *h2, int32_t stream, uint8_t *buf, size_t length, uint32_t *flags,
                          nghttp2_data_source *source, void *user)
{
    grpc_session *s = user;
    grpc_call *c = source->ptr;
    (void)buf;
    if (proa_conn_queued(s->conn) + s->staged > PROA_CONN_HIGH_BYTES)
        return NGHTTP2_ERR_PAUSE; /* until drained */
    if (!c->queued && (!c->finished || c->unready)) {
        c->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (c->queued > length) return (ssize_t)length;
    if (c->finished && !c->unready) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(h2, stream, c->trailers, c->trailers_count);
    }
    return (ssize_t)c->queued;
}

static void submit_head(grpc_call *c)
{
    nghttp2_nv fields[4];
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = read_queue};
    c->answered = true;
    nghttp2_submit_response(c->session->h2, c->stream, fields, proa_grpc_call_head_fields(c, fields), &provider);
}

void proa_grpc_send(proa_grpc_call *call, const struct iovec *iov, int count, void (*release)(void *arg),
                    void *arg)
{
    grpc_call *c = (grpc_call *)call;
    size_t bytes = 0;
    PROA_ASSERT(c->owned);
    for (int i = 0; i < count; i++) bytes += iov[i].iov_len;
    PROA_ASSERT(bytes <= UINT32_MAX);
    grpc_out *out = make_out(c, iov, count, bytes, release, arg);
    if (c->packing) wait_behind(c, out);
    else queue_out(c, out);
    c->was_high |= proa_grpc_queued(call) > PROA_CONN_HIGH_BYTES;
    if (!c->answered) submit_head(c);
    else proa_grpc_call_wake(c);
    proa_grpc_session_flush_soon(c->session);
}

size_t proa_grpc_queued(const proa_grpc_call *call)
{
    const grpc_call *c = (const grpc_call *)call;
    return c->queued + c->unready;
}

/* The part [at, at + len) of a message as pieces; returns how many bytes the pieces have. */
static size_t str_of_vec(const grpc_out *out, size_t at, size_t len, struct iovec *pieces, int *count)
{
    size_t got = 0;
    *count = 0;
    for (int i = 0; i < out->count && got < len && *count < IOV_MAX_PIECES; i++) {
        const struct iovec *v = &out->iov[i];
        if (at >= v->iov_len) {
            at -= v->iov_len;
            continue;
        }
        size_t n = v->iov_len - at < len - got ? v->iov_len - at : len - got;
        pieces[(*count)++] = (struct iovec){(char *)v->iov_base + at, n};
        got += n;
        at = 0;
    }
    return got;
}

void proa_grpc_call_write(grpc_call *c, size_t len)
{
    while (len) {
        struct iovec pieces[IOV_MAX_PIECES];
        int count;
        grpc_out *out = c->out;
        size_t n = str_of_vec(out, c->out_at, len, pieces, &count);
        proa_grpc_session_write(c->session, pieces, count, out);
        c->out_at += n;
        c->queued -= n;
        len -= n;
        if (c->out_at < out->bytes) continue;
        c->out = out->next;
        if (!c->out) c->out_last = &c->out;
        c->out_at = 0;
        proa_grpc_out_drop(out);
    }
    c->progress_ns = proa_loop_now_ns(c->session->loop);
    if (!c->was_high || proa_grpc_queued(&c->pub) >= PROA_CONN_LOW_BYTES) return;
    c->was_high = false;
    c->drained_due = c->session->work_pending = true;
}
