/* SPDX-License-Identifier: Apache-2.0
 * added.c - added tokens: found in the text before the model sees it, leftmost and longest first, as
 * added_vocabulary of the tokenizers library does. */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>

/* ---- finding them ---- */

/* A single_word token matches only without a word character on either side. */
static bool stands_alone(proa_str text, size_t from, size_t to)
{
    int32_t c;
    if (from > 0) {
        size_t at = proa_char_last((proa_str){text.ptr, from});
        proa_char_next((proa_str){text.ptr + at, from - at}, &c);
        if (proa_char_is_word(c)) return false;
    }
    if (to == text.len) return true;
    proa_char_next((proa_str){text.ptr + to, text.len - to}, &c);
    return !proa_char_is_word(c);
}

static size_t spaces_before(proa_str text, size_t from, size_t limit)
{
    while (from > limit) {
        int32_t c;
        size_t at = proa_char_last((proa_str){text.ptr, from});
        proa_char_next((proa_str){text.ptr + at, from - at}, &c);
        if (!proa_char_is_space(c)) break;
        from = at;
    }
    return from;
}

static size_t spaces_after(proa_str text, size_t to)
{
    while (to < text.len) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){text.ptr + to, text.len - to}, &c);
        if (!proa_char_is_space(c)) break;
        to += n;
    }
    return to;
}

void proa_added_split(const proa_added *added, const proa_trie *trie, proa_str text, size_t zero, proa_parts *out)
{
    size_t base = out->text.len, done = 0;
    if (!proa_buf_str(&out->text, text)) return;
    for (size_t i = 0; trie->nodes && i < text.len;) {
        int32_t which = 0;
        if (trie->root[(unsigned char)text.ptr[i]] < 0) {
            i++;
            continue;
        }
        size_t n = proa_trie_longest(trie, (proa_str){text.ptr + i, text.len - i}, &which);
        if (n == 0) {
            i++;
            continue;
        }
        const proa_added_token *t = &added->ptr[which];
        size_t from = i, to = i + n;
        i = to;
        if (t->single_word && !stands_alone(text, from, to)) continue;
        if (t->lstrip) from = spaces_before(text, from, done < from ? done : from);
        if (t->rstrip) to = spaces_after(text, to);
        if (done < from) proa_parts_add(out, base, done, from, zero, -1);
        proa_parts_add(out, base, from, to, zero, t->id);
        done = to;
    }
    proa_parts_add(out, base, done, text.len, zero, -1);
}

/* ---- reading them ---- */

/* The id is the model's id for that text, otherwise the next free one; as in the library, the id in the
 * file is ignored. token.id >= 0 overrides this (added_tokens_decoder of tokenizer_config.json). */
proa_status proa_added_put(proa_tokenizer *tok, proa_added_token token, proa_err *err)
{
    proa_added *a = &tok->added;
    int32_t at = -1;
    if (token.content.len == 0) return PROA_OK;
    if (proa_map_find(&a->by_content, token.content, &at)) {
        token.id = a->ptr[at].id;
    } else {
        if (token.id < 0) token.id = proa_vocab_find(&tok->vocab, token.content);
        if (token.id < 0) token.id = a->next_id;
        if (token.id >= a->next_id) a->next_id = token.id + 1;
        PROA_ASSERT(a->len < a->cap);
        at = (int32_t)a->len++;
    }
    if (token.id >= PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "added token has id %d, allowed is 0..%d", token.id, PROA_VOCAB_MAX - 1);
    a->ptr[at] = token;
    proa_map_put(&a->by_content, token.content, at);
    return PROA_OK;
}

static proa_status parse_added(proa_loader *ld, const proa_json *j, proa_added_token *t, proa_err *err)
{
    int64_t id = -1;
    *t = (proa_added_token){.id = -1};
    PROA_TRY(proa_load_member(ld, j, "content", &t->content, err));
    PROA_TRY(proa_json_get_int(&id, j, "id", 0, PROA_VOCAB_MAX - 1, err));
    if (t->content.len > PROA_TOKEN_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "added token has %zu bytes, at most %d are allowed", t->content.len,
                         PROA_TOKEN_BYTES_MAX);
    PROA_TRY(proa_json_get_bool(&t->special, j, "special", err));
    t->normalized = !t->special;
    PROA_TRY(proa_json_get_bool(&t->silent, j, "silent", err));
    PROA_TRY(proa_json_get_bool(&t->single_word, j, "single_word", err));
    PROA_TRY(proa_json_get_bool(&t->lstrip, j, "lstrip", err));
    PROA_TRY(proa_json_get_bool(&t->rstrip, j, "rstrip", err));
    return proa_json_get_bool(&t->normalized, j, "normalized", err);
}

