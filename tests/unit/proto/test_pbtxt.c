/* SPDX-License-Identifier: Apache-2.0
 * test_pbtxt.c - the text format: what protoc takes becomes what protoc makes of it (tests/golden/pbtxt), what it
 * refuses is refused with line and column, and what is printed reads back the same. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "proto/model_config.pb-c.h"
#include "proto/pbtxt.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define CORPUS PROA_SOURCE_DIR "/tests/fuzz/corpus/pbtxt"
#define GOLDEN PROA_SOURCE_DIR "/tests/golden/pbtxt"

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;

static proa_status parse(ProtobufCMessage **m, proa_str text, proa_arena *arena, proa_err *err)
{
    /* of exactly that many bytes, so that the sanitiser sees a look behind the end */
    char *copy = proa_malloc(text.len + (text.len == 0));
    if (text.len) memcpy(copy, text.ptr, text.len);
    *err = (proa_err){.status = PROA_OK};
    proa_status status = proa_pbtxt_parse(m, type, (proa_str){copy, text.len}, "t", arena, err);
    free(copy);
    assert_int_equal(status, err->status);
    assert_int_equal(*m == NULL, status != PROA_OK);
    return status;
}

static Inference__ModelConfig *parsed(const char *text, proa_arena *arena)
{
    ProtobufCMessage *m = NULL;
    proa_err err;
    if (parse(&m, proa_str_c(text), arena, &err) != PROA_OK) fail_msg("%s: %s", text, err.text);
    return (Inference__ModelConfig *)m;
}

static void refused(const char *text, const char *message)
{
    ProtobufCMessage *m = NULL;
    proa_err err;
    proa_arena arena;
    proa_arena_init(&arena);
    assert_int_equal(parse(&m, proa_str_c(text), &arena, &err), PROA_INVALID);
    assert_string_equal(err.text, message);
    proa_arena_release(&arena);
}

static void assert_same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    proa_buf x, y;
    proa_buf_init(&x, (size_t)PROA_MIB);
    proa_buf_init(&y, (size_t)PROA_MIB);
    assert_true(proa_message_pack(&x, a));
    assert_true(proa_message_pack(&y, b));
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.ptr, y.ptr, x.len);
    proa_buf_release(&x);
    proa_buf_release(&y);
}

/* Printed, read and copied, a message stays the same. */
static void check_round(const ProtobufCMessage *m, proa_arena *arena)
{
    ProtobufCMessage *again = NULL;
    proa_err err;
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_MIB);
    assert_true(proa_pbtxt_print(&text, m));
    if (parse(&again, proa_buf_view(&text), arena, &err) != PROA_OK)
        fail_msg("%s in\n%s", err.text, text.ptr);
    assert_same(m, again);
    assert_same(m, proa_message_copy(m, arena));
    proa_buf_release(&text);
}

static void check_golden(proa_str text, const char *name)
{
    char path[PROA_PATH_MAX];
    proa_arena arena;
    proa_buf wire;
    proa_err err;
    ProtobufCMessage *m = NULL, *golden = NULL;
    proa_arena_init(&arena);
    snprintf(path, sizeof path, GOLDEN "/%s.pb", name);
    assert_int_equal(proa_file_read(&wire, path, PROA_MIB, NULL), PROA_OK);
    if (parse(&m, text, &arena, &err) != PROA_OK) fail_msg("%s: %s", name, err.text);
    assert_int_equal(proa_message_unpack(&golden, type, proa_buf_view(&wire), name, &arena, NULL), PROA_OK);
    assert_same(golden, m);
    check_round(m, &arena);
    proa_buf_release(&wire);
    proa_arena_release(&arena);
}

static void check_bad(proa_str text, const char *name)
{
    proa_arena arena;
    proa_err err;
    ProtobufCMessage *m = NULL;
    proa_arena_init(&arena);
    if (parse(&m, text, &arena, &err) == PROA_OK) fail_msg("%s is accepted", name);
    assert_int_equal(strncmp(err.text, "t:", 2), 0);
    assert_int_not_equal(proa_pbtxt_parse(&m, type, text, "t", &arena, NULL), PROA_OK);
    proa_arena_release(&arena);
}

