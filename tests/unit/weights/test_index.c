/* SPDX-License-Identifier: Apache-2.0
 * test_index.c - folders with an index of several files.
 * Folders: one file, several by an index, and indexes that lie. Each test writes into its own temporary folder. */
#include "base/file.h"
#include "base/limits.h"
#include "weights/weights.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/proa_index_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_dir(const char *name)
{
    static char path[PROA_PATH_MAX];
    assert_int_equal(proa_path_join(path, dir, name, NULL), PROA_OK);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

/* A file with tensors of four bytes each, named by the characters of names. */
static void write_shard(const char *name, const char *names)
{
    proa_buf buf;
    proa_buf_init(&buf, 1 << 16);
    for (int i = 0; names[i]; i++)
        proa_buf_printf(&buf, "%c\"%c\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                        i ? ',' : '{', names[i], 4 * i, 4 * i + 4);
    proa_buf_str(&buf, proa_str_c(names[0] ? "}" : "{}"));
    char file[2048] = {(char)(buf.len & 0xff), (char)(buf.len >> 8)};
    memcpy(file + 8, buf.ptr, buf.len);
    for (size_t i = 0; names[i]; i++) file[8 + buf.len + 4 * i] = names[i];
    write_file(name, file, 8 + buf.len + 4 * strlen(names));
    proa_buf_release(&buf);
}

static void write_index(const char *weight_map)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":12},\"weight_map\":%s}", weight_map);
    write_file("model.safetensors.index.json", text, (size_t)n);
}

static proa_weights *opened(const char *path)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_weights_open(&w, path, &err) != PROA_OK) fail_msg("%s", err.text);
    return w;
}

static void refused(const char *path, proa_status want, const char *text)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_weights_open(&w, path, &err);
    if (status != want || !strstr(err.text, text)) print_error("gave: %s\n", err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, text));
    assert_null(w);
}

static void test_single(void **state)
{
    write_shard("model.safetensors", "ba");
    proa_weights *w = opened(dir);
    assert_int_equal(proa_weights_count(w), 2);
    const proa_weights_tensor *t = proa_weights_at(w, 0);
    assert_string_equal(t->name, "a");
    assert_int_equal(*(const char *)t->source.view.data, 'a');
    proa_weights_drop(w, t); /* too small for a page, and still there afterwards */
    assert_int_equal(*(const char *)t->source.view.data, 'a');
    proa_weights_close(w);
    w = opened(in_dir("model.safetensors"));
    assert_int_equal(proa_weights_count(w), 2);
    proa_weights_close(w);
    (void)state;
}

/* What was dropped comes back from the file when it is read again. */
static void test_drop(void **state)
{
    static char file[8 + 80 + (1 << 20)];
    char *header = file + 8;
    memset(header, ' ', 80);
    int n = snprintf(header, 80, "{\"x\":{\"dtype\":\"U8\",\"shape\":[1048576],\"data_offsets\":[0,1048576]}}");
    header[n] = ' ';
    file[0] = 80;
    memset(file + 88, 7, 1 << 20);
    write_file("model.safetensors", file, sizeof file);
    proa_weights *w = opened(dir);
    const proa_weights_tensor *t = proa_weights_find(w, "x");
    const unsigned char *data = t->source.view.data;
    int64_t sum = 0;
    for (int i = 0; i < 1 << 20; i++) sum += data[i];
    proa_weights_drop(w, t);
    for (int i = 0; i < 1 << 20; i++) sum -= data[i];
    assert_int_equal(sum, 0);
    proa_weights_close(w);
    (void)state;
}

static void test_sharded(void **state)
{
    write_shard("s1.safetensors", "ca");
    write_shard("s2.safetensors", "b");
    write_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s1.safetensors\"}");
    proa_weights *w = opened(dir);
    assert_int_equal(proa_weights_count(w), 3);
    for (int i = 0; i < 3; i++) {
        const proa_weights_tensor *t = proa_weights_at(w, i);
        assert_int_equal(t->name[0], 'a' + i);
        assert_int_equal(*(const char *)t->source.view.data, 'a' + i);
        assert_int_equal(t->file, i == 1);
        assert_ptr_equal(proa_weights_find(w, t->name), t);
    }
    proa_weights_close(w);
    write_shard("model.safetensors", "z"); /* the single file goes first, as transformers has it */
    w = opened(dir);
    assert_int_equal(proa_weights_count(w), 1);
    proa_weights_close(w);
    (void)state;
}

