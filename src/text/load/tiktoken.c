/* SPDX-License-Identifier: Apache-2.0
 * tiktoken.c - vocabularies of tiktoken: a token in base64 and its rank on each line. The file has no pattern and no
 * special tokens; these belong to the encoding, which its name or the tokenizer's class says. The vocabulary is written
 * as a tokenizer.json in memory, with bytes as GPT-2's characters.
 * Facts: tiktoken's openai_public.py, Llama 3's tokenizer.py, and the tokenization_*.py that Qwen, GLM-4 and Kimi K2
 * are published with. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <string.h>

/* Parts of patterns. */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS     " ?[^\\s\\p{L}\\p{N}]+"
#define LINES       "\\s*[\\r\\n]+"
#define BLANKS      "\\s+(?!\\S)|\\s+"
#define R50K        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" BLANKS
#define CL100K      CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" BLANKS
#define QWEN        CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" BLANKS
#define CASED(upper, lower)                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower      \
    "*" CONTRACTION "?"
#define O200K                                                                                                \
    CASED("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]")                           \
    "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES "|" BLANKS
#define KIMI                                                                                                 \
    "[\\p{Han}]+|" CASED("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]",                                \
                         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]") "|\\p{N}{1,3}|" SYMBOLS               \
                                                                       "[\\r\\n]*|" LINES "|" BLANKS

/* Special tokens: `count` of them, with ids from `at` on, which counts from the end of the ranks. A name with %d is
 * numbered from `first` on. */
typedef struct special {
    int at, count, first;
    const char *name;
} special;

typedef struct encoding {
    const char *name;  /* NAME.tiktoken, ... */
    const char *class; /* ... or of which tokenizer_class a file of any name is; NULL: none */
    const char *pattern;
    bool nfc;                /* the text is normalised first */
    const char *prefix[2];   /* tokens before each text */
    const special *specials; /* name NULL ends them */
} encoding;

static const special r50k_specials[] = {{0, 1, 0, "<|endoftext|>"}, {0, 0, 0, NULL}};
static const special p50k_specials[] = {{-25, 1, 0, "<|endoftext|>"}, {0, 0, 0, NULL}};
static const special cl100k_specials[] = {{1, 1, 0, "<|endoftext|>"},    {2, 1, 0, "<|fim_prefix|>"},
                                          {3, 1, 0, "<|fim_middle|>"},   {4, 1, 0, "<|fim_suffix|>"},
                                          {20, 1, 0, "<|endofprompt|>"}, {0, 0, 0, NULL}};
static const special o200k_specials[] = {
    {1, 1, 0, "<|endoftext|>"}, {20, 1, 0, "<|endofprompt|>"}, {0, 0, 0, NULL}};
static const special harmony_specials[] = {{0, 1, 0, "<|startoftext|>"},
                                           {1, 1, 0, "<|endoftext|>"},
                                           {2, 2, 200000, "<|reserved_%d|>"},
                                           {4, 1, 0, "<|return|>"},
                                           {5, 1, 0, "<|constrain|>"},
                                           {6, 1, 200004, "<|reserved_%d|>"},
                                           {7, 1, 0, "<|channel|>"},
                                           {8, 1, 0, "<|start|>"},
                                           {9, 1, 0, "<|end|>"},
                                           {10, 1, 0, "<|message|>"},
                                           {11, 3, 200009, "<|reserved_%d|>"},
                                           {14, 1, 0, "<|call|>"},
                                           {15, 5, 200013, "<|reserved_%d|>"},
                                           {20, 1, 0, "<|endofprompt|>"},
                                           {21, 1069, 200019, "<|reserved_%d|>"},
                                           {0, 0, 0, NULL}};
static const special llama3_specials[] = {{0, 1, 0, "<|begin_of_text|>"},
                                          {1, 1, 0, "<|end_of_text|>"},
                                          {2, 4, 0, "<|reserved_special_token_%d|>"},
                                          {6, 1, 0, "<|start_header_id|>"},
                                          {7, 1, 0, "<|end_header_id|>"},
                                          {8, 1, 4, "<|reserved_special_token_%d|>"},
                                          {9, 1, 0, "<|eot_id|>"},
                                          {10, 246, 5, "<|reserved_special_token_%d|>"},
                                          {0, 0, 0, NULL}};
static const special qwen_specials[] = {{0, 1, 0, "<|endoftext|>"},
                                        {1, 1, 0, "<|im_start|>"},
                                        {2, 1, 0, "<|im_end|>"},
                                        {3, 205, 0, "<|extra_%d|>"},
                                        {0, 0, 0, NULL}};
