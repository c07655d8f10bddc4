/* SPDX-License-Identifier: Apache-2.0
 * test_compress.c - gzip and deflate: there and back, what others write, bombs, broken input; Accept-Encoding. */
#include "base/alloc.h"
#include "net/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>
#include <cmocka.h>

#define ENDLESS ((size_t)1 << 30)

static proa_status decompress(proa_buf *out, proa_coding coding, const char *bytes, size_t len, size_t most)
{
    proa_err err = {.status = PROA_OK};
    /* exactly that many bytes, so that the address sanitiser sees a read beyond */
    char *copy = proa_malloc(len);
    if (len) memcpy(copy, bytes, len);
    proa_buf_init(out, ENDLESS);
    proa_status status = proa_decompress(out, coding, copy, len, most, &err);
    assert_int_equal(err.status, status);
    free(copy);
    return status;
}

static void there_and_back(const char *bytes, size_t len, proa_coding coding, int level)
{
    proa_buf packed, back;
    proa_buf_init(&packed, ENDLESS);
    assert_true(proa_buf_append(&packed, "head", 4)); /* it appends */
    assert_int_equal(proa_compress(&packed, coding, level, bytes, len, NULL), PROA_OK);
    assert_memory_equal(packed.ptr, "head", 4);
    assert_int_equal(decompress(&back, coding, packed.ptr + 4, packed.len - 4, len), PROA_OK);
    assert_int_equal(back.len, len);
    if (len) assert_memory_equal(back.ptr, bytes, len);
    proa_buf_release(&back);
    if (len) {
        assert_int_equal(decompress(&back, coding, packed.ptr + 4, packed.len - 4, len - 1), PROA_LIMIT);
        assert_true(back.len <= len - 1);
        proa_buf_release(&back);
    }
    proa_buf_release(&packed);
}

static char *noise(size_t len)
{
    char *bytes = proa_malloc(len);
    uint32_t x = 12345;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = i % 3 ? (char)(x >> 24) : 'a';
    }
    return bytes;
}

static void test_round_trips(void **state)
{
    static const size_t lens[] = {0, 1, 2, 100, 511, 512, 513, 4095, 4096, 4097, 65536, 1 << 20};
    char *bytes = noise(1 << 20);
    for (size_t i = 0; i < PROA_COUNT(lens); i++)
        for (int coding = 0; coding < PROA_CODING_COUNT; coding++)
            for (int level = 1; level <= 9; level += 4)
                there_and_back(bytes, lens[i], (proa_coding)coding, level);
    free(bytes);
    (void)state;
}

static void test_small_is_small(void **state)
{
    proa_buf packed;
    char zeros[1000] = {0};
    proa_buf_init(&packed, 1000);
    assert_int_equal(proa_compress(&packed, PROA_CODING_GZIP, 6, zeros, sizeof zeros, NULL), PROA_OK);
    assert_true(packed.len < 40);
    proa_buf_release(&packed);
    proa_buf_init(&packed, 10); /* no room for the result */
    assert_int_equal(proa_compress(&packed, PROA_CODING_GZIP, 6, zeros, sizeof zeros, NULL), PROA_LIMIT);
    assert_int_equal(proa_compress(&packed, PROA_CODING_IDENTITY, 6, zeros, sizeof zeros, NULL), PROA_LIMIT);
    proa_buf_release(&packed);
    (void)state;
}

/* zlib with its default window, as every other program writes it. */
static size_t other_writer(char *out, size_t size, const char *bytes, size_t len, int bits)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)len;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return size - z.avail_out;
}

static void test_other_writers(void **state)
{
    static const struct {
        proa_coding coding;
        int bits;
    } cases[] = {{PROA_CODING_GZIP, 31},     {PROA_CODING_GZIP, 25},   {PROA_CODING_DEFLATE, 15},
                 {PROA_CODING_DEFLATE, -15}, {PROA_CODING_DEFLATE, 9}, {PROA_CODING_DEFLATE, -9}};
    char packed[2000];
    const char *text =
        "It was a dark and stormy night; the rain fell in torrents; it was a dark and stormy night";
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_buf back;
        size_t n = other_writer(packed, sizeof packed, text, strlen(text), cases[i].bits);
        assert_int_equal(decompress(&back, cases[i].coding, packed, n, 200), PROA_OK);
        assert_string_equal(back.ptr, text);
        proa_buf_release(&back);
    }
    (void)state;
}

static void test_broken(void **state)
{
    char packed[2000];
    proa_buf back;
    for (int kind = 1; kind < PROA_CODING_COUNT; kind++) {
        proa_coding coding = (proa_coding)kind;
        size_t n = other_writer(packed, sizeof packed, "hello hello hello", 17,
                                coding == PROA_CODING_GZIP ? 31 : 15);
        for (size_t cut = 0; cut < n; cut++) { /* unfinished at every place */
            assert_int_equal(decompress(&back, coding, packed, cut, 1000), PROA_INVALID);
            proa_buf_release(&back);
        }
        packed[n] = 'x';
        assert_int_equal(decompress(&back, coding, packed, n + 1, 1000), PROA_INVALID);
        proa_buf_release(&back);
        packed[n - 5] ^= 1; /* a checksum that does not fit */
        assert_int_equal(decompress(&back, coding, packed, n, 1000), PROA_INVALID);
        proa_buf_release(&back);
        assert_int_equal(decompress(&back, coding, "not compressed at all", 21, 1000), PROA_INVALID);
        proa_buf_release(&back);
    }
    /* zlib data that wants a dictionary which does not exist */
    assert_int_equal(decompress(&back, PROA_CODING_DEFLATE, "\x78\xbb\x00\x00\x00\x01", 6, 1000), PROA_INVALID);
    proa_buf_release(&back);
    (void)state;
}

