/* SPDX-License-Identifier: Apache-2.0
 * old_forms.c - writes a tokenizer.json for folders that have none: vocab.txt (BERT, ESM), vocab.json with merges.txt
 * (GPT-2 and what came after it), and ByT5, which has no file at all.
 * Facts: transformers' convert_slow_tokenizer.py, and the defaults of its tokenizer classes. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <string.h>

/* ---- special tokens ---- */

/* An added token. */
typedef struct added {
    proa_str content;
    int64_t id;             /* -1: what the vocabulary says, or the next free one */
    const proa_json *flags; /* an object with lstrip and so on; NULL: none */
    bool special, lstrip;   /* lstrip: without flags */
} added;

typedef struct writer {
    proa_buf *out;
    const proa_json *config;
    proa_arena arena;
    proa_map ids, seen; /* the vocabulary: piece -> id; the list: content -> place */
    added *list;
    int64_t count, cap;
    proa_err *err;
} writer;

/* A special token by its key, and what it is if the configuration does not say it. */
typedef struct special_name {
    const char *key, *usual;
    bool lstrip;
} special_name;

static void put_comma(proa_buf *out, bool *first)
{
    if (!*first) proa_buf_char(out, ',');
    *first = false;
}

static int64_t id_of(const writer *w, proa_str piece)
{
    int32_t id, at;
    if (proa_map_find(&w->ids, piece, &id)) return id;
    return proa_map_find(&w->seen, piece, &at) ? w->list[at].id : -1;
}

/* Adds a token, or says of one that is there that it is special. */
static void put_token(writer *w, added token)
{
    int32_t at;
    if (token.content.len == 0) return;
    if (proa_map_find(&w->seen, token.content, &at)) {
        w->list[at].special |= token.special;
        return;
    }
    PROA_ASSERT(w->count < w->cap);
    proa_map_put(&w->seen, token.content, (int32_t)w->count);
    w->list[w->count++] = token;
}

static void put_special(writer *w, const proa_json *token, bool lstrip)
{
    bool object = proa_json_kind(token) == PROA_JSON_OBJECT;
    proa_str content = proa_json_str(object ? proa_json_get(token, "content") : token);
    put_token(w, (added){content, -1, object ? token : NULL, true, lstrip});
}

/* The added tokens of the configuration, its special tokens (or the usual ones, which `force` adds even if the
 * vocabulary lacks them), and its additional ones, or else that many sentinels of T5. */
static proa_status collect_specials(writer *w, const special_name *names, bool force, int64_t sentinels)
{
    const proa_json *decoder = proa_json_get(w->config, "added_tokens_decoder");
    const proa_json *more = proa_json_get(w->config, "additional_special_tokens");
    if (proa_json_kind(decoder) != PROA_JSON_OBJECT) decoder = NULL;
    if (proa_json_kind(more) != PROA_JSON_ARRAY) more = NULL;
    w->cap = proa_json_len(decoder) + proa_json_len(more) + sentinels + 16;
    if (w->cap > PROA_VOCAB_MAX)
        return PROA_FAIL(w->err, LIMIT, "tokenizer_config.json has %lld added tokens", (long long)w->cap);
    w->list = PROA_ARENA_NEW(&w->arena, added, w->cap);
    for (proa_json_iter it = proa_json_begin(decoder); proa_json_next(&it);) {
        added t = {.flags = it.value};
        PROA_TRY(proa_config_id(&t.id, it.key, w->err));
        PROA_TRY(proa_json_get_str(&t.content, it.value, "content", w->err));
        PROA_TRY(proa_json_get_bool(&t.special, it.value, "special", w->err));
        put_token(w, t);
    }
    for (; names->key; names++) {
        const proa_json *token = proa_json_get(w->config, names->key);
        proa_str usual = proa_str_c(names->usual);
        if (proa_config_token(w->config, names->key).len) put_special(w, token, names->lstrip);
        else if (force || id_of(w, usual) >= 0) put_token(w, (added){usual, -1, NULL, true, names->lstrip});
    }
    for (int64_t i = 0; i < proa_json_len(more); i++) put_special(w, proa_json_at(more, i), false);
    for (int64_t i = 0; proa_json_len(more) == 0 && i < sentinels; i++)
        put_token(w, (added){proa_str_c(proa_arena_printf(&w->arena, "<extra_id_%lld>", (long long)i)), -1,
                             NULL, true, false});
    return PROA_OK;
}

