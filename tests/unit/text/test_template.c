/* SPDX-License-Identifier: Apache-2.0
 * test_template.c - templates against the output of jinja2 (tests/golden/templates, made by
 * tools/golden_templates.py), the limits, the places where a model keeps its templates, and one template
 * rendered by several threads. */
#include "base/file.h"
#include "base/limits.h"
#include "text/template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define FOLDER PROA_SOURCE_DIR "/tests/golden/templates/"

static proa_json *load(const char *path)
{
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    return root;
}

/* Behind "line 12: ". */
static const char *without_line(const char *text)
{
    int n = 0;
    return sscanf(text, "line %*d: %n", &n) == 0 && n > 0 ? text + n : text;
}

/* Compares a result with a golden {"output"} or {"error", "exact"}; counts what differs. */
static int differs(const char *what, const proa_json *golden, proa_status status, const proa_buf *out,
                   const proa_err *err)
{
    const proa_json *want = proa_json_get(golden, "output"), *error = proa_json_get(golden, "error");
    proa_str text = proa_json_str(want), words = proa_json_str(error), got = proa_buf_view(out);
    if (want && status != PROA_OK) {
        print_message("%s\n  want: %s\n  failed: %s\n", what, text.ptr, err->text);
        return 1;
    }
    if (want && !proa_str_eq(got, text)) {
        print_message("%s\n  want: %s\n  got:  %s\n", what, text.ptr, out->ptr ? out->ptr : "");
        return 1;
    }
    if (error && status == PROA_OK) {
        print_message("%s\n  should fail: %s\n  got: %s\n", what, words.ptr, out->ptr ? out->ptr : "");
        return 1;
    }
    if (error && proa_json_bool(proa_json_get(golden, "exact")) && !proa_str_is(words, without_line(err->text))) {
        print_message("%s\n  want error: %s\n  got error:  %s\n", what, words.ptr, err->text);
        return 1;
    }
    return 0;
}

static void test_snippets(void **state)
{
    (void)state;
    proa_json *root = load(FOLDER "snippets.json");
    const proa_json *list = proa_json_get(root, "snippets"), *variables = proa_json_get(root, "variables");
    int bad = 0;
    assert_true(proa_json_len(list) >= 150);
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        const proa_json *one = proa_json_at(list, i);
        proa_str source = proa_json_str(proa_json_get(one, "template"));
        proa_template *t;
        proa_buf out;
        proa_err err = {0};
        proa_buf_init(&out, 1 << 20);
        proa_status status = proa_template_new(&t, source, &err);
        if (status == PROA_OK) status = proa_template_render(t, variables, &out, &err);
        assert_int_equal(status, err.status);
        bad += differs(source.ptr, one, status, &out, &err);
        proa_template_free(t);
        proa_buf_release(&out);
    }
    proa_json_free(root);
    assert_int_equal(bad, 0);
}

/* A model folder with the files that are given as name, text, name, text, NULL. */
static char *make_folder(const char *const *files)
{
    static char folder[64];
    char path[256];
    strcpy(folder, "/tmp/proa-template-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (; files && *files; files += 2) {
        snprintf(path, sizeof path, "%s/%s", folder, files[0]);
        char *slash = strrchr(path + strlen(folder) + 1, '/');
        if (slash) {
            *slash = '\0';
            mkdir(path, 0777);
            *slash = '/';
        }
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(files[1], f);
        fclose(f);
    }
    return folder;
}

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static const char tokens[] = "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_token\":\"</s>\","
                             "\"pad_token\":null,\"unk_token\":\"<unk>\"}";