static void test_corpus(void **state)
{
    int good = 0, bad = 0;
    DIR *folder = opendir(CORPUS);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[PROA_PATH_MAX];
        proa_buf text;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, CORPUS "/%s", entry->d_name);
        assert_int_equal(proa_file_read(&text, path, PROA_MIB, NULL), PROA_OK);
        if (strncmp(entry->d_name, "good-", 5) == 0)
            check_golden(proa_buf_view(&text), entry->d_name), good++;
        else if (strncmp(entry->d_name, "bad-", 4) == 0 || strncmp(entry->d_name, "stricter-", 9) == 0)
            check_bad(proa_buf_view(&text), entry->d_name), bad++;
        proa_buf_release(&text);
    }
    closedir(folder);
    assert_in_range(good, 13, 1000);
    assert_in_range(bad, 60, 1000);
    (void)state;
}

static void test_messages(void **state)
{
    static const char *const cases[][2] = {
        {"\n  inputs { }", "t:2:3: no field 'inputs' in ModelConfig; did you mean 'input'?"},
        {"input { nam: \"x\" }", "t:1:9: no field 'nam' in ModelInput; did you mean 'name'?"},
        {"zzz: 1", "t:1:1: no field 'zzz' in ModelConfig"},
        {"input { data_type: TYPE_FP8 }",
         "t:1:20: no value 'TYPE_FP8' in DataType; did you mean 'TYPE_FP16'?"},
        {"name: \"\xc3\xa9\" x: 1", "t:1:11: no field 'x' in ModelConfig"},
        {"name: \"a\" name: \"b\"", "t:1:11: 'name' is specified more than once"},
        {"name: 7", "t:1:7: expected a string in quotes, found '7'"},
        {"name \"x\"", "t:1:6: expected ':' before a value, found '\"x\"'"},
        {"max_batch_size: 4294967296", "t:1:17: integer out of range"},
        {"input {\n\n", "t:3:1: expected the name of a field or '}', found the end"},
        {"name: \"open", "t:1:7: this string has no end"},
        {"dynamic_batching { } sequence_batching { }", "t:1:22: 'sequence_batching' is specified along with "
                                                       "'dynamic_batching', and only one of them may be"},
        {"name: \"\\777\"", "t:1:7: a string that is not UTF-8"},
        {"max_batch_size: 0123456789012345678901234567890123456789012345678901234567890123456789",
         "t:1:25: a number with a leading zero must be octal"},
        {"max_batch_size: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
         "t:1:17: expected an integer, found 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'"},
    };
    for (size_t i = 0; i < PROA_COUNT(cases); i++) refused(cases[i][0], cases[i][1]);
    (void)state;
}

static void test_limits(void **state)
{
    proa_arena arena;
    proa_buf text;
    proa_err err;
    ProtobufCMessage *m = NULL;
    proa_arena_init(&arena);
    proa_buf_init(&text, 8 * (size_t)PROA_MIB);
    /* 32 levels cannot be reached with ModelConfig's types: they nest 6. A long comment is fine up to the limit. */
    assert_true(proa_buf_reserve(&text, (size_t)PROA_PBTXT_BYTES_MAX + 1));
    memset(text.ptr, '#', (size_t)PROA_PBTXT_BYTES_MAX + 1);
    text.len = (size_t)PROA_PBTXT_BYTES_MAX;
    assert_int_equal(parse(&m, proa_buf_view(&text), &arena, &err), PROA_OK);
    text.len++;
    assert_int_equal(parse(&m, proa_buf_view(&text), &arena, &err), PROA_LIMIT);
    proa_buf_clear(&text);
    for (int i = 0; i <= PROA_MAP_ENTRIES_MAX; i++) {
        if (i == PROA_MAP_ENTRIES_MAX)
            assert_int_equal(parse(&m, proa_buf_view(&text), &arena, &err), PROA_OK);
        proa_buf_printf(&text, "metric_tags{key:\"%d\"}", i);
    }
    assert_int_equal(parse(&m, proa_buf_view(&text), &arena, &err), PROA_LIMIT);
    assert_string_equal(err.text, "t: 'metric_tags' has more than 8192 entries");
    proa_buf_release(&text);
    proa_arena_release(&arena);
    (void)state;
}

