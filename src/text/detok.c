/* SPDX-License-Identifier: Apache-2.0
 * detok.c - the streaming detokenizer; decoding a list of ids is a stream that is flushed at once. */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/pipeline.h"

#define HOLD_BYTES 256 /* allocated at the start, so that a typical stream allocates nothing later */

proa_detok *proa_detok_new(const proa_tokenizer *tok, bool skip_special)
{
    proa_detok *d = proa_calloc(1, sizeof *d);
    d->tok = tok;
    d->skip_special = skip_special;
    d->stages = proa_calloc((size_t)tok->decoders.len + 1, sizeof *d->stages);
    for (int64_t i = 0; i < tok->decoders.len; i++) {
        proa_buf_init(&d->stages[i].hold, (size_t)PROA_NORMALIZED_BYTES_MAX);
        proa_buf_init(&d->stages[i].made, (size_t)PROA_NORMALIZED_BYTES_MAX);
        proa_buf_reserve(&d->stages[i].hold, HOLD_BYTES);
        proa_buf_reserve(&d->stages[i].made, HOLD_BYTES);
    }
    return d;
}

void proa_detok_free(proa_detok *d)
{
    if (!d) return;
    for (int64_t i = 0; i < d->tok->decoders.len; i++) {
        proa_buf_release(&d->stages[i].hold);
        proa_buf_release(&d->stages[i].made);
    }
    free(d->stages);
    free(d);
}

void proa_detok_reset(proa_detok *d)
{
    for (int64_t i = 0; i < d->tok->decoders.len; i++) {
        proa_decoder_state *g = &d->stages[i];
        proa_buf_clear(&g->hold);
        proa_buf_clear(&g->made);
        g->hold.full = g->made.full = false;
        g->count = g->run = 0;
        g->seen = g->more = false;
    }
    d->tokens = 0;
}

void proa_detok_show(proa_detok *d, const int32_t *ids, int64_t count)
{
    d->shown = ids;
    d->shown_count = count;
}

static bool is_shown(const proa_detok *d, int32_t id)
{
    for (int64_t i = 0; i < d->shown_count; i++)
        if (d->shown[i] == id) return true;
    return false;
}

static proa_status check_full(const proa_detok *d, const proa_buf *out, proa_err *err)
{
    bool full = out->full;
    for (int64_t i = 0; i < d->tok->decoders.len; i++)
        full |= d->stages[i].hold.full || d->stages[i].made.full;
    return full ? PROA_FAIL(err, LIMIT, "decoded text is longer than its buffer's maximum of %zu bytes",
                            out->bytes_max)
                : PROA_OK;
}

proa_status proa_detok_push(proa_detok *d, int32_t id, proa_buf *out, proa_err *err)
{
    const proa_tokenizer *tok = d->tok;
    if (id < 0 || id >= tok->size || !tok->texts[id].ptr) return PROA_OK;
    if (d->skip_special && tok->special[id] && !is_shown(d, id)) return PROA_OK;
    d->out = out;
    d->id = id;
    if (tok->decoders.len == 0 && d->tokens > 0)
        proa_buf_char(out, ' '); /* the library joins by spaces then */
    d->tokens++;
    proa_stream_emit(d, 0, tok->texts[id], true);
    return check_full(d, out, err);
}

proa_status proa_detok_flush(proa_detok *d, proa_buf *out, proa_err *err)
{
    d->out = out;
    for (int64_t i = 0; i < d->tok->decoders.len; i++)
        if (d->tok->decoders.ptr[i].kind->finish) d->tok->decoders.ptr[i].kind->finish(d, i);
    proa_status status = check_full(d, out, err);
    proa_detok_reset(d);
    return status;
}

proa_status proa_tokenizer_decode(const proa_tokenizer *tok, const int32_t *ids, int64_t n, bool skip_special,
                                  proa_buf *out, proa_err *err)
{
    proa_detok *d = proa_detok_new(tok, skip_special);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < n && status == PROA_OK; i++) status = proa_detok_push(d, ids[i], out, err);
    if (status == PROA_OK) status = proa_detok_flush(d, out, err);
    proa_detok_free(d);
    return status;
}
