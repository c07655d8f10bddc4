/* SPDX-License-Identifier: Apache-2.0
 * gguf_tokenizer.c - a tokenizer as metadata tokenizer.ggml.*, whatever file it was read from.
 * Facts: llama.cpp's conversion/ (vocabularies) and src/llama-vocab.cpp. */
#include "convert/gguf_values.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "text/describe.h"
#include "weights/gguf/tokenizer.h"
#include <string.h>

#define WORD_MARK "\xe2\x96\x81" /* U+2581 */

typedef struct writer {
    proa_gguf_values *v;
    const proa_files *files;
    const proa_tokenizer *tok;
    proa_tokenizer_parts parts;
    int32_t rows; /* of the embedding table: as many tokens */
    const proa_config *c;
    bool ranked;       /* merges of UTF-8 are written with their ranks */
    proa_json *config; /* tokenizer_config.json, or NULL */
    proa_arena arena;
    proa_err *err;
} writer;

/* ---- how a text is cut ---- */

/* Letters of many scripts, numbers, marks, contractions and blanks, in which the known rules differ. */
static const char *const probes[] = {
    "Hello, world! It's 2024; we'll've seen 1234567 things, I'M sure. HTTPServer camelCase snake_case",
    "  two  spaces\n\n\nlines\r\n\ttabs \t end  ",
    "caf\xc3\xa9 na\xc3\xafve \xc3\x9c"
    "bung e\xcc\x81 A\xcc\x8a \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "\xce\xb3\xce\xb5\xce\xb9\xce\xac",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c\xef\xbc\x8c\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81"
    "\xa1\xe3\x81\xaf\xe3\x80\x82\xec\x95\x88\xeb\x85\x95 123",
    "\xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 \xd9\xa1\xd9\xa2\xd9\xa3 "
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8\xb5",
    "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe2\x82\xac"
    "12.50 $3,000.00 100% <a href=\"x\">y</a> a+b=c ^~|` foo@bar.com/path#1",
    "x = [1, 22, 333, 4444, 55555];\n    if (a != b) { return a/b; } // done...\n\n",
    "\xe2\x80\xa6 \xe2\x80\x9cquoted\xe2\x80\x9d \xe2\x80\x94 dash \xc2\xbd \xc2\xb2 \xe2\x85\xa3 'tis 'S "
    "'Re",
};

static bool same_pieces(const proa_tokenizer *a, const proa_tokenizer *b)
{
    bool same = true;
    for (size_t i = 0; i < PROA_COUNT(probes) && same; i++) {
        proa_buf x, y;
        proa_err ignored;
        proa_buf_init(&x, PROA_MIB), proa_buf_init(&y, PROA_MIB);
        same = proa_tokenizer_pieces(a, proa_str_c(probes[i]), &x, &ignored) == PROA_OK &&
               proa_tokenizer_pieces(b, proa_str_c(probes[i]), &y, &ignored) == PROA_OK &&
               proa_str_eq(proa_buf_view(&x), proa_buf_view(&y));
        proa_buf_release(&x), proa_buf_release(&y);
    }
    return same;
}