static const special glm4_specials[] = {{0, 1, 0, "<|endoftext|>"},
                                        {1, 1, 0, "[MASK]"},
                                        {2, 1, 0, "[gMASK]"},
                                        {3, 1, 0, "[sMASK]"},
                                        {4, 1, 0, "<sop>"},
                                        {5, 1, 0, "<eop>"},
                                        {6, 1, 0, "<|system|>"},
                                        {7, 1, 0, "<|user|>"},
                                        {8, 1, 0, "<|assistant|>"},
                                        {9, 1, 0, "<|observation|>"},
                                        {10, 1, 0, "<|begin_of_image|>"},
                                        {11, 1, 0, "<|end_of_image|>"},
                                        {12, 1, 0, "<|begin_of_video|>"},
                                        {13, 1, 0, "<|end_of_video|>"},
                                        {0, 0, 0, NULL}};
static const special kimi_specials[] = {{0, 256, 163584, "<|reserved_token_%d|>"}, {0, 0, 0, NULL}};

static const encoding encodings[] = {
    {"gpt2", NULL, R50K, .specials = r50k_specials},
    {"r50k_base", NULL, R50K, .specials = r50k_specials},
    {"p50k_base", NULL, R50K, .specials = p50k_specials},
    {"cl100k_base", NULL, CL100K, .specials = cl100k_specials},
    {"o200k_base", NULL, O200K, .specials = o200k_specials},
    {"o200k_harmony", NULL, O200K, .specials = harmony_specials},
    {"qwen", "QWenTokenizer", QWEN, .nfc = true, .specials = qwen_specials},
    {"glm4", "ChatGLM4Tokenizer", CL100K, .prefix = {"[gMASK]", "<sop>"}, .specials = glm4_specials},
    {"kimi", "TikTokenTokenizer", KIMI, .specials = kimi_specials},
    /* the last: tokenizer.model without a class that is known */
    {"llama3", NULL, CL100K, .prefix = {"<|begin_of_text|>"}, .specials = llama3_specials},
};

/* The encoding of a file. A *.model that is none of a known class is Llama 3's. */
static const encoding *find_encoding(const char *file, const proa_json *config)
{
    proa_str class = proa_json_str(proa_json_get(config, "tokenizer_class")), name = proa_str_c(file);
    proa_str suffix = proa_str_c(".tiktoken");
    for (size_t i = 0; i < PROA_COUNT(encodings); i++)
        if (encodings[i].class && proa_str_is(class, encodings[i].class)) return &encodings[i];
    if (!proa_str_ends(name, suffix)) return &encodings[PROA_COUNT(encodings) - 1];
    name.len -= suffix.len;
    for (size_t i = 0; i < PROA_COUNT(encodings); i++)
        if (proa_str_is(name, encodings[i].name)) return &encodings[i];
    return NULL;
}

/* ---- the lines ---- */

/* Appends the bytes of base64 text as GPT-2's characters; false: it is none, or it has no bytes. */
static bool put_decoded(proa_buf *out, proa_str text)
{
    uint32_t bits = 0;
    int held = 0;
    size_t before = out->len;
    while (text.len && text.ptr[text.len - 1] == '=') text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int digit = proa_base64_digit(text.ptr[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        proa_buf_code_point(out, proa_byte_to_char((unsigned char)(bits >> held & 0xFF)));
    }
    return out->len > before && held < 6;
}

/* A line: the token's text in base64, and its rank. */
static bool split_line(proa_str line, proa_str *base64, int32_t *rank)
{
    const char *space = line.len ? memchr(line.ptr, ' ', line.len) : NULL;
    if (!space) return false;
    *base64 = (proa_str){line.ptr, (size_t)(space - line.ptr)};
    size_t digits = line.len - base64->len - 1;
    if (digits == 0 || digits > 9) return false;
    *rank = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = space[1 + i];
        if (c < '0' || c > '9') return false;
        *rank = 10 * *rank + (c - '0');
    }
    return base64->len > 0;
}

bool proa_tiktoken_is(proa_str bytes)
{
    proa_str line, base64;
    int32_t rank;
    if (!proa_next_line(&bytes, &line) || !split_line(line, &base64, &rank)) return false;
    while (base64.len && base64.ptr[base64.len - 1] == '=') base64.len--;
    for (size_t i = 0; i < base64.len; i++)
        if (proa_base64_digit(base64.ptr[i]) < 0) return false;
    return base64.len > 0;
}

/* A special token. */
typedef struct named_token {
    proa_str content;
    int64_t id;
    const proa_json *flags; /* as tokenizer_config.json has them; NULL: special */
} named_token;

