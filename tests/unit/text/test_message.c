/* SPDX-License-Identifier: Apache-2.0
 * test_message.c - texts of chat models as events: each form, whole, cut at every two bytes and byte by byte, which
 * must give the same events; malformed calls, which are content; how forms are found. */
#include "base/limits.h"
#include "text/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* ---- events as a line: c"text" r"text" call(name,id) a"text" end ---- */

typedef struct record {
    proa_buf out;
    int open; /* kind of the text that is open in out; -1: none */
} record;

static void close_text(record *r)
{
    if (r->open >= 0) proa_buf_char(&r->out, '|');
    r->open = -1;
}

static void on_event(void *arg, const proa_message_event *e)
{
    static const char letters[] = {'c', 'r', 0, 'a'};
    record *r = arg;
    if (e->kind == PROA_MESSAGE_CALL) {
        close_text(r);
        proa_buf_printf(&r->out, "call %d %.*s", (int)e->call, (int)e->text.len, e->text.ptr);
        if (e->id.len) proa_buf_printf(&r->out, " id %.*s", (int)e->id.len, e->id.ptr);
        proa_buf_char(&r->out, '|');
    } else if (e->kind == PROA_MESSAGE_CALL_END) {
        close_text(r);
        proa_buf_str(&r->out, proa_str_c("end|"));
    } else {
        assert_true(e->text.len > 0);
        if (r->open != (int)e->kind) {
            close_text(r);
            proa_buf_printf(&r->out, "%c:", letters[e->kind]);
        }
        proa_buf_str(&r->out, e->text);
        r->open = (int)e->kind;
    }
}

/* Pushes the pieces [0, a), [a, b), [b, end), or single bytes if a is negative. */
static void run(record *r, const proa_message_setup *setup, proa_str text, long a, long b)
{
    proa_message_setup s = *setup;
    proa_buf_init(&r->out, 1 << 20);
    r->open = -1;
    s.on_event = on_event;
    s.arg = r;
    proa_message_parser *p = proa_message_parser_new(&s);
    if (a < 0)
        for (size_t i = 0; i < text.len; i++) proa_message_push(p, (proa_str){text.ptr + i, 1});
    else {
        proa_message_push(p, (proa_str){text.ptr, (size_t)a});
        proa_message_push(p, (proa_str){text.ptr + a, (size_t)(b - a)});
        proa_message_push(p, (proa_str){text.ptr + b, text.len - (size_t)b});
    }
    proa_message_finish(p);
    close_text(r);
    proa_message_parser_free(p);
}

static void check(const proa_message_setup *setup, const char *source, const char *want)
{
    proa_str text = proa_str_c(source);
    record whole, part;
    run(&whole, setup, text, 0, 0);
    if (!proa_str_is(proa_buf_view(&whole.out), want))
        fail_msg("%s\n  want %s\n  got  %.*s", source, want, (int)whole.out.len,
                 whole.out.ptr ? whole.out.ptr : "");
    for (long a = -1; a <= (long)text.len; a++)
        for (long b = a < 0 ? 0 : a; b <= (long)text.len; b++) {
            if (a < 0 && b > 0) break;
            run(&part, setup, text, a, b);
            if (!proa_str_eq(proa_buf_view(&part.out), proa_buf_view(&whole.out)))
                fail_msg("%s\n  cut at %ld, %ld\n  want %s\n  got  %.*s", source, a, b, want,
                         (int)part.out.len, part.out.ptr ? part.out.ptr : "");
            proa_buf_release(&part.out);
        }
    proa_buf_release(&whole.out);
}

/* ---- tools ---- */

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},\"b\":{\"type\":"
    "\"boolean\"},\"m\":{\"type\":[\"string\",\"null\"]},\"e\":{\"enum\":[\"x\",\"y\"]},\"any\":{\"anyOf\":[]"
    "}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g.h\"}}]";

static proa_arena arena;
static proa_toolset *tools;

