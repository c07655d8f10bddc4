/* SPDX-License-Identifier: Apache-2.0
 * test_proto_json.c - messages as JSON: what Google's protobuf prints of the corpus (tests/golden/pbtxt), Proa prints
 * and reads too; and what is refused, with its place. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "proto/grpc_service.pb-c.h"
#include "proto/model_config.pb-c.h"
#include "proto/pbtxt.h"
#include "proto/proto_json.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define GOLDEN PROA_SOURCE_DIR "/tests/golden/pbtxt"

static const ProtobufCMessageDescriptor *const type = &inference__model_config__descriptor;
static proa_arena arena;

static int setup(void **state)
{
    (void)state;
    proa_arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    proa_arena_release(&arena);
    return 0;
}

static bool same_json(const proa_json *a, const proa_json *b);

static bool same_members(const proa_json *a, const proa_json *b)
{
    if (proa_json_len(a) != proa_json_len(b)) return false;
    for (proa_json_iter it = proa_json_begin(a); proa_json_next(&it);)
        if (!same_json(it.value, proa_json_get(b, it.key.ptr))) return false;
    return true;
}

static bool same_json(const proa_json *a, const proa_json *b)
{
    proa_json_type kind = proa_json_kind(a);
    bool same = true;
    if (kind == PROA_JSON_DOUBLE || proa_json_kind(b) == PROA_JSON_DOUBLE)
        return proa_json_double(a) == proa_json_double(b) ||
               (float)proa_json_double(a) == (float)proa_json_double(b);
    if (kind != proa_json_kind(b)) return false;
    switch (kind) {
    case PROA_JSON_OBJECT: return same_members(a, b);
    case PROA_JSON_ARRAY:
        same = proa_json_len(a) == proa_json_len(b);
        for (int64_t i = 0; same && i < proa_json_len(a); i++)
            same = same_json(proa_json_at(a, i), proa_json_at(b, i));
        return same;
    case PROA_JSON_STRING: return proa_str_eq(proa_json_str(a), proa_json_str(b));
    case PROA_JSON_BOOL: return proa_json_bool(a) == proa_json_bool(b);
    default: return proa_json_int(a) == proa_json_int(b);
    }
}

static void assert_packs_same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    proa_buf x, y;
    proa_buf_init(&x, (size_t)PROA_MIB);
    proa_buf_init(&y, (size_t)PROA_MIB);
    assert_true(proa_message_pack(&x, a));
    assert_true(proa_message_pack(&y, b));
    assert_int_equal(x.len, y.len);
    if (x.len) assert_memory_equal(x.ptr, y.ptr, x.len);
    proa_buf_release(&x);
    proa_buf_release(&y);
}

static ProtobufCMessage *unpacked(const char *path)
{
    proa_buf wire;
    ProtobufCMessage *m = NULL;
    assert_int_equal(proa_file_read(&wire, path, PROA_MIB, NULL), PROA_OK);
    assert_int_equal(proa_message_unpack(&m, type, proa_buf_view(&wire), path, &arena, NULL), PROA_OK);
    proa_buf_release(&wire);
    return m;
}

/* The order of a map's entries does not count. */
static void assert_printed_as(const ProtobufCMessage *m, const proa_json *want, proa_buf *text)
{
    proa_json *got = NULL;
    proa_buf_clear(text);
    assert_true(proa_proto_json_print(text, m, NULL));
    assert_int_equal(proa_json_parse(&got, proa_buf_view(text), "printed", NULL), PROA_OK);
    if (!same_json(want, got)) fail_msg("printed as %s", text->ptr);
    proa_json_free(got);
}

static void check_golden(const char *name)
{
    char path[PROA_PATH_MAX];
    proa_json *want = NULL;
    proa_buf text;
    proa_err err = {.status = PROA_OK};
    ProtobufCMessage *read = NULL;
    snprintf(path, sizeof path, GOLDEN "/%s.pb", name);
    const ProtobufCMessage *m = unpacked(path);
    snprintf(path, sizeof path, GOLDEN "/%s.json", name);
    assert_int_equal(proa_json_load(&want, path, PROA_MIB, NULL), PROA_OK);
    proa_buf_init(&text, (size_t)PROA_MIB);
    assert_printed_as(m, want, &text);
    /* back, from ours and from theirs */
    if (proa_proto_json_parse(&read, type, proa_buf_view(&text), name, &arena, &err) != PROA_OK)
        fail_msg("%s", err.text);
    assert_packs_same(m, read);
    if (proa_proto_json_read(&read, type, want, &arena, &err) != PROA_OK) fail_msg("%s: %s", name, err.text);
    assert_printed_as(read, want, &text);
    proa_json_free(want);
    proa_buf_release(&text);
}

static void test_golden(void **state)
{
    int count = 0;
    DIR *folder = opendir(GOLDEN);
    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t n = strlen(entry->d_name);
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json") != 0) continue;
        entry->d_name[n - 5] = '\0';
        check_golden(entry->d_name);
        count++;
    }
    closedir(folder);
    assert_in_range(count, 13, 1000);
}