/* An added token has the id that the vocabulary gives it, so ids that the configuration says are written there. */
static void write_missing_pieces(writer *w, bool first)
{
    for (int64_t i = 0; i < w->count; i++) {
        int32_t id;
        if (w->list[i].id < 0 || proa_map_find(&w->ids, w->list[i].content, &id)) continue;
        put_comma(w->out, &first);
        proa_buf_json_str(w->out, w->list[i].content);
        proa_buf_printf(w->out, ":%lld", (long long)w->list[i].id);
    }
}

static proa_status write_added(writer *w)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized"};
    bool first = true;
    proa_buf_str(w->out, proa_str_c("\"added_tokens\":["));
    for (int64_t i = 0; i < w->count; i++) {
        const added *t = &w->list[i];
        put_comma(w->out, &first);
        proa_buf_printf(w->out, "{\"special\":%s,\"content\":", t->special ? "true" : "false");
        proa_buf_json_str(w->out, t->content);
        for (size_t k = 0; k < PROA_COUNT(flags); k++) {
            bool on = k == 0 && !t->flags && t->lstrip;
            PROA_TRY(proa_json_get_bool(&on, t->flags, flags[k], w->err));
            proa_buf_printf(w->out, ",\"%s\":%s", flags[k], on ? "true" : "false");
        }
        proa_buf_char(w->out, '}');
    }
    proa_buf_str(w->out, proa_str_c("],"));
    return PROA_OK;
}

static const char *flag_text(const proa_json *config, const char *key, const char *fallback)
{
    const proa_json *j = proa_json_get(config, key);
    return proa_json_kind(j) != PROA_JSON_BOOL ? fallback : proa_json_bool(j) ? "true" : "false";
}

static writer writer_of(proa_buf *out, const proa_json *config, int64_t pieces, proa_err *err)
{
    writer w = {.out = out, .config = config, .err = err};
    proa_arena_init(&w.arena);
    proa_map_init(&w.ids, pieces);
    proa_map_init(&w.seen, 16);
    return w;
}

static void writer_release(writer *w)
{
    proa_map_release(&w->ids);
    proa_map_release(&w->seen);
    proa_arena_release(&w->arena);
}

/* The id of a special token by its key; -1: there is none. */
static int64_t special_id(const writer *w, const special_name *names, const char *key)
{
    while (names->key && strcmp(names->key, key) != 0) names++;
    proa_str content = proa_config_token(w->config, key);
    return id_of(w, content.len ? content : proa_str_c(names->usual));
}

/* ---- vocab.txt alone ---- */

static const special_name bert_names[] = {{"unk_token", "[UNK]", false},   {"sep_token", "[SEP]", false},
                                          {"pad_token", "[PAD]", false},   {"cls_token", "[CLS]", false},
                                          {"mask_token", "[MASK]", false}, {NULL, NULL, false}};