/* A tokenizer that cuts as the row says, with a vocabulary of one piece. */
static proa_status open_cutter(proa_tokenizer **out, const proa_gguf_pretokenizer *pre, proa_err *err)
{
    proa_buf json;
    proa_buf_init(&json, PROA_MIB);
    proa_buf_printf(&json, "{\"added_tokens\": []");
    proa_gguf_write_splits(&json, pre);
    proa_buf_printf(&json, ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
    proa_status status = proa_tokenizer_open_json(out, proa_buf_view(&json), pre->name, err);
    proa_buf_release(&json);
    return status;
}

/* The name of tokenizer.ggml.pre whose row cuts texts as the tokenizer does. */
static proa_status find_pretokenizer(const writer *w, const proa_gguf_pretokenizer **out)
{
    for (size_t i = 0; (*out = proa_gguf_pretokenizer_at(i)); i++) {
        proa_tokenizer *cutter = NULL;
        if (!*(*out)->name || (*out)->raw || (*out)->whole != w->parts.ignore_merges) continue;
        PROA_TRY(open_cutter(&cutter, *out, w->err));
        bool same = same_pieces(w->tok, cutter);
        proa_tokenizer_free(cutter);
        if (same) return PROA_OK;
    }
    return PROA_FAIL(w->err, UNSUPPORTED,
                     "GGUF has no name for how this tokenizer cuts a text before its merges");
}

/* ---- tokens ---- */

static proa_piece_type type_of(const writer *w, int32_t id)
{
    proa_piece_type type = proa_tokenizer_piece_type(w->tok, id);
    bool bpe = w->parts.kind == PROA_TOKENIZER_BPE && w->parts.byte_level;
    return bpe && type == PROA_PIECE_UNKNOWN ? PROA_PIECE_CONTROL : type;
}

/* Text of a token; WordPiece's is marked where a word begins, not where it goes on. An id without a piece gets a name
 * that no text becomes. */
static void put_token(const writer *w, int32_t id, proa_buf *text)
{
    proa_str piece = proa_tokenizer_token(w->tok, id);
    proa_piece_type type = type_of(w, id);
    proa_buf_clear(text);
    if (type == PROA_PIECE_UNUSED && piece.len == 0) proa_buf_printf(text, "[PAD%d]", id);
    if (w->parts.kind == PROA_TOKENIZER_WORDPIECE && type == PROA_PIECE_NORMAL) {
        bool goes_on = proa_str_starts(piece, proa_str_c("##"));
        if (goes_on) piece.ptr += 2, piece.len -= 2;
        else proa_buf_str(text, proa_str_c(WORD_MARK));
    }
    proa_buf_str(text, piece);
}

static void put_tokens(const writer *w)
{
    proa_gguf_values *v = w->v;
    proa_buf text;
    proa_buf_init(&text, PROA_TOKEN_BYTES_MAX + 16);
    proa_gguf_value_array(v, "tokenizer.ggml.tokens", PROA_GGUF_STRING, w->rows);
    for (int32_t i = 0; i < w->rows; i++) {
        put_token(w, i, &text);
        proa_gguf_put_text(&v->bytes, proa_buf_view(&text));
    }
    proa_buf_release(&text);
    proa_gguf_value_array(v, "tokenizer.ggml.token_type", PROA_GGUF_I32, w->rows);
    for (int32_t i = 0; i < w->rows; i++) proa_gguf_put_u32(&v->bytes, (uint32_t)type_of(w, i));
}

static void put_scores(const writer *w, const float *scores)
{
    proa_gguf_value_array(w->v, "tokenizer.ggml.scores", PROA_GGUF_F32, w->rows);
    for (int32_t i = 0; i < w->rows; i++) proa_gguf_put_u32(&w->v->bytes, proa_f32_bits(scores[i]));
}

static void put_merges(writer *w)
{
    proa_merge_rule *rule;
    proa_buf text;
    int64_t n = proa_tokenizer_merges(w->tok, &w->arena, &rule);
    proa_buf_init(&text, 2 * (PROA_TOKEN_BYTES_MAX + 16));
    proa_gguf_value_array(w->v, "tokenizer.ggml.merges", PROA_GGUF_STRING, n);
    for (int64_t i = 0; i < n; i++) {
        proa_buf_clear(&text);
        proa_buf_str(&text, proa_tokenizer_token(w->tok, rule[i].left));
        proa_buf_char(&text, ' ');
        proa_buf_str(&text, proa_tokenizer_token(w->tok, rule[i].right));
        proa_gguf_put_text(&w->v->bytes, proa_buf_view(&text));
    }
    proa_buf_release(&text);
}

/* ---- the models ---- */

static void put_flag(const writer *w, const char *key, bool on)
{
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s", key);
    proa_gguf_value_bool(w->v, full, on);
}

static void put_model(const writer *w, const char *model, const char *pre)
{
    proa_gguf_value_str(w->v, "tokenizer.ggml.model", proa_str_c(model));
    proa_gguf_value_str(w->v, "tokenizer.ggml.pre", proa_str_c(pre));
}

static proa_status put_byte_level(writer *w)
{
    const proa_gguf_pretokenizer *pre;
    PROA_TRY(find_pretokenizer(w, &pre));
    put_model(w, "gpt2", pre->name);
    put_tokens(w);
    put_merges(w);
    return PROA_OK;
}

/* SentencePiece's BPE takes the pair whose piece has the best score. Merges with ranks do the same if a piece's score
 * falls with the rank of the first rule that makes it; gguf_check.c finds out whether they do. */
static proa_status put_spm(writer *w)
{
    float *scores = PROA_ARENA_NEW(&w->arena, float, w->rows);
    proa_merge_rule *rule;
    int64_t n = w->parts.kind == PROA_TOKENIZER_BPE ? proa_tokenizer_merges(w->tok, &w->arena, &rule) : 0;
    for (int32_t i = 0; i < w->rows; i++)
        scores[i] = w->parts.kind == PROA_TOKENIZER_BPE ? -1e9F : (float)proa_tokenizer_score(w->tok, i);
    for (int64_t i = n - 1; i >= 0; i--)
        if (rule[i].id < w->rows) scores[rule[i].id] = -(float)i;
    put_model(w, "llama", "default");
    put_tokens(w);
    put_scores(w, scores);
    put_flag(w, "add_space_prefix", w->parts.space_prefix);
    return PROA_OK;
}

/* Merges of UTF-8 pieces by their ranks, which architectures with `merges` have: scores could not say all of them. */
static proa_status put_ranked(writer *w)
{
    proa_gguf_value_str(w->v, "tokenizer.ggml.model", proa_str_c("gemma4"));
    put_tokens(w);
    put_merges(w);
    put_flag(w, "add_space_prefix", w->parts.space_prefix);
    return PROA_OK;
}

static proa_status put_unigram(writer *w)
{
    float *scores = PROA_ARENA_NEW(&w->arena, float, w->rows);
    proa_buf charsmap;
    for (int32_t i = 0; i < w->rows; i++) scores[i] = (float)proa_tokenizer_score(w->tok, i);
    put_model(w, "t5", "default");
    put_tokens(w);
    put_scores(w, scores);
    put_flag(w, "add_space_prefix", w->parts.space_prefix);
    put_flag(w, "remove_extra_whitespaces", w->parts.squeeze);
    proa_buf_init(&charsmap, (size_t)PROA_SPM_BYTES_MAX);
    proa_tokenizer_charsmap(w->tok, &charsmap);
    if (charsmap.len) {
        proa_gguf_value_array(w->v, "tokenizer.ggml.precompiled_charsmap", PROA_GGUF_U8, (int64_t)charsmap.len);
        proa_buf_str(&w->v->bytes, proa_buf_view(&charsmap));
    }
    proa_buf_release(&charsmap);
    return PROA_OK;
}

static proa_status put_wordpiece(writer *w)
{
    put_model(w, "bert", "default");
    put_tokens(w);
    if (!w->parts.lowercase) put_flag(w, "normalizer.lowercase", false);
    return PROA_OK;
}

static proa_status put_vocabulary(writer *w)
{
    switch (w->parts.kind) {
    case PROA_TOKENIZER_BPE:
        if (w->parts.byte_level) return put_byte_level(w);
        return w->ranked ? put_ranked(w) : put_spm(w);
    case PROA_TOKENIZER_SPM_BPE: return put_spm(w);
    case PROA_TOKENIZER_UNIGRAM: return put_unigram(w);
    case PROA_TOKENIZER_WORDPIECE: return put_wordpiece(w);
    case PROA_TOKENIZER_WORDLEVEL: break;
    }
    return PROA_FAIL(w->err, UNSUPPORTED, "GGUF has no tokenizer that only looks up whole words");
}

/* ---- special tokens ---- */

/* The id of a token that tokenizer_config.json names, as a text or an object; -1: none. */
static int64_t named_id(const writer *w, const char *member)
{
    int32_t id;
    const proa_json *j = proa_json_get(w->config, member);
    if (proa_json_kind(j) == PROA_JSON_OBJECT) j = proa_json_get(j, "content");
    proa_str text = proa_json_str(j);
    return text.len && proa_tokenizer_find(w->tok, text, &id) ? id : -1;
}

static int64_t special_id(const writer *w, proa_gguf_special which, const char *member)
{
    int64_t id = named_id(w, member);
    if (id >= 0) return id;
    switch (which) {
    case PROA_GGUF_BOS: /* BERT's texts begin with [CLS], which llama.cpp knows by this key */
        return w->parts.kind == PROA_TOKENIZER_WORDPIECE ? named_id(w, "cls_token") : w->c->bos;
    case PROA_GGUF_EOS: return w->c->end_count ? w->c->end_ids[0] : -1;
    case PROA_GGUF_PAD: return w->c->pad;
    case PROA_GGUF_UNK: return w->parts.unk;
    default: return -1;
    }
}

/* The id that generation ends with comes first: llama.cpp's converter takes config.json's too. */
static void put_special(const writer *w)
{
    static const struct {
        const char *key, *member;
    } list[] = {
#define ROW(name, key, member) {"tokenizer.ggml." key "_token_id", member},
        PROA_GGUF_SPECIAL_LIST(ROW)
#undef ROW
    };
    int64_t eos = -1;
    for (int i = 0; i < PROA_GGUF_SPECIAL_COUNT; i++) {
        int64_t id = special_id(w, (proa_gguf_special)i, list[i].member);
        if (i == PROA_GGUF_EOS) eos = id;
        if (id >= 0 && id < w->rows) proa_gguf_value_u32(w->v, list[i].key, id);
    }
    for (int32_t i = 0; i < w->c->end_count; i++) {
        if (w->c->end_ids[i] == eos) continue;
        proa_gguf_value_u32(w->v, "tokenizer.ggml.eot_token_id", w->c->end_ids[i]);
        break;
    }
}

/* Whether the list is the one token that the key names. */
static proa_status check_surrounding(const writer *w, const int32_t *ids, int32_t count, int64_t id,
                                     const char *where)
{
    if (count == 0 || (count == 1 && ids[0] == id)) return PROA_OK;
    return PROA_FAIL(w->err, UNSUPPORTED, "GGUF cannot say that the %d tokens %s are put %s a text", count,
                     count ? "that begin with a special one" : "", where);
}

static proa_status put_surrounding(const writer *w)
{
    bool words = w->parts.kind == PROA_TOKENIZER_WORDPIECE;
    int64_t before = words ? named_id(w, "cls_token") : special_id(w, PROA_GGUF_BOS, "bos_token");
    int64_t after = words ? named_id(w, "sep_token") : special_id(w, PROA_GGUF_EOS, "eos_token");
    PROA_TRY(check_surrounding(w, w->parts.before, w->parts.before_count, before, "before"));
    PROA_TRY(check_surrounding(w, w->parts.after, w->parts.after_count, after, "after"));
    put_flag(w, "add_bos_token", w->parts.before_count > 0);
    put_flag(w, words ? "add_sep_token" : "add_eos_token", w->parts.after_count > 0);
    return PROA_OK;
}

/* ---- chat templates ---- */

/* A list of templates with names: the one called "default" is the template, the others have keys of their own. */
static void put_named_templates(const writer *w, const proa_json *list)
{
    char key[128];
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        const proa_json *item = proa_json_at(list, i);
        proa_str name = proa_json_str(proa_json_get(item, "name"));
        proa_str text = proa_json_str(proa_json_get(item, "template"));
        if (name.len == 0 || name.len > 60 || !text.ptr) continue;
        bool first = proa_str_is(name, "default");
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.*s", first ? "" : ".",
                 first ? 0 : (int)name.len, name.ptr);
        proa_gguf_value_str(w->v, key, text);
    }
}