static void test_chats(void **state)
{
    (void)state;
    static const char *const files[] = {"tokenizer_config.json", tokens, "special_tokens_map.json",
                                        "{\"pad_token\":\"<pad>\",\"eos_token\":\"<no>\"}", NULL};
    proa_json *root = load(FOLDER "chats.json");
    char *folder = make_folder(files), path[512], what[512];
    int templates = 0, bad = 0;
    for (proa_json_iter it = proa_json_begin(proa_json_get(root, "chats")); proa_json_next(&it); templates++) {
        proa_chat *chat;
        proa_err err = {0};
        snprintf(path, sizeof path, FOLDER "chats/%s", it.key.ptr);
        proa_files of_folder = proa_files_of(folder);
        if (proa_chat_open_files(&chat, &of_folder, path, &err) != PROA_OK) fail_msg("%s", err.text);
        for (proa_json_iter c = proa_json_begin(it.value); proa_json_next(&c);) {
            proa_buf out;
            proa_err failure = {0};
            proa_buf_init(&out, 1 << 20);
            snprintf(what, sizeof what, "%s: %s", it.key.ptr, c.key.ptr);
            const proa_json *request = proa_json_get(proa_json_get(root, "cases"), c.key.ptr);
            proa_status status = proa_chat_render(chat, request, &out, &failure);
            bad += differs(what, c.value, status, &out, &failure);
            proa_buf_release(&out);
        }
        proa_chat_free(chat);
    }
    proa_json_free(root);
    remove_folder(folder);
    assert_true(templates >= 12);
    assert_int_equal(bad, 0);
}

/* ---- where templates are found ---- */

static void expect_chat(const char *const *files, const char *choice, const char *request_text, const char *want)
{
    char *folder = make_folder(files);
    proa_chat *chat = NULL;
    proa_json *request;
    proa_buf out;
    proa_err err = {0};
    proa_buf_init(&out, 1 << 20);
    assert_int_equal(proa_json_parse(&request, proa_str_c(request_text), "request", &err), PROA_OK);
    proa_files of_folder = proa_files_of(folder);
    proa_status status = proa_chat_open_files(&chat, &of_folder, choice, &err);
    if (status == PROA_OK) status = proa_chat_render(chat, request, &out, &err);
    if (status == PROA_OK && out.len > 0) out.ptr[out.len] = '\0'; /* behind what goes on */
    if (status == PROA_OK) assert_string_equal(out.ptr, want);
    else if (!strstr(err.text, want)) fail_msg("'%s' is not in '%s'", want, err.text);
    proa_chat_free(chat);
    proa_json_free(request);
    proa_buf_release(&out);
    remove_folder(folder);
}

#define REQUEST "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define REQUEST_TOOLS                                                                                        \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"type\":\"function\"}]}"

static void test_places(void **state)
{
    (void)state;
    expect_chat((const char *const[]){NULL}, NULL, REQUEST, "has no chat template");
    expect_chat((const char *const[]){"tokenizer_config.json",
                                      "{\"chat_template\":\"A {{ bos_token }}\",\"bos_token\":\"B\"}",
                                      "chat_template.json", "{\"chat_template\":\"no\"}", NULL},
                NULL, REQUEST, "A B");
    expect_chat((const char *const[]){"tokenizer_config.json", "{\"bos_token\":\"B\"}", "chat_template.json",
                                      "{\"chat_template\":\"J {{ bos_token }}\"}", NULL},
                NULL, REQUEST, "J B");
    expect_chat((const char *const[]){"tokenizer_config.json", "{\"chat_template\":\"no\"}", "chat_template.jinja",
                                      "file\n", "additional_chat_templates/rag.jinja", "rag", NULL},
                NULL, REQUEST, "file");
    expect_chat((const char *const[]){"chat_template.jinja", "file", "additional_chat_templates/rag.jinja",
                                      "rag", NULL},
                NULL, "{\"messages\":[{\"role\":\"user\"}],\"chat_template\":\"rag\"}", "rag");
    expect_chat((const char *const[]){"chat_template.jinja", "file", NULL}, NULL,
                "{\"messages\":[{\"role\":\"user\"}],\"chat_template\":\"rag\"}",
                "no chat template named 'rag'");
    expect_chat((const char *const[]){"chat_template.jinja", "a\n{% if %}", NULL}, NULL, REQUEST, "line 2");
}

