/* SPDX-License-Identifier: Apache-2.0
 * test_grammar.c - texts that grammars accept and reject, what is refused with which message, and masks against the
 * definition: a token is allowed if the text with it is the beginning of one that matches. */
#include "base/alloc.h"
#include "base/limits.h"
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Every byte, and some longer tokens that cross the parts of a grammar. */
static proa_token_trie *make_vocab(void *arg)
{
    static const char *const longer[] = {
        "\",",  "\":",   "\": ", "{\"",  "\"}",     "}}", "],",  "true", "false",    "null",
        "  ",   ", \"",  "ab",   "abc",  "\"a\"",   "12", "3.5", "-1",   "\xC3\xA9", "\xE2\x82",
        "\\\"", "\\u00", "e1",   "\n  ", "a\",\"b", "[1", "1]",  "xyz",  "\":[",     "name"};
    proa_str bytes[256 + PROA_COUNT(longer) + 1];
    static char single[256];
    for (int i = 0; i < 256; i++) single[i] = (char)i, bytes[i] = (proa_str){&single[i], 1};
    for (size_t i = 0; i < PROA_COUNT(longer); i++) bytes[256 + i] = proa_str_c(longer[i]);
    bytes[256 + PROA_COUNT(longer)] = (proa_str){"", 0}; /* a special token */
    (void)arg;
    return proa_token_trie_new(bytes, (int32_t)PROA_COUNT(bytes));
}

static proa_status compile_source(proa_matcher **m, const proa_token_trie *v, proa_grammar_kind kind,
                                  const char *text, proa_err *err)
{
    proa_automaton a;
    const proa_grammar_source source = {.kind = kind, .text = proa_str_c(text)};
    proa_status status = proa_grammar_compile(&a, &source, err);
    if (status == PROA_OK) *m = proa_matcher_new(&a, v);
    return status;
}

typedef struct texts_case {
    proa_grammar_kind kind;
    const char *grammar;
    const char *good[8], *bad[8];
} texts_case;

#define SCHEMA PROA_GRAMMAR_JSON_SCHEMA
#define REGEX  PROA_GRAMMAR_REGEX
#define EBNF   PROA_GRAMMAR_EBNF