static void test_maps(void **state)
{
    proa_arena arena;
    proa_arena_init(&arena);
    Inference__ModelConfig *c = parsed(
        "parameters { key: \"a\" value { string_value: \"1\" } } parameters { key: \"b\" }"
        "parameters { key: \"a\" value { string_value: \"2\" } }"
        "dynamic_batching { priority_queue_policy { key: 7 value { max_queue_size: 1 } }"
        "  priority_queue_policy { key: 7 value { max_queue_size: 2 } } }",
        &arena);
    assert_int_equal(c->n_parameters, 2);
    assert_string_equal(c->parameters[0]->key, "a");
    assert_string_equal(c->parameters[0]->value->string_value, "2");
    assert_string_equal(c->parameters[1]->value->string_value, "");
    assert_int_equal(c->dynamic_batching->n_priority_queue_policy, 1);
    assert_int_equal(c->dynamic_batching->priority_queue_policy[0]->value->max_queue_size, 2);
    assert_true(proa_field_is_map(proa_field_find(type, proa_str_c("parameters"))));
    assert_true(proa_field_is_map(proa_field_find(type, proa_str_c("cc_model_filenames"))));
    assert_false(proa_field_is_map(proa_field_find(type, proa_str_c("input"))));
    assert_false(proa_field_is_map(proa_field_find(type, proa_str_c("name"))));
    proa_arena_release(&arena);
    (void)state;
}

static void test_build(void **state)
{
    proa_arena arena;
    proa_buf text;
    proa_arena_init(&arena);
    proa_buf_init(&text, (size_t)PROA_MIB);
    Inference__ModelConfig *c = (Inference__ModelConfig *)proa_message_new(type, &arena);
    assert_string_equal(c->name, "");
    c->name = proa_arena_strdup(&arena, proa_str_c("m\n\"\x01\xc3\xa9"));
    for (int i = 0; i < 9; i++) {
        Inference__ModelInput *in = (Inference__ModelInput *)proa_message_add(&c->base, "input", &arena);
        const ProtobufCFieldDescriptor *dims = proa_field_find(in->base.descriptor, proa_str_c("dims"));
        for (int j = 0; j < i; j++) *(int64_t *)proa_message_put(&in->base, dims, &arena) = j - 1;
        in->data_type = INFERENCE__DATA_TYPE__TYPE_FP32;
    }
    assert_int_equal(c->n_input, 9);
    assert_int_equal(c->input[8]->n_dims, 8);
    assert_int_equal(c->input[8]->dims[7], 6);
    proa_message_add(&c->base, "dynamic_batching", &arena);
    assert_int_equal(c->scheduling_choice_case, INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    check_round(&c->base, &arena);
    c->n_input = 3;
    assert_true(proa_pbtxt_print(&text, &c->base));
    assert_string_equal(text.ptr,
                        "name: \"m\\n\\\"\\001\xc3\xa9\"\ninput {\n  data_type: TYPE_FP32\n}\n"
                        "input {\n  data_type: TYPE_FP32\n  dims: [ -1 ]\n}\n"
                        "input {\n  data_type: TYPE_FP32\n  dims: [ -1, 0 ]\n}\ndynamic_batching {\n}\n");
    text.bytes_max = text.len;
    assert_false(proa_pbtxt_print(&text, &c->base));
    proa_buf_release(&text);
    proa_arena_release(&arena);
    (void)state;
}

static void test_unpack_refuses(void **state)
{
    static const char bytes[] = {0x0a, 0x05, 'a'};
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    ProtobufCMessage *m = NULL;
    proa_arena_init(&arena);
    assert_int_equal(proa_message_unpack(&m, type, (proa_str){bytes, sizeof bytes}, "x", &arena, &err),
                     PROA_INVALID);
    assert_string_equal(err.text, "x: not a message of type ModelConfig");
    proa_arena_release(&arena);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus), cmocka_unit_test(test_messages), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_maps),   cmocka_unit_test(test_build),    cmocka_unit_test(test_unpack_refuses),
    };
    return cmocka_run_group_tests_name("pbtxt", tests, NULL, NULL);
}
