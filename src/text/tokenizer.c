/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.c - opens a tokenizer, encodes with it, and answers questions about its vocabulary. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>

/* ---- opening ---- */

static proa_tokenizer *tokenizer_new(void)
{
    proa_tokenizer *tok = proa_calloc(1, sizeof *tok);
    proa_arena_init(&tok->arena);
    proa_map_init(&tok->added.by_content, 0);
    tok->bpe.unk = tok->unigram.unk = tok->wordpiece.unk = -1;
    return tok;
}

void proa_tokenizer_free(proa_tokenizer *tok)
{
    if (!tok) return;
    proa_map_release(&tok->added.by_content);
    proa_arena_release(&tok->arena);
    free(tok);
}

static bool special_text(const proa_added *a, proa_str text)
{
    int32_t i;
    return proa_map_find(&a->by_content, text, &i) && a->ptr[i].special;
}

/* Fills, by id, the text that decoding starts from and whether skip_special omits it. As in the library, a
 * token is special if its text, not its id, is that of a special token. */
static void fill_texts(proa_tokenizer *tok)
{
    const proa_added *a = &tok->added;
    tok->size = tok->listed ? tok->listed : tok->vocab.size;
    for (int64_t i = 0; i < a->len; i++)
        if (a->ptr[i].id >= tok->size) tok->size = a->ptr[i].id + 1;
    tok->texts = PROA_ARENA_NEW(&tok->arena, proa_str, tok->size);
    tok->special = PROA_ARENA_NEW(&tok->arena, bool, tok->size);
    tok->added.of_id = PROA_ARENA_NEW(&tok->arena, int32_t, tok->size);
    for (int32_t i = 0; i < tok->size; i++) {
        if (proa_vocab_has(&tok->vocab, i)) tok->texts[i] = proa_vocab_piece(&tok->vocab, i);
        tok->added.of_id[i] = -1;
        if (tok->unigram.types && i < tok->vocab.size)
            tok->special[i] = tok->unigram.types[i] == PROA_SPM_CONTROL;
        if (tok->vocab.twins && tok->texts[i].ptr) tok->special[i] |= special_text(a, tok->texts[i]);
    }
    for (int64_t i = 0; i < a->len; i++) {
        const proa_added_token *t = &a->ptr[i];
        tok->added.of_id[t->id] = (int32_t)i;
        tok->texts[t->id] = t->text;
        tok->special[t->id] |= special_text(a, t->text);
    }
}

/* A template's ids must be ids. */
static proa_status check_template(const proa_tokenizer *tok, const proa_post_template *t, proa_err *err)
{
    for (int64_t i = 0; i < t->len; i++)
        for (int32_t k = 0; k < t->ptr[i].ids_len; k++)
            if (t->ptr[i].ids[k] >= tok->size)
                return PROA_FAIL(err, INVALID,
                                 "post_processor: special token id %d is outside the vocabulary of %d",
                                 t->ptr[i].ids[k], tok->size);
    return PROA_OK;
}

proa_status proa_tokenizer_seal(proa_tokenizer *tok, proa_err *err)
{
    PROA_TRY(proa_added_seal(tok, err));
    fill_texts(tok);
    PROA_TRY(check_template(tok, &tok->post.single, err));
    return check_template(tok, &tok->post.pair, err);
}

static proa_status finish_open(proa_tokenizer **out, proa_tokenizer *tok, proa_status status,
                               const char *what, proa_err *err)
{
    if (status == PROA_OK) status = proa_tokenizer_seal(tok, err);
    if (status == PROA_OK) {
        *out = tok;
        return PROA_OK;
    }
    proa_err_prefix(err, "%s", what);
    proa_tokenizer_free(tok);
    return status;
}

proa_status proa_tokenizer_open_json(proa_tokenizer **out, proa_str json, const char *what, proa_err *err)
{
    proa_json *root = NULL;
    if (json.len > (size_t)PROA_TOKENIZER_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "%s has %zu bytes, at most %lld are allowed", what, json.len,
                         (long long)PROA_TOKENIZER_BYTES_MAX);
    proa_buf marked;
    proa_buf_init(&marked, json.len + 1);
    bool nul = proa_json_mark_nul(&marked, json);
    proa_status status = proa_json_parse(&root, nul ? proa_buf_view(&marked) : json, what, err);
    proa_buf_release(&marked);
    if (status != PROA_OK) return status;
    proa_tokenizer *tok = tokenizer_new();
    status = proa_load_json(tok, root, nul, err);
    proa_json_free(root);
    return finish_open(out, tok, status, what, err);
}