static void reads_as(const char *json, const char *pbtxt)
{
    ProtobufCMessage *m = NULL, *want = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_proto_json_parse(&m, type, proa_str_c(json), "t", &arena, &err) != PROA_OK)
        fail_msg("%s: %s", json, err.text);
    assert_int_equal(proa_pbtxt_parse(&want, type, proa_str_c(pbtxt), "t", &arena, &err), PROA_OK);
    assert_packs_same(m, want);
}

static void test_reads(void **state)
{
    (void)state;
    reads_as("{}", "");
    reads_as(
        "{\"maxBatchSize\":8,\"default_model_filename\":\"f\",\"ccModelFilenames\":{\"a\":\"b\"}}",
        "max_batch_size: 8 default_model_filename: \"f\" cc_model_filenames { key: \"a\" value: \"b\" }");
    reads_as("{\"max_batch_size\":\"8\"}", "max_batch_size: 8");
    reads_as("{\"max_batch_size\":8.0}", "max_batch_size: 8");
    reads_as("{\"max_batch_size\":-2147483648}", "max_batch_size: -2147483648");
    reads_as("{\"max_batch_size\":null,\"input\":null,\"parameters\":null,\"optimization\":null}", "");
    reads_as(
        "{\"input\":[{\"data_type\":\"type_fp32\",\"dims\":[1,\"2\",-1]},{\"data_type\":8,\"dims\":[]}]}",
        "input { data_type: TYPE_FP32 dims: [1, 2, -1] } input { data_type: TYPE_INT32 }");
    reads_as("{\"dynamic_batching\":{\"priority_levels\":18446744073709551615,\"priority_queue_policy\":{"
             "\"3\":{}}}}",
             "dynamic_batching { priority_levels: 18446744073709551615 priority_queue_policy { key: 3 value "
             "{} } }");
    reads_as("{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":\"NaN\"}}}",
             "sequence_batching { direct { minimum_slot_utilization: nan } }");
    reads_as("{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":\"-1.5e1\"}}}",
             "sequence_batching { direct { minimum_slot_utilization: -15 } }");
    reads_as("{\"version_policy\":{\"specific\":{\"versions\":[1,9223372036854775807]}}}",
             "version_policy { specific { versions: [1, 9223372036854775807] } }");
    reads_as("{\"name\":\"\\u00e9\\n\"}", "name: \"\xc3\xa9\\n\"");
}

static void test_refuses(void **state)
{
    static const char *const cases[][2] = {
        {"[]", "t: expected an object, not an array"},
        {"{\"nam\":1}", "t: no field 'nam' in ModelConfig"},
        {"{\"input\":[{},{\"dtype\":1}]}", "t: input: element 1: no field 'dtype' in ModelInput"},
        {"{\"input\":{}}", "t: input: expected an array, not an object"},
        {"{\"input\":[null]}", "t: input: element 0: expected an object, not null"},
        {"{\"input\":[{\"dims\":[1,2.5]}]}",
         "t: input: element 0: dims: element 1: not an integer of 64 bits"},
        {"{\"input\":[{\"dims\":[9223372036854775808]}]}",
         "t: input: element 0: dims: element 0: integer out of range"},
        {"{\"input\":[{\"dims\":[\"12x\"]}]}",
         "t: input: element 0: dims: element 0: not an integer of 64 bits"},
        {"{\"input\":[{\"dims\":[\"\"]}]}",
         "t: input: element 0: dims: element 0: not an integer of 64 bits"},
        {"{\"input\":[{\"dims\":[true]}]}",
         "t: input: element 0: dims: element 0: expected an integer, not a boolean"},
        {"{\"input\":[{\"data_type\":\"TYPE_FP8\"}]}",
         "t: input: element 0: data_type: no value 'TYPE_FP8' in DataType"},
        {"{\"input\":[{\"data_type\":3000000000}]}", "t: input: element 0: data_type: integer out of range"},
        {"{\"input\":[{\"optional\":\"true\"}]}",
         "t: input: element 0: optional: expected true or false, not a string"},
        {"{\"max_batch_size\":2147483648}", "t: max_batch_size: integer out of range"},
        {"{\"max_batch_size\":1,\"maxBatchSize\":2}", "t: max_batch_size: specified more than once"},
        {"{\"name\":7}", "t: name: expected a string, not an integer"},
        {"{\"name\":\"a\\u0000b\"}", "t: name: a string with a NUL byte"},
        {"{\"dynamic_batching\":{},\"sequence_batching\":{}}",
         "t: sequence_batching: specified along with 'dynamic_batching', and only one of them may be"},
        {"{\"dynamic_batching\":{\"priority_levels\":-1}}",
         "t: dynamic_batching: priority_levels: integer out of range"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"-1\":{}}}}",
         "t: dynamic_batching: priority_queue_policy: '-1': key out of range"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"x\":{}}}}",
         "t: dynamic_batching: priority_queue_policy: 'x': a key must be an integer"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"1\":{},\"01\":{}}}}",
         "t: dynamic_batching: priority_queue_policy: '01': a key stands twice"},
        {"{\"parameters\":{\"a\":\"b\"}}", "t: parameters: 'a': expected an object, not a string"},
        {"{\"parameters\":[]}", "t: parameters: expected an object, not an array"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":1e39}}}",
         "t: sequence_batching: direct: minimum_slot_utilization: number out of range"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":\"1e\"}}}",
         "t: sequence_batching: direct: minimum_slot_utilization: not a number"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":[]}}}",
         "t: sequence_batching: direct: minimum_slot_utilization: expected a number, not an array"},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_err err = {.status = PROA_OK};
        ProtobufCMessage *m = (ProtobufCMessage *)1;
        proa_status status = proa_proto_json_parse(&m, type, proa_str_c(cases[i][0]), "t", &arena, &err);
        if (status != PROA_INVALID || strcmp(err.text, cases[i][1]) != 0)
            fail_msg("%s\n gives '%s'\n not '%s'", cases[i][0], err.text, cases[i][1]);
        assert_null(m);
        assert_int_equal(proa_proto_json_parse(&m, type, proa_str_c(cases[i][0]), "t", &arena, NULL),
                         PROA_INVALID);
    }
}

