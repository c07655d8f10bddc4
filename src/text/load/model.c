/* SPDX-License-Identifier: Apache-2.0
 * model.c - reads the section `model` of tokenizer.json: BPE, Unigram, WordPiece, WordLevel. */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/models/bpe.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <math.h>
#include <string.h>

/* ---- vocabularies ---- */

/* {"piece": id, ...}: room for the largest id and all bytes, then the pieces. */
static proa_status vocab_of_object(proa_loader *ld, const proa_json *vocab, proa_err *err)
{
    if (proa_json_kind(vocab) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "'vocab' is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(vocab)));
    int64_t top = -1, bytes = 1;
    for (proa_json_iter it = proa_json_begin(vocab); proa_json_next(&it);) {
        int64_t id = proa_json_int(it.value);
        if (proa_json_kind(it.value) != PROA_JSON_INT || id < 0 || id >= PROA_VOCAB_MAX)
            return PROA_FAIL(err, INVALID, "'vocab' gives '%.*s' the id %lld (%s), allowed is 0..%d",
                             it.key.len > 40 ? 40 : (int)it.key.len, it.key.ptr, (long long)id,
                             proa_json_kind_name(proa_json_kind(it.value)), PROA_VOCAB_MAX - 1);
        top = id > top ? id : top;
        bytes += (int64_t)it.key.len + 1;
    }
    PROA_TRY(proa_vocab_init(&ld->tok->vocab, &ld->tok->arena, (int32_t)top + 1, bytes, err));
    for (proa_json_iter it = proa_json_begin(vocab); proa_json_next(&it);)
        PROA_TRY(proa_vocab_put(&ld->tok->vocab, proa_load_text(ld, it.key), proa_json_int(it.value), err));
    return PROA_OK;
}

/* [["piece", score], ...] */
static proa_status vocab_of_list(proa_loader *ld, const proa_json *vocab, proa_err *err)
{
    proa_unigram *u = &ld->tok->unigram;
    int64_t n = proa_json_len(vocab), bytes = 1;
    if (proa_json_kind(vocab) != PROA_JSON_ARRAY || n == 0)
        return PROA_FAIL(err, INVALID, "'vocab' is %s of %lld, a list of pieces is needed",
                         proa_json_kind_name(proa_json_kind(vocab)), (long long)n);
    if (n > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "'vocab' has %lld entries, at most %d are allowed", (long long)n,
                         PROA_VOCAB_MAX);
    for (int64_t i = 0; i < n; i++)
        bytes += (int64_t)proa_json_str(proa_json_at(proa_json_at(vocab, i), 0)).len + 1;
    PROA_TRY(proa_vocab_init(&ld->tok->vocab, &ld->tok->arena, (int32_t)n, bytes, err));
    u->scores = PROA_ARENA_NEW(&ld->tok->arena, double, n);
    u->min_score = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const proa_json *entry = proa_json_at(vocab, i), *piece = proa_json_at(entry, 0),
                        *score = proa_json_at(entry, 1);
        bool number = proa_json_kind(score) == PROA_JSON_DOUBLE || proa_json_kind(score) == PROA_JSON_INT;
        if (proa_json_kind(piece) != PROA_JSON_STRING || !number || !isfinite(proa_json_double(score)))
            return PROA_FAIL(err, INVALID, "'vocab' entry %lld is not a piece and a score", (long long)i);
        PROA_TRY(proa_vocab_put(&ld->tok->vocab, proa_load_text(ld, proa_json_str(piece)), i, err));
        u->scores[i] = proa_json_double(score);
        if (u->scores[i] < u->min_score) u->min_score = u->scores[i];
    }
    return PROA_OK;
}

/* Builds a trie of all pieces; of ids with the same piece only the last is in it. */
static proa_status trie_of_vocab(proa_tokenizer *tok, proa_trie *trie, proa_err *err)
{
    proa_trie_key *keys = proa_calloc((size_t)tok->vocab.size + 1, sizeof *keys);
    int64_t n = 0;
    for (int32_t i = 0; i < tok->vocab.size; i++)
        if (proa_vocab_piece(&tok->vocab, i).len)
            keys[n++] = (proa_trie_key){proa_vocab_piece(&tok->vocab, i), i};
    proa_status status = proa_trie_build(trie, &tok->arena, keys, n, err);
    free(keys);
    return status;
}