static proa_status put_templates(const writer *w)
{
    const proa_json *template = proa_json_get(w->config, "chat_template");
    if (proa_files_has(w->files, "chat_template.jinja")) {
        proa_buf text;
        proa_status status = proa_files_read(&text, w->files, "chat_template.jinja", PROA_CONFIG_BYTES_MAX,
                                             w->err);
        if (status == PROA_OK) proa_gguf_value_str(w->v, "tokenizer.chat_template", proa_buf_view(&text));
        proa_buf_release(&text);
        return status;
    }
    if (proa_json_kind(template) == PROA_JSON_STRING)
        proa_gguf_value_str(w->v, "tokenizer.chat_template", proa_json_str(template));
    else put_named_templates(w, template);
    return PROA_OK;
}

/* ---- the whole ---- */

static proa_status write_all(writer *w)
{
    PROA_TRY(proa_tokenizer_describe(&w->parts, w->tok, w->err));
    if (proa_tokenizer_vocab(w->tok) > w->rows)
        return PROA_FAIL(w->err, UNSUPPORTED, "the tokenizer has %d tokens, the embedding table only %d rows",
                         proa_tokenizer_vocab(w->tok), w->rows);
    if (proa_files_has(w->files, "tokenizer_config.json"))
        PROA_TRY(proa_files_json(&w->config, w->files, "tokenizer_config.json", PROA_TOKENIZER_BYTES_MAX, w->err));
    PROA_TRY(put_vocabulary(w));
    put_special(w);
    PROA_TRY(put_surrounding(w));
    return put_templates(w);
}

static bool has_tokenizer(const proa_files *files)
{
    static const char *const names[] = {"tokenizer.json",          "tokenizer.model", "spiece.model",
                                        "sentencepiece.bpe.model", "vocab.txt",       "vocab.json"};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_files_has(files, names[i])) return true;
    return false;
}

proa_status proa_gguf_put_tokenizer(proa_gguf_values *v, const proa_files *files, const proa_config *c,
                                    bool ranked, proa_err *err)
{
    if (!has_tokenizer(files)) {
        proa_gguf_value_str(v, "tokenizer.ggml.model", proa_str_c("none"));
        return PROA_OK;
    }
    proa_tokenizer *tok = NULL;
    PROA_TRY(proa_tokenizer_open_files(&tok, files, err));
    writer w = {
        .v = v, .files = files, .tok = tok, .rows = (int32_t)c->vocab, .c = c, .ranked = ranked, .err = err};
    proa_arena_init(&w.arena);
    proa_status status = write_all(&w);
    if (status == PROA_OK) status = proa_gguf_check_tokenizer(v, tok, err);
    proa_json_free(w.config);
    proa_arena_release(&w.arena);
    proa_tokenizer_free(tok);
    return status;
}