static const texts_case cases[] = {
    {REGEX, "a{2,4}b?", {"aa", "aaaab"}, {"a", "aaaaa", "aab "}},
    {EBNF, "start: \"a::=b\"\n", {"a::=b"}, {"a"}},
    {EBNF,
     "start: value | %json {\"enum\": [\"}\", \"a\\\"b\", {\"c\": [1]}]} string?\nvalue: \"v\"\nstring: "
     "<[7]> \"s\"",
     {"v", "\"}\"", "\"a\\\"b\"",
      "{\"c\":[1]}\xFF"
      "7\xFFs"},
     {"s", "\"}", "\"x\"", "\"}\"7s"}},
    {REGEX, "(x|yz)*", {"", "x", "yzxyz"}, {"y", "xy"}},
    {REGEX, "[^a-c\\d]+", {"xyz", "\xC3\xA9"}, {"a", "x1", ""}},
    {REGEX, "[a-z]{20,3000}", {"abcdefghijklmnopqrst"}, {"abcdefghijklmnopqrs", "ABCDEFGHIJKLMNOPQRST"}},
    {REGEX, "(a|bc){2,18}", {"abc", "aaaaaaaaaaaaaaaabcbc"}, {"a", "aaaaaaaaaaaaaaaaaaa"}},
    {REGEX, "(ab?){3,60}c", {"aaac", "ababac"}, {"aac", "ababab"}},
    {REGEX,
     "\xE2\x82\xAC[\xC3\xA0-\xC3\xBF]",
     {"\xE2\x82\xAC\xC3\xA9"},
     {"\xE2\x82\xAC"
      "e"}},
    {SCHEMA, "true", {"1", "[]", "{\"a\": null}", "\"\\u00e9\""}, {"", "{,}", "01", "[1,]"}},
    {SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":\"\"}", "{\"a\":-3, \"b\":\"x\"}", "{\n  \"a\": 0,\n  \"b\": \"\\n\"\n}"},
     {"{}", "{\"a\":1}", "{\"a\":1.5,\"b\":\"\"}", "{\"b\":\"\",\"c\":1}", "{\"b\":\"\",}"}},
    {SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
     "\"boolean\"}}",
     {"{}", "{\"ab\":null}", "{\"a\":true,\"abc\":false}", "{\"ab\":null,\"x\":true}"},
     {"{\"ab\":true}", "{\"a\":null}", "{\"x\":true,\"ab\":true}"}},
    {SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":3}",
     {"[true,false]", "[ true, true, true ]"},
     {"[]", "[true]", "[true,true,true,true]"}},
    {SCHEMA,
     "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"items\":false}",
     {"[]", "[null]", "[null,true]"},
     {"[true]", "[null,true,1]"}},
    {SCHEMA,
     "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\\n\xC3\xA9x\""},
     {"\"a\"", "\"abcd\"", "ab"}},
    {SCHEMA, "{\"type\":\"string\",\"pattern\":\"^a[\\\"x]+$\"}", {"\"ax\"", "\"a\\\"\""}, {"\"a\"", "\"bax\""}},
    {SCHEMA, "{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\""}, {"\"ac\""}},
    {SCHEMA,
     "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}",
     {"-12", "-1", "0", "7", "99", "100", "305"},
     {"-13", "306", "1000", "01", "1.0"}},
    {SCHEMA, "{\"type\":\"integer\",\"exclusiveMinimum\":7}", {"8", "10", "123456"}, {"7", "0", "-8"}},
    {SCHEMA,
     "{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2.25}",
     {"0.5", "0.75", "1", "1.999", "2", "2.2", "2.249"},
     {"0.4", "0", "2.25", "2.3", "3", "-1"}},
    {SCHEMA, "{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":0}", {"-1.5", "-0.2", "0", "-1"}, {"-1.6", "-2", "1"}},
    {SCHEMA, "{\"enum\":[\"a\",1,null,{\"k\":[true]}]}", {"\"a\"", "1", "null", "{\"k\": [true]}"}, {"\"b\"", "{}"}},
    {SCHEMA, "{\"anyOf\":[{\"const\":\"x\"},{\"type\":\"integer\"}]}", {"\"x\"", "5"}, {"\"y\"", "null"}},
    {SCHEMA,
     "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"}}},{\"properties\":{\"a\":"
     "{\"type\":\"integer\",\"maximum\":5}},\"required\":[\"a\"]}]}",
     {"{\"a\":5}"},
     {"{\"a\":5.5}", "{}", "{\"a\":6}"}},
    {SCHEMA,
     "{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
     "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\"]}}}",
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"next\":null}", "{\"v\":1,\"next\":{}}"}},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-12-31\""}, {"\"2024-13-01\"", "\"2023-02-30\""}},
    {EBNF, "root ::= \"a\" [b-d]{2} (\"x\" | \"y\")* # end\n", {"abc", "adbxy"}, {"ab", "abcz"}},
    {EBNF, "root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", {"[]", "[[],[[]]]"}, {"[", "[,]", "[]]"}},
    {EBNF, "start: \"(\" start \")\" | WORD\nWORD: /[a-z]+/i\n%ignore \" \"\n", {"(( aB ))", "x"}, {"()", "(x"}},
    {EBNF, "start: pair ~ 2\npair: \"a\"..\"c\" NUMBER -> one\n%import common.NUMBER\n", {"a1b2.5"}, {"a1", "d1a1"}},
};

