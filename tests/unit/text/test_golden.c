/* SPDX-License-Identifier: Apache-2.0
 * test_golden.c - the shipped tokenizers against tests/text/golden.txt (format: tools/golden_text.py),
 * and properties that need no oracle: streams equal lists, threads do not disturb each other, pushing
 * ids allocates nothing. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "text/tokenizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "golden_line.h"

static const char *const names[] = {"m30k-t5", "classics-10m", "polarity-bert"};
#define TOKENIZERS 3

static proa_tokenizer *tok[TOKENIZERS];
static proa_buf golden;

static int open_all(void **state)
{
    char path[PROA_PATH_MAX];
    proa_err err = {0};
    for (int i = 0; i < TOKENIZERS; i++) {
        snprintf(path, sizeof path, "%s/models/%s", PROA_SOURCE_DIR, names[i]);
        if (proa_tokenizer_open(&tok[i], path, &err) != PROA_OK) {
            fprintf(stderr, "%s\n", err.text);
            return -1;
        }
    }
    (void)state;
    return proa_file_read(&golden, PROA_SOURCE_DIR "/tests/text/golden.txt", PROA_MIB, &err) == PROA_OK ? 0 : -1;
}

static int close_all(void **state)
{
    for (int i = 0; i < TOKENIZERS; i++) proa_tokenizer_free(tok[i]);
    proa_buf_release(&golden);
    (void)state;
    return 0;
}

static void test_golden(void **state)
{
    int lines = 0;
    char *rest = golden.ptr;
    assert_int_equal(*strsep(&rest, "\n"), '#');
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        char *text = strsep(&line, "\t");
        proa_str s = {text, unescape(text)};
        for (int i = 0; i < TOKENIZERS; i++) {
            char *field = strsep(&line, "\t");
            assert_non_null(field);
            check_line(tok[i], s, field, names[i]);
        }
        lines++;
    }
    assert_int_equal(lines, 1200);
    (void)state;
}

/* tests/text/pipelines.txt: a small tokenizer for each stage of tokenizer.json. */
static void test_pipelines(void **state)
{
    proa_buf text;
    proa_err err = {0};
    proa_tokenizer *small = NULL;
    int tokenizers = 0;
    assert_int_equal(proa_file_read(&text, PROA_SOURCE_DIR "/tests/text/pipelines.txt", PROA_MIB, &err), PROA_OK);
    char *rest = text.ptr, name[32];
    assert_int_equal(*strsep(&rest, "\n"), '#');
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        if (*line == '{') {
            proa_tokenizer_free(small);
            assert_int_equal(proa_tokenizer_open_json(&small, proa_str_c(line), "pipelines.txt", &err), PROA_OK);
            snprintf(name, sizeof name, "pipeline %d", ++tokenizers);
            continue;
        }
        char *string = strsep(&line, "\t");
        proa_str s = {string, unescape(string)};
        assert_non_null(line);
        check_line(small, s, line, name);
    }
    assert_int_equal(tokenizers, 52);
    proa_tokenizer_free(small);
    proa_buf_release(&text);
    (void)state;
}

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Any ids, special and broken byte sequences among them: pieces are whole characters and add up. */
static void test_stream_is_whole(void **state)
{
    uint32_t seed = 1;
    proa_buf whole, stream;
    proa_buf_init(&whole, (size_t)PROA_MIB);
    proa_buf_init(&stream, (size_t)PROA_MIB);
    for (int round = 0; round < 3000; round++) {
        const proa_tokenizer *t = tok[round % TOKENIZERS];
        bool skip = round & 4;
        int32_t ids[40];
        int64_t n = next_random(&seed) % 40;
        for (int64_t i = 0; i < n; i++)
            ids[i] = (int32_t)(next_random(&seed) % (uint32_t)(proa_tokenizer_vocab(t) + 3)) - 1;
        proa_detok *d = proa_detok_new(t, skip);
        proa_buf_clear(&whole);
        proa_buf_clear(&stream);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(proa_detok_push(d, ids[i], &stream, NULL), PROA_OK);
            assert_true(proa_utf8_valid(proa_buf_view(&stream)));
        }
        assert_int_equal(proa_detok_flush(d, &stream, NULL), PROA_OK);
        assert_int_equal(proa_tokenizer_decode(t, ids, n, skip, &whole, NULL), PROA_OK);
        assert_true(proa_str_eq(proa_buf_view(&whole), proa_buf_view(&stream)));
        proa_detok_free(d);
    }
    proa_buf_release(&whole);
    proa_buf_release(&stream);
    (void)state;
}

