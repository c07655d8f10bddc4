/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as JSON. What parses is walked with every getter, and each of its strings must come back unchanged
 * from proa_buf_json_str. */
#include "fuzz.h"

#include "base/json.h"
#include "base/limits.h"
#include <string.h>

static void check_string(proa_str s)
{
    proa_buf buf;
    proa_json *again = NULL;
    proa_buf_init(&buf, 64 << 20);
    PROA_ASSERT(proa_utf8_valid(s));
    PROA_ASSERT(proa_buf_json_str(&buf, s));
    PROA_ASSERT(proa_json_parse(&again, proa_buf_view(&buf), "string", NULL) == PROA_OK);
    PROA_ASSERT(proa_str_eq(proa_json_str(again), s));
    proa_json_free(again);
    proa_buf_release(&buf);
}

static void check_getters(const proa_json *obj, const char *key)
{
    int64_t i = 7;
    double d = 0.5;
    bool b = false;
    proa_str s = {"", 0};
    if (proa_json_get_int(&i, obj, key, -100, 100, NULL) == PROA_OK) PROA_ASSERT(i >= -100 && i <= 100);
    else PROA_ASSERT(i == 7);
    if (proa_json_get_double(&d, obj, key, 0, 1, NULL) == PROA_OK) PROA_ASSERT(d >= 0 && d <= 1);
    else PROA_ASSERT(d <= 0.5 && d >= 0.5);
    if (proa_json_get_bool(&b, obj, key, NULL) != PROA_OK) PROA_ASSERT(!b);
    if (proa_json_get_str(&s, obj, key, NULL) != PROA_OK) PROA_ASSERT(s.len == 0);
}

static int64_t walk(const proa_json *j, int depth) /* recursion is bounded by PROA_JSON_DEPTH_MAX */
{
    int64_t nodes = 1;
    PROA_ASSERT(depth <= PROA_JSON_DEPTH_MAX);
    PROA_ASSERT(strcmp(proa_json_kind_name(proa_json_kind(j)), "unknown") != 0);
    if (proa_json_kind(j) == PROA_JSON_STRING) check_string(proa_json_str(j));
    if (proa_json_kind(j) == PROA_JSON_ARRAY)
        for (int64_t i = 0; i < proa_json_len(j); i++) nodes += walk(proa_json_at(j, i), depth + 1);
    int64_t members = 0;
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it); members++) {
        check_string(it.key);
        check_getters(j, it.key.ptr);
        nodes += walk(it.value, depth + 1);
    }
    PROA_ASSERT(proa_json_kind(j) != PROA_JSON_OBJECT || members == proa_json_len(j));
    return nodes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_json *root = NULL;
    proa_err err = {.status = PROA_OK};
    proa_str text = {(const char *)data, size};
    proa_status status = proa_json_parse(&root, text, "fuzz", &err);
    PROA_ASSERT(status == err.status);
    if (status == PROA_OK) {
        PROA_ASSERT(proa_utf8_valid(text));
        PROA_ASSERT(walk(root, 0) <= PROA_JSON_NODES_MAX + 1);
    } else PROA_ASSERT(root == NULL && strlen(err.text) > 0);
    proa_json_free(root);
    /* what is strict is read the same as a file of Python's; a document of the other kind is null or a tree, too */
    proa_status python = proa_json_parse_python(&root, text, "fuzz", &err);
    PROA_ASSERT(status != PROA_OK || python == PROA_OK);
    if (python == PROA_OK) PROA_ASSERT(walk(root, 0) <= PROA_JSON_NODES_MAX + 1);
    proa_json_free(root);
    return 0;
}
