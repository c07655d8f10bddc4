/* SPDX-License-Identifier: Apache-2.0
 * wordpiece.c - WordPiece (Schuster and Nakajima 2012): the longest known piece from the left,
 * repeatedly; and WordLevel, which takes whole words only. */
#include "text/pipeline.h"
#include "text/unicode.h"

static proa_status push_unk(const proa_tokenizer *tok, proa_ids *out, proa_err *err)
{
    if (tok->wordpiece.unk < 0)
        return PROA_FAIL(err, INVALID, "a word is not in the vocabulary, and the vocabulary has no unk_token");
    proa_ids_push(out, tok->wordpiece.unk);
    return PROA_OK;
}

/* Longest piece that s begins with, looked up from `node` on (the root, or where the prefix "##" leads). */
static size_t longest_match(const proa_trie *t, int32_t node, proa_str s, int32_t *id)
{
    size_t best = 0;
    for (size_t i = 0; i < s.len; i++) {
        node = proa_trie_step(t, node, (unsigned char)s.ptr[i]);
        if (node == -1) break;
        if (t->value[node] >= 0) {
            best = i + 1;
            *id = t->value[node];
        }
    }
    return best;
}

proa_status proa_wordpiece_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                  proa_ids *out, proa_err *err)
{
    PROA_UNUSED(work);
    const proa_wordpiece *wp = &tok->wordpiece;
    if (proa_utf8_count(word) > wp->chars_max) return push_unk(tok, out, err);
    int64_t before = out->len;
    int32_t node = PROA_TRIE_ROOT, id = -1;
    for (size_t i = 0; i < word.len;) {
        size_t n = node == -1 ? 0 : longest_match(&wp->trie, node, (proa_str){word.ptr + i, word.len - i}, &id);
        if (n == 0) {
            out->len = before;
            return push_unk(tok, out, err);
        }
        proa_ids_push(out, id);
        if (i == 0)
            for (size_t k = 0; k < wp->prefix.len && node != -1; k++)
                node = proa_trie_step(&wp->trie, node, (unsigned char)wp->prefix.ptr[k]);
        i += n;
    }
    return PROA_OK;
}

proa_status proa_wordlevel_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                  proa_ids *out, proa_err *err)
{
    PROA_UNUSED(work);
    int32_t id = proa_vocab_find(&tok->vocab, word);
    if (id < 0) return push_unk(tok, out, err);
    proa_ids_push(out, id);
    return PROA_OK;
}