static void test_texts(void **state)
{
    proa_token_trie *v = make_vocab(NULL);
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_matcher *m = NULL;
        proa_err err = {.status = PROA_OK};
        if (compile_source(&m, v, cases[i].kind, cases[i].grammar, &err) != PROA_OK)
            fail_msg("%s: %s", cases[i].grammar, err.text);
        for (int k = 0; k < 8 && cases[i].good[k]; k++)
            if (!proa_matcher_accepts(m, proa_str_c(cases[i].good[k]), NULL))
                fail_msg("%s must accept %s", cases[i].grammar, cases[i].good[k]);
        for (int k = 0; k < 8 && cases[i].bad[k]; k++)
            if (proa_matcher_accepts(m, proa_str_c(cases[i].bad[k]), NULL))
                fail_msg("%s must reject %s", cases[i].grammar, cases[i].bad[k]);
        proa_matcher_release(m);
    }
    proa_token_trie_free(v);
    (void)state;
}

static const struct {
    proa_grammar_kind kind;
    const char *grammar, *message;
} refused[] = {
    {REGEX, "(a", "a group without ')'"},
    {REGEX, "a{3,2}", "whose maximum is below its minimum"},
    {REGEX, "(?=a)b", "look-around"},
    {REGEX, "(a)\\1", "back reference"},
    {REGEX, "[z-a]", "out of order"},
    {REGEX, "a{9999999}", "a repetition of more than"},
    {SCHEMA, "{", "the schema"},
    {SCHEMA, "{\"not\":{}}", "at #: the keyword 'not' is not supported"},
    {SCHEMA, "{\"properties\":{\"a\":{\"items\":{\"if\":{}}}}}", "at #/properties/a/items"},
    {SCHEMA, "{\"$ref\":\"http://x\"}", "only references within the schema"},
    {SCHEMA, "{\"$ref\":\"#/$defs/x\"}", "which does not exist"},
    {SCHEMA, "{\"$ref\":\"#\"}", "left recursion: rule '#'"},
    {SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "recurses without end"},
    {SCHEMA, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "branches 0 and 1 might both match"},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"iri\"}", "the format 'iri' is not supported"},
    {SCHEMA, "{\"type\":\"nothing\"}", "the type 'nothing' is unknown"},
    {SCHEMA, "false", "recurses without end"},
    {EBNF, "root ::= root \"a\" | \"b\"", "left recursion: rule 'root'"},
    {EBNF, "root ::= a\na ::= \"x\"? root", "left recursion"},
    {EBNF, "root ::= \"a\" root", "recurses without end"},
    {EBNF, "root ::= b", "rule 'b' is not defined"},
    {EBNF, "root ::= \"a", "the text ends within a literal"},
    {EBNF, "start: a\n", "rule 'a' is not defined"},
    {EBNF, "start: \"a\"\n%declare X\n", "line 2: a directive that is not supported"},
    {EBNF, "start: %json {\"not\": {}}", "rule 'start': at #: the keyword 'not' is not supported"},
    {EBNF, "start: %json {\"a\": \"}\"", "line 1: an object is expected after %json"},
    {EBNF, "start: <[x]>", "line 1: a token id is expected"},
    {EBNF, "start: <[99999999999]>", "line 1: a token id is expected"},
    {PROA_GRAMMAR_CHOICE, "", "nothing to choose from"},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < PROA_COUNT(refused); i++) {
        proa_automaton a;
        proa_err err = {.status = PROA_OK};
        const proa_grammar_source source = {.kind = refused[i].kind, .text = proa_str_c(refused[i].grammar)};
        if (proa_grammar_compile(&a, &source, &err) == PROA_OK)
            fail_msg("%s must be refused", refused[i].grammar);
        if (!strstr(err.text, refused[i].message))
            fail_msg("%s: '%s' must have '%s'", refused[i].grammar, err.text, refused[i].message);
    }
    (void)state;
}