static proa_status write_wordpiece(writer *w, proa_str lines)
{
    proa_str unk = proa_config_token(w->config, "unk_token"), line, rest = lines;
    for (int32_t i = 0; proa_next_line(&rest, &line); i++) {
        if (i == PROA_VOCAB_MAX)
            return PROA_FAIL(w->err, LIMIT, "vocab.txt has more than %d lines", PROA_VOCAB_MAX);
        proa_map_put(&w->ids, line, i);
    }
    PROA_TRY(collect_specials(w, bert_names, true, 0));
    proa_buf_char(w->out, '{');
    PROA_TRY(write_added(w));
    int64_t cls = special_id(w, bert_names, "cls_token"), sep = special_id(w, bert_names, "sep_token");
    proa_buf_printf(
        w->out,
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":%s,\"handle_chinese_chars\":%s,"
        "\"strip_accents\":%s},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},",
        flag_text(w->config, "do_lower_case", "true"), flag_text(w->config, "tokenize_chinese_chars", "true"),
        flag_text(w->config, "strip_accents", "null"));
    if (cls >= 0 && sep >= 0)
        proa_buf_printf(
            w->out, "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",%lld],\"cls\":[\"\",%lld]},",
            (long long)sep, (long long)cls);
    proa_buf_str(w->out, proa_str_c("\"model\":{\"type\":\"WordPiece\",\"unk_token\":"));
    proa_buf_json_str(w->out, unk.len ? unk : proa_str_c("[UNK]"));
    proa_buf_str(w->out, proa_str_c(",\"vocab\":{"));
    bool first = true;
    for (int64_t i = 0; proa_next_line(&lines, &line); i++) {
        put_comma(w->out, &first);
        proa_buf_json_str(w->out, line);
        proa_buf_printf(w->out, ":%lld", (long long)i);
    }
    write_missing_pieces(w, first);
    proa_buf_str(w->out, proa_str_c("}}}"));
    return PROA_OK;
}

proa_status proa_wordpiece_write(proa_buf *out, proa_str lines, const proa_json *config, proa_err *err)
{
    writer w = writer_of(out, config, 0, err);
    proa_status status = write_wordpiece(&w, lines);
    writer_release(&w);
    return status;
}

/* ---- a vocab.txt of residues ---- */

static const special_name esm_names[] = {{"unk_token", "<unk>", false},   {"cls_token", "<cls>", false},
                                         {"pad_token", "<pad>", false},   {"eos_token", "<eos>", false},
                                         {"mask_token", "<mask>", false}, {NULL, NULL, false}};
/* What Python's str.split() splits at. */
#define PYTHON_SPACES "[\\\\s\\u001c-\\u001f\\u0085]+"

/* Every piece is an added token; the special ones are known by their keys. */
static proa_status list_residues(writer *w, proa_str lines, int64_t count)
{
    proa_str line;
    w->cap = count + (int64_t)PROA_COUNT(esm_names);
    w->list = PROA_ARENA_NEW(&w->arena, added, w->cap);
    for (const special_name *n = esm_names; n->key; n++) {
        proa_str content = proa_config_token(w->config, n->key);
        put_token(w, (added){content.len ? content : proa_str_c(n->usual), -1, NULL, true, false});
    }
    for (int32_t i = 0; proa_next_line(&lines, &line); i++) {
        proa_map_put(&w->ids, line, i);
        put_token(w, (added){line, -1, NULL, false, false});
    }
    return write_added(w);
}

static proa_status write_residues(writer *w, proa_str lines)
{
    proa_str line, rest = lines, unk = proa_config_token(w->config, "unk_token");
    int64_t count = 0;
    bool first = true;
    while (proa_next_line(&rest, &line)) count++;
    if (count > PROA_VOCAB_MAX)
        return PROA_FAIL(w->err, LIMIT, "vocab.txt has %lld lines, at most %d are allowed", (long long)count,
                         PROA_VOCAB_MAX);
    proa_buf_char(w->out, '{');
    PROA_TRY(list_residues(w, lines, count));
    int64_t cls = special_id(w, esm_names, "cls_token"), eos = special_id(w, esm_names, "eos_token");
    proa_buf_str(w->out, proa_str_c("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\","
                                    "\"pattern\":{\"Regex\":\"" PYTHON_SPACES "\"}},"));
    if (cls >= 0 && eos >= 0)
        proa_buf_printf(
            w->out, "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",%lld],\"cls\":[\"\",%lld]},",
            (long long)eos, (long long)cls);
    proa_buf_str(w->out, proa_str_c("\"model\":{\"type\":\"WordLevel\",\"unk_token\":"));
    proa_buf_json_str(w->out, unk.len ? unk : proa_str_c("<unk>"));
    proa_buf_str(w->out, proa_str_c(",\"vocab\":{"));
    for (int64_t i = 0; proa_next_line(&lines, &line); i++) {
        put_comma(w->out, &first);
        proa_buf_json_str(w->out, line);
        proa_buf_printf(w->out, ":%lld", (long long)i);
    }
    proa_buf_str(w->out, proa_str_c("}}}"));
    return PROA_OK;
}

