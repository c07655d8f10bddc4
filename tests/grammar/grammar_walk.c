/* SPDX-License-Identifier: Apache-2.0
 * grammar_walk.c - compiles the grammars that it reads and walks at random through their masks, for
 *          test_schemas.py and bench/constrained.py.
 * Usage:   grammar_walk FOLDER WALKS SEED < lines; FOLDER has a tokenizer, a line is {"kind": "json_schema",
 *          "text": ..., "accept": [texts]}. Each answer is a line of JSON: error, or walks, compile_us,
 *          mask_us (mean), mask_us_max, tokens, accepted (a list of switches). */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "grammar/grammar.h"
#include "text/token_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 4000 };

typedef struct walker {
    proa_token_trie *vocab;
    proa_matcher *m;
    uint64_t seed;
    uint32_t *mask;
    int32_t *allowed;
    int64_t masks, mask_ns, mask_ns_max;
    proa_buf times; /* of each mask, in us */
} walker;

static uint32_t next_random(walker *w)
{
    w->seed = w->seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(w->seed >> 33);
}

static proa_token_trie *open_vocab(const char *folder)
{
    proa_tokenizer *tok;
    proa_err err = {.status = PROA_OK};
    if (proa_tokenizer_open(&tok, folder, &err) != PROA_OK) return fprintf(stderr, "%s\n", err.text), NULL;
    int32_t size = proa_tokenizer_vocab(tok);
    proa_token_bytes *all = proa_token_bytes_new(tok);
    proa_str *bytes = proa_calloc((size_t)size + 1, sizeof *bytes);
    for (int32_t i = 0; i < size; i++)
        if (!proa_tokenizer_is_special(tok, i)) bytes[i] = proa_token_bytes_of(all, i);
    proa_token_trie *v = proa_token_trie_new(bytes, size);
    free(bytes);
    proa_token_bytes_free(all);
    proa_tokenizer_free(tok);
    return v;
}

/* The likelier a token is short the longer the walk; texts must end, so after 60 tokens those that close are tried. */
static int32_t choose_token(walker *w, int64_t count)
{
    int32_t n = 0, best = -1;
    for (int32_t i = 0; i < proa_matcher_words(w->m); i++)
        for (uint32_t bits = w->mask[i]; bits; bits &= bits - 1)
            w->allowed[n++] = 32 * i + PROA_LOWEST_BIT32(bits);
    if (n == 0) return -1;
    for (int tries = 0; tries < (count < 60 ? 1 : 200); tries++) {
        int32_t token = w->allowed[next_random(w) % (uint32_t)n];
        proa_str bytes = proa_token_trie_bytes(w->vocab, token);
        bool closes = bytes.len && strchr("\"]},0", bytes.ptr[0]);
        if (best < 0 || (closes && bytes.len == 1) || (closes && tries < 100)) best = token;
        if (closes && bytes.len == 1) break;
    }
    return best;
}

static void take_mask(walker *w, proa_matcher_place *places, const int32_t *tokens, int64_t count, bool *ends,
                      proa_err *err)
{
    int64_t before = proa_clock_ns();
    proa_status status = proa_matcher_mask(w->m, places, tokens, count, w->mask, ends, err);
    int64_t ns = proa_clock_ns() - before;
    PROA_UNUSED(status);
    proa_buf_printf(&w->times, w->masks ? ",%.2f" : "%.2f", (double)ns * 1e-3);
    w->masks++;
    w->mask_ns += ns;
    if (ns > w->mask_ns_max) w->mask_ns_max = ns;
}

/* One walk; its text, or what went wrong. */
static void walk_once(walker *w, proa_buf *out)
{
    static int32_t tokens[TOKENS_MAX];
    proa_matcher_place places[PROA_PLACES] = {{0}};
    proa_err err = {.status = PROA_OK};
    proa_buf text;
    bool ends = false;
    int64_t count = 0;
    proa_buf_init(&text, 64 << 20);
    for (; count < TOKENS_MAX; count++) {
        take_mask(w, places, tokens, count, &ends, &err);
        if (err.status != PROA_OK || (ends && (count > 60 || next_random(w) % 4 == 0))) break;
        tokens[count] = choose_token(w, count);
        if (tokens[count] < 0) break;
        proa_buf_str(&text, proa_token_trie_bytes(w->vocab, tokens[count]));
    }
    if (err.status == PROA_OK && !ends)
        proa_err_set(&err, PROA_INVALID, __FILE__, __LINE__, "%s", count == TOKENS_MAX ? "unfinished" : "stuck");
    proa_buf_str(out, proa_str_c(err.status == PROA_OK ? "{\"text\":" : "{\"error\":"));
    if (err.status != PROA_OK)
        proa_buf_json_str(out, proa_str_c(err.text)), proa_buf_str(out, proa_str_c(",\"text\":"));
    proa_buf_json_str(out, proa_buf_view(&text));
    proa_buf_str(out, proa_str_c(",\"ids\":["));
    for (int64_t i = 0; i < count; i++) proa_buf_printf(out, i ? ",%d" : "%d", tokens[i]);
    proa_buf_str(out, proa_str_c("]}"));
    proa_buf_release(&text);
}