/* Templates of models of images that leave out a content that is no list: LLaVA's filter, SmolVLM's loop. */
static void test_parts(void **state)
{
    (void)state;
    static const char *const llava[] = {"chat_template.json",
                                        "{\"chat_template\":\"{% for message in messages %}{{ "
                                        "message['role'] | upper + ':' }}{% for content in "
                                        "message['content'] | selectattr('type', 'equalto', 'text') %}{{ ' ' "
                                        "+ content['text'] }}{% endfor %}|"
                                        "{% endfor %}\"}",
                                        NULL};
    static const char *const smolvlm[] = {"chat_template.jinja",
                                          "{% for message in messages %}{{ message['role'][0] }}{% for line "
                                          "in message['content'] %}{% if line['type'] "
                                          "== 'text' %}{{ line['text'] }}{% elif line['type'] == 'image' "
                                          "%}<image>{% endif %}{% endfor %};{% endfor %}",
                                          NULL};
    static const char *const either[] = {
        "chat_template.jinja",
        "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% else %}{% for c in m.content "
        "%}"
        "{% if c.type == 'text' %}P{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
        NULL};
#define TWO                                                                                                  \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":[{\"type\":"     \
    "\"text\","                                                                                              \
    "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}"
    expect_chat(llava, NULL, TWO "]}", "SYSTEM: be|USER: a b|");
    expect_chat(smolvlm, NULL, TWO "]}", "sbe;uab;");
    expect_chat(either, NULL, TWO "]}", "SbeSa\nb");
    expect_chat(smolvlm, NULL,
                TWO ",{\"role\":\"assistant\",\"content\":\"so\"}],\"continue_final_message\":true}",
                "sbe;uab;aso");
}

#define NAMED                                                                                                \
    "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"tool_use\",\"template\":"     \
    "\"T\"}]}"

static void test_named(void **state)
{
    (void)state;
    static const char *const files[] = {"tokenizer_config.json", NAMED, NULL};
    expect_chat(files, NULL, REQUEST, "D");
    expect_chat(files, NULL, REQUEST_TOOLS, "T");
    expect_chat((const char *const[]){"tokenizer_config.json", "{\"chat_template\":[{\"name\":\"x\"}]}", NULL},
                NULL, REQUEST, "no name or no template");
    expect_chat(
        (const char *const[]){
            "tokenizer_config.json",
            "{\"chat_template\":[{\"name\":\"a\",\"template\":\"A\"},{\"name\":\"b\",\"template\":\"B\"}]}", NULL},
        NULL, REQUEST, "none named 'default'");
    expect_chat(NULL, "chatml", REQUEST, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    expect_chat(NULL, "plain", REQUEST, "User: hi\nAssistant:");
    expect_chat(NULL, "/nonexistent.jinja", REQUEST, "/nonexistent.jinja");
    expect_chat(NULL, "plain", "{\"messages\":[]}", "at least one message");
    expect_chat(NULL, "plain", "{\"messages\":[{\"content\":\"x\"}]}", "messages[0] has no role");
}

/* Parts are joined, arguments in a text become an object, broken ones stay a text. */
static void test_messages(void **state)
{
    (void)state;
    static const char *const files[] = {
        "chat_template.jinja",
        "{% for m in messages %}{{ m.content }}|{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments|tojson }};{% endfor %}{% endfor %}",
        NULL};
    expect_chat(files, NULL,
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
                "\"text\","
                "\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{"
                "\"arguments\":"
                "\"{\\\"x\\\": "
                "[1]}\"}},{\"function\":{\"arguments\":\"{x\"}},{\"function\":{\"arguments\":{\"y\":2}}}]}]}",
                "a\nb|None|{\"x\": [1]};\"{x\";{\"y\": 2};");
}

/* ---- indent: what ends with a character of several bytes, or with one of Python's line ends ---- */

static void test_indent(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"\xC3\xA9", "\xC3\xA9"},
                                           {"a\\n\xE4\xBD\xA0", "a\n  \xE4\xBD\xA0"},
                                           {"a\\r", "a"},
                                           {"a\\u2028", "a\n"},
                                           {"a\\n", "a\n"},
                                           {"a\\n\\r", "a\n"},
                                           {"", ""}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        char source[64], want[64];
        proa_template *t;
        proa_buf out;
        proa_buf_init(&out, 1 << 20);
        snprintf(source, sizeof source, "{{ '%s'|indent(2) }}|", cases[i][0]);
        snprintf(want, sizeof want, "%s|", cases[i][1]);
        assert_int_equal(proa_template_new(&t, proa_str_c(source), NULL), PROA_OK);
        assert_int_equal(proa_template_render(t, NULL, &out, NULL), PROA_OK);
        assert_string_equal(out.ptr, want);
        proa_template_free(t);
        proa_buf_release(&out);
    }
}