proa_status proa_residues_write(proa_buf *out, proa_str lines, const proa_json *config, proa_err *err)
{
    writer w = writer_of(out, config, 0, err);
    proa_status status = write_residues(&w, lines);
    writer_release(&w);
    return status;
}

/* ---- vocab.json with merges.txt ---- */

static const special_name gpt2_names[] = {{"bos_token", "<|endoftext|>", false},
                                          {"eos_token", "<|endoftext|>", false},
                                          {"unk_token", "<|endoftext|>", false},
                                          {"sep_token", "", false},
                                          {"pad_token", "", false},
                                          {"cls_token", "", false},
                                          {"mask_token", "", false},
                                          {NULL, NULL, false}};
static const special_name roberta_names[] = {{"bos_token", "<s>", false},    {"eos_token", "</s>", false},
                                             {"unk_token", "<unk>", false},  {"sep_token", "</s>", false},
                                             {"pad_token", "<pad>", false},  {"cls_token", "<s>", false},
                                             {"mask_token", "<mask>", true}, {NULL, NULL, false}};
static const special_name deberta_names[] = {{"bos_token", "[CLS]", false},  {"eos_token", "[SEP]", false},
                                             {"unk_token", "[UNK]", false},  {"sep_token", "[SEP]", false},
                                             {"pad_token", "[PAD]", false},  {"cls_token", "[CLS]", false},
                                             {"mask_token", "[MASK]", true}, {NULL, NULL, false}};

/* What differs between the classes of byte-level BPE. Templates: B, E, C and S are the beginning, end, class and
 * separator tokens, 1 and 2 the texts. NULL: none. */
typedef struct bpe_class {
    const char *class; /* the tokenizer_class begins with it */
    const special_name *names;
    const char *single, *pair;
    const char *pattern; /* Split before ByteLevel, and NFC before that; NULL: GPT-2's own */
    bool if_bos;         /* the template is for add_bos_token */
    bool one_type;       /* both texts of a pair have the type 0 */
} bpe_class;

static const char qwen_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const bpe_class bpe_classes[] = {
    {.class = "Roberta", .names = roberta_names, .single = "C1S", .pair = "C1SS2S", .one_type = true},
    {.class = "Longformer", .names = roberta_names, .single = "C1S", .pair = "C1SS2S", .one_type = true},
    {.class = "Bart", .names = roberta_names, .single = "C1S", .pair = "C1SS2S", .one_type = true},
    {.class = "LED", .names = roberta_names, .single = "C1S", .pair = "C1SS2S", .one_type = true},
    {.class = "Mvp", .names = roberta_names, .single = "C1S", .pair = "C1SS2S", .one_type = true},
    {.class = "BlenderbotTokenizer", .names = roberta_names, .single = "1E", .pair = "12"},
    {.class = "DebertaTokenizer", .names = deberta_names, .single = "C1S", .pair = "C1S2S"},
    {.class = "Qwen2", .names = gpt2_names, .pattern = qwen_pattern},
    {.class = "", .names = gpt2_names, .single = "B1", .pair = "B12", .if_bos = true},
};

