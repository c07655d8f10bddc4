/* SPDX-License-Identifier: Apache-2.0
 * test_call_grammar.c - the grammars that hold tool calls to the schemas of their tools: which messages of each form
 * they accept. */
#include "base/limits.h"
#include "grammar/grammar.h"
#include "text/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"strict\":true,"
                                 "\"parameters\":{\"type\":\"object\",\"properties\":"
                                 "{\"city\":{\"type\":\"string\"},\"days\":{\"$ref\":\"#/$defs/"
                                 "n\"}},\"required\":[\"city\"],\"additionalProperties\":false,"
                                 "\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}}}}},"
                                 "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"strict\":false}}]";
#define GOOD  "{\"city\": \"a}\", \"days\": 3}"
#define WRONG "{\"city\": \"a\", \"days\": 10}"
#define NAMED "{\"name\": \"get\", \"arguments\": "

/* Special tokens of the tests' tokenizer: the bytes that stand for them. */
#define CHANNEL                                                                                              \
    "\xFF"                                                                                                   \
    "1"                                                                                                      \
    "\xFF"
#define MESSAGE                                                                                              \
    "\xFF"                                                                                                   \
    "2"                                                                                                      \
    "\xFF"
#define END                                                                                                  \
    "\xFF"                                                                                                   \
    "3"                                                                                                      \
    "\xFF"
#define START                                                                                                \
    "\xFF"                                                                                                   \
    "4"                                                                                                      \
    "\xFF"
#define CONSTRAIN                                                                                            \
    "\xFF"                                                                                                   \
    "5"                                                                                                      \
    "\xFF"
#define CALLS                                                                                                \
    "\xFF"                                                                                                   \
    "6"                                                                                                      \
    "\xFF"
#define ARGS                                                                                                 \
    "\xFF"                                                                                                   \
    "7"                                                                                                      \
    "\xFF"
#define THINK                                                                                                \
    "\xFF"                                                                                                   \
    "8"                                                                                                      \
    "\xFF"

static int32_t special_of(const void *arg, const char *marker)
{
    static const char *const markers[] = {"<|channel|>",   "<|message|>",  "<|end|>", "<|start|>",
                                          "<|constrain|>", "[TOOL_CALLS]", "[ARGS]",  "[THINK]"};
    for (int32_t i = 0; !arg && i < (int32_t)PROA_COUNT(markers); i++)
        if (strcmp(markers[i], marker) == 0) return i + 1;
    return -1;
}

typedef struct call_case {
    proa_message_form form;
    bool forced, plain; /* plain: no marker is a special token */
    const char *named;
    bool one_call;
    const char *good[6], *bad[6];
} call_case;

static const call_case cases[] = {
    {{.tools = PROA_TOOL_FORM_HERMES},
     .forced = true,
     .plain = true,
     .named = "get",
     .one_call = true,
     .good = {GOOD "}\n</tool_call>", "{\"city\":\"\"}}\n</tool_call>"},
     .bad = {WRONG "}\n</tool_call>", GOOD "}", "{\"days\": 3}}\n</tool_call>",
             GOOD "}\n</tool_call>\n<tool_call>\n" NAMED GOOD "}\n</tool_call>"}},
    {{.tools = PROA_TOOL_FORM_HERMES},
     .forced = true,
     .plain = true,
     .good = {"get\", \"arguments\": " GOOD "}\n</tool_call>",
              "stop\", \"arguments\": {\"x\": [1]}}\n</tool_call>\n<tool_call>\n" NAMED GOOD
              "}\n</tool_call>"},
     .bad = {"gets\", \"arguments\": " GOOD "}\n</tool_call>",
             "get\", \"arguments\": " WRONG "}\n</tool_call>"}},
    {{.tools = PROA_TOOL_FORM_HERMES},
     .plain = true,
     .good = {"", "Hi <tool_cal> <<tool_call", "<think>\nx</think>\n<tool_call>\n" NAMED GOOD "}\n</tool_call>",
              "a<tool_call>\n" NAMED GOOD "}\n</tool_call>\n<tool_call>\n" NAMED GOOD "}\n</tool_call>"
              " b"},
     .bad = {"<tool_call>", "a <tool_call>\n{\"name\": \"get\", \"arguments\": " WRONG "}\n</tool_call>",
             "<<tool_call>x"}},
    {{.tools = PROA_TOOL_FORM_LLAMA3}, .forced = true, .named = "get", .good = {GOOD "}"}, .bad = {WRONG "}"}},
    {{.tools = PROA_TOOL_FORM_LLAMA3},
     .good = {"Hi {", "", "{\"name\": \"get\", \"parameters\": " GOOD "}"},
     .bad = {"{\"name\": \"get\", \"parameters\": " WRONG "}", " {", "{}"}},
    {{.tools = PROA_TOOL_FORM_MISTRAL},
     .forced = true,
     .good = {"get\", \"arguments\": " GOOD "}]", "get\", \"arguments\": " GOOD "}, " NAMED GOOD "}]"},
     .bad = {"get\", \"arguments\": " GOOD "}", "get\", \"arguments\": " WRONG "}]"}},
    {{.tools = PROA_TOOL_FORM_MISTRAL, .reasoning = PROA_REASONING_MISTRAL, .named_arguments = true},
     .good = {THINK "hm" CALLS "get" ARGS GOOD, "Hi" CALLS "get" ARGS GOOD CALLS "stop" ARGS "{}", "[TOOL_CALLS]"},
     .bad = {CALLS "get" ARGS WRONG, CALLS "none" ARGS GOOD, CALLS, END}},
    {{.tools = PROA_TOOL_FORM_MISTRAL, .named_arguments = true},
     .forced = true,
     .one_call = true,
     .good = {"get" ARGS GOOD},
     .bad = {"get" ARGS GOOD CALLS "get" ARGS GOOD, "get" GOOD}},
    {{.tools = PROA_TOOL_FORM_QWEN3_CODER},
     .forced = true,
     .plain = true,
     .good = {"get>\n<parameter=city>\nZ</p\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</"
              "tool_call>",
              "get>\n<parameter=city>\n\n</parameter>\n</function>\n</tool_call>",
              "stop>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"},
     .bad = {"get>\n<parameter=city>\nZ\n</parameter>\n<parameter=days>\n10\n</parameter>\n</function>\n</"
             "tool_call>",
             "get>\n</function>\n</tool_call>",
             "get>\n<parameter=town>\nZ\n</parameter>\n</function>\n</tool_call>"}},
    {{.tools = PROA_TOOL_FORM_HARMONY, .reasoning = PROA_REASONING_HARMONY},
     .forced = true,
     .good = {"get " CONSTRAIN "json" MESSAGE GOOD},
     .bad = {"get " CONSTRAIN "json" MESSAGE WRONG, "get " MESSAGE GOOD}},
    {{.tools = PROA_TOOL_FORM_HARMONY, .reasoning = PROA_REASONING_HARMONY},
     .good = {CHANNEL "final" MESSAGE "Hi", CHANNEL "analysis" MESSAGE "hm" END START "assistant" CHANNEL
                                                    "commentary to=functions.get " CONSTRAIN "json" MESSAGE GOOD},
     .bad = {CHANNEL "commentary to=functions.get " CONSTRAIN "json" MESSAGE WRONG, "Hi",
             CHANNEL "commentary to=functions.other " CONSTRAIN "json" MESSAGE GOOD}}};

