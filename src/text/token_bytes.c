/* SPDX-License-Identifier: Apache-2.0
 * token_bytes.c - the bytes that each token adds to a text, as one table for a vocabulary. */
#include "text/token_bytes.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "text/unicode.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct piece {
    uint32_t len;
    char bytes[];
} piece;

struct proa_token_bytes {
    const proa_tokenizer *tok;
    int32_t vocab;
    _Atomic(const piece *) *of_id; /* [vocab]; NULL: not used yet */
    pthread_mutex_t lock;          /* of what follows */
    proa_arena arena;
    proa_ids anchor; /* an ordinary text before the token, so that it stands in the middle */
    proa_buf anchor_text, work;
};

proa_token_bytes *proa_token_bytes_new(const proa_tokenizer *tok)
{
    proa_token_bytes *p = proa_calloc(1, sizeof *p);
    p->tok = tok;
    p->vocab = proa_tokenizer_vocab(tok);
    p->of_id = proa_calloc((size_t)p->vocab + 1, sizeof *p->of_id);
    pthread_mutex_init(&p->lock, NULL);
    proa_arena_init(&p->arena);
    proa_buf_init(&p->anchor_text, SIZE_MAX / 2);
    proa_buf_init(&p->work, SIZE_MAX / 2);
    if (proa_tokenizer_encode(tok, proa_str_c("a"), false, &p->anchor, NULL) != PROA_OK)
        proa_ids_clear(&p->anchor);
    if (proa_tokenizer_decode(tok, p->anchor.ptr, p->anchor.len, false, &p->anchor_text, NULL) != PROA_OK)
        proa_buf_clear(&p->anchor_text);
    return p;
}

void proa_token_bytes_free(proa_token_bytes *p)
{
    if (!p) return;
    proa_arena_release(&p->arena);
    proa_ids_release(&p->anchor);
    proa_buf_release(&p->anchor_text);
    proa_buf_release(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->of_id);
    free(p);
}

/* "<0xE4>" is one byte. */
static bool named_byte(proa_str token, proa_buf *out)
{
    char *end, text[3] = {0};
    if (token.len != 6 || memcmp(token.ptr, "<0x", 3) != 0 || token.ptr[5] != '>') return false;
    memcpy(text, token.ptr + 3, 2);
    long byte = strtol(text, &end, 16);
    return *end == '\0' && proa_buf_char(out, (char)byte);
}

/* A byte-level token: each of its characters stands for one byte. */
static bool byte_level(proa_str token, proa_buf *out)
{
    for (size_t i = 0; i < token.len;) {
        int32_t c = 0;
        i += (size_t)proa_char_next((proa_str){token.ptr + i, token.len - i}, &c);
        int byte = proa_char_to_byte(c);
        if (byte < 0) return false;
        proa_buf_char(out, (char)byte);
    }
    return token.len > 0;
}

/* The decoded text with what stood before it taken away. Bytes that make no character came out as U+FFFD: then the
 * vocabulary's own name of the token shows which they are. */
static proa_str decode_one(proa_token_bytes *p, int32_t id)
{
    proa_buf *work = &p->work;
    size_t before = p->anchor_text.len;
    proa_buf_clear(work);
    proa_ids_push(&p->anchor, id);
    proa_status status = proa_tokenizer_decode(p->tok, p->anchor.ptr, p->anchor.len, false, work, NULL);
    p->anchor.len--;
    if (status != PROA_OK || work->len < before) return (proa_str){"", 0};
    proa_str made = {work->ptr + before, work->len - before};
    if (!made.len || !memmem(made.ptr, made.len, PROA_REPLACEMENT, PROA_REPLACEMENT_LEN)) return made;
    proa_str token = proa_tokenizer_token(p->tok, id);
    size_t raw = work->len;
    if (!named_byte(token, work)) {
        work->len = raw;
        if (!byte_level(token, work)) work->len = raw;
    }
    if (work->len == raw) return made;
    return (proa_str){work->ptr + raw, work->len - raw};
}

static const piece *make_piece(proa_token_bytes *p, int32_t id)
{
    pthread_mutex_lock(&p->lock);
    const piece *made = atomic_load(&p->of_id[id]);
    if (!made) {
        proa_str text = decode_one(p, id);
        piece *own = proa_arena_alloc(&p->arena, sizeof *own + text.len);
        own->len = (uint32_t)text.len;
        if (text.len) memcpy(own->bytes, text.ptr, text.len);
        atomic_store(&p->of_id[id], own);
        made = own;
    }
    pthread_mutex_unlock(&p->lock);
    return made;
}

proa_str proa_token_bytes_of(proa_token_bytes *p, int32_t id)
{
    if (id < 0 || id >= p->vocab) return (proa_str){"", 0};
    const piece *found = atomic_load_explicit(&p->of_id[id], memory_order_acquire);
    if (!found) found = make_piece(p, id);
    return (proa_str){found->bytes, found->len};
}
