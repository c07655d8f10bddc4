/* SPDX-License-Identifier: Apache-2.0
 * test_sha256.c - the examples of FIPS 180-4 and of NIST's test vectors, whole and in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/sha256.h"

#include <stdio.h>
#include <string.h>

static void hex(const unsigned char *bytes, char *out)
{
    for (int i = 0; i < PROA_SHA256_BYTES; i++) sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* The hash of `text` `times` times, added in pieces of so many bytes. */
static void check(const char *text, size_t times, size_t piece, const char *wanted)
{
    proa_sha256 s;
    unsigned char out[PROA_SHA256_BYTES];
    char got[2 * PROA_SHA256_BYTES + 1];
    size_t len = strlen(text);
    proa_sha256_init(&s);
    for (size_t k = 0; k < times; k++)
        for (size_t at = 0; at < len; at += piece)
            proa_sha256_add(&s, text + at, len - at < piece ? len - at : piece);
    proa_sha256_end(&s, out);
    hex(out, got);
    assert_string_equal(got, wanted);
}

static void known_hashes(void **state)
{
    static const char LONG[] = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                               "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    (void)state;
    check("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece < sizeof LONG; piece += 5) {
        check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, piece,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check(LONG, 1, piece, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    }
    check("aaaaaaaaaa", 100000, 7, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Every length around the borders of a block, against python's hashlib. */
static void every_length_of_padding(void **state)
{
    proa_sha256 all, s;
    unsigned char out[PROA_SHA256_BYTES], bytes[130] = {0};
    char got[2 * PROA_SHA256_BYTES + 1];
    (void)state;
    proa_sha256_init(&all);
    for (size_t len = 0; len < sizeof bytes; len++) {
        bytes[len] = (unsigned char)len;
        proa_sha256_init(&s);
        proa_sha256_add(&s, bytes, len);
        proa_sha256_end(&s, out);
        proa_sha256_add(&all, out, sizeof out);
    }
    proa_sha256_end(&all, out);
    hex(out, got);
    assert_string_equal(got, "105812602bb337abca31d9f6bf3a57a3907500005fad7c01e1e1140aa77e4499");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_hashes), cmocka_unit_test(every_length_of_padding)};
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
