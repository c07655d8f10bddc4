/* SPDX-License-Identifier: Apache-2.0
 * test_hub.c - what comes from a hub: names, lists of files, headers, checksums. */
#include "hub/digest.h"
#include "hub/name.h"
#include "hub/reply.h"
#include "hub/tree.h"
#include "proa/hub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COMMIT "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_names(void **state)
{
    PROA_UNUSED(state);
    proa_hub_name n;
    assert_int_equal(proa_hub_name_parse(&n, "org/name", NULL), PROA_OK);
    assert_string_equal(n.repo, "org/name");
    assert_string_equal(n.revision, "main");
    assert_string_equal(n.file, "");
    assert_int_equal(proa_hub_name_parse(&n, "o.r_g/N-1.5:Q4_K_M@refs/pr/1", NULL), PROA_OK);
    assert_string_equal(n.repo, "o.r_g/N-1.5");
    assert_string_equal(n.file, "Q4_K_M");
    assert_string_equal(n.revision, "refs/pr/1");
    char folder[PROA_HUB_NAME_MAX + 16];
    proa_hub_name_folder(folder, n.repo);
    assert_string_equal(folder, "models--o.r_g--N-1.5");
    static const char *const wrong[] = {
        "",         "org",        "/name",        "org/",         "org/a/b",    "org//b",
        "../b",     "org/..",     "org/.a",       "org/a.",       "-o/a",       "org/a-",
        "org/a--b", "org/a..b",   "org/a.git",    "org/a b",      "org/a\nb",   "org/a\\b",
        "org/a@",   "org/a@..",   "org/a@x/../y", "org/a@/x",     "org/a@x:y",  "org/a@x y",
        "org/a:",   "org/a:../b", "org/a:/b",     "org/\xc3\xa4", "org/a@x\x01"};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++)
        assert_int_equal(proa_hub_name_parse(&n, wrong[i], NULL), PROA_INVALID);
    assert_true(proa_hub_is_name("no-such-folder/name"));
    assert_false(proa_hub_is_name("no-such-folder/name.gguf"));
}

static void test_paths(void **state)
{
    PROA_UNUSED(state);
    static const char *const right[] = {"a", "a/b", "a/b.c", "...", "a b", "\xc3\xa4", ".hidden"};
    static const char *const wrong[] = {"",     "/",    "/a",    "a/",   "a//b", ".",   "..",
                                        "a/..", "../a", "a/./b", "a\\b", "a\nb", "\x7f"};
    char part[300];
    for (size_t i = 0; i < PROA_COUNT(right); i++) assert_true(proa_hub_is_path(proa_str_c(right[i])));
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) assert_false(proa_hub_is_path(proa_str_c(wrong[i])));
    memset(part, 'a', sizeof part);
    assert_true(proa_hub_is_path((proa_str){part, 255}));
    assert_false(proa_hub_is_path((proa_str){part, 256}));
    assert_true(proa_hub_is_commit(proa_str_c(COMMIT)));
    assert_false(proa_hub_is_commit(proa_str_c("A" COMMIT)));
    assert_false(proa_hub_is_commit((proa_str){COMMIT, 39}));
}

static proa_status parse_list(proa_hub_tree *tree, const char *json, proa_err *err)
{
    proa_hub_tree_init(tree);
    return proa_hub_tree_parse(tree, proa_str_c(json), err);
}

static void test_list(void **state)
{
    PROA_UNUSED(state);
    proa_hub_tree tree, again;
    proa_err err = {0};
    const char *json = "{\"sha\":\"" COMMIT
                       "\",\"siblings\":[{\"rfilename\":\"model.safetensors\",\"size\":7,\"blobId\":\"" COMMIT
                       "\",\"lfs\":{\"size\":7000,\"sha256\":\"" SHA256
                       "\"}},{\"rfilename\":\"config.json\",\"size\":5,\"blobId\":\"" COMMIT
                       "\"},{\"rfilename\":\"vocab.txt\",\"blobId\":\"" COMMIT "\"}]}";
    assert_int_equal(parse_list(&tree, json, &err), PROA_OK);
    assert_int_equal(tree.count, 3);
    assert_string_equal(tree.entries[0].path, "config.json"); /* sorted */
    assert_string_equal(tree.entries[0].etag, COMMIT);
    assert_int_equal(tree.entries[1].size, 7000);
    assert_string_equal(tree.entries[1].etag, SHA256);
    assert_int_equal(tree.entries[2].size, -1);
    proa_buf kept;
    proa_buf_init(&kept, 10000);
    assert_false(proa_hub_tree_write(&tree, &kept)); /* a size is missing: no list is kept */
    tree.entries[2].size = 0;
    proa_buf_clear(&kept);
    assert_true(proa_hub_tree_write(&tree, &kept));
    proa_hub_tree_init(&again);
    assert_int_equal(proa_hub_tree_read(&again, COMMIT, proa_buf_view(&kept), &err), PROA_OK);
    assert_int_equal(again.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(again.entries[i].path, tree.entries[i].path);
        assert_string_equal(again.entries[i].etag, tree.entries[i].etag);
        assert_int_equal(again.entries[i].size, tree.entries[i].size);
    }
    proa_buf_release(&kept);
    proa_hub_tree_release(&again);
    proa_hub_tree_release(&tree);
}

