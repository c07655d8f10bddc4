/* SPDX-License-Identifier: Apache-2.0
 * bpe_codes.c - the codes of subword-nmt (Sennrich et al. 2016) with a separate vocabulary, as OpenNMT-py's models
 * have: written as a tokenizer.json whose pieces are those of the vocabulary. A piece that is not the last of its word
 * ends with the joiner "@@"; in the codes a piece that is the last ends with "</w>".
 * Facts: subword-nmt's apply_bpe.py; fastBPE's third column is a count. */
#include "base/limits.h"
#include "text/load/load.h"
#include <string.h>

#define JOINER   "@@"
#define WORD_END "</w>"
#define BLANKS   "[\\\\s\\\\x{1c}-\\\\x{1f}]+" /* Python's str.split; in a JSON string */

typedef struct codes {
    proa_buf *out;
    proa_arena arena;
    proa_map ids;   /* piece -> id, those that only the codes have included */
    proa_map pairs; /* merges so far: the first of two counts */
    int64_t more;   /* pieces that only the codes have */
    int32_t listed; /* pieces of the vocabulary */
    proa_err *err;
} codes;

/* The pieces of the vocabulary. */
static proa_status write_list(codes *c, const proa_piece_list *list)
{
    for (int32_t i = 0; i < list->len; i++) {
        proa_str piece = list->ptr[i];
        if (!proa_map_put(&c->ids, piece, i))
            return PROA_FAIL(c->err, INVALID, "entry %d '%.*s' of the vocabulary is there twice", i,
                             piece.len > 40 ? 40 : (int)piece.len, piece.ptr);
        if (i) proa_buf_char(c->out, ',');
        proa_buf_json_str(c->out, piece);
        proa_buf_printf(c->out, ":%d", i);
    }
    return PROA_OK;
}

/* A piece that the vocabulary lacks gets an id after its end: words may pass through it, and are unknown if it is
 * left. */
static proa_status put_piece(codes *c, proa_str piece)
{
    int32_t id;
    if (proa_map_find(&c->ids, piece, &id)) return PROA_OK;
    int64_t next = c->listed + c->more;
    if (next >= PROA_VOCAB_MAX)
        return PROA_FAIL(c->err, LIMIT, "vocabulary and codes have more than %d pieces", PROA_VOCAB_MAX);
    proa_map_put(&c->ids, piece, (int32_t)next);
    c->more++;
    proa_buf_char(c->out, ',');
    proa_buf_json_str(c->out, piece);
    proa_buf_printf(c->out, ":%lld", (long long)next);
    return PROA_OK;
}

/* The two halves of a code, as the codes write them. */
typedef struct code {
    proa_str left, right;
    proa_str pair; /* both, as in the line */
    bool last;     /* right is the last of its word; it is without "</w>" then */
} code;

static bool split_code(proa_str line, code *c, bool *counted)
{
    const char *first = line.len ? memchr(line.ptr, ' ', line.len) : NULL;
    if (!first) return false;
    c->left = (proa_str){line.ptr, (size_t)(first - line.ptr)};
    c->right = (proa_str){first + 1, line.len - c->left.len - 1};
    const char *second = c->right.len ? memchr(c->right.ptr, ' ', c->right.len) : NULL;
    *counted = second != NULL;
    if (second) c->right.len = (size_t)(second - c->right.ptr);
    c->pair = (proa_str){line.ptr, c->left.len + 1 + c->right.len};
    c->last = proa_str_ends(c->right, proa_str_c(WORD_END));
    if (c->last) c->right.len -= strlen(WORD_END);
    return c->left.len > 0;
}

/* A piece with the joiner, unless it is the last of its word. */
static proa_str join_pair(codes *c, proa_str a, proa_str b, bool last)
{
    proa_str joiner = proa_str_c(last ? "" : JOINER);
    char *s = proa_arena_alloc(&c->arena, a.len + b.len + joiner.len + 1);
    if (a.len) memcpy(s, a.ptr, a.len);
    if (b.len) memcpy(s + a.len, b.ptr, b.len);
    if (joiner.len) memcpy(s + a.len + b.len, joiner.ptr, joiner.len);
    return (proa_str){s, a.len + b.len + joiner.len};
}