/* Groups, schemas and rules that nest or grow too far end with a LIMIT, and not with the stack. */
static void test_bombs(void **state)
{
    char *text = proa_malloc(200000);
    proa_automaton a;
    static const struct {
        proa_grammar_kind kind;
        const char *open, *close, *before;
    } nests[] = {{REGEX, "(", ")", ""},
                 {EBNF, "(", ")", "root ::= "},
                 {EBNF, "(", ")", "start: "},
                 {SCHEMA, "{\"items\":", "}", ""}};
    for (size_t i = 0; i < PROA_COUNT(nests); i++) {
        size_t at = (size_t)sprintf(text, "%s", nests[i].before);
        for (int k = 0; k < 5000; k++) at += (size_t)sprintf(text + at, "%s", nests[i].open);
        for (int k = 0; k < 5000; k++) at += (size_t)sprintf(text + at, "%s", nests[i].close);
        const proa_grammar_source source = {.kind = nests[i].kind, .text = {text, at}};
        assert_int_not_equal(proa_grammar_compile(&a, &source, NULL), PROA_OK);
    }
    free(text);
    const proa_grammar_source copies = {.kind = REGEX, .text = proa_str_c("(((([ab]{16}){16}){16}){16}){16}")};
    if (proa_grammar_compile(&a, &copies, NULL) == PROA_OK) proa_automaton_release(&a);
    (void)state;
}

static uint32_t random_number(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

/* Along a random walk: each token of the mask by its definition. */
static void check_walk(proa_matcher *m, const proa_token_trie *v, uint32_t *seed)
{
    proa_matcher_place places[PROA_PLACES] = {{0}};
    uint32_t mask[32];
    int32_t tokens[40], allowed[1024];
    char text[40 * 16];
    size_t len = 0;
    for (int64_t count = 0; count < 40; count++) {
        bool ends, prefix;
        int32_t n = 0;
        assert_int_equal(proa_matcher_mask(m, places, tokens, count, mask, &ends, NULL), PROA_OK);
        assert_int_equal(ends, proa_matcher_accepts(m, (proa_str){text, len}, NULL));
        for (int32_t t = 0; t < v->size; t++) {
            proa_str bytes = proa_token_trie_bytes(v, t);
            memcpy(text + len, bytes.ptr, bytes.len);
            proa_matcher_accepts(m, (proa_str){text, len + bytes.len}, &prefix);
            assert_int_equal(mask[t >> 5] >> (t & 31) & 1, prefix && bytes.len);
            if (prefix && bytes.len) allowed[n++] = t;
        }
        if (n == 0) {
            assert_true(ends);
            return;
        }
        tokens[count] = allowed[random_number(seed) % (uint32_t)n];
        proa_str bytes = proa_token_trie_bytes(v, tokens[count]);
        memcpy(text + len, bytes.ptr, bytes.len);
        len += bytes.len;
    }
}

static void test_masks(void **state)
{
    proa_token_trie *v = make_vocab(NULL);
    uint32_t seed = 7;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_matcher *m = NULL;
        assert_int_equal(compile_source(&m, v, cases[i].kind, cases[i].grammar, NULL), PROA_OK);
        for (int k = 0; k < 12; k++) check_walk(m, v, &seed);
        proa_matcher_release(m);
    }
    proa_token_trie_free(v);
    (void)state;
}

/* Every byte and 700 tokens of few bytes, so that many are below the same nodes of the tree: whole characters, parts of
 * characters and what is no UTF-8. */
static proa_token_trie *make_dense_vocab(void)
{
    enum { DENSE = 700, LONGEST = 6 };
    static const char alphabet[] = "aaabb\",1 \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED";
    static char single[256], dense[DENSE][LONGEST];
    proa_str bytes[256 + DENSE];
    uint32_t seed = 3;
    for (int i = 0; i < 256; i++) single[i] = (char)i, bytes[i] = (proa_str){&single[i], 1};
    for (int i = 0; i < DENSE; i++) {
        uint32_t len = 2 + random_number(&seed) % (LONGEST - 1), kind = random_number(&seed) % 3;
        for (uint32_t k = 0; k < len; k++) {
            uint32_t at = random_number(&seed) % (kind ? 5 : (uint32_t)sizeof alphabet - 1);
            dense[i][k] = alphabet[at];
        }
        if (kind == 2 && len > 3) memcpy(dense[i], "a\xC3\xA9", 3);
        bytes[256 + i] = (proa_str){dense[i], len};
    }
    return proa_token_trie_new(bytes, 256 + DENSE);
}