static void test_hostile_lists(void **state)
{
    PROA_UNUSED(state);
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "null",
        "{\"sha\":\"" COMMIT "\"}",
        "{\"sha\":1,\"siblings\":[]}",
        "{\"sha\":\"../../../../../../../../../../../../../etc/\",\"siblings\":[]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":{}}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"../x\"}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"/x\"}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\\u0000b\"}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x\",\"size\":9000000000000000000}]}"};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        proa_hub_tree tree;
        proa_err err = {0};
        assert_int_not_equal(parse_list(&tree, wrong[i], &err), PROA_OK);
        assert_true(err.text[0] != '\0');
        proa_hub_tree_release(&tree);
    }
    /* what has not the form of a checksum counts as unknown, so that it never becomes the name of a blob */
    proa_hub_tree tree;
    assert_int_equal(parse_list(&tree,
                                "{\"sha\":\"" COMMIT
                                "\",\"siblings\":[{\"rfilename\":\"x\",\"size\":5,\"blobId\":\"../../x\"},"
                                "{\"rfilename\":\"y\",\"size\":-5,\"lfs\":{\"sha256\":\"..\",\"size\":1}}]}",
                                NULL),
                     PROA_OK);
    assert_string_equal(tree.entries[0].etag, "");
    assert_string_equal(tree.entries[1].etag, "");
    assert_int_equal(tree.entries[0].size, -1);
    proa_hub_tree_release(&tree);
}

static void take_line(proa_hub_reply *r, const char *line)
{
    proa_hub_reply_header(r, proa_str_c(line));
}

static void test_headers(void **state)
{
    PROA_UNUSED(state);
    proa_hub_reply r = {.location = NULL};
    proa_hub_reply_clear(&r);
    take_line(&r, "HTTP/1.1 302 Found\r\n");
    take_line(&r, "ETag: W/\"abc\"\r\n");
    take_line(&r, "x-LINKED-etag: \"" SHA256 "\"\r\n");
    take_line(&r, "X-Linked-Size: 1234567890123\r\n");
    take_line(&r, "Location: https://cdn/x?y=z\r\n");
    assert_string_equal(r.etag, "abc");
    assert_string_equal(r.linked_etag, SHA256);
    assert_true(r.linked_size == 1234567890123);
    assert_string_equal(r.location, "https://cdn/x?y=z");
    take_line(&r, "HTTP/1.1 206 Partial Content\r\n");
    assert_null(r.location);
    assert_string_equal(r.etag, "");
    assert_string_equal(r.linked_etag, SHA256); /* the hub's words outlive its redirect */
    take_line(&r, "Content-Range: bytes 100-199/4000\r\n");
    assert_int_equal(r.range_first, 100);
    assert_int_equal(r.range_total, 4000);
    take_line(&r, "HTTP/1.1 429 Too Many Requests\r\n");
    take_line(&r, "RateLimit: \"api\";r=0;t=55\r\n");
    assert_int_equal(r.retry_after_s, 55);
    take_line(&r, "Retry-After: 7\r\n");
    assert_int_equal(r.retry_after_s, 7);
    take_line(&r, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n");
    assert_int_equal(r.retry_after_s, 0); /* that has passed */
    proa_hub_reply_clear(&r);
}

static void test_hostile_headers(void **state)
{
    PROA_UNUSED(state);
    proa_hub_reply r = {.location = NULL};
    proa_hub_reply_clear(&r);
    static const char *const lines[] = {"",
                                        ":",
                                        "\r\n",
                                        "ETag",
                                        "ETag:",
                                        "ETag: \"",
                                        "ETag: W/",
                                        "Content-Range: bytes",
                                        "Content-Range: bytes -/",
                                        "Content-Range: bytes */100",
                                        "Content-Range: bytes 99999999999999999999-1/99999999999999999999",
                                        "Content-Length: 99999999999999999999",
                                        "Content-Length: -1",
                                        "Retry-After: soon",
                                        "Retry-After: -5",
                                        "RateLimit: ;r=0",
                                        "RateLimit: ;r=0;t=",
                                        "Location:",
                                        "X-Linked-Size: 0x10g"};
    for (size_t i = 0; i < PROA_COUNT(lines); i++) take_line(&r, lines[i]);
    assert_int_equal(r.length, -1);
    assert_true(r.range_total == -1 || r.range_total == 100);
    assert_string_equal(r.etag, "");
    char line[40000] = "ETag: ";
    memset(line + 6, 'x', sizeof line - 7);
    take_line(&r, line);
    assert_string_equal(r.etag, ""); /* too long for the name of a file */
    memcpy(line, "Location: ", 10);
    take_line(&r, line);
    assert_true(!r.location || r.location[0] == '\0');
    proa_hub_reply_header(&r, (proa_str){"X-Repo-Commit: a\0b", 18});
    assert_string_equal(r.commit, "");
    proa_hub_reply_clear(&r);
}

static proa_status digest_of(const char *etag, const char *text, proa_err *err)
{
    proa_hub_digest d;
    proa_hub_digest_init(&d, etag, (int64_t)strlen(text));
    for (const char *c = text; *c; c++) proa_hub_digest_add(&d, c, 1);
    proa_status status = proa_hub_digest_check(&d, "x", err);
    proa_hub_digest_release(&d);
    return status;
}

static void test_digests(void **state)
{
    PROA_UNUSED(state);
    assert_int_equal(proa_hub_digest_open(NULL), PROA_OK);
    /* printf abc | sha256sum; printf abc | git hash-object --stdin */
    assert_int_equal(digest_of("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abc", NULL),
                     PROA_OK);
    assert_int_equal(digest_of("f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", "abc", NULL), PROA_OK);
    assert_int_equal(digest_of("f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", "abd", NULL), PROA_CORRUPT);
    assert_int_equal(digest_of("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "", NULL),
                     PROA_CORRUPT);
    assert_int_equal(digest_of("no-checksum", "abc", NULL), PROA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),   cmocka_unit_test(test_paths),
        cmocka_unit_test(test_list),    cmocka_unit_test(test_hostile_lists),
        cmocka_unit_test(test_headers), cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
