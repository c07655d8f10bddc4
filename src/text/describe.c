/* SPDX-License-Identifier: Apache-2.0
 * describe.c - says what an opened tokenizer is made of. How it changes a text is found by giving it some. */
#include "text/describe.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */
#define PIECE_END  '\xff'         /* in no UTF-8 text */

/* ---- pieces of a text ---- */

static void put_part(proa_parts *parts, proa_str text)
{
    int32_t first;
    size_t base = parts->text.len;
    proa_buf_str(&parts->text, text);
    proa_parts_add(parts, base, 0, text.len, text.len ? (size_t)proa_char_next(text, &first) : 0, -1);
}

static proa_status split_parts(const proa_text_step *step, const proa_parts *from, proa_parts *to, proa_err *err)
{
    proa_parts_clear(to);
    for (int64_t i = 0; i < from->len; i++)
        PROA_TRY(step->kind->split(step, proa_parts_text(from, i), (size_t)from->ptr[i].zero, to, err));
    if (!to->text.full) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "text grew beyond %lld bytes", (long long)PROA_NORMALIZED_BYTES_MAX);
}

static proa_status run_steps(const proa_tokenizer *tok, proa_str text, proa_parts parts[2], int *now,
                             proa_err *err)
{
    proa_buf normal;
    int32_t first;
    size_t zero = text.len ? (size_t)proa_char_next(text, &first) : 0;
    proa_buf_init(&normal, (size_t)PROA_NORMALIZED_BYTES_MAX);
    proa_status status = proa_normalize(tok, text, &zero, &normal, err);
    if (status == PROA_OK) put_part(&parts[0], proa_buf_view(&normal));
    for (int64_t i = 0; i < tok->pre_tokenizers.len && status == PROA_OK; i++, *now = !*now)
        status = split_parts(&tok->pre_tokenizers.ptr[i], &parts[*now], &parts[!*now], err);
    proa_buf_release(&normal);
    return status;
}

proa_status proa_tokenizer_pieces(const proa_tokenizer *tok, proa_str text, proa_buf *out, proa_err *err)
{
    proa_parts parts[2];
    int now = 0;
    for (int i = 0; i < 2; i++) proa_parts_init(&parts[i]);
    proa_status status = run_steps(tok, text, parts, &now, err);
    for (int64_t i = 0; i < parts[now].len && status == PROA_OK; i++) {
        proa_buf_str(out, proa_parts_text(&parts[now], i));
        proa_buf_char(out, PIECE_END);
    }
    for (int i = 0; i < 2; i++) proa_parts_release(&parts[i]);
    return status;
}

/* ---- what it does to a text ---- */

/* Pieces without their ends equal `wanted`. */
static proa_status text_becomes(bool *yes, const proa_tokenizer *tok, const char *text, const char *wanted,
                                proa_err *err)
{
    proa_buf pieces;
    size_t n = 0;
    proa_buf_init(&pieces, 1024);
    proa_status status = proa_tokenizer_pieces(tok, proa_str_c(text), &pieces, err);
    for (size_t i = 0; i < pieces.len; i++)
        if (pieces.ptr[i] != PIECE_END) pieces.ptr[n++] = pieces.ptr[i];
    *yes = status == PROA_OK && n == strlen(wanted) && memcmp(pieces.ptr, wanted, n) == 0;
    proa_buf_release(&pieces);
    return status;
}

static proa_status find_habits(proa_tokenizer_parts *p, const proa_tokenizer *tok, proa_err *err)
{
    bool prefixed, marked, one, squeezed;
    PROA_TRY(text_becomes(&p->byte_level, tok, "x\n", "x\xc4\x8a", err));
    PROA_TRY(text_becomes(&prefixed, tok, "x", p->byte_level ? "\xc4\xa0x" : SPACE_MARK "x", err));
    PROA_TRY(text_becomes(&marked, tok, "x  x", SPACE_MARK "x" SPACE_MARK "x", err));
    PROA_TRY(text_becomes(&one, tok, "x  x", "x" SPACE_MARK "x", err));
    squeezed = marked || one;
    p->space_prefix = prefixed, p->squeeze = squeezed;
    return text_becomes(&p->lowercase, tok, "X", "x", err);
}

/* ---- the tokens around a text ---- */

static proa_status find_surrounding(proa_tokenizer_parts *p, const proa_tokenizer *tok, proa_err *err)
{
    const proa_post_template *t = &tok->post.single;
    bool text = false;
    for (int64_t i = 0; tok->post.on && i < t->len; i++) {
        const proa_post_piece *piece = &t->ptr[i];
        const int32_t **ids = text ? &p->after : &p->before;
        int32_t *count = text ? &p->after_count : &p->before_count;
        if (!piece->ids) {
            text = true;
            continue;
        }
        if (*ids)
            return PROA_FAIL(err, UNSUPPORTED, "more than one special token %s a text",
                             text ? "after" : "before");
        *ids = piece->ids, *count = piece->ids_len;
    }
    return PROA_OK;
}

/* ---- the whole ---- */