/* Subtrees that are taken as a whole, exits of many nodes, counters near their ends. */
static void test_dense_masks(void **state)
{
    static const struct {
        proa_grammar_kind kind;
        const char *text;
    } grammars[] = {
        {PROA_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\"}"},
        {PROA_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":12}"},
        {PROA_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4}}"},
        {REGEX, "[ab]{2,9},[ab]*"},
        {REGEX, "(ab|a){1,7}\"?"},
        {REGEX, "(a+b?){2,5}"},
        {REGEX, ".{0,20}1"},
        {REGEX, "([^\"]{3,30}\")*"},
        {REGEX, "[a\xC3\xA9]*[^,]{4,8}"}};
    proa_token_trie *v = make_dense_vocab();
    uint32_t seed = 5;
    for (size_t i = 0; i < PROA_COUNT(grammars); i++) {
        proa_matcher *m = NULL;
        proa_err err = {.status = PROA_OK};
        if (compile_source(&m, v, grammars[i].kind, grammars[i].text, &err) != PROA_OK)
            fail_msg("%s", err.text);
        for (int k = 0; k < 8; k++) check_walk(m, v, &seed);
        proa_matcher_release(m);
    }
    proa_token_trie_free(v);
    (void)state;
}

/* States by history: forks, beams that swap, and a history that was never seen give the same mask. */
static void test_histories(void **state)
{
    proa_token_trie *v = make_vocab(NULL);
    proa_matcher *m = NULL;
    proa_matcher_place places[PROA_PLACES] = {{0}}, fresh[PROA_PLACES];
    uint32_t a[32], b[32];
    const int32_t tokens[] = {'{', '"', 'a', '"', ':', '[', '1', ',', '2'};
    bool ends;
    assert_int_equal(compile_source(&m, v, PROA_GRAMMAR_JSON_OBJECT, "", NULL), PROA_OK);
    for (int64_t n = 0; n <= (int64_t)PROA_COUNT(tokens); n++) {
        memset(fresh, 0, sizeof fresh);
        assert_int_equal(proa_matcher_mask(m, places, tokens, n, a, &ends, NULL), PROA_OK);
        assert_int_equal(proa_matcher_mask(m, fresh, tokens, n, b, &ends, NULL), PROA_OK);
        assert_memory_equal(a, b, (size_t)proa_matcher_words(m) * sizeof *a);
    }
    const int32_t wrong[] = {'{', '}', '}'};
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_matcher_mask(m, places, wrong, 3, a, &ends, &err), PROA_INVALID);
    proa_matcher_release(m);
    proa_token_trie_free(v);
    (void)state;
}

static proa_matcher *get_spaced(proa_grammars *g, const char *guidance, proa_err *err)
{
    char text[256];
    proa_matcher *m = NULL;
    snprintf(text, sizeof text, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}%s%s}",
             *guidance ? ",\"x-guidance\":" : "", guidance);
    const proa_grammar_source source = {.kind = SCHEMA, .text = proa_str_c(text)};
    return proa_grammars_get(g, &source, &m, err) == PROA_OK ? m : NULL;
}