/* Messages with bytes, and which numbers stand in quotes. */
static void test_bytes(void **state)
{
    static const struct {
        const char *bytes, *base64, *also;
    } cases[] = {{"", "", ""},
                 {"f", "Zg==", "Zg"},
                 {"fo", "Zm8=", "Zm8"},
                 {"foo", "Zm9v", "Zm9v"},
                 {"\xfb\xff\xbf", "+/+/", "-_-_"},
                 {"foobar", "Zm9vYmFy", "Zm9vYmFy"}};
    static const char *const bad[] = {"Z", "Zg=", "Zg===", "Z!==", "====", "Zm9v="};
    char json[100];
    proa_buf out;
    ProtobufCMessage *m = NULL;
    (void)state;
    proa_buf_init(&out, 1000);
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        for (int also = 0; also < 2; also++) {
            snprintf(json, sizeof json, "{\"bytes_param\":\"%s\"}", also ? cases[i].also : cases[i].base64);
            assert_int_equal(proa_proto_json_parse(&m, &inference__model_repository_parameter__descriptor,
                                                   proa_str_c(json), "t", &arena, NULL),
                             PROA_OK);
            const Inference__ModelRepositoryParameter *p = (const Inference__ModelRepositoryParameter *)m;
            assert_int_equal(p->bytes_param.len, strlen(cases[i].bytes));
            assert_memory_equal(p->bytes_param.data, cases[i].bytes, p->bytes_param.len);
        }
        proa_buf_clear(&out);
        assert_true(proa_proto_json_print(&out, m, NULL));
        snprintf(json, sizeof json, "{\"bytes_param\":\"%s\"}", cases[i].base64);
        assert_string_equal(out.ptr, json);
    }
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        snprintf(json, sizeof json, "{\"bytes_param\":\"%s\"}", bad[i]);
        assert_int_equal(proa_proto_json_parse(&m, &inference__model_repository_parameter__descriptor,
                                               proa_str_c(json), "t", &arena, NULL),
                         PROA_INVALID);
    }
    proa_buf_release(&out);
}

static void test_quotes(void **state)
{
    static const char *const in_parameter[] = {"ModelRepositoryParameter", NULL}, *const nowhere[] = {NULL};
    proa_buf out;
    Inference__ModelRepositoryParameter p = INFERENCE__MODEL_REPOSITORY_PARAMETER__INIT;
    (void)state;
    p.parameter_choice_case = INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    p.int64_param = -9007199254740993;
    proa_buf_init(&out, 1000);
    assert_true(proa_proto_json_print(&out, &p.base, NULL));
    assert_true(proa_proto_json_print(&out, &p.base, nowhere));
    assert_true(proa_proto_json_print(&out, &p.base, in_parameter));
    assert_string_equal(out.ptr, "{\"int64_param\":\"-9007199254740993\"}{\"int64_param\":-9007199254740993}"
                                 "{\"int64_param\":\"-9007199254740993\"}");
    out.bytes_max = out.len;
    assert_false(proa_proto_json_print(&out, &p.base, NULL));
    proa_buf_release(&out);
}

static void test_limit(void **state)
{
    proa_buf text;
    proa_err err = {.status = PROA_OK};
    ProtobufCMessage *m = NULL;
    (void)state;
    proa_buf_init(&text, (size_t)PROA_MIB);
    proa_buf_printf(&text, "{\"metric_tags\":{\"x\":\"y\"");
    for (int i = 0; i < PROA_MAP_ENTRIES_MAX; i++) proa_buf_printf(&text, ",\"%d\":\"\"", i);
    proa_buf_printf(&text, "}}");
    assert_int_equal(proa_proto_json_parse(&m, type, proa_buf_view(&text), "t", &arena, &err), PROA_LIMIT);
    assert_non_null(strstr(err.text, "more than 8192 entries"));
    proa_buf_release(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_golden), TEST(test_reads),  TEST(test_refuses),
                                       TEST(test_bytes),  TEST(test_quotes), TEST(test_limit)};
    return cmocka_run_group_tests_name("proto_json", tests, NULL, NULL);
}