/* What is known while the JSON is written. */
typedef struct ranks {
    proa_buf *out;
    int32_t end;     /* one past the highest rank */
    bool bytes[256]; /* of which bytes there are tokens */
    bool *taken;     /* by id, [PROA_VOCAB_MAX] */
    bool first;      /* of the list under way */
    proa_arena arena;
    named_token *specials;
    int64_t special_count;
    proa_err *err;
} ranks;

static void put_comma(ranks *r)
{
    if (!r->first) proa_buf_char(r->out, ',');
    r->first = false;
}

/* "piece": id */
static proa_status write_piece(ranks *r, proa_str piece, int64_t id)
{
    int shown = piece.len > 40 ? 40 : (int)piece.len;
    if (id < 0 || id >= PROA_VOCAB_MAX)
        return PROA_FAIL(r->err, LIMIT, "token '%.*s' has id %lld, allowed is 0..%d", shown, piece.ptr,
                         (long long)id, PROA_VOCAB_MAX - 1);
    if (r->taken[id])
        return PROA_FAIL(r->err, INVALID, "token '%.*s' has id %lld, which another token has", shown,
                         piece.ptr, (long long)id);
    r->taken[id] = true;
    put_comma(r);
    proa_buf_json_str(r->out, piece);
    proa_buf_printf(r->out, ":%lld", (long long)id);
    return PROA_OK;
}

static proa_status write_line(ranks *r, int64_t number, proa_str line, proa_buf *piece)
{
    proa_str base64;
    int32_t rank = 0, c;
    proa_buf_clear(piece);
    if (!split_line(line, &base64, &rank) || !put_decoded(piece, base64))
        return PROA_FAIL(r->err, INVALID, "line %lld is not a token in base64 and a rank", (long long)number);
    if (piece->full)
        return PROA_FAIL(r->err, LIMIT, "line %lld: a token of more than %d bytes", (long long)number,
                         PROA_TOKEN_BYTES_MAX);
    if ((size_t)proa_char_next(proa_buf_view(piece), &c) == piece->len) r->bytes[proa_char_to_byte(c)] = true;
    if (rank >= r->end) r->end = rank + 1;
    return write_piece(r, proa_buf_view(piece), rank);
}

/* The pieces by rank. Every byte must be one, as each word begins as bytes. */
static proa_status write_ranks(ranks *r, proa_str lines)
{
    proa_str line;
    proa_buf piece;
    proa_status status = PROA_OK;
    proa_buf_init(&piece, PROA_TOKEN_BYTES_MAX);
    r->first = true;
    for (int64_t n = 1; status == PROA_OK && proa_next_line(&lines, &line); n++)
        if (line.len) status = write_line(r, n, line, &piece);
    proa_buf_release(&piece);
    for (int b = 0; status == PROA_OK && b < 256; b++)
        if (!r->bytes[b]) status = PROA_FAIL(r->err, INVALID, "no token is the byte 0x%02X", (unsigned)b);
    return status;
}

/* ---- special tokens ---- */

/* Those of the encoding. */
static void encoding_specials(ranks *r, const encoding *e)
{
    int64_t n = 0;
    for (const special *s = e->specials; s->name; s++) n += s->count;
    r->specials = PROA_ARENA_NEW(&r->arena, named_token, n);
    for (const special *s = e->specials; s->name; s++)
        for (int i = 0; i < s->count; i++) {
            char name[64];
            const char *number = strstr(s->name, "%d");
            if (number)
                snprintf(name, sizeof name, "%.*s%d%s", (int)(number - s->name), s->name, s->first + i,
                         number + 2);
            else snprintf(name, sizeof name, "%s", s->name);
            proa_str content = {proa_arena_strdup(&r->arena, proa_str_c(name)), strlen(name)};
            r->specials[r->special_count++] = (named_token){content, (int64_t)r->end + s->at + i, NULL};
        }
}

/* "added_tokens_decoder" of tokenizer_config.json wins over the encoding's list. */
static proa_status find_specials(ranks *r, const encoding *e, const proa_json *config)
{
    const proa_json *added = proa_json_get(config, "added_tokens_decoder");
    int64_t n = proa_json_kind(added) == PROA_JSON_OBJECT ? proa_json_len(added) : 0;
    if (n == 0) {
        encoding_specials(r, e);
        return PROA_OK;
    }
    if (n > PROA_VOCAB_MAX)
        return PROA_FAIL(r->err, LIMIT, "added_tokens_decoder has %lld entries", (long long)n);
    r->specials = PROA_ARENA_NEW(&r->arena, named_token, n);
    for (proa_json_iter it = proa_json_begin(added); proa_json_next(&it);) {
        named_token t = {.flags = it.value};
        PROA_TRY(proa_config_id(&t.id, it.key, r->err));
        PROA_TRY(proa_json_get_str(&t.content, it.value, "content", r->err));
        r->specials[r->special_count++] = t;
    }
    return PROA_OK;
}