void proa_byte_ids(const proa_vocab *vocab, int32_t ids[256])
{
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        ids[b] = proa_vocab_find(vocab, proa_str_c(name));
    }
}

static proa_status find_unk(proa_loader *ld, const proa_json *m, const char *fallback, int32_t *id,
                            bool *named, proa_err *err)
{
    proa_str unk = proa_str_c(fallback);
    PROA_TRY(proa_json_get_str(&unk, m, "unk_token", err));
    *named = unk.len > 0;
    *id = *named ? proa_vocab_find(&ld->tok->vocab, unk) : -1;
    return PROA_OK;
}

static proa_status load_affix(proa_loader *ld, const proa_json *m, const char *key, proa_str *out, proa_err *err)
{
    if (!proa_json_get(m, key)) return PROA_OK;
    PROA_TRY(proa_load_member(ld, m, key, out, err));
    if (out->len > PROA_AFFIX_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "'%s' has %zu bytes, at most %d are allowed", key, out->len,
                         PROA_AFFIX_BYTES_MAX);
    return PROA_OK;
}

/* ---- BPE ---- */

/* The two halves of a merge: ["a", "b"] or "a b". */
static bool split_halves(const proa_json *j, proa_str *a, proa_str *b)
{
    if (proa_json_kind(j) == PROA_JSON_ARRAY) {
        const proa_json *x = proa_json_at(j, 0), *y = proa_json_at(j, 1);
        *a = proa_json_str(x), *b = proa_json_str(y);
        return proa_json_len(j) == 2 && proa_json_kind(x) == PROA_JSON_STRING &&
               proa_json_kind(y) == PROA_JSON_STRING;
    }
    proa_str s = proa_json_str(j);
    const char *space = s.len ? memchr(s.ptr, ' ', s.len) : NULL;
    if (!space) return false;
    *a = (proa_str){s.ptr, (size_t)(space - s.ptr)};
    *b = (proa_str){space + 1, s.len - a->len - 1};
    return !b->len || !memchr(b->ptr, ' ', b->len);
}

static proa_status missing_piece(proa_str piece, int64_t rank, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "merge %lld needs '%.*s', which is not in the vocabulary", (long long)rank,
                     piece.len > 40 ? 40 : (int)piece.len, piece.ptr);
}

static void put_merge(proa_bpe *bpe, proa_merge merge)
{
    uint64_t i = proa_hash_pair(merge.pair, bpe->seed) & bpe->mask;
    while (bpe->merges[i].pair != UINT64_MAX && bpe->merges[i].pair != merge.pair) i = (i + 1) & bpe->mask;
    bpe->merges[i] = merge;
}

static proa_status load_merge(proa_loader *ld, const proa_json *j, int64_t rank, proa_buf *joined, proa_err *err)
{
    proa_bpe *bpe = &ld->tok->bpe;
    const proa_vocab *v = &ld->tok->vocab;
    proa_str a, b;
    if (!split_halves(j, &a, &b))
        return PROA_FAIL(err, INVALID, "merge %lld is not a pair of pieces", (long long)rank);
    a = proa_load_text(ld, a);
    b = proa_load_text(ld, b);
    int32_t left = proa_vocab_find(v, a), right = proa_vocab_find(v, b);
    if (left < 0 || right < 0) return missing_piece(left < 0 ? a : b, rank, err);
    if (!proa_str_ends(a, bpe->joiner))
        return PROA_FAIL(err, INVALID, "merge %lld: its left half does not end with the joiner", (long long)rank);
    if (b.len < bpe->prefix.len)
        return PROA_FAIL(err, INVALID, "merge %lld: its right half is shorter than continuing_subword_prefix",
                         (long long)rank);
    proa_buf_clear(joined);
    proa_buf_append(joined, a.ptr, a.len - bpe->joiner.len);
    proa_buf_append(joined, b.ptr + bpe->prefix.len, b.len - bpe->prefix.len);
    int32_t id = proa_vocab_find(v, proa_buf_view(joined));
    if (id < 0) return missing_piece(proa_buf_view(joined), rank, err);
    put_merge(bpe, (proa_merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, (uint32_t)rank, id});
    return PROA_OK;
}