/* White space between tokens is bounded, and can be chosen. */
static void test_white_space(void **state)
{
    static const char *const texts[] = {"[1,2]", "[1, 2]", "[1,\n  2]", "[1,  2]", "[]", "[ \t]"};
    static const struct {
        const char *guidance, *accepted; /* of the texts */
    } kinds[] = {{"", "yyynyn"},
                 {"{}", "yyynyn"},
                 {"{\"whitespace_flexible\":false}", "ynnnyn"},
                 {"{\"whitespace_pattern\":\"[ ]?\"}", "yynnyn"},
                 {"{\"whitespace_pattern\":\"[ \\t]*|\\n {2}\",\"whitespace_flexible\":true}", "yyyyyy"}};
    proa_grammars *g = proa_grammars_new(make_vocab, NULL);
    proa_err err = {.status = PROA_OK};
    char blanks[64] = "[1,\n";
    for (size_t k = 0; k < PROA_COUNT(kinds); k++) {
        proa_matcher *m = get_spaced(g, kinds[k].guidance, &err);
        if (!m) fail_msg("%s: %s", kinds[k].guidance, err.text);
        for (size_t i = 0; i < PROA_COUNT(texts); i++)
            if (proa_matcher_accepts(m, proa_str_c(texts[i]), NULL) != (kinds[k].accepted[i] == 'y'))
                fail_msg("'%s' with '%s'", texts[i], kinds[k].guidance);
        proa_matcher_release(m);
    }
    proa_matcher *usual = get_spaced(g, "", &err);
    for (int n = 0; n < 33; n++) {
        bool prefix = false;
        proa_matcher_accepts(usual, proa_str_c(blanks), &prefix);
        assert_true(prefix);
        strcat(blanks, " ");
    }
    bool prefix = true;
    proa_matcher_accepts(usual, proa_str_c(blanks), &prefix);
    assert_false(prefix);
    proa_matcher_release(usual);
    static const struct {
        const char *guidance, *named;
    } wrong[] = {{"5", "x-guidance"},
                 {"{\"lenient\":true}", "lenient"},
                 {"{\"whitespace_flexible\":1}", "whitespace_flexible"},
                 {"{\"whitespace_pattern\":1}", "whitespace_pattern"},
                 {"{\"whitespace_pattern\":\"(\"}", "whitespace_pattern"},
                 {"{\"whitespace_pattern\":\"[ a]\"}", "whitespace_pattern"},
                 {"{\"whitespace_pattern\":\" *(x|.)?\"}", "whitespace_pattern"}};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        err = (proa_err){.status = PROA_OK};
        assert_null(get_spaced(g, wrong[i].guidance, &err));
        if (!strstr(err.text, wrong[i].named)) fail_msg("%s: %s", wrong[i].guidance, err.text);
    }
    proa_grammars_free(g);
    (void)state;
}

/* More grammars than are kept: the oldest go, while a matcher in use stays. */
static void test_kept(void **state)
{
    proa_grammars *g = proa_grammars_new(make_vocab, NULL);
    proa_matcher *first, *m, *again;
    proa_grammar_source source = {.kind = REGEX, .text = proa_str_c("first")};
    char text[32];
    assert_int_equal(proa_grammars_get(g, &source, &first, NULL), PROA_OK);
    assert_int_equal(proa_grammars_get(g, &source, &again, NULL), PROA_OK);
    assert_ptr_equal(first, again);
    for (int i = 0; i < PROA_GRAMMAR_CACHE_MAX + 5; i++) {
        snprintf(text, sizeof text, "x%d", i);
        source.text = proa_str_c(text);
        assert_int_equal(proa_grammars_get(g, &source, &m, NULL), PROA_OK);
        proa_matcher_release(m);
    }
    assert_true(proa_matcher_accepts(first, proa_str_c("first"), NULL));
    source.text = proa_str_c("first");
    assert_int_equal(proa_grammars_get(g, &source, &m, NULL), PROA_OK);
    assert_ptr_not_equal(first, m);
    source.text = proa_str_c("(");
    assert_int_equal(proa_grammars_get(g, &source, &again, NULL), PROA_INVALID);
    proa_matcher_release(first);
    proa_matcher_release(first); /* the second reference */
    proa_matcher_release(m);
    proa_grammars_free(g);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts), cmocka_unit_test(test_refused),     cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_masks), cmocka_unit_test(test_histories),   cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_kept),  cmocka_unit_test(test_dense_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