proa_status proa_tokenizer_open_model(proa_tokenizer **out, const void *bytes, size_t len, const char *what,
                                      const proa_json *config, const proa_piece_list *list, proa_err *err)
{
    proa_tokenizer *tok = tokenizer_new();
    proa_status status = proa_load_spm(tok, bytes, len, config, list, err);
    if (status == PROA_OK && config) status = proa_load_spm_config(tok, config, err);
    return finish_open(out, tok, status, what, err);
}

proa_status proa_tokenizer_open_spm(proa_tokenizer **out, const void *bytes, size_t len, const char *what,
                                    proa_err *err)
{
    return proa_tokenizer_open_model(out, bytes, len, what, NULL, NULL, err);
}

proa_status proa_tokenizer_open_tiktoken(proa_tokenizer **out, proa_str lines, const char *name,
                                         const char *what, const proa_json *config, proa_err *err)
{
    proa_buf json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_tiktoken_write(&json, lines, name, config, err);
    if (status == PROA_OK && json.full)
        status = PROA_FAIL(err, LIMIT, "longer than %lld bytes", (long long)PROA_TOKENIZER_BYTES_MAX);
    if (status != PROA_OK) proa_err_prefix(err, "%s", what);
    else status = proa_tokenizer_open_json(out, proa_buf_view(&json), what, err);
    proa_buf_release(&json);
    return status;
}

/* ---- asking ---- */

int32_t proa_tokenizer_vocab(const proa_tokenizer *tok)
{
    return tok->size;
}

int64_t proa_tokenizer_bytes(const proa_tokenizer *tok)
{
    /* the map of added tokens: slots of 32 bytes, at most half full */
    return (int64_t)sizeof *tok + (int64_t)tok->arena.bytes + 32 * tok->added.by_content.cap;
}

proa_str proa_tokenizer_token(const proa_tokenizer *tok, int32_t id)
{
    if (id < 0 || id >= tok->size) return (proa_str){"", 0};
    if (tok->added.of_id[id] >= 0) return tok->added.ptr[tok->added.of_id[id]].content;
    return proa_vocab_piece(&tok->vocab, id);
}

bool proa_tokenizer_find(const proa_tokenizer *tok, proa_str piece, int32_t *id)
{
    int32_t at;
    if (proa_map_find(&tok->added.by_content, piece, &at)) {
        *id = tok->added.ptr[at].id;
        return true;
    }
    *id = proa_vocab_find(&tok->vocab, piece);
    return *id >= 0;
}

bool proa_tokenizer_is_special(const proa_tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->size && tok->special[id];
}

/* ---- encoding ---- */

typedef struct encoder {
    const proa_tokenizer *tok;
    proa_parts parts[2]; /* a stage reads one and writes the other */
    int now;             /* the one to read */
    proa_encode_scratch work;
    proa_err *err;
} encoder;

static proa_parts *other_parts(encoder *e)
{
    proa_parts_clear(&e->parts[!e->now]);
    return &e->parts[!e->now];
}

static proa_status turn_parts(encoder *e)
{
    e->now = !e->now;
    if (e->parts[e->now].text.full)
        return PROA_FAIL(e->err, LIMIT, "text grew beyond %lld bytes", (long long)PROA_NORMALIZED_BYTES_MAX);
    return PROA_OK;
}

/* Copies a finished part unchanged. */
static void carry_over(const proa_parts *from, int64_t i, proa_parts *to)
{
    size_t base = to->text.len;
    proa_str text = proa_parts_text(from, i);
    proa_buf_str(&to->text, text);
    proa_parts_add(to, base, 0, text.len, (size_t)from->ptr[i].zero, from->ptr[i].id);
}

/* Every part that is not an added token: normalised, then split at the tokens that match normalised text. */
static proa_status normalize_parts(encoder *e)
{
    proa_parts *from = &e->parts[e->now], *to = other_parts(e);
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_NORMALIZED_BYTES_MAX);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < from->len; i++) {
        if (from->ptr[i].id >= 0) {
            carry_over(from, i, to);
            continue;
        }
        size_t zero = (size_t)from->ptr[i].zero;
        proa_buf_clear(&text);
        PROA_TRY_OUT(proa_normalize(e->tok, proa_parts_text(from, i), &zero, &text, e->err));
        proa_added_split(&e->tok->added, &e->tok->added.normalized, proa_buf_view(&text), zero, to);
    }
    status = turn_parts(e);
out:
    proa_buf_release(&text);
    return status;
}

static proa_status pre_tokenize(encoder *e, const proa_text_step *step)
{
    proa_parts *from = &e->parts[e->now], *to = other_parts(e);
    for (int64_t i = 0; i < from->len; i++) {
        if (from->ptr[i].id >= 0) carry_over(from, i, to);
        else
            PROA_TRY(step->kind->split(step, proa_parts_text(from, i), (size_t)from->ptr[i].zero, to, e->err));
    }
    return turn_parts(e);
}