static int make_tools(void **state)
{
    proa_json *json;
    (void)state;
    proa_arena_init(&arena);
    assert_int_equal(proa_json_parse(&json, proa_str_c(tools_json), "tools", NULL), PROA_OK);
    tools = proa_toolset_new(&arena, json);
    proa_json_free(json);
    return 0;
}

static int free_tools(void **state)
{
    (void)state;
    proa_arena_release(&arena);
    return 0;
}

static proa_message_setup setup_of(proa_tool_form form, proa_reasoning_form reasoning)
{
    return (proa_message_setup){.form = {.tools = form, .reasoning = reasoning}, .tools = tools};
}

/* ---- forms ---- */

static void test_hermes(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_HERMES, PROA_REASONING_NONE);
    check(&s, "", "");
    check(&s, "Hello.\n ", "c:Hello.\n |");
    check(&s, " a < b <tool b <tool_cal", "c: a < b <tool b <tool_cal|");
    check(&s, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"}\\\"\"}}\n</tool_call>",
          "call 0 f|a:{\"s\": \"}\\\"\"}|end|");
    check(&s,
          "Well.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g.h\","
          "\"id\":\"z9\",\"arguments\":{\"a\":[1,-2.5e+3,null]}}</tool_call>\nDone. ",
          "c:Well.|call 0 f|a:{}|end|call 1 g.h id z9|a:{\"a\":[1,-2.5e+3,null]}|end|c:Done. |");
    check(&s, "<tool_call>{\"arguments\":{\"n\":1},\"x\":-0.5,\"name\":\"f\"}</tool_call>",
          "call 0 f|a:{\"n\":1}|end|");
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"n\\\": 1}\"}</tool_call>",
          "call 0 f|a:{\"n\": 1}|end|");
    /* cut in the closing tag */
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "call 0 f|a:{}|end|");
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n", "call 0 f|a:{}|end|");
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n</tool", "call 0 f|a:{}|end|");
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":{}} </to x", "call 0 f|a:{}|end|c:</to x|");
    check(&s, "<tool_call>{\"name\":\"f\"}</tool_call>", "call 0 f|a:{}|end|");
    check(&s, "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "call 0 f|a:{}|end|");
}

static void test_hermes_malformed(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_HERMES, PROA_REASONING_NONE);
    check(&s, "<tool_call>", "c:<tool_call>|");
    check(&s, "x <tool_call> y", "c:x <tool_call> y|");
    check(&s, "<tool_call>{}</tool_call>", "c:<tool_call>{}</tool_call>|");
    check(&s, "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
          "c:<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>|");
    check(&s, "<tool_call>{\"name\": \"\"}</tool_call>", "c:<tool_call>{\"name\": \"\"}</tool_call>|");
    check(&s, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
          "c:<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>|");
    check(&s, "<tool_call>{\"name\": \"f\", \"arg", "c:<tool_call>{\"name\": \"f\", \"arg|");
    check(&s, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a", "call 0 f|a:{\"s\": \"a|end|");
    check(&s, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": oh}}</tool_call> so",
          "call 0 f|a:{\"s\": |end|c:oh}}</tool_call> so|");
    check(&s, "<tool_call>{\"name\": \"f\", \"arguments\": {}} junk", "call 0 f|a:{}|end|c:junk|");
    check(&s, "<tool_call>{'name': 'f'}</tool_call>", "c:<tool_call>{'name': 'f'}</tool_call>|");
}

static void test_one_call(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_HERMES, PROA_REASONING_NONE);
    s.one_call = true;
    check(&s, "a <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"f\"}</tool_call> b",
          "c:a|call 0 f|a:{}|end|");
}