/* Whether a code can apply at all: a word has no other piece with "</w>" than its last, which is not empty. */
static bool code_applies(const code *k)
{
    return k->right.len > 0 && !proa_str_ends(k->left, proa_str_c(WORD_END));
}

/* Calls `put` for each code in order, once for each pair. */
static proa_status each_code(codes *c, proa_str lines, proa_status (*put)(codes *c, const code *k))
{
    proa_str line;
    bool versioned = false;
    proa_map_release(&c->pairs);
    proa_map_init(&c->pairs, 1024);
    for (int64_t n = 1; proa_next_line(&lines, &line); n++) {
        code k;
        bool counted;
        if (n == 1 && proa_str_starts(line, proa_str_c("#version:"))) {
            versioned = proa_str_is(line, "#version: 0.2");
            continue;
        }
        if (line.len == 0) continue;
        if (line.len > PROA_TOKEN_BYTES_MAX || !split_code(line, &k, &counted))
            return PROA_FAIL(c->err, INVALID, "line %lld is not two pieces", (long long)n);
        if (!versioned && !counted)
            return PROA_FAIL(c->err, UNSUPPORTED, "codes of subword-nmt before version 0.2");
        if (code_applies(&k) && proa_map_put(&c->pairs, k.pair, 0)) PROA_TRY(put(c, &k));
    }
    return PROA_OK;
}

static proa_status put_pieces(codes *c, const code *k)
{
    PROA_TRY(put_piece(c, join_pair(c, k->left, (proa_str){"", 0}, false)));
    PROA_TRY(put_piece(c, join_pair(c, (proa_str){"", 0}, k->right, k->last)));
    return put_piece(c, join_pair(c, k->left, k->right, k->last));
}

static proa_status put_merge(codes *c, const code *k)
{
    if (c->out->len && c->out->ptr[c->out->len - 1] == ']') proa_buf_char(c->out, ',');
    proa_buf_char(c->out, '[');
    proa_buf_json_str(c->out, join_pair(c, k->left, (proa_str){"", 0}, false));
    proa_buf_char(c->out, ',');
    proa_buf_json_str(c->out, join_pair(c, (proa_str){"", 0}, k->right, k->last));
    proa_buf_char(c->out, ']');
    return PROA_OK;
}

/* Tokens that are in no text, whatever it says. */
static void write_specials(codes *c)
{
    static const char *const names[] = {"<blank>", "<pad>", "<s>", "</s>"};
    bool first = true;
    int32_t id;
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        if (!proa_map_find(&c->ids, proa_str_c(names[i]), &id) || id >= c->listed) continue;
        proa_buf_printf(c->out, "%s{\"content\":\"%s\",\"special\":true,\"silent\":true}", first ? "" : ",",
                        names[i]);
        first = false;
    }
}

static proa_status write_all(codes *c, proa_str lines, const proa_piece_list *list)
{
    int32_t unk;
    proa_buf_printf(
        c->out,
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"" BLANKS "\"}},"
        "\"decoder\":{\"type\":\"Joiner\",\"joiner\":\"" JOINER "\"},"
        "\"model\":{\"type\":\"BPE\",\"joiner\":\"" JOINER "\",\"unk_token\":\"<unk>\",\"listed\":%d,"
        "\"vocab\":{",
        list->len);
    PROA_TRY(write_list(c, list));
    if (!proa_map_find(&c->ids, proa_str_c("<unk>"), &unk))
        return PROA_FAIL(c->err, INVALID, "the vocabulary has no piece <unk>");
    PROA_TRY(each_code(c, lines, put_pieces));
    proa_buf_str(c->out, proa_str_c("},\"merges\":["));
    PROA_TRY(each_code(c, lines, put_merge));
    proa_buf_str(c->out, proa_str_c("]},\"added_tokens\":["));
    write_specials(c);
    proa_buf_str(c->out, proa_str_c("]}"));
    return PROA_OK;
}

proa_status proa_bpe_codes_write(proa_buf *out, proa_str lines, const proa_piece_list *list, proa_err *err)
{
    codes c = {.out = out, .listed = list->len, .err = err};
    proa_arena_init(&c.arena);
    proa_map_init(&c.ids, list->len);
    proa_map_init(&c.pairs, 0);
    proa_status status = write_all(&c, lines, list);
    proa_map_release(&c.ids);
    proa_map_release(&c.pairs);
    proa_arena_release(&c.arena);
    return status;
}