static proa_grammar_kind kind_of(proa_str name)
{
    static const char *const names[] = {"json_schema", "json_object", "regex", "grammar", "choice"};
    for (int i = 0; i < (int)PROA_COUNT(names); i++)
        if (proa_str_is(name, names[i])) return (proa_grammar_kind)i;
    return PROA_GRAMMAR_JSON_SCHEMA;
}

static void answer_accepts(walker *w, const proa_json *list, proa_buf *out)
{
    proa_buf_str(out, proa_str_c(",\"accepted\":["));
    for (int64_t i = 0; i < proa_json_len(list); i++)
        proa_buf_printf(out, "%s%s", i ? "," : "",
                        proa_matcher_accepts(w->m, proa_json_str(proa_json_at(list, i)), NULL) ? "true"
                                                                                               : "false");
    proa_buf_char(out, ']');
}

static void answer_line(walker *w, const proa_json *line, int walks, proa_buf *out)
{
    proa_automaton a;
    proa_err err = {.status = PROA_OK};
    proa_grammar_source source = {.kind = kind_of(proa_json_str(proa_json_get(line, "kind"))),
                                  .text = proa_json_str(proa_json_get(line, "text"))};
    int64_t begin = proa_clock_ns();
    if (proa_grammar_compile(&a, &source, &err) != PROA_OK) {
        proa_buf_str(out, proa_str_c("{\"error\":"));
        proa_buf_json_str(out, proa_str_c(err.text));
        proa_buf_str(out, proa_str_c("}"));
        return;
    }
    int64_t states = a.states_count;
    w->m = proa_matcher_new(&a, w->vocab);
    int64_t compile_ns = proa_clock_ns() - begin;
    w->masks = w->mask_ns = w->mask_ns_max = 0;
    proa_buf_clear(&w->times);
    proa_buf_str(out, proa_str_c("{\"walks\":["));
    for (int i = 0; i < walks; i++) {
        if (i) proa_buf_char(out, ',');
        walk_once(w, out);
    }
    proa_buf_printf(
        out, "],\"compile_us\":%.1f,\"states\":%lld,\"tokens\":%lld,\"mask_us\":%.3f,\"mask_us_max\":%.1f",
        (double)compile_ns * 1e-3, (long long)states, (long long)w->masks,
        w->masks ? (double)w->mask_ns * 1e-3 / (double)w->masks : 0, (double)w->mask_ns_max * 1e-3);
    proa_buf_printf(out, ",\"times\":[%s]", w->times.ptr ? w->times.ptr : "");
    answer_accepts(w, proa_json_get(line, "accept"), out);
    proa_buf_char(out, '}');
    proa_matcher_release(w->m);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t cap = 0;
    walker w = {.seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1};
    if (argc < 3 || !(w.vocab = open_vocab(argv[1]))) return 2;
    proa_buf_init(&w.times, SIZE_MAX / 2);
    w.mask = proa_calloc((size_t)w.vocab->size / 32 + 1, sizeof *w.mask);
    w.allowed = proa_calloc((size_t)w.vocab->size, sizeof *w.allowed);
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        proa_json *json = NULL;
        proa_buf out;
        proa_buf_init(&out, SIZE_MAX / 2);
        proa_err err = {.status = PROA_OK};
        if (proa_json_parse(&json, (proa_str){line, (size_t)n}, "line", &err) == PROA_OK)
            answer_line(&w, json, atoi(argv[2]), &out);
        else proa_buf_printf(&out, "{\"error\":\"line: %s\"}", err.text);
        proa_json_free(json);
        puts(out.ptr);
        fflush(stdout);
        proa_buf_release(&out);
    }
    free(line);
    proa_buf_release(&w.times);
    return 0;
}