static proa_status load_merges(proa_loader *ld, const proa_json *list, proa_err *err)
{
    proa_bpe *bpe = &ld->tok->bpe;
    int64_t n = proa_json_len(list), rank = 0;
    if (proa_json_kind(list) != PROA_JSON_ARRAY)
        return PROA_FAIL(err, INVALID, "'merges' is %s, a list is needed",
                         proa_json_kind_name(proa_json_kind(list)));
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n) slots *= 2;
    bpe->merges = PROA_ARENA_NEW(&ld->tok->arena, proa_merge, (int64_t)slots);
    memset(bpe->merges, 0xFF, slots * sizeof *bpe->merges);
    bpe->mask = slots - 1;
    bpe->seed = proa_hash_seed();
    proa_buf joined;
    proa_buf_init(&joined, 2 * PROA_TOKEN_BYTES_MAX + 1);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < n && status == PROA_OK; i++) {
        const proa_json *j = proa_json_at(list, i);
        bool version = proa_str_starts(proa_json_str(j), proa_str_c("#version"));
        if (!version) status = load_merge(ld, j, rank++, &joined, err);
    }
    proa_buf_release(&joined);
    return status;
}

static void find_chars(proa_tokenizer *tok)
{
    for (int32_t c = 0; c < (int32_t)PROA_COUNT(tok->bpe.chars); c++) {
        char bytes[4];
        tok->bpe.chars[c] = proa_vocab_find(&tok->vocab, (proa_str){bytes, (size_t)proa_utf8_encode(c, bytes)});
    }
}

/* Pieces from `listed` on are unknown in the end (bpe_codes.c). */
static proa_status load_listed(proa_tokenizer *tok, const proa_json *m, proa_err *err)
{
    int64_t listed = 0;
    PROA_TRY(proa_json_get_int(&listed, m, "listed", 1, tok->vocab.size, err));
    if (listed && (tok->bpe.unk < 0 || tok->bpe.unk >= listed))
        return PROA_FAIL(err, INVALID, "'listed' is %lld, but unk_token has no id below it", (long long)listed);
    tok->listed = (int32_t)listed;
    tok->unlisted_id = tok->bpe.unk;
    return PROA_OK;
}

static proa_status load_bpe(proa_loader *ld, const proa_json *m, proa_err *err)
{
    proa_bpe *bpe = &ld->tok->bpe;
    bool named = false;
    PROA_TRY(vocab_of_object(ld, proa_json_get(m, "vocab"), err));
    PROA_TRY(find_unk(ld, m, "", &bpe->unk, &named, err));
    if (named && bpe->unk < 0) bpe->unk = PROA_BPE_UNK_MISSING;
    PROA_TRY(load_affix(ld, m, "continuing_subword_prefix", &bpe->prefix, err));
    PROA_TRY(load_affix(ld, m, "end_of_word_suffix", &bpe->suffix, err));
    PROA_TRY(load_affix(ld, m, "joiner", &bpe->joiner, err));
    PROA_TRY(load_listed(ld->tok, m, err));
    PROA_TRY(proa_json_get_bool(&bpe->fuse_unk, m, "fuse_unk", err));
    PROA_TRY(proa_json_get_bool(&bpe->byte_fallback, m, "byte_fallback", err));
    PROA_TRY(proa_json_get_bool(&bpe->ignore_merges, m, "ignore_merges", err));
    PROA_TRY(proa_json_get_bool(&bpe->by_id, m, "merges_by_id", err));
    if ((bpe->by_id || bpe->joiner.len) && (bpe->prefix.len || bpe->suffix.len || bpe->byte_fallback))
        return PROA_FAIL(err, UNSUPPORTED, "'merges_by_id' or 'joiner' with affixes or byte_fallback");
    if (bpe->by_id && bpe->joiner.len) return PROA_FAIL(err, UNSUPPORTED, "'merges_by_id' with 'joiner'");
    if (!bpe->by_id) PROA_TRY(load_merges(ld, proa_json_get(m, "merges"), err));
    find_chars(ld->tok);
    proa_byte_ids(&ld->tok->vocab, bpe->bytes);
    ld->tok->model = proa_bpe_encode;
    return PROA_OK;
}