static void test_qwen_coder(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_QWEN3_CODER, PROA_REASONING_NONE);
    check(&s,
          "Sure.\n<tool_call>\n<function=f>\n<parameter=s>\n12\n\"q\"\n</parameter>\n<parameter=n>\n12\n</"
          "parameter>\n"
          "<parameter=o>\n{\"k\": [1]}\n</parameter>\n</function>\n</tool_call>",
          "c:Sure.|call 0 f|a:{\"s\": \"12\\n\\\"q\\\"\", \"n\": 12, \"o\": {\"k\": [1]}}|end|");
    check(
        &s,
        "<function=f><parameter=b>True</parameter><parameter=m>null</parameter><parameter=e>1</parameter>"
        "<parameter=any>1</parameter><parameter=?>1</parameter><parameter=n>1 2</parameter></function>",
        "call 0 f|a:{\"b\": true, \"m\": null, \"e\": \"1\", \"any\": 1, \"?\": \"1\", \"n\": \"1 2\"}|end|");
    check(&s,
          "<tool_call><function=g.h></function></tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}"
          "</tool_call>x",
          "call 0 g.h|a:{}|end|call 1 f|a:{}|end|c:x|");
    check(&s, "<function=f>\n<parameter=n>1</parameter>\n</func", "call 0 f|a:{\"n\": 1}|end|");
    check(&s, "<tool_call><function=f></function>\n</tool_call", "call 0 f|a:{}|end|");
    check(&s, "<function=f g>", "c:<function=f g>|");
    check(&s, "<tool_call><function=f>\n<parameter=n>\n1", "call 0 f|a:{}|end|c:<parameter=n>\n1|");
    check(&s, "<tool_call><function=f>\n<parameter=n>1</parameter> so", "call 0 f|a:{\"n\": 1}|end|c:so|");
}

static void test_llama(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_LLAMA3, PROA_REASONING_NONE);
    check(&s, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "call 0 f|a:{\"n\": 1}|end|");
    check(&s, "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g.h\", \"arguments\": {}}",
          "call 0 f|a:{}|end|call 1 g.h|a:{}|end|");
    check(&s, "Hm <|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "c:Hm|call 0 other|a:{}|end|");
    check(&s, "<|python_tag|>print(1)", "c:<|python_tag|>print(1)|");
    check(&s, "{\"name\": \"Bob\", \"parameters\": {}}", "c:{\"name\": \"Bob\", \"parameters\": {}}|");
    check(&s, "{\"name\": \"f\", \"age\": 3}", "c:{\"name\": \"f\", \"age\": 3}|");
    check(&s, "{\"name\": \"f\"}", "c:{\"name\": \"f\"}|");
    check(&s, "{ x }", "c:{ x }|");
    check(&s, "a {\"name\": \"f\", \"parameters\": {}}", "c:a {\"name\": \"f\", \"parameters\": {}}|");
    check(&s, "{\"name\": \"f\", \"parameters\": {}}; and", "call 0 f|a:{}|end|c:; and|");
}

static void test_mistral(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_MISTRAL, PROA_REASONING_MISTRAL);
    check(&s, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}, \"id\": \"abcdefghi\"}]",
          "call 0 f|a:{\"n\": 1}|end|");
    check(&s,
          "ok [TOOL_CALLS] [{\"id\":\"abcdefghi\",\"name\":\"f\",\"arguments\":{}} , "
          "{\"name\":\"g.h\",\"arguments\":"
          "{}}] x",
          "c:ok|call 0 f id abcdefghi|a:{}|end|call 1 g.h|a:{}|end|c:x|");
    check(&s, "[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g.h[CALL_ID]Q1[ARGS]{}[TOOL_CALLS]f{}",
          "call 0 f|a:{\"n\": 1}|end|call 1 g.h id Q1|a:{}|end|call 2 f|a:{}|end|");
    check(&s, "[THINK]hm [a][/THINK]Hi[TOOL_CALLS]f[ARGS]{}", "r:hm [a]|c:Hi|call 0 f|a:{}|end|");
    check(&s, "[TOOL_CALLS]f(1)", "c:[TOOL_CALLS]f(1)|");
    check(&s, "[TOOL_CALLS][1]", "c:[TOOL_CALLS][1]|");
    check(&s, "[TOOL_CALLS]f[ARGS]no", "c:[TOOL_CALLS]f[ARGS]no|");
    check(&s, "[TOOL_CALLS]f[CALL_ID]", "c:[TOOL_CALLS]f[CALL_ID]|");
    check(&s, "[TOOL_CALLS]f[ARGS]{\"n\": 1 x", "call 0 f|a:{\"n\": 1 |end|c:x|");
}