static bool find_kind(proa_tokenizer_kind *kind, const proa_tokenizer *tok)
{
    static const struct {
        proa_model_fn *model;
        proa_tokenizer_kind kind;
    } kinds[] = {{proa_bpe_encode, PROA_TOKENIZER_BPE},
                 {proa_unigram_encode, PROA_TOKENIZER_UNIGRAM},
                 {proa_spm_unigram_encode, PROA_TOKENIZER_UNIGRAM},
                 {proa_spm_bpe_encode, PROA_TOKENIZER_SPM_BPE},
                 {proa_wordpiece_encode, PROA_TOKENIZER_WORDPIECE},
                 {proa_wordlevel_encode, PROA_TOKENIZER_WORDLEVEL}};
    for (size_t i = 0; i < PROA_COUNT(kinds); i++)
        if (kinds[i].model == tok->model) return *kind = kinds[i].kind, true;
    return false;
}

static const proa_charsmap *find_charsmap(const proa_tokenizer *tok)
{
    for (int64_t i = 0; i < tok->normalizers.len; i++)
        if (tok->normalizers.ptr[i].charsmap) return tok->normalizers.ptr[i].charsmap;
    return NULL;
}

proa_status proa_tokenizer_describe(proa_tokenizer_parts *out, const proa_tokenizer *tok, proa_err *err)
{
    *out = (proa_tokenizer_parts){.unk = -1};
    if (!find_kind(&out->kind, tok) || tok->listed)
        return PROA_FAIL(err, UNSUPPORTED, "a tokenizer of this kind cannot be taken apart");
    switch (out->kind) {
    case PROA_TOKENIZER_BPE:
        out->unk = tok->bpe.unk, out->byte_fallback = tok->bpe.byte_fallback;
        out->ignore_merges = tok->bpe.ignore_merges;
        break;
    case PROA_TOKENIZER_UNIGRAM:
    case PROA_TOKENIZER_SPM_BPE:
        out->unk = tok->unigram.unk, out->byte_fallback = tok->unigram.byte_fallback;
        break;
    case PROA_TOKENIZER_WORDPIECE:
    case PROA_TOKENIZER_WORDLEVEL: out->unk = tok->wordpiece.unk; break;
    }
    out->has_charsmap = find_charsmap(tok) != NULL;
    PROA_TRY(find_surrounding(out, tok, err));
    return find_habits(out, tok, err);
}

/* ---- pieces of the vocabulary ---- */

static bool is_byte(const proa_tokenizer *tok, int32_t id)
{
    const int32_t *bytes = tok->model == proa_bpe_encode ? tok->bpe.bytes : tok->unigram.bytes;
    bool fallback = tok->model == proa_bpe_encode ? tok->bpe.byte_fallback : tok->unigram.byte_fallback;
    for (int i = 0; fallback && i < 256; i++)
        if (bytes[i] == id) return true;
    return false;
}

proa_piece_type proa_tokenizer_piece_type(const proa_tokenizer *tok, int32_t id)
{
    if (id < 0 || id >= tok->size || !tok->texts[id].ptr) return PROA_PIECE_UNUSED;
    if (tok->unigram.types && id < tok->vocab.size) {
        proa_piece_type type = (proa_piece_type)tok->unigram.types[id];
        if (type != PROA_PIECE_NORMAL && type <= PROA_PIECE_BYTE) return type;
    }
    if (tok->unigram.scores && id == tok->unigram.unk) return PROA_PIECE_UNKNOWN;
    int32_t added = tok->added.of_id[id];
    if (added >= 0) return tok->added.ptr[added].special ? PROA_PIECE_CONTROL : PROA_PIECE_USER;
    return is_byte(tok, id) ? PROA_PIECE_BYTE : PROA_PIECE_NORMAL;
}

double proa_tokenizer_score(const proa_tokenizer *tok, int32_t id)
{
    return tok->unigram.scores && id >= 0 && id < tok->vocab.size ? tok->unigram.scores[id] : 0;
}

void proa_tokenizer_charsmap(const proa_tokenizer *tok, proa_buf *out)
{
    const proa_charsmap *map = find_charsmap(tok);
    if (!map) return;
    uint32_t bytes = (uint32_t)(4 * map->unit_count);
    for (int k = 0; k < 4; k++) proa_buf_char(out, (char)(bytes >> 8 * k));
    for (int64_t i = 0; i < map->unit_count; i++)
        for (int k = 0; k < 4; k++) proa_buf_char(out, (char)(map->units[i] >> 8 * k));
    proa_buf_append(out, map->texts, (size_t)map->text_bytes);
}

/* ---- merges ---- */

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const proa_merge *)a)->rank, y = ((const proa_merge *)b)->rank;
    return x < y ? -1 : x > y;
}

int64_t proa_tokenizer_merges(const proa_tokenizer *tok, proa_arena *arena, proa_merge_rule **out)
{
    const proa_bpe *b = &tok->bpe;
    int64_t n = 0, slots = b->merges ? (int64_t)b->mask + 1 : 0;
    for (int64_t i = 0; i < slots; i++) n += b->merges[i].pair != UINT64_MAX;
    proa_merge *sorted = proa_calloc((size_t)n + 1, sizeof *sorted);
    n = 0;
    for (int64_t i = 0; i < slots; i++)
        if (b->merges[i].pair != UINT64_MAX) sorted[n++] = b->merges[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_rank);
    *out = PROA_ARENA_NEW(arena, proa_merge_rule, n);
    for (int64_t i = 0; i < n; i++) {
        const proa_merge *m = &sorted[i];
        (*out)[i] = (proa_merge_rule){(int32_t)(m->pair >> 32), (int32_t)(m->pair & UINT32_MAX), m->id};
    }
    free(sorted);
    return n;
}