/* ---- the others ---- */

static proa_status load_unigram(proa_loader *ld, const proa_json *m, proa_err *err)
{
    proa_unigram *u = &ld->tok->unigram;
    int64_t unk = -1;
    PROA_TRY(vocab_of_list(ld, proa_json_get(m, "vocab"), err));
    PROA_TRY(proa_json_get_int(&unk, m, "unk_id", 0, ld->tok->vocab.size - 1, err));
    u->unk = (int32_t)unk;
    PROA_TRY(proa_json_get_bool(&u->byte_fallback, m, "byte_fallback", err));
    proa_byte_ids(&ld->tok->vocab, u->bytes);
    ld->tok->model = proa_unigram_encode;
    return trie_of_vocab(ld->tok, &u->trie, err);
}

static proa_status load_wordpiece(proa_loader *ld, const proa_json *m, proa_err *err)
{
    proa_wordpiece *wp = &ld->tok->wordpiece;
    bool named = false;
    PROA_TRY(vocab_of_object(ld, proa_json_get(m, "vocab"), err));
    PROA_TRY(find_unk(ld, m, "[UNK]", &wp->unk, &named, err));
    wp->prefix = (proa_str){"##", 2};
    wp->chars_max = 100;
    PROA_TRY(load_affix(ld, m, "continuing_subword_prefix", &wp->prefix, err));
    PROA_TRY(proa_json_get_int(&wp->chars_max, m, "max_input_chars_per_word", 0, INT32_MAX, err));
    ld->tok->model = proa_wordpiece_encode;
    return trie_of_vocab(ld->tok, &wp->trie, err);
}

static proa_status load_wordlevel(proa_loader *ld, const proa_json *m, proa_err *err)
{
    bool named = false;
    PROA_TRY(vocab_of_object(ld, proa_json_get(m, "vocab"), err));
    ld->tok->model = proa_wordlevel_encode;
    return find_unk(ld, m, "<unk>", &ld->tok->wordpiece.unk, &named, err);
}

/* Old files have no `type`; it follows from the members. */
static const char *guess_type(const proa_json *m)
{
    if (proa_json_get(m, "merges")) return "BPE";
    if (proa_json_kind(proa_json_get(m, "vocab")) == PROA_JSON_ARRAY) return "Unigram";
    return proa_json_get(m, "continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

proa_status proa_load_model(proa_loader *ld, const proa_json *m, proa_err *err)
{
    static const struct {
        const char *name;
        proa_status (*load)(proa_loader *ld, const proa_json *m, proa_err *err);
    } models[] = {{"BPE", load_bpe},
                  {"Unigram", load_unigram},
                  {"WordPiece", load_wordpiece},
                  {"WordLevel", load_wordlevel}};
    proa_str type = proa_str_c(guess_type(m));
    if (proa_json_kind(m) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "is %s, an object is needed", proa_json_kind_name(proa_json_kind(m)));
    PROA_TRY(proa_json_get_str(&type, m, "type", err));
    for (size_t i = 0; i < PROA_COUNT(models); i++)
        if (proa_str_is(type, models[i].name)) return models[i].load(ld, m, err);
    return PROA_FAIL(err, UNSUPPORTED, "type '%.*s' is not known, known are BPE, Unigram, WordPiece, WordLevel",
                     type.len > 40 ? 40 : (int)type.len, type.ptr);
}