static const bpe_class *class_of(const proa_json *config)
{
    proa_str class = proa_json_str(proa_json_get(config, "tokenizer_class"));
    const bpe_class *c = bpe_classes;
    while (!proa_str_starts(class, proa_str_c(c->class))) c++;
    return c;
}

/* The parts of a template. types: the second text and what follows it have the type 1. */
static void write_template(writer *w, const char *name, const char *parts, bool types)
{
    int type = 0;
    bool first = true;
    proa_buf_printf(w->out, "\"%s\":[", name);
    for (const char *p = parts; *p; p++) {
        put_comma(w->out, &first);
        if (*p == '2') type = types;
        if (*p == '1' || *p == '2')
            proa_buf_printf(w->out, "{\"Sequence\":{\"id\":\"%s\",\"type_id\":%d}}", *p == '1' ? "A" : "B", type);
        else proa_buf_printf(w->out, "{\"SpecialToken\":{\"id\":\"%c\",\"type_id\":%d}}", *p, type);
    }
    proa_buf_str(w->out, proa_str_c("],"));
}

static void write_templates(writer *w, const bpe_class *c)
{
    static const char letters[] = "BECS";
    static const char *const keys[] = {"bos_token", "eos_token", "cls_token", "sep_token"};
    bool adds = proa_json_bool(proa_json_get(w->config, "add_bos_token")), first = true;
    if (!c->single || (c->if_bos && !adds)) return;
    for (const char *p = c->single; *p; p++) {
        const char *at = strchr(letters, *p);
        if (at && special_id(w, c->names, keys[at - letters]) < 0) return;
    }
    proa_buf_str(w->out, proa_str_c("\"post_processor\":{\"type\":\"TemplateProcessing\","));
    write_template(w, "single", c->single, false);
    write_template(w, "pair", c->pair, !c->one_type);
    proa_buf_str(w->out, proa_str_c("\"special_tokens\":{"));
    for (size_t i = 0; letters[i]; i++) {
        if (!strchr(c->single, letters[i])) continue;
        put_comma(w->out, &first);
        proa_buf_printf(w->out, "\"%c\":{\"ids\":[%lld]}", letters[i],
                        (long long)special_id(w, c->names, keys[i]));
    }
    proa_buf_str(w->out, proa_str_c("}},"));
}

static void write_merges(proa_buf *out, proa_str merges)
{
    proa_str line;
    bool head = true, first = true;
    proa_buf_str(out, proa_str_c(",\"merges\":["));
    for (; proa_next_line(&merges, &line); head = false) {
        if (line.len == 0 || (head && proa_str_starts(line, proa_str_c("#version")))) continue;
        put_comma(out, &first);
        proa_buf_json_str(out, line);
    }
    proa_buf_str(out, proa_str_c("]}}"));
}

