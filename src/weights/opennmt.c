/* SPDX-License-Identifier: Apache-2.0
 * opennmt.c - what OpenNMT-py 1 to 3 save: {"model": state dict, "generator": state dict, "vocab": ..., "opt": ...}.
 * The options become a config.json, the vocabulary becomes a vocab.json (that of the target, where it differs, a
 * target_vocab.json: Marian's names). Facts: onmt/models/model_saver.py, onmt/inputters of each version. */
#include "weights/torch.h"

#include <math.h>

/* ---- the vocabulary ---- */

/* The list of words of one side. Version 3 has it plain; the others save objects of torchtext, whose list is `itos`. */
static proa_pickle_value find_words(const proa_pickle *p, proa_pickle_value v)
{
    static const char *const members[] = {"itos", "vocab", "fields", "base_field"};
    for (int steps = 0; steps < 8; steps++) {
        proa_pickle_kind kind = proa_pickle_kind_of(p, v);
        proa_pickle_value next = 0;
        if (kind == PROA_PICKLE_LIST && proa_pickle_kind_of(p, proa_pickle_item(p, v, 0)) == PROA_PICKLE_STRING)
            return v;
        if (kind == PROA_PICKLE_LIST) next = proa_pickle_item(p, v, 0);
        if (kind == PROA_PICKLE_TUPLE) next = proa_pickle_item(p, v, 1); /* (name, field) */
        for (size_t i = 0; i < PROA_COUNT(members) && !next; i++) next = proa_pickle_get(p, v, members[i]);
        v = next;
    }
    return 0;
}

/* `vocab` is a dict of the sides, or a list of (side, vocabulary). */
static proa_pickle_value words_of(const proa_pickle *p, const char *side)
{
    proa_pickle_value vocab = proa_pickle_get(p, p->root, "vocab"), found = proa_pickle_get(p, vocab, side), pair;
    for (int32_t i = 0; !found && (pair = proa_pickle_item(p, vocab, i)) != 0; i++)
        if (proa_str_is(proa_pickle_text(p, proa_pickle_item(p, pair, 0)), side))
            found = proa_pickle_item(p, pair, 1);
    return find_words(p, found);
}

static bool same_words(const proa_pickle *p, proa_pickle_value a, proa_pickle_value b)
{
    const proa_pickle_node *x = proa_pickle_at(p, a), *y = proa_pickle_at(p, b);
    if (x->count != y->count) return false;
    for (int32_t i = 0; i < x->count; i++)
        if (!proa_str_eq(proa_pickle_text(p, x->items[i]), proa_pickle_text(p, y->items[i]))) return false;
    return true;
}

/* {word: position} */
static proa_status add_vocab(proa_torch *t, const char *name, proa_pickle_value words)
{
    const proa_pickle_node *n = proa_pickle_at(&t->pickle, words);
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_buf_char(&out, '{');
    for (int32_t i = 0; i < n->count && !out.full; i++) {
        if (i) proa_buf_char(&out, ',');
        proa_buf_json_str(&out, proa_pickle_text(&t->pickle, n->items[i]));
        proa_buf_printf(&out, ":%d", i);
    }
    proa_buf_char(&out, '}');
    proa_status status = out.full ? FAIL_TORCH(t, LIMIT, "a vocabulary of more than %lld bytes",
                                               (long long)PROA_TOKENIZER_BYTES_MAX)
                                  : PROA_OK;
    if (status == PROA_OK)
        proa_weights_add_made(
            t->w, (proa_made_file){.name = name,
                                   .text = {proa_arena_strdup(&t->w->arena, proa_buf_view(&out)), out.len}});
    proa_buf_release(&out);
    return status;
}

static int32_t position_of(const proa_pickle *p, proa_pickle_value words, const char *word)
{
    const proa_pickle_node *n = proa_pickle_at(p, words);
    for (int32_t i = 0; i < n->count; i++)
        if (proa_str_is(proa_pickle_text(p, n->items[i]), word)) return i;
    return -1;
}

/* ---- the options ---- */

static bool write_scalar(const proa_pickle *p, proa_pickle_value v, proa_buf *out)
{
    const proa_pickle_node *n = proa_pickle_at(p, v);
    switch (n->kind) {
    case PROA_PICKLE_NONE: return proa_buf_str(out, proa_str_c("null")), true;
    case PROA_PICKLE_BOOL: return proa_buf_str(out, proa_str_c(n->integer ? "true" : "false")), true;
    case PROA_PICKLE_INT: return proa_buf_printf(out, "%lld", (long long)n->integer), true;
    case PROA_PICKLE_FLOAT:
        if (!isfinite(n->number)) return false;
        return proa_buf_printf(out, "%.17g", n->number), true;
    case PROA_PICKLE_STRING: return proa_buf_json_str(out, n->text), true;
    }
    return false;
}

/* A number, a text, or a list of such; false, and nothing is written, for anything else. */
static bool write_value(const proa_pickle *p, proa_pickle_value v, proa_buf *out)
{
    const proa_pickle_node *n = proa_pickle_at(p, v);
    size_t begin = out->len;
    if (n->kind != PROA_PICKLE_LIST && n->kind != PROA_PICKLE_TUPLE) return write_scalar(p, v, out);
    proa_buf_char(out, '[');
    for (int32_t i = 0; i < n->count; i++) {
        if (i) proa_buf_char(out, ',');
        if (!out->full && write_scalar(p, n->items[i], out)) continue;
        out->len = begin;
        return false;
    }
    proa_buf_char(out, ']');
    return true;
}