static void test_links(void **state)
{
    write_shard("blob", "a");
    assert_int_equal(symlink("blob", in_dir("model.safetensors")), 0); /* the hub's cache is made of links */
    proa_weights_close(opened(dir));
    (void)state;
}

static void test_nothing_there(void **state)
{
    refused(dir, PROA_NOT_FOUND, "has no weights: none of model.safetensors, model.safetensors.index.json, ");
    refused(in_dir("none.safetensors"), PROA_NOT_FOUND, "none.safetensors': no such file");
    refused("/dev/zero", PROA_INVALID, "not a regular file");
    write_file("model.safetensors", "", 0);
    refused(dir, PROA_CORRUPT, "model.safetensors: 0 bytes, a safetensors file has at least 8");
    (void)state;
}

static void test_index_shape(void **state)
{
    write_file("model.safetensors.index.json", "[]", 2);
    refused(dir, PROA_CORRUPT, "'weight_map' must be an object, not null");
    write_file("model.safetensors.index.json", "{", 1);
    refused(dir, PROA_CORRUPT, "index.json: not JSON at byte 1: cut short");
    write_index("[1]");
    refused(dir, PROA_CORRUPT, "'weight_map' must be an object, not an array");
    write_index("{\"a\":1}");
    refused(dir, PROA_CORRUPT, "tensor 'a': its file must be a string, not an integer");
    write_index("{}");
    proa_weights *w = opened(dir);
    assert_int_equal(proa_weights_count(w), 0);
    proa_weights_close(w);
    (void)state;
}

static void test_path_tricks(void **state)
{
    static const char *const names[] = {"../s.safetensors",     "/etc/passwd", "a/b", "..", ".", "",
                                        "x\\u0000.safetensors", "s/../../t"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        char map[128];
        snprintf(map, sizeof map, "{\"a\":\"%s\"}", names[i]);
        write_index(map);
        refused(dir, PROA_CORRUPT, "is not the plain name of a file in this folder");
    }
    (void)state;
}

static void test_index_lies(void **state)
{
    write_shard("s1.safetensors", "a");
    write_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}");
    refused(dir, PROA_NOT_FOUND, "index.json: the folder has no file 's2.safetensors'");
    write_shard("s2.safetensors", "bc");
    refused(dir, PROA_CORRUPT, "tensor 'c' of s2.safetensors is not listed");
    write_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s1.safetensors\"}");
    refused(dir, PROA_CORRUPT, "tensor 'c' should be in s1.safetensors, it is in s2.safetensors");
    write_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s2.safetensors\",\"d\":\"s1."
                "safetensors\"}");
    refused(dir, PROA_CORRUPT, "tensor 'd' is not in s1.safetensors");
    write_shard("s1.safetensors", "ab"); /* one name in two files */
    write_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s2.safetensors\"}");
    refused(dir, PROA_CORRUPT, "tensor 'b' should be in s2.safetensors, it is in s1.safetensors");
    write_file("s1.safetensors", "\2\0\0\0\0\0\0\0{]", 10);
    refused(dir, PROA_CORRUPT, "s1.safetensors: header: not JSON at byte 1");
    assert_int_equal(mkdir(in_dir("d.safetensors"), 0700), 0);
    write_index("{\"a\":\"d.safetensors\"}");
    refused(dir, PROA_NOT_FOUND, "the folder has no file 'd.safetensors'");
    (void)state;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_single),        CASE(test_drop),        CASE(test_sharded),     CASE(test_links),
        CASE(test_nothing_there), CASE(test_index_shape), CASE(test_path_tricks), CASE(test_index_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