static void test_harmony(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_HARMONY, PROA_REASONING_HARMONY);
    check(&s, "<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>final<|message|>Hi!",
          "r:Hm.|c:Hi!|");
    check(&s,
          "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
          "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": "
          "1}<|call|>",
          "r:a\nb|call 0 f|a:{\"n\": 1}|end|");
    check(&s, " to=functions.f<|channel|>commentary json<|message|>{\"s\":\"<|x|>\"}",
          "call 0 f|a:{\"s\":\"<|x|>\"}|end|");
    check(&s,
          "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant to=functions.g.h<|channel|>"
          "commentary<|message|><|call|>",
          "c:Let me see.|call 0 g.h|a:{}|end|");
    check(&s, "Plain <|x|> text", "c:Plain <|x|> text|");
    check(&s, "<|channel|>final", "c:<|channel|>final|");
    check(&s, "<|channel|>final<|message|>a <|return|>", "c:a|");
    check(&s, "<|channel|>commentary to=functions.f<|message|>{\"n\": x}<|call|>",
          "call 0 f|a:{\"n\": |end|c:x}|");
}

static void test_reasoning(void **state)
{
    (void)state;
    proa_message_setup s = setup_of(PROA_TOOL_FORM_HERMES, PROA_REASONING_THINK);
    check(&s, "<think>\nhm\n</think>\n\nHello\n", "r:hm|c:Hello\n|");
    check(&s, "\n<think>hm <tool_call></think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
          "r:hm <tool_call>|call 0 f|a:{}|end|");
    check(&s, " Hello <think>x</think>", "c: Hello <think>x</think>|");
    check(&s, "<think>\n\n</think>\n\nHi", "c:Hi|");
    check(&s, "<think>hm </thin", "r:hm </thin|");
    check(&s, "<th", "c:<th|");
    s.reasoning_open = true;
    check(&s, "\nhm\n</think>\n\nHi", "r:hm|c:Hi|");
    check(&s, "<think>hm</think>Hi", "r:hm|c:Hi|");
    check(&s, "hm\n", "r:hm\n|");
    s.form.tools = PROA_TOOL_FORM_NONE;
    check(&s, "hm</think><tool_call>{}", "r:hm|c:<tool_call>{}|");
}

/* Nesting, escapes and literals that arguments may have. */
static void test_json(void **state)
{
    (void)state;
    static const char *const good[] = {"{}", "{ }", "{\"a\":{}}", "{\"a\":[],\"b\":[[{}],0,-0.1,1e5,2E-1]}",
                                       "{\"a\":\"\\u00e9\\n\\/\",\"b\":true,\"c\":false,\"d\":null}"};
    static const char *const bad[] = {"{,}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":.1}",
                                      "{\"a\":1,}",
                                      "{\"a\":[1,]}",
                                      "{\"a\":tru}",
                                      "{\"a\":\"\\x\"}",
                                      "{a:1}",
                                      "{\"a\":\"\\u00g0\"}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":[1}",
                                      "{\"a\":-}",
                                      "{\"a\":1e}"};
    proa_message_setup s = setup_of(PROA_TOOL_FORM_MISTRAL, PROA_REASONING_NONE);
    char text[256], want[256];
    for (size_t i = 0; i < PROA_COUNT(good); i++) {
        snprintf(text, sizeof text, "[TOOL_CALLS]f[ARGS]%s", good[i]);
        snprintf(want, sizeof want, "call 0 f|a:%s|end|", good[i]);
        check(&s, text, want);
    }
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        record r;
        snprintf(text, sizeof text, "[TOOL_CALLS]f[ARGS]%s", bad[i]);
        run(&r, &s, proa_str_c(text), 0, 0);
        proa_buf_char(&r.out, '\0');
        if (!strstr(r.out.ptr, "|end|c:")) fail_msg("%s: %s", bad[i], r.out.ptr);
        proa_buf_release(&r.out);
    }
    char deep[200] = "[TOOL_CALLS]f[ARGS]{\"a\":";
    memset(deep + strlen(deep), '[', 100);
    record r;
    run(&r, &s, proa_str_c(deep), 0, 0);
    proa_buf_char(&r.out, '\0');
    assert_non_null(strstr(r.out.ptr, "|end|c:["));
    proa_buf_release(&r.out);
}