/* The members of a Namespace are in its state. */
static void write_options(const proa_pickle *p, proa_buf *out)
{
    proa_pickle_value opt = proa_pickle_get(p, p->root, "opt");
    const proa_pickle_node *n = proa_pickle_at(p, opt);
    if (n->kind == PROA_PICKLE_CALL && n->state) opt = n->state;
    for (proa_torch_iter it = proa_torch_begin(p, opt); !out->full && proa_torch_next(&it);) {
        proa_str key = proa_pickle_text(p, it.key);
        size_t begin = out->len;
        if (!key.len) continue;
        proa_buf_json_str(out, key);
        proa_buf_char(out, ':');
        if (write_value(p, it.value, out)) proa_buf_char(out, ',');
        else out->len = begin;
    }
}

static void write_id(const proa_pickle *p, proa_pickle_value words, proa_buf *out, const char *key,
                     const char *word)
{
    int32_t id = position_of(p, words, word);
    if (id >= 0) proa_buf_printf(out, "\"%s\":%d,", key, id);
}

static void write_hidden_size(const proa_pickle *p, proa_buf *out)
{
    static const char *const keys[] = {"dec_hid_size", "hidden_size", "dec_rnn_size", "rnn_size"};
    proa_pickle_value opt = proa_pickle_get(p, p->root, "opt");
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        const proa_pickle_node *n = proa_pickle_at(p, proa_pickle_get(p, opt, keys[i]));
        if (n->kind != PROA_PICKLE_INT || n->integer <= 0) continue;
        proa_buf_printf(out, "\"hidden_size\":%lld,", (long long)n->integer);
        return;
    }
}

/* The rows of the encoder's table of positions, where the file has one. */
static void write_positions(const proa_torch *t, proa_buf *out)
{
    for (int64_t i = 0; i < t->w->count; i++) {
        const proa_weights_tensor *row = &t->w->tensors[i];
        if (strcmp(row->name, "encoder.embeddings.make_embedding.pe.pe") == 0 && row->source.view.rank > 0)
            proa_buf_printf(out, "\"max_position_embeddings\":%lld,", (long long)row->source.view.shape[0]);
    }
}

static proa_status add_config(proa_torch *t, proa_pickle_value src, proa_pickle_value tgt)
{
    const proa_pickle *p = &t->pickle;
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_CONFIG_BYTES_MAX);
    proa_buf_char(&out, '{');
    write_options(p, &out);
    write_hidden_size(p, &out);
    write_positions(t, &out);
    write_id(p, tgt, &out, "unk_token_id", "<unk>");
    write_id(p, tgt, &out, "pad_token_id", "<pad>");
    write_id(p, tgt, &out, "pad_token_id", "<blank>");
    write_id(p, tgt, &out, "bos_token_id", "<s>");
    write_id(p, tgt, &out, "decoder_start_token_id", "<s>");
    write_id(p, tgt, &out, "eos_token_id", "</s>");
    proa_buf_printf(&out,
                    "\"src_vocab_size\":%d,\"tgt_vocab_size\":%d,\"model_type\":\"opennmt\","
                    "\"architectures\":[\"OpenNMTTransformer\"]}",
                    proa_pickle_at(p, src)->count, proa_pickle_at(p, tgt)->count);
    proa_status status = out.full ? FAIL_TORCH(t, LIMIT, "options of more than %lld bytes",
                                               (long long)PROA_CONFIG_BYTES_MAX)
                                  : PROA_OK;
    if (status == PROA_OK)
        proa_weights_add_made(
            t->w, (proa_made_file){.name = "config.json",
                                   .text = {proa_arena_strdup(&t->w->arena, proa_buf_view(&out)), out.len}});
    proa_buf_release(&out);
    return status;
}

/* ---- the file ---- */

bool proa_opennmt_is(const proa_torch *t)
{
    const proa_pickle *p = &t->pickle;
    return proa_pickle_get(p, p->root, "model") && proa_pickle_get(p, p->root, "opt") &&
           proa_pickle_get(p, p->root, "vocab");
}

proa_status proa_opennmt_read(proa_torch *t)
{
    const proa_pickle *p = &t->pickle;
    proa_pickle_value src = words_of(p, "src"), tgt = words_of(p, "tgt");
    if (!src || !tgt)
        return FAIL_TORCH(t, UNSUPPORTED, "its 'vocab' has no list of words for '%s'", src ? "tgt" : "src");
    PROA_TRY(proa_torch_add_all(t, proa_pickle_get(p, p->root, "model"), "", NULL));
    PROA_TRY(proa_torch_add_all(t, proa_pickle_get(p, p->root, "generator"), "generator.", "0."));
    PROA_TRY(add_config(t, src, tgt));
    PROA_TRY(add_vocab(t, "vocab.json", src));
    return same_words(p, src, tgt) ? PROA_OK : add_vocab(t, "target_vocab.json", tgt);
}