/* They are in the vocabulary too: an added token takes the id that the vocabulary has. */
static proa_status write_special_pieces(ranks *r)
{
    for (int64_t i = 0; i < r->special_count; i++)
        PROA_TRY(write_piece(r, r->specials[i].content, r->specials[i].id));
    return PROA_OK;
}

static proa_status write_added_tokens(ranks *r)
{
    static const char *const flags[] = {"special", "lstrip", "rstrip", "single_word", "normalized"};
    r->first = true;
    for (int64_t i = 0; i < r->special_count; i++) {
        const named_token *t = &r->specials[i];
        put_comma(r);
        proa_buf_str(r->out, proa_str_c("{\"content\":"));
        proa_buf_json_str(r->out, t->content);
        for (size_t k = 0; k < PROA_COUNT(flags); k++) {
            bool on = k == 0 && !t->flags;
            PROA_TRY(proa_json_get_bool(&on, t->flags, flags[k], r->err));
            proa_buf_printf(r->out, ",\"%s\":%s", flags[k], on ? "true" : "false");
        }
        proa_buf_char(r->out, '}');
    }
    return PROA_OK;
}

/* ---- the whole ---- */

static int64_t special_id(const ranks *r, const char *name)
{
    for (int64_t i = 0; i < r->special_count; i++)
        if (proa_str_is(r->specials[i].content, name)) return r->specials[i].id;
    return -1;
}

/* Tokens before a text, unless the configuration says that there are none. */
static proa_status write_prefix(ranks *r, const encoding *e, const proa_json *config)
{
    int64_t first = e->prefix[0] ? special_id(r, e->prefix[0]) : -1;
    int64_t second = e->prefix[1] ? special_id(r, e->prefix[1]) : -1;
    bool adds = true;
    PROA_TRY(proa_json_get_bool(&adds, config, "add_bos_token", r->err));
    if (first < 0 || !adds) return PROA_OK;
    proa_buf_printf(
        r->out,
        ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"prefix\":{\"ids\":[%lld",
        (long long)first);
    if (second >= 0) proa_buf_printf(r->out, ",%lld", (long long)second);
    proa_buf_str(
        r->out,
        proa_str_c("]}},\"single\":[{\"SpecialToken\":{\"id\":\"prefix\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                   "\"pair\":[{\"SpecialToken\":{\"id\":\"prefix\"}},{\"Sequence\":{\"id\":\"A\"}},"
                   "{\"SpecialToken\":{\"id\":\"prefix\",\"type_id\":1}},"
                   "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}]}"));
    return PROA_OK;
}

static proa_status write_all(ranks *r, const encoding *e, proa_str lines, const proa_json *config)
{
    proa_buf_str(r->out,
                 proa_str_c("{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"merges_by_id\":true,"
                            "\"vocab\":{"));
    PROA_TRY(write_ranks(r, lines));
    PROA_TRY(find_specials(r, e, config));
    PROA_TRY(write_special_pieces(r));
    proa_buf_str(r->out, proa_str_c("}},\"added_tokens\":["));
    PROA_TRY(write_added_tokens(r));
    proa_buf_printf(
        r->out,
        "]%s,\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":",
        e->nfc ? ",\"normalizer\":{\"type\":\"NFC\"}" : "");
    proa_buf_json_str(r->out, proa_str_c(e->pattern));
    proa_buf_str(r->out,
                 proa_str_c("}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"));
    PROA_TRY(write_prefix(r, e, config));
    proa_buf_char(r->out, '}');
    return PROA_OK;
}

proa_status proa_tiktoken_write(proa_buf *out, proa_str lines, const char *name, const proa_json *config,
                                proa_err *err)
{
    const encoding *e = find_encoding(name, config);
    if (!e)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "the file does not say which encoding it is of, and its name is none of gpt2, r50k_base, "
            "p50k_base, cl100k_base, o200k_base, o200k_harmony, qwen, glm4, kimi, llama3 (.tiktoken)");
    ranks r = {.out = out, .err = err};
    proa_arena_init(&r.arena);
    r.taken = PROA_ARENA_NEW(&r.arena, bool, PROA_VOCAB_MAX);
    proa_status status = write_all(&r, e, lines, config);
    proa_arena_release(&r.arena);
    return status;
}