static proa_token_trie *empty_vocab(void)
{
    const proa_str bytes[] = {{"a", 1}};
    return proa_token_trie_new(bytes, 1);
}

static void write_grammar(proa_buf *out, const call_case *c, proa_arena *arena)
{
    proa_json *tools = NULL;
    assert_int_equal(proa_json_parse(&tools, proa_str_c(tools_text), "tools", NULL), PROA_OK);
    const proa_call_grammar g = {.form = &c->form,
                                 .tools = tools,
                                 .toolset = proa_toolset_new(arena, tools),
                                 .forced = c->forced,
                                 .named = proa_str_c(c->named),
                                 .one_call = c->one_call,
                                 .special = special_of,
                                 .arg = c->plain ? "plain" : NULL};
    assert_true(proa_message_call_grammar(&g, out));
    proa_json_free(tools);
}

static void check_texts(proa_matcher *m, const char *const texts[6], bool good, int64_t at, proa_str grammar)
{
    for (int i = 0; i < 6 && texts[i]; i++) {
        bool prefix;
        if (proa_matcher_accepts(m, proa_str_c(texts[i]), &prefix) != good)
            fail_msg("case %d, %s text %d: %s\n%.*s", (int)at, good ? "good" : "bad", i, texts[i],
                     (int)grammar.len, grammar.ptr);
    }
}

static void each_form(void **state)
{
    (void)state;
    proa_token_trie *vocab = empty_vocab();
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_automaton a;
        proa_buf text;
        proa_arena arena;
        proa_err err = {.status = PROA_OK};
        proa_arena_init(&arena);
        proa_buf_init(&text, PROA_GRAMMAR_BYTES_MAX);
        write_grammar(&text, &cases[i], &arena);
        const proa_grammar_source source = {.kind = PROA_GRAMMAR_EBNF, .text = proa_buf_view(&text)};
        if (proa_grammar_compile(&a, &source, &err) != PROA_OK)
            fail_msg("case %d: %s\n%.*s", (int)i, err.text, (int)text.len, text.ptr);
        proa_matcher *m = proa_matcher_new(&a, vocab);
        check_texts(m, cases[i].good, true, (int64_t)i, proa_buf_view(&text));
        check_texts(m, cases[i].bad, false, (int64_t)i, proa_buf_view(&text));
        proa_matcher_release(m);
        proa_buf_release(&text);
        proa_arena_release(&arena);
    }
    proa_token_trie_free(vocab);
}

/* Without a strict tool, calls that need not come are free. */
static void nothing_to_hold(void **state)
{
    (void)state;
    proa_json *tools = NULL;
    proa_buf text;
    const proa_message_form form = {.tools = PROA_TOOL_FORM_HERMES}, none = {.tools = PROA_TOOL_FORM_NONE};
    proa_buf_init(&text, PROA_GRAMMAR_BYTES_MAX);
    assert_int_equal(proa_json_parse(&tools, proa_str_c("[{\"function\":{\"name\":\"a\"}}]"), "tools", NULL),
                     PROA_OK);
    assert_false(proa_message_call_grammar(&(proa_call_grammar){.form = &form, .tools = tools}, &text));
    assert_false(
        proa_message_call_grammar(&(proa_call_grammar){.form = &none, .tools = tools, .forced = true}, &text));
    assert_int_equal(text.len, 0);
    proa_json_free(tools);
    proa_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_form), cmocka_unit_test(nothing_to_hold)};
    return cmocka_run_group_tests_name("call_grammar", tests, NULL, NULL);
}
