/* SPDX-License-Identifier: Apache-2.0
 * grammar.c - chooses the front end of a source, and keeps the grammars that were used last. */
#include "grammar/grammar.h"

#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    proa_buf key; /* of the source: its kind, and its text or texts */
    proa_matcher *matcher;
    uint64_t used;
} kept;

struct proa_grammars {
    proa_token_trie_fn *make_vocab;
    void *arg;
    pthread_mutex_t lock; /* of what follows */
    proa_token_trie *vocab;
    kept list[PROA_GRAMMAR_CACHE_MAX];
    int32_t count;
    uint64_t clock;
};

/* ---- compiling ---- */

static proa_status read_choices(proa_rules *rules, const proa_grammar_source *s, proa_err *err)
{
    proa_expr_items items = {0};
    int32_t root = proa_rules_add(rules, proa_str_c("choice"));
    if (s->choices_count <= 0) return PROA_FAIL(err, INVALID, "there is nothing to choose from");
    for (int32_t i = 0; i < s->choices_count; i++)
        proa_expr_push(rules, &items, proa_expr_text(rules, s->choices[i]));
    rules->rule[root].body = proa_expr_list(rules, PROA_EXPR_ALT, items.ptr, items.count);
    rules->root = root;
    return PROA_OK;
}

static proa_status read_regex(proa_rules *rules, proa_str text, proa_err *err)
{
    const proa_regex_options o = {.mode = PROA_REGEX_TEXT, .whole = true};
    int32_t root = proa_rules_add(rules, proa_str_c("regex"));
    rules->root = root;
    return proa_regex_read(rules, text, &o, &rules->rule[root].body, err);
}

static proa_status read_source(proa_rules *rules, const proa_grammar_source *s, proa_err *err)
{
    if (s->text.len > PROA_GRAMMAR_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "%zu bytes, at most %d are taken", s->text.len, PROA_GRAMMAR_BYTES_MAX);
    switch (s->kind) {
    case PROA_GRAMMAR_JSON_SCHEMA: return proa_schema_read(rules, s->text, &rules->root, err);
    case PROA_GRAMMAR_JSON_OBJECT:
        return proa_schema_read(rules, proa_str_c("{\"type\":\"object\"}"), &rules->root, err);
    case PROA_GRAMMAR_REGEX: return read_regex(rules, s->text, err);
    case PROA_GRAMMAR_EBNF: return proa_ebnf_read(rules, s->text, err);
    case PROA_GRAMMAR_CHOICE: return read_choices(rules, s, err);
    }
    return PROA_OK;
}

proa_status proa_grammar_compile(proa_automaton *a, const proa_grammar_source *source, proa_err *err)
{
    proa_rules rules;
    *a = (proa_automaton){0};
    proa_rules_init(&rules);
    proa_status status = read_source(&rules, source, err);
    if (status == PROA_OK) status = proa_automaton_build(a, &rules, err);
    proa_rules_release(&rules);
    return status;
}

/* ---- keeping ---- */

proa_grammars *proa_grammars_new(proa_token_trie_fn *vocab, void *arg)
{
    proa_grammars *g = proa_calloc(1, sizeof *g);
    g->make_vocab = vocab;
    g->arg = arg;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void proa_grammars_free(proa_grammars *g)
{
    if (!g) return;
    for (int32_t i = 0; i < g->count; i++) {
        proa_buf_release(&g->list[i].key);
        proa_matcher_release(g->list[i].matcher);
    }
    proa_token_trie_free(g->vocab);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void make_key(proa_buf *key, const proa_grammar_source *s)
{
    proa_buf_init(key, SIZE_MAX / 2);
    proa_buf_char(key, (char)('0' + (int)s->kind));
    proa_buf_str(key, s->text);
    for (int32_t i = 0; i < s->choices_count; i++)
        proa_buf_append(key, s->choices[i], strlen(s->choices[i]) + 1);
}

static proa_matcher *find_kept(proa_grammars *g, const proa_buf *key)
{
    for (int32_t i = 0; i < g->count; i++) {
        if (!proa_str_eq(proa_buf_view(&g->list[i].key), proa_buf_view(key))) continue;
        g->list[i].used = ++g->clock;
        return proa_matcher_retain(g->list[i].matcher);
    }
    return NULL;
}

/* The place for one more: a new one, or that which was used longest ago. */
static kept *place_for_new(proa_grammars *g)
{
    if (g->count < PROA_GRAMMAR_CACHE_MAX) return &g->list[g->count++];
    kept *oldest = &g->list[0];
    for (int32_t i = 1; i < g->count; i++)
        if (g->list[i].used < oldest->used) oldest = &g->list[i];
    proa_buf_release(&oldest->key);
    proa_matcher_release(oldest->matcher);
    return oldest;
}

/* Keeps the new grammar, unless another thread has been faster. Takes the key and the automaton over. */
static proa_matcher *keep_grammar(proa_grammars *g, proa_buf *key, proa_automaton *a)
{
    pthread_mutex_lock(&g->lock);
    proa_matcher *m = find_kept(g, key);
    if (m) {
        proa_buf_release(key);
        proa_automaton_release(a);
    } else {
        if (!g->vocab) g->vocab = g->make_vocab(g->arg);
        m = proa_matcher_new(a, g->vocab);
        *place_for_new(g) = (kept){*key, proa_matcher_retain(m), ++g->clock};
    }
    pthread_mutex_unlock(&g->lock);
    return m;
}

proa_status proa_grammars_get(proa_grammars *g, const proa_grammar_source *source, proa_matcher **out,
                              proa_err *err)
{
    proa_buf key;
    proa_automaton a;
    make_key(&key, source);
    pthread_mutex_lock(&g->lock);
    *out = find_kept(g, &key);
    pthread_mutex_unlock(&g->lock);
    if (*out) return proa_buf_release(&key), PROA_OK;
    proa_status status = proa_grammar_compile(&a, source, err);
    if (status == PROA_OK) *out = keep_grammar(g, &key, &a);
    else proa_buf_release(&key);
    return status;
}