static proa_status run_model(encoder *e, proa_ids *out)
{
    const proa_parts *parts = &e->parts[e->now];
    for (int64_t i = 0; i < parts->len; i++) {
        if (parts->ptr[i].id >= 0) proa_ids_push(out, parts->ptr[i].id);
        else if (parts->ptr[i].len > 0)
            PROA_TRY(e->tok->model(e->tok, proa_parts_text(parts, i), &e->work, out, e->err));
    }
    return PROA_OK;
}

static proa_status run_stages(encoder *e, proa_str text, proa_ids *out)
{
    const proa_tokenizer *tok = e->tok;
    int32_t first;
    size_t zero = text.len ? (size_t)proa_char_next(text, &first) : 0;
    proa_added_split(&tok->added, &tok->added.raw, text, zero, other_parts(e));
    PROA_TRY(turn_parts(e));
    PROA_TRY(normalize_parts(e));
    for (int64_t i = 0; i < tok->pre_tokenizers.len; i++)
        PROA_TRY(pre_tokenize(e, &tok->pre_tokenizers.ptr[i]));
    return run_model(e, out);
}

static proa_status encode_text(const proa_tokenizer *tok, proa_str text, proa_ids *out, proa_err *err)
{
    if (text.len > (size_t)PROA_TEXT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "text has %zu bytes, at most %lld are allowed", text.len,
                         (long long)PROA_TEXT_BYTES_MAX);
    proa_buf repaired;
    proa_buf_init(&repaired, (size_t)PROA_NORMALIZED_BYTES_MAX);
    if (!proa_utf8_valid(text)) {
        proa_utf8_repair(&repaired, text);
        text = proa_buf_view(&repaired);
    }
    encoder e = {.tok = tok, .err = err};
    proa_parts_init(&e.parts[0]);
    proa_parts_init(&e.parts[1]);
    int64_t before = out->len;
    proa_status status = run_stages(&e, text, out);
    if (status != PROA_OK) out->len = before;
    for (int64_t i = before; tok->listed && i < out->len; i++)
        if (out->ptr[i] >= tok->listed && out->ptr[i] < tok->vocab.size) out->ptr[i] = tok->unlisted_id;
    proa_parts_release(&e.parts[0]);
    proa_parts_release(&e.parts[1]);
    proa_encode_scratch_release(&e.work);
    proa_buf_release(&repaired);
    return status;
}

static void append_ids(proa_ids *out, proa_ids *types, const int32_t *ids, int64_t n, int32_t type)
{
    for (int64_t i = 0; i < n; i++) {
        proa_ids_push(out, ids[i]);
        if (types) proa_ids_push(types, type);
    }
}

/* Arranges the ids of the texts as the template says. */
static void post_process(const proa_tokenizer *tok, const proa_ids text[2], bool pair, bool add_special,
                         proa_ids *out, proa_ids *types)
{
    const proa_post *post = &tok->post;
    const proa_post_template *t = pair ? &post->pair : &post->single;
    if (!post->on || (post->only_added && !add_special)) {
        for (int i = 0; i <= pair; i++) append_ids(out, types, text[i].ptr, text[i].len, i);
        return;
    }
    for (int64_t i = 0; i < t->len; i++) {
        const proa_post_piece *p = &t->ptr[i];
        if (!p->ids) append_ids(out, types, text[p->sequence].ptr, text[p->sequence].len, p->type_id);
        else if (add_special) append_ids(out, types, p->ids, p->ids_len, p->type_id);
    }
}

proa_status proa_tokenizer_encode_types(const proa_tokenizer *tok, proa_str text, bool add_special,
                                        proa_ids *out, proa_ids *type_ids, proa_err *err)
{
    proa_ids ids[2] = {{0}, {0}};
    proa_status status = encode_text(tok, text, &ids[0], err);
    if (status == PROA_OK) post_process(tok, ids, false, add_special, out, type_ids);
    proa_ids_release(&ids[0]);
    return status;
}

proa_status proa_tokenizer_encode(const proa_tokenizer *tok, proa_str text, bool add_special, proa_ids *out,
                                  proa_err *err)
{
    if (!tok->post.on) return encode_text(tok, text, out, err);
    return proa_tokenizer_encode_types(tok, text, add_special, out, NULL, err);
}

proa_status proa_tokenizer_encode_pair(const proa_tokenizer *tok, proa_str a, proa_str b, bool add_special,
                                       proa_ids *out, proa_ids *type_ids, proa_err *err)
{
    proa_ids ids[2] = {{0}, {0}};
    proa_status status = encode_text(tok, a, &ids[0], err);
    if (status == PROA_OK) status = encode_text(tok, b, &ids[1], err);
    if (status == PROA_OK) post_process(tok, ids, true, add_special, out, type_ids);
    proa_ids_release(&ids[0]);
    proa_ids_release(&ids[1]);
    return status;
}