static void test_members(void **state)
{
    char packed[2000];
    proa_buf back;
    size_t n = other_writer(packed, sizeof packed, "one ", 4, 31);
    n += other_writer(packed + n, sizeof packed - n, "two", 3, 31);
    assert_int_equal(decompress(&back, PROA_CODING_GZIP, packed, n, 7), PROA_OK);
    assert_string_equal(back.ptr, "one two");
    proa_buf_release(&back);
    assert_int_equal(decompress(&back, PROA_CODING_GZIP, packed, n, 6), PROA_LIMIT);
    proa_buf_release(&back);
    assert_int_equal(decompress(&back, PROA_CODING_GZIP, packed, n - 1, 7), PROA_INVALID);
    proa_buf_release(&back);
    n = other_writer(packed, sizeof packed, "one ", 4, 15);
    n += other_writer(packed + n, sizeof packed - n, "two", 3, 15);
    assert_int_equal(decompress(&back, PROA_CODING_DEFLATE, packed, n, 7), PROA_INVALID); /* zlib has no members */
    proa_buf_release(&back);
    (void)state;
}

static void test_bomb(void **state)
{
    size_t len = (size_t)64 << 20;
    char *zeros = proa_calloc(1, len);
    proa_buf packed, back;
    proa_buf_init(&packed, ENDLESS);
    assert_int_equal(proa_compress(&packed, PROA_CODING_GZIP, 9, zeros, len, NULL), PROA_OK);
    assert_true(packed.len < 100000);
    assert_int_equal(decompress(&back, PROA_CODING_GZIP, packed.ptr, packed.len, 100000), PROA_LIMIT);
    assert_true(back.len <= 100000 && back.cap <= 300000); /* it cost no more */
    proa_buf_release(&back);
    proa_buf_init(&back, 5000); /* the buffer's own maximum counts too */
    assert_int_equal(proa_decompress(&back, PROA_CODING_GZIP, packed.ptr, packed.len, ENDLESS, NULL), PROA_LIMIT);
    proa_buf_release(&back);
    proa_buf_release(&packed);
    free(zeros);
    (void)state;
}

static void test_names(void **state)
{
    proa_coding coding;
    for (int i = 0; i < PROA_CODING_COUNT; i++) {
        assert_true(proa_coding_find(&coding, proa_str_c(proa_coding_name((proa_coding)i))));
        assert_int_equal(coding, i);
    }
    assert_true(proa_coding_find(&coding, proa_str_c("GZip")) && coding == PROA_CODING_GZIP);
    assert_true(proa_coding_find(&coding, proa_str_c("x-gzip")) && coding == PROA_CODING_GZIP);
    assert_true(proa_coding_find(&coding, proa_str_c("")) && coding == PROA_CODING_IDENTITY);
    assert_false(proa_coding_find(&coding, proa_str_c("br")));
    assert_false(proa_coding_find(&coding, proa_str_c("gzip2")));
    (void)state;
}

static void test_accept(void **state)
{
    static const struct {
        const char *header;
        proa_coding coding;
    } cases[] = {
        {"", PROA_CODING_IDENTITY},
        {"gzip", PROA_CODING_GZIP},
        {"deflate", PROA_CODING_DEFLATE},
        {"gzip, deflate, br", PROA_CODING_GZIP},
        {"deflate,gzip", PROA_CODING_DEFLATE},
        {"br;q=1.0, gzip;q=0.8, deflate;q=0.9", PROA_CODING_DEFLATE},
        {"gzip;q=0", PROA_CODING_IDENTITY},
        {"gzip ; q=0.000", PROA_CODING_IDENTITY},
        {"identity, gzip;q=0.5", PROA_CODING_IDENTITY},
        {"gzip;q=0.5, identity;q=0.4", PROA_CODING_GZIP},
        {"*", PROA_CODING_IDENTITY},
        {"GZIP;Q=0.001", PROA_CODING_GZIP},
        {" \tgzip\t;\tq=1.000 ", PROA_CODING_GZIP},
        {"gzip;q=1.001, deflate;q=0.1", PROA_CODING_DEFLATE},
        {"gzip;q=2", PROA_CODING_IDENTITY},
        {"gzip;q=x, deflate;q=0.0001", PROA_CODING_IDENTITY},
        {"gzip;q=", PROA_CODING_IDENTITY},
        {",,;q=1,gzip,", PROA_CODING_GZIP},
    };
    for (size_t i = 0; i < PROA_COUNT(cases); i++)
        assert_int_equal(proa_coding_accept(proa_str_c(cases[i].header)), cases[i].coding);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_small_is_small),
        cmocka_unit_test(test_other_writers), cmocka_unit_test(test_broken),
        cmocka_unit_test(test_members),       cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