/* ---- limits ---- */

static proa_status render(const char *source, proa_err *err)
{
    proa_template *t;
    proa_buf out;
    proa_buf_init(&out, 1 << 20);
    proa_status status = proa_template_new(&t, proa_str_c(source), err);
    if (status == PROA_OK) status = proa_template_render(t, NULL, &out, err);
    if (status != PROA_OK) assert_int_equal(out.len, 0);
    proa_template_free(t);
    proa_buf_release(&out);
    return status;
}

static char *repeat(const char *head, const char *part, int n, const char *tail)
{
    size_t len = strlen(part);
    char *text = calloc(1, strlen(head) + len * (size_t)n + strlen(tail) + 1), *at = text + strlen(head);
    strcpy(text, head);
    for (int i = 0; i < n; i++, at += len) memcpy(at, part, len);
    strcpy(at, tail);
    return text;
}

static void expect_limit(char *source, const char *says)
{
    proa_err err = {0};
    assert_int_not_equal(render(source, &err), PROA_OK);
    if (!strstr(err.text, says)) fail_msg("'%s' is not in '%s'", says, err.text);
    free(source);
}

static void test_limits(void **state)
{
    (void)state;
    proa_err err = {0};
    char *closing = repeat("1", ")", 100, " }}");
    expect_limit(repeat("{{ ", "(", 100, closing), "nested deeper");
    free(closing);
    expect_limit(repeat("{{ 1", "|abs", 5000, " }}"), "nested deeper");
    expect_limit(repeat("{{ x", ".a", 5000, " }}"), "nested deeper");
    expect_limit(repeat("{% set x", "|trim", 5000, " %}{% endset %}"), "nested deeper");
    expect_limit(repeat("", "{% if true %}", 100, ""), "nested deeper");
    expect_limit(repeat("{{ ", "not ", 100, "1 }}"), "nested deeper");
    expect_limit(repeat("{{ ", "-", 100, "1 }}"), "nested deeper");
    expect_limit(repeat("", "x", (int)PROA_TEMPLATE_BYTES_MAX + 1, ""), "at most");
    expect_limit(strdup("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
                 "steps");
    expect_limit(strdup("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ "
                        "ns.s %}{% endfor %}"),
                 "memory");
    expect_limit(strdup("{{ 'x' * 99999999999 }}"), "memory");
    expect_limit(strdup("{{ 'x' * 9999999 }}"), "1048576 bytes");
    expect_limit(strdup("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "deeper than 64");
    expect_limit(strdup("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}"), "deeper than");
    expect_limit(strdup("{% set ns = namespace(a=[]) %}{% for i in range(999) %}{% set ns.a = [ns.a] %}{% "
                        "endfor %}{{ ns.a }}"),
                 "deeper than");
    expect_limit(strdup("{% set ns = namespace(a=[]) %}{% for i in range(999) %}{% set ns.a = [ns.a] %}{% "
                        "endfor %}{{ ns.a|tojson }}"),
                 "deeper than");
    /* work on long texts counts by their bytes */
    expect_limit(
        strdup("{% set x = 'a' * 1000000 %}{% for i in range(60) %}{% set y = x|upper %}{% endfor %}"),
        "steps");
    expect_limit(strdup("{% set x = 'a' * 1000000 %}{% for i in range(400) %}{{ x|length }}{% endfor %}"),
                 "steps");
    expect_limit(strdup("{% set x = '<' * 1000000 %}{% for i in range(60) %}{% set y = x|e %}{% endfor %}"),
                 "steps");
    expect_limit(strdup("{% set x = 'a' * 200000 %}{{ x|trim('b' * 100000 + 'a') }}"), "steps");
    expect_limit(strdup("{% set x = 'a' * 200000 %}{{ x.rfind('a' * 100000 + 'b') }}"), "steps");
    expect_limit(strdup("{{ 9223372036854775807 + 1 }}"), "64 bits");
    expect_limit(strdup("{{ 2 ** 63 }}"), "64 bits");
    expect_limit(strdup("{{ '%999999d' % 1 }}"), "wider than");
    assert_int_equal(render("a{{ 'b' + 1 }}", &err), PROA_INVALID);
    assert_string_equal(err.text, "line 1: can only concatenate str (not \"int\") to str");
}

/* What fails while a value is made must not be taken for the value. */
static void test_failing_values(void **state)
{
    (void)state;
    proa_err err = {0};
    /* NaN is a key that is found by nobody, dict() of its own dict too */
    assert_int_equal(render("{{ dict({(1e308 * 10 - 1e308 * 10): 1})|length }}", &err), PROA_OK);
    expect_limit(strdup("{% set ns = namespace(d={}) %}{% for i in range(20000) %}"
                        "{% set ns.d = dict(ns.d, **{i|string: i}) %}{% endfor %}"),
                 "more than");
    assert_int_equal(render("{{ '%*d' % (-9223372036854775807 - 1, 1) }}", &err), PROA_LIMIT);
    assert_int_equal(render("{{ 'x'.center(-9223372036854775807 - 1) }}", &err), PROA_OK);
    /* 256 MiB but for a few bytes are taken when the filter begins */
    expect_limit(
        strdup("{% set x = 'a' * (256 * 1024 * 1024 - 300) %}{% set y = 'b' %}{% for i in range(99) %}"
               "{% set y = 'b'|indent('  ') %}{% endfor %}"),
        "memory");
}

/* Work on a long text is steps too: these are 100,000 times 10 MB. */
static void test_long_texts(void **state)
{
    (void)state;
    static const char *const work[] = {"x|length", "x.count('c')", "x.partition('c')|length",
                                       "x[1:2]",   "x == y",       "x < y",
                                       "'c' in x", "d[x]"};
    for (size_t i = 0; i < PROA_COUNT(work); i++) {
        char source[512];
        snprintf(source, sizeof source,
                 "{%% set x = 'ab' * 5000000 %%}{%% set y = 'ab' * 4999999 ~ 'ac' %%}{%% set d = {y: 1} %%}"
                 "{%% for i in range(99999) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                 work[i]);
        expect_limit(strdup(source), "more than");
    }
}

/* Long sums, long rows of `or` and long elif chains are no nesting. */
static void test_long(void **state)
{
    (void)state;
    proa_err err = {0};
    static const char *const parts[][3] = {{"{{ ''", " + 'x'", " }}"},
                                           {"{{ 0", " or 0", " }}"},
                                           {"{{ ''", " ~ 'x'", " }}"},
                                           {"{% if 0 %}", "{% elif 0 %}y", "{% endif %}"},
                                           {"{{ 0", " < 1 == 1 > 0", " }}"}};
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        char *source = repeat(parts[i][0], parts[i][1], 3000, parts[i][2]);
        if (render(source, &err) != PROA_OK) fail_msg("%s", err.text);
        free(source);
    }
}

/* ---- threads ---- */

static void *render_often(void *arg)
{
    const proa_template *t = arg;
    proa_json *variables;
    proa_buf out;
    proa_buf_init(&out, 1 << 20);
    assert_int_equal(proa_json_parse(&variables, proa_str_c("{\"xs\":[1,2,3]}"), "variables", NULL), PROA_OK);
    for (int i = 0; i < 200; i++) {
        proa_buf_clear(&out);
        assert_int_equal(proa_template_render(t, variables, &out, NULL), PROA_OK);
        assert_string_equal(out.ptr, "<1><2><3>6");
    }
    proa_json_free(variables);
    proa_buf_release(&out);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    proa_template *t;
    const char *source =
        "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for x in xs %}{{ m(x) }}{% endfor %}{{ xs|sum }}";
    assert_int_equal(proa_template_new(&t, proa_str_c(source), NULL), PROA_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    proa_template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snippets),       cmocka_unit_test(test_chats),
        cmocka_unit_test(test_places),         cmocka_unit_test(test_parts),
        cmocka_unit_test(test_named),          cmocka_unit_test(test_messages),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_long),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_indent),
        cmocka_unit_test(test_failing_values), cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