void proa_added_init(proa_tokenizer *tok, int64_t cap)
{
    tok->added.ptr = PROA_ARENA_NEW(&tok->arena, proa_added_token, cap);
    tok->added.cap = cap;
    proa_map_release(&tok->added.by_content); /* the empty one of a tokenizer without added tokens */
    proa_map_init(&tok->added.by_content, cap);
    for (int32_t i = 0; i < tok->vocab.size; i++) tok->added.next_id += proa_vocab_has(&tok->vocab, i);
}

proa_status proa_load_added(proa_loader *ld, const proa_json *list, proa_err *err)
{
    if (list && proa_json_kind(list) != PROA_JSON_ARRAY)
        return PROA_FAIL(err, INVALID, "added_tokens is %s, a list is needed",
                         proa_json_kind_name(proa_json_kind(list)));
    int64_t n = proa_json_len(list);
    if (n > PROA_VOCAB_MAX) return PROA_FAIL(err, LIMIT, "added_tokens has %lld entries", (long long)n);
    proa_added_init(ld->tok, n);
    for (int64_t i = 0; i < n; i++) {
        proa_added_token t;
        proa_status status = parse_added(ld, proa_json_at(list, i), &t, err);
        if (status == PROA_OK) status = proa_added_put(ld->tok, t, err);
        if (status != PROA_OK) {
            proa_err_prefix(err, "added_tokens[%lld]", (long long)i);
            return status;
        }
    }
    return PROA_OK;
}

/* ---- tables ---- */

/* `left`: bytes that all normalised forms may still use. A rule may turn one byte into many, and there may
 * be millions of tokens: a small file must not be able to use up the memory. */
static proa_status normalized_text(proa_tokenizer *tok, proa_added_token *t, int64_t *left, proa_err *err)
{
    t->text = t->content;
    if (!t->normalized || tok->normalizers.len == 0) return PROA_OK;
    proa_buf buf;
    size_t zero = 0;
    proa_buf_init(&buf, (size_t)PROA_NORMALIZED_BYTES_MAX);
    proa_status status = proa_normalize(tok, t->content, &zero, &buf, err);
    *left -= (int64_t)buf.len;
    if (status == PROA_OK && *left < 0)
        status = PROA_FAIL(err, LIMIT, "added_tokens: more than %lld bytes when they are normalised",
                           (long long)PROA_NORMALIZED_BYTES_MAX);
    if (status == PROA_OK) t->text = (proa_str){proa_arena_strdup(&tok->arena, proa_buf_view(&buf)), buf.len};
    proa_buf_release(&buf);
    return status;
}

static proa_status build_trie(proa_tokenizer *tok, bool normalized, proa_trie *trie, proa_err *err)
{
    proa_added *a = &tok->added;
    proa_trie_key *keys = proa_calloc((size_t)a->len + 1, sizeof *keys);
    int64_t n = 0;
    for (int64_t i = 0; i < a->len; i++)
        if (a->ptr[i].normalized == normalized && a->ptr[i].text.len && !a->ptr[i].silent)
            keys[n++] = (proa_trie_key){a->ptr[i].text, (int32_t)i};
    proa_status status = proa_trie_build(trie, &tok->arena, keys, n, err);
    free(keys);
    return status;
}

proa_status proa_added_seal(proa_tokenizer *tok, proa_err *err)
{
    int64_t left = PROA_NORMALIZED_BYTES_MAX;
    for (int64_t i = 0; i < tok->added.len; i++)
        PROA_TRY(normalized_text(tok, &tok->added.ptr[i], &left, err));
    PROA_TRY(build_trie(tok, false, &tok->added.raw, err));
    return build_trie(tok, true, &tok->added.normalized, err);
}
