/* SPDX-License-Identifier: Apache-2.0
 * test_cloud.c - object stores: addresses, signatures against published examples, listings, snapshots. */
#include "hub/cloud/identity/ask.h"
#include "hub/cloud/identity/grant.h"
#include "hub/cloud/sign.h"
#include "hub/cloud/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_addresses(void **state)
{
    PROA_UNUSED(state);
    proa_cloud_address a;
    proa_err err = {0};
    assert_int_equal(proa_cloud_address_parse(&a, "s3://bucket/a/b//", &err), PROA_OK);
    assert_string_equal(a.text, "s3://bucket/a/b");
    assert_string_equal(a.bucket, "bucket");
    assert_string_equal(a.prefix, "a/b/");
    assert_string_equal(a.endpoint, "");
    assert_int_equal(proa_cloud_address_parse(&a, "s3://https://host:9000/bucket", &err), PROA_OK);
    assert_string_equal(a.endpoint, "https://host:9000");
    assert_string_equal(a.bucket, "bucket");
    assert_string_equal(a.prefix, "");
    assert_int_equal(proa_cloud_address_parse(&a, "s3://host:9000/bucket/p", &err), PROA_OK);
    assert_string_equal(a.endpoint, "http://host:9000");
    assert_int_equal(proa_cloud_address_parse(&a, "as://account/$root/p q", &err), PROA_OK);
    assert_string_equal(a.account, "account");
    assert_string_equal(a.bucket, "$root");
    assert_string_equal(a.prefix, "p q/");
    static const char *const wrong[] = {"s3://",      "gs://",         "as://account",    "s3:///b",
                                        "s3://../x",  "s3://b/../x",   "s3://b/a//c",     "s3://b?x",
                                        "gs://a@b/c", "s3://http://h", "s3://b/\n",       "as://a/..",
                                        "file:///x",  "s3://https://", "s3://http://h/?", "gs://b/a/./b"};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++)
        assert_int_equal(proa_cloud_address_parse(&a, wrong[i], NULL), PROA_INVALID);
    assert_true(proa_cloud_is_address("gs://"));
    assert_false(proa_cloud_is_address("/s3://"));
}

static bool has_line(const proa_buf *lines, const char *text)
{
    for (size_t at = 0; at < lines->len; at += strlen(lines->ptr + at) + 1)
        if (strstr(lines->ptr + at, text)) return true;
    return false;
}