/* ---- how forms are found ---- */

static void test_forms(void **state)
{
    (void)state;
    proa_tool_form form = PROA_TOOL_FORM_NONE;
    proa_reasoning_form reasoning = PROA_REASONING_NONE;
    assert_true(proa_tool_form_find(&form, "qwen3_coder"));
    assert_int_equal(form, PROA_TOOL_FORM_QWEN3_CODER);
    assert_false(proa_tool_form_find(&form, "hermes2"));
    assert_true(proa_reasoning_form_find(&reasoning, "deepseek_r1"));
    assert_int_equal(reasoning, PROA_REASONING_THINK_FIRST);
    assert_false(proa_reasoning_form_find(&reasoning, ""));
    proa_message_form f = {.tools = PROA_TOOL_FORM_NONE};
    proa_message_form_detect(&f, proa_str_c("{{ '<tool_call>' }}"));
    proa_message_form_detect(&f, proa_str_c("{{ '</think>[TOOL_CALLS]' }}"));
    assert_int_equal(f.tools, PROA_TOOL_FORM_HERMES);
    assert_int_equal(f.reasoning, PROA_REASONING_THINK);
    assert_int_equal(proa_message_prompt_reasons(&f, proa_str_c("<|im_start|>assistant\n<think>\n")), 1);
    assert_int_equal(proa_message_prompt_reasons(&f, proa_str_c("assistant\n<think>\n\n</think>\n\n")), 0);
    assert_int_equal(proa_message_prompt_reasons(&f, proa_str_c("<think> assistant\n")), -1);
    const char *markers[PROA_MESSAGE_MARKERS_MAX];
    assert_int_equal(proa_message_markers(&f, markers, PROA_MESSAGE_MARKERS_MAX), 4);
    assert_string_equal(markers[3], "</think>");
}

/* What begins a call is read by the parser of the form. */
static void test_begin_call(void **state)
{
    (void)state;
    static const proa_tool_form forms[] = {PROA_TOOL_FORM_HERMES, PROA_TOOL_FORM_LLAMA3,
                                           PROA_TOOL_FORM_MISTRAL, PROA_TOOL_FORM_HARMONY};
    for (size_t i = 0; i < PROA_COUNT(forms); i++) {
        proa_message_setup s = setup_of(forms[i], PROA_REASONING_NONE);
        proa_buf text;
        proa_buf_init(&text, 1 << 10);
        proa_message_begin_call(&s.form, proa_str_c("f"), false, &text);
        proa_buf_str(&text, proa_str_c("{\"n\": 1}"));
        proa_buf_char(&text, '\0');
        check(&s, text.ptr, "call 0 f|a:{\"n\": 1}|end|");
        proa_buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),    cmocka_unit_test(test_hermes_malformed),
        cmocka_unit_test(test_one_call),  cmocka_unit_test(test_qwen_coder),
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_harmony),   cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_json),      cmocka_unit_test(test_forms),
        cmocka_unit_test(test_begin_call)};
    return cmocka_run_group_tests(tests, make_tools, free_tools);
}