static void test_push_allocates_nothing(void **state)
{
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_MIB);
    proa_buf_reserve(&out, 200000);
    for (int i = 0; i < TOKENIZERS; i++) {
        proa_detok *d = proa_detok_new(tok[i], true);
        uint64_t before = proa_alloc_count();
        for (int32_t id = 0; id < proa_tokenizer_vocab(tok[i]); id++) {
            proa_buf_clear(&out);
            assert_int_equal(proa_detok_push(d, id, &out, NULL), PROA_OK);
        }
        assert_int_equal(proa_alloc_count(), before);
        proa_detok_free(d);
    }
    proa_buf_release(&out);
    (void)state;
}

/* One tokenizer, four threads: each gets what one alone would get. */
typedef struct job {
    pthread_t thread;
    proa_ids ids;
    bool same;
} job;

static void *encode_often(void *arg)
{
    job *j = arg;
    proa_ids again = {0};
    proa_str text = proa_str_c("Two men are riding bikes, aren't they? \xC3\xA9\xC3\xA9 <unk> 12.5");
    j->same = true;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < TOKENIZERS; i++) {
            proa_ids *to = round ? &again : &j->ids;
            if (proa_tokenizer_encode(tok[i], text, true, to, NULL) != PROA_OK) j->same = false;
        }
        if (!round) continue;
        j->same &= again.len == j->ids.len && memcmp(again.ptr, j->ids.ptr, (size_t)again.len * 4) == 0;
        proa_ids_clear(&again);
    }
    proa_ids_release(&again);
    return NULL;
}

static void test_threads(void **state)
{
    job jobs[4] = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, encode_often, &jobs[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(jobs[i].thread, NULL);
    for (int i = 0; i < 4; i++) {
        assert_true(jobs[i].same);
        assert_int_equal(jobs[i].ids.len, jobs[0].ids.len);
        assert_memory_equal(jobs[i].ids.ptr, jobs[0].ids.ptr, (size_t)jobs[0].ids.len * 4);
    }
    for (int i = 0; i < 4; i++) proa_ids_release(&jobs[i].ids);
    (void)state;
}

static void test_vocabulary(void **state)
{
    for (int i = 0; i < TOKENIZERS; i++) {
        int32_t n = proa_tokenizer_vocab(tok[i]), id = -1;
        assert_true(n == 8000 || n == 8192);
        for (int32_t k = 0; k < n; k++) {
            assert_true(proa_tokenizer_find(tok[i], proa_tokenizer_token(tok[i], k), &id));
            assert_int_equal(id, k);
        }
        assert_int_equal(proa_tokenizer_token(tok[i], n).len, 0);
        assert_int_equal(proa_tokenizer_token(tok[i], -1).len, 0);
        assert_false(proa_tokenizer_find(tok[i], proa_str_c("no such piece"), &id));
        assert_true(proa_tokenizer_bytes(tok[i]) > 100000 && proa_tokenizer_bytes(tok[i]) < 4000000);
    }
    assert_true(proa_tokenizer_is_special(tok[0], 1));
    assert_false(proa_tokenizer_is_special(tok[0], 3));
    (void)state;
}

static void test_pair(void **state)
{
    proa_ids ids = {0}, types = {0};
    const proa_tokenizer *bert = tok[2];
    int32_t cls, sep;
    assert_true(proa_tokenizer_find(bert, proa_str_c("[CLS]"), &cls) &&
                proa_tokenizer_find(bert, proa_str_c("[SEP]"), &sep));
    assert_int_equal(
        proa_tokenizer_encode_pair(bert, proa_str_c("a"), proa_str_c("the"), true, &ids, &types, NULL), PROA_OK);
    assert_int_equal(ids.len, 5);
    assert_int_equal(types.len, 5);
    assert_true(ids.ptr[0] == cls && ids.ptr[2] == sep && ids.ptr[4] == sep);
    for (int64_t i = 0; i < 5; i++) assert_int_equal(types.ptr[i], i >= 3);
    ids.len = types.len = 0;
    assert_int_equal(proa_tokenizer_encode_types(bert, proa_str_c("a"), true, &ids, &types, NULL), PROA_OK);
    assert_true(ids.len == 3 && types.len == 3 && !types.ptr[0] && !types.ptr[1] && !types.ptr[2]);
    proa_ids_release(&ids);
    proa_ids_release(&types);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_stream_is_whole), cmocka_unit_test(test_push_allocates_nothing),
        cmocka_unit_test(test_vocabulary),      cmocka_unit_test(test_pair),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