/* The example "GET Bucket (List Objects)" of Amazon's description of Signature Version 4 in the header. */
static void test_sign_s3(void **state)
{
    PROA_UNUSED(state);
    const proa_crypto *crypto;
    static proa_cloud_key c = {.id = "AKIAIOSFODNN7EXAMPLE",
                               .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    proa_cloud_request r = {.method = "GET",
                            .url = "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
                            .now = 1369353600, /* 2013-05-24 00:00:00 */
                            .service = "s3",
                            .region = "us-east-1"};
    proa_buf lines;
    assert_int_equal(proa_crypto_open(&crypto, NULL), PROA_OK);
    proa_buf_init(&lines, 4096);
    proa_cloud_sign_aws(&lines, crypto, &c, &r);
    assert_true(has_line(&lines,
                         "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                         "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                         "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
    assert_true(has_line(&lines, "x-amz-date: 20130524T000000Z"));
    proa_buf_clear(&lines);
    r.url = "https://examplebucket.s3.amazonaws.com:443/?lifecycle="; /* libcurl leaves the port out of Host */
    proa_cloud_sign_aws(&lines, crypto, &c, &r);
    assert_true(
        has_line(&lines, "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
    proa_buf_release(&lines);
}

static proa_status parse_page(proa_cloud_listing *l, const char *page, proa_err *err)
{
    proa_cloud_address a;
    assert_int_equal(proa_cloud_address_parse(&a, "s3://b/r", NULL), PROA_OK);
    return proa_cloud_listing_add(l, &a, "r/", proa_str_c(page), err);
}

static void test_listing(void **state)
{
    PROA_UNUSED(state);
    proa_cloud_listing l;
    proa_err err = {0};
    proa_cloud_listing_init(&l);
    assert_int_equal(
        parse_page(&l,
                   "<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                   "<Contents><Key>r/m/b+c%2B&amp;</Key><ETag>\"0123456789abcdef0123456789abcdef\"</"
                   "ETag><Size>7</Size>"
                   "<Owner><ID>x</ID></Owner></Contents><Contents><Key>r/m/a</Key><ETag>abc-2</ETag><Size>0</"
                   "Size></Contents>"
                   "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
                   "<EncodingType>url</EncodingType></ListBucketResult>",
                   &err),
        PROA_OK);
    assert_string_equal(l.next, "t");
    assert_int_equal(proa_cloud_listing_sort(&l, &err), PROA_OK);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.entries[0].path, "m/a");
    assert_string_equal(l.entries[0].match, "abc-2");
    assert_int_equal(l.entries[0].etag[0], 'o');
    assert_string_equal(l.entries[1].path, "m/b c+&");
    assert_string_equal(l.entries[1].etag, "0123456789abcdef0123456789abcdef");
    assert_int_equal(l.entries[1].size, 7);
    assert_int_equal(parse_page(&l, "<ListBucketResult><Contents>", &err), PROA_CORRUPT);
    proa_cloud_listing_release(&l);
}

static proa_status read_snapshot(proa_cloud_snapshot *s, const char *const *paths, int64_t size, proa_err *err)
{
    proa_hub_entry entries[8];
    int64_t count = 0;
    for (; paths[count]; count++)
        entries[count] = (proa_hub_entry){.path = paths[count], .size = size, .etag = "e", .match = "m"};
    return proa_cloud_snapshot_read(s, entries, count, "m/", err);
}

static void test_snapshots(void **state)
{
    PROA_UNUSED(state);
    proa_cloud_snapshot s;
    proa_err err = {0};
    const char *const good[] = {"l/x", "m/", "m/1/", "m/2/a", "m/c", "n/y", NULL};
    assert_int_equal(read_snapshot(&s, good, 3, &err), PROA_OK);
    assert_int_equal(s.tree.count, 2);
    assert_int_equal(s.folders_count, 1);
    assert_int_equal(s.bytes, 6);
    assert_string_equal(s.folders[0], "1");
    assert_string_equal(s.tree.entries[0].path, "2/a");
    assert_int_equal(strlen(s.tree.commit), 40);
    proa_cloud_snapshot_release(&s);
    const char *const both[] = {"m/1", "m/1!", "m/1/a", NULL};
    assert_int_equal(read_snapshot(&s, both, 1, NULL), PROA_CORRUPT);
    proa_cloud_snapshot_release(&s);
    assert_int_equal(read_snapshot(&s, both, 0, &err), PROA_OK); /* a folder as a file of no bytes */
    assert_int_equal(s.tree.count, 2);
    proa_cloud_snapshot_release(&s);
    static const char *const wrong[] = {"m/../a", "m//a", "m/a/..", "m/./a", "m/a\\b", "m/\x01", "m//"};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        const char *const one[] = {wrong[i], NULL};
        assert_int_equal(read_snapshot(&s, one, 1, NULL), PROA_CORRUPT);
        proa_cloud_snapshot_release(&s);
    }
}

static void test_times(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *text;
        int64_t seconds;
    } rows[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-01-02T03:04:05Z", 1767323045},
                {"2026-01-02T03:04:05.999999Z", 1767323045},
                {"2026-01-02T03:04:05", -1},
                {"2026-01-02 03:04:05Z", -1},
                {"2026-13-02T03:04:05Z", -1},
                {"2026-00-02T03:04:05Z", -1},
                {"2026-01-02T24:04:05Z", -1},
                {"2026-01-02T03:04:05.9.9Z", -1},
                {"1969-01-02T03:04:05Z", -1},
                {"-026-01-02T03:04:05Z", -1},
                {"", -1},
                {"Z", -1},
                {"tomorrow", -1}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++)
        assert_int_equal(proa_cloud_read_time(proa_str_c(rows[i].text)), rows[i].seconds);
}

static void test_grants(void **state)
{
    PROA_UNUSED(state);
    static proa_cloud_key key;
    assert_int_equal(
        proa_cloud_grant_bearer(&key, proa_str_c("{\"access_token\":\"t\",\"expires_in\":\"60\"}"), 1000, NULL),
        PROA_OK);
    assert_string_equal(key.token, "t");
    assert_int_equal(key.until_s, 1060);
    assert_int_equal(proa_cloud_grant_bearer(
                         &key, proa_str_c("{\"access_token\":\"u\",\"expires_on\":\"5000\"}"), 1000, NULL),
                     PROA_OK);
    assert_int_equal(key.until_s, 5000);
    assert_int_equal(proa_cloud_grant_bearer(&key, proa_str_c("{\"access_token\":\"u\"}"), 1000, NULL), PROA_OK);
    assert_int_equal(key.until_s, 4600);
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"access_token\":\"a b\"}",
                                        "{\"access_token\":\"a\\nb\"}",
                                        "{\"access_token\":7}",
                                        "{\"accessToken\":\"a\",\"expireTime\":\"soon\"}"};
    for (size_t i = 0; i < PROA_COUNT(wrong); i++)
        assert_int_not_equal(proa_cloud_grant_bearer(&key, proa_str_c(wrong[i]), 1000, NULL), PROA_OK);
    assert_int_equal(proa_cloud_grant_sts(&key, proa_str_c("<!DOCTYPE x []><a/>"), NULL), PROA_CORRUPT);
    assert_int_equal(proa_cloud_grant_sts(&key, proa_str_c("<ErrorResponse/>"), NULL), PROA_CORRUPT);
}

static void test_near_hosts(void **state)
{
    PROA_UNUSED(state);
    static const char *const hosts[] = {"169.254.170.2", "[fd00:ec2::23]", NULL};
    static const char *const near[] = {
        "https://example.com/x", "http://127.0.0.1:8/x",   "http://127.9.9.9/",     "http://[::1]:80/",
        "http://localhost/x",    "http://169.254.170.2/x", "http://[fd00:ec2::23]/"};
    static const char *const far[] = {"http://example.com/",
                                      "http://127.0.0.1.example.com/",
                                      "http://127.0.0.1@example.com/",
                                      "http://169.254.169.254/",
                                      "ftp://127.0.0.1/",
                                      "http://10.0.0.1/",
                                      "http://localhost.example/",
                                      "file:///etc/passwd",
                                      "",
                                      "http://169.254.170.2@evil/x",
                                      "http://[fd00:ec2::254]/"};
    for (size_t i = 0; i < PROA_COUNT(near); i++) assert_true(proa_cloud_is_near(near[i], hosts));
    for (size_t i = 0; i < PROA_COUNT(far); i++) assert_false(proa_cloud_is_near(far[i], hosts));
    assert_false(proa_cloud_is_near("http://169.254.170.2/", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses), cmocka_unit_test(test_sign_s3),
                                       cmocka_unit_test(test_listing),   cmocka_unit_test(test_snapshots),
                                       cmocka_unit_test(test_times),     cmocka_unit_test(test_grants),
                                       cmocka_unit_test(test_near_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