/* The steps before the model: with a pattern of the class's own, NFC and a split by it. */
static void write_bpe_steps(writer *w, const bpe_class *c)
{
    if (c->pattern) {
        proa_buf_str(
            w->out, proa_str_c("\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
                               "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                               "{\"Regex\":"));
        proa_buf_json_str(w->out, proa_str_c(c->pattern));
        proa_buf_str(w->out, proa_str_c("}},"));
    } else proa_buf_str(w->out, proa_str_c("\"pre_tokenizer\":"));
    proa_buf_printf(w->out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":%s}%s,",
                    flag_text(w->config, "add_prefix_space", "false"), c->pattern ? "false" : "true",
                    c->pattern ? "]}" : "");
}

/* vocab: the text of vocab.json, pieces: the same as a document. */
static proa_status write_byte_bpe(writer *w, proa_str vocab, const proa_json *pieces, proa_str merges)
{
    const bpe_class *c = class_of(w->config);
    if (proa_json_kind(pieces) != PROA_JSON_OBJECT)
        return PROA_FAIL(w->err, INVALID, "vocab.json is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(pieces)));
    for (proa_json_iter it = proa_json_begin(pieces); proa_json_next(&it);) {
        int64_t id = proa_json_int(it.value);
        if (id >= 0 && id < PROA_VOCAB_MAX) proa_map_put(&w->ids, it.key, (int32_t)id);
    }
    PROA_TRY(collect_specials(w, c->names, false, 0));
    proa_buf_char(w->out, '{');
    PROA_TRY(write_added(w));
    write_templates(w, c);
    write_bpe_steps(w, c);
    proa_buf_str(w->out,
                 proa_str_c("\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":"));
    while (vocab.len && vocab.ptr[vocab.len - 1] != '}') vocab.len--; /* blanks: it is an object */
    proa_buf_str(w->out, (proa_str){vocab.ptr, vocab.len - 1});
    write_missing_pieces(w, proa_json_len(pieces) == 0);
    proa_buf_char(w->out, '}');
    write_merges(w->out, merges);
    return PROA_OK;
}

proa_status proa_byte_bpe_write(proa_buf *out, proa_str vocab, proa_str merges, const proa_json *config,
                                proa_err *err)
{
    proa_json *pieces = NULL;
    PROA_TRY(proa_json_parse(&pieces, vocab, "vocab.json", err));
    writer w = writer_of(out, config, proa_json_len(pieces), err);
    proa_status status = write_byte_bpe(&w, vocab, pieces, merges);
    writer_release(&w);
    proa_json_free(pieces);
    return status;
}

/* ---- ByT5 ---- */

/* ByT5 (Xue et al. 2022): pad, end and unknown, then the 256 bytes, then sentinels; a text ends with the end token. A
 * byte is the character that GPT-2 writes for it. Broken characters are left out, as transformers' tokenizer does. */
static const char byt5_steps[] =
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xEF\xBF\xBD\"},\"content\":\"\"}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\","
    "\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"end\"}}],"
    "\"pair\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"end\"}},"
    "{\"Sequence\":{\"id\":\"B\"}},{\"SpecialToken\":{\"id\":\"end\"}}],"
    "\"special_tokens\":{\"end\":{\"ids\":[1]}}},"
    "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{";

static proa_status write_bytes(writer *w)
{
    static const special_name names[] = {{"pad_token", "<pad>", false},
                                         {"eos_token", "</s>", false},
                                         {"unk_token", "<unk>", false},
                                         {NULL, NULL, false}};
    int64_t sentinels = 125;
    PROA_TRY(proa_json_get_int(&sentinels, w->config, "extra_ids", 0, 10000, w->err));
    for (int32_t i = 0; i < 3; i++) {
        proa_str token = proa_config_token(w->config, names[i].key);
        proa_map_put(&w->ids, token.len ? token : proa_str_c(names[i].usual), i);
    }
    PROA_TRY(collect_specials(w, names, true, sentinels));
    proa_buf_char(w->out, '{');
    PROA_TRY(write_added(w));
    proa_buf_str(w->out, proa_str_c(byt5_steps));
    for (int i = 0; i < 3; i++) {
        proa_str token = proa_config_token(w->config, names[i].key);
        proa_buf_json_str(w->out, token.len ? token : proa_str_c(names[i].usual));
        proa_buf_printf(w->out, ":%d,", i);
    }
    for (int b = 0; b < 256; b++) {
        char bytes[4];
        int n = proa_utf8_encode(proa_byte_to_char((unsigned char)b), bytes);
        proa_buf_json_str(w->out, (proa_str){bytes, (size_t)n});
        proa_buf_printf(w->out, ":%d%s", 3 + b, b < 255 ? "," : "");
    }
    write_missing_pieces(w, false);
    proa_buf_str(w->out, proa_str_c("}}}"));
    return PROA_OK;
}

proa_status proa_bytes_write(proa_buf *out, const proa_json *config, proa_err *err)
{
    writer w = writer_of(out, config, 0, err);
    proa_status status = write_bytes(&w);
    writer_release(&w);
    return status;
}
