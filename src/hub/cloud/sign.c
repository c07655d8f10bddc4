/* SPDX-License-Identifier: Apache-2.0
 * sign.c - the strings to sign of Amazon and Azure, and Google's signed claim. */
#include "hub/cloud/sign.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 64 << 10 };

/* The parts of "scheme://authority/path?query". */
typedef struct url_parts {
    proa_str host, path, query;
} url_parts;

/* libcurl leaves the scheme's own port out of the header Host. */
static proa_str without_default_port(proa_str host, bool secure)
{
    proa_str port = proa_str_c(secure ? ":443" : ":80");
    if (proa_str_ends(host, port)) host.len -= port.len;
    return host;
}

static url_parts split_url(const char *url)
{
    const char *host = strstr(url, "://"), *end = url + strlen(url);
    host = host ? host + 3 : url;
    size_t len = strcspn(host, "/?");
    const char *path = host + len, *question = strchr(path, '?');
    url_parts p = {.host = without_default_port((proa_str){host, len}, strncmp(url, "https:", 6) == 0),
                   .path = {path, (size_t)((question ? question : end) - path)}};
    if (!p.path.len) p.path = proa_str_c("/");
    if (question) p.query = (proa_str){question + 1, (size_t)(end - question - 1)};
    return p;
}

static void add_header(proa_buf *headers, const char *name, proa_str value)
{
    proa_buf_printf(headers, "%s: ", name);
    proa_buf_str(headers, value);
    proa_buf_char(headers, '\0');
}

/* ---- Amazon ---- */

enum { HEX_SIZE = 2 * PROA_CRYPTO_SHA256_BYTES + 1 };

static void hex_sum(char hex[HEX_SIZE], const proa_crypto *crypto, proa_str text)
{
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES];
    proa_crypto_sha256(crypto, sum, text);
    proa_crypto_hex(hex, sum, sizeof sum);
}

/* key, then a line for each of date, region, service and the end: each HMAC is the key of the next. */
static void day_key(unsigned char key[PROA_CRYPTO_SHA256_BYTES], const proa_crypto *crypto,
                    const char *secret, const proa_cloud_request *r, proa_str date)
{
    char first[sizeof(((proa_cloud_key *)0)->secret) + 4];
    const char *const parts[] = {r->region, r->service, "aws4_request"};
    snprintf(first, sizeof first, "AWS4%s", secret);
    proa_crypto_hmac_sha256(crypto, key, proa_str_c(first), date);
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        unsigned char next[PROA_CRYPTO_SHA256_BYTES];
        proa_crypto_hmac_sha256(crypto, next, (proa_str){(const char *)key, PROA_CRYPTO_SHA256_BYTES},
                                proa_str_c(parts[i]));
        memcpy(key, next, sizeof next);
    }
}

static void aws_canonical(proa_buf *out, const proa_cloud_key *key, const proa_cloud_request *r,
                          const char *time, const char *body_sum)
{
    url_parts u = split_url(r->url);
    proa_buf_printf(out, "%s\n", r->method);
    proa_buf_str(out, u.path), proa_buf_char(out, '\n');
    proa_buf_str(out, u.query);
    proa_buf_printf(out, "\nhost:"), proa_buf_str(out, u.host);
    proa_buf_printf(out, "\nx-amz-content-sha256:%s\nx-amz-date:%s\n", body_sum, time);
    if (key->token[0]) proa_buf_printf(out, "x-amz-security-token:%s\n", key->token);
    proa_buf_printf(out, "\nhost;x-amz-content-sha256;x-amz-date%s\n%s",
                    key->token[0] ? ";x-amz-security-token" : "", body_sum);
}

void proa_cloud_sign_aws(proa_buf *headers, const proa_crypto *crypto, const proa_cloud_key *key,
                         const proa_cloud_request *r)
{
    char stamp[32], scope[200], hex[HEX_SIZE], body_sum[HEX_SIZE];
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES], day[PROA_CRYPTO_SHA256_BYTES];
    struct tm tm;
    proa_buf text, to_sign;
    gmtime_r(&r->now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(scope, sizeof scope, "%.8s/%.63s/%.20s/aws4_request", stamp, r->region, r->service);
    proa_buf_init(&text, TEXT_MAX);
    proa_buf_init(&to_sign, TEXT_MAX);
    hex_sum(body_sum, crypto, r->body);
    aws_canonical(&text, key, r, stamp, body_sum);
    hex_sum(hex, crypto, proa_buf_view(&text));
    proa_buf_printf(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope, hex);
    day_key(day, crypto, key->secret, r, (proa_str){stamp, 8});
    proa_crypto_hmac_sha256(crypto, sum, (proa_str){(const char *)day, sizeof day}, proa_buf_view(&to_sign));
    proa_crypto_hex(hex, sum, sizeof sum);
    proa_buf_printf(headers,
                    "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, "
                    "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s, Signature=%s",
                    key->id, scope, key->token[0] ? ";x-amz-security-token" : "", hex);
    proa_buf_char(headers, '\0');
    add_header(headers, "x-amz-content-sha256", proa_str_c(body_sum));
    add_header(headers, "x-amz-date", proa_str_c(stamp));
    if (key->token[0]) add_header(headers, "x-amz-security-token", proa_str_c(key->token));
    proa_buf_release(&text);
    proa_buf_release(&to_sign);
}

/* ---- Azure ---- */

static bool decode_base64(proa_buf *out, proa_str text)
{
    uint32_t bits = 0;
    int have = 0;
    while (text.len && text.ptr[text.len - 1] == '=') text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int digit = proa_base64_digit(text.ptr[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit, have += 6;
        if (have >= 8) have -= 8, proa_buf_char(out, (char)(bits >> have));
    }
    return out->len > 0;
}

static void append_decoded(proa_buf *out, proa_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        int high = i + 2 < text.len && text.ptr[i] == '%' ? proa_hex_digit(text.ptr[i + 1]) : -1;
        int low = high >= 0 ? proa_hex_digit(text.ptr[i + 2]) : -1;
        if (low >= 0) proa_buf_char(out, (char)(high << 4 | low)), i += 2;
        else proa_buf_char(out, text.ptr[i]);
    }
}

/* "\nname:value" of each parameter of the sorted query, decoded. */
static void azure_query(proa_buf *out, proa_str query)
{
    while (query.len) {
        const char *ampersand = memchr(query.ptr, '&', query.len);
        proa_str pair = {query.ptr, ampersand ? (size_t)(ampersand - query.ptr) : query.len};
        const char *equals = memchr(pair.ptr, '=', pair.len);
        size_t name = equals ? (size_t)(equals - pair.ptr) : pair.len;
        proa_buf_char(out, '\n');
        proa_buf_str(out, (proa_str){pair.ptr, name});
        proa_buf_char(out, ':');
        if (equals) append_decoded(out, (proa_str){equals + 1, pair.len - name - 1});
        query.ptr += pair.len + (ampersand != NULL), query.len -= pair.len + (ampersand != NULL);
    }
}

static void azure_to_sign(proa_buf *out, const proa_cloud_key *key, const proa_cloud_request *r, const char *date)
{
    url_parts u = split_url(r->url);
    proa_buf_printf(out, "%s\n\n\n\n\n\n\n\n%s\n\n\n%s\nx-ms-date:%s\nx-ms-version:%s\n/%s", r->method,
                    r->match ? r->match : "", r->range ? r->range : "", date, PROA_CLOUD_AZURE_VERSION, key->id);
    proa_buf_str(out, u.path);
    azure_query(out, u.query);
}

proa_status proa_cloud_sign_azure(proa_buf *headers, const proa_crypto *crypto, const proa_cloud_key *key,
                                  const proa_cloud_request *r, proa_err *err)
{
    char date[40];
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES];
    struct tm tm;
    proa_buf text, bytes;
    gmtime_r(&r->now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    add_header(headers, "x-ms-date", proa_str_c(date));
    add_header(headers, "x-ms-version", proa_str_c(PROA_CLOUD_AZURE_VERSION));
    if (!key->secret[0]) return PROA_OK;
    proa_buf_init(&text, TEXT_MAX);
    proa_buf_init(&bytes, sizeof key->secret);
    azure_to_sign(&text, key, r, date);
    bool good = decode_base64(&bytes, proa_str_c(key->secret));
    if (good) {
        proa_crypto_hmac_sha256(crypto, sum, proa_buf_view(&bytes), proa_buf_view(&text));
        proa_buf_printf(headers, "Authorization: SharedKey %s:", key->id);
        proa_buf_base64(headers, (proa_str){(const char *)sum, sizeof sum});
        proa_buf_char(headers, '\0');
    }
    proa_buf_release(&text);
    proa_buf_release(&bytes);
    return good ? PROA_OK
                : PROA_FAIL(err, INVALID, "the key of the Azure account '%.60s' is not base64", key->id);
}

/* ---- Google ---- */

/* Base64 of RFC 4648 with - and _, without padding. */
static void append_base64url(proa_buf *out, proa_str bytes)
{
    size_t from = out->len;
    proa_buf_base64(out, bytes);
    for (size_t i = from; i < out->len; i++) {
        if (out->ptr[i] == '+') out->ptr[i] = '-';
        if (out->ptr[i] == '/') out->ptr[i] = '_';
        if (out->ptr[i] == '=') {
            out->len = i;
            out->ptr[i] = '\0';
        }
    }
}

/* RSASSA-PKCS1-v1_5 with SHA-256 (RS256). */
static bool sign_rs256(proa_buf *out, const proa_crypto *x, const char *pem, proa_str text)
{
    unsigned char signature[1024]; /* a key of 8192 bits */
    size_t len = sizeof signature;
    BIO *bio = x->BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? x->PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    EVP_MD_CTX *context = x->EVP_MD_CTX_new();
    bool good = key && context && x->EVP_DigestSignInit(context, NULL, x->EVP_sha256(), NULL, key) == 1 &&
                x->EVP_DigestSign(context, signature, &len, (const unsigned char *)text.ptr, text.len) == 1;
    if (good) append_base64url(out, (proa_str){(const char *)signature, len});
    if (context) x->EVP_MD_CTX_free(context);
    if (key) x->EVP_PKEY_free(key);
    if (bio) x->BIO_free(bio);
    return good;
}

proa_status proa_cloud_token_form(proa_buf *form, const proa_crypto *crypto, const proa_cloud_credentials *c,
                                  time_t now, proa_err *err)
{
    proa_buf claim, text;
    proa_buf_init(&claim, TEXT_MAX);
    proa_buf_init(&text, TEXT_MAX);
    proa_buf_printf(&claim, "{\"iss\":");
    proa_buf_json_str(&claim, proa_str_c(c->email));
    proa_buf_printf(&claim, ",\"scope\":\"https://www.googleapis.com/auth/devstorage.read_only\",\"aud\":");
    proa_buf_json_str(&claim, proa_str_c(c->url));
    proa_buf_printf(&claim, ",\"iat\":%lld,\"exp\":%lld}", (long long)now, (long long)now + 3600);
    append_base64url(&text, proa_str_c("{\"alg\":\"RS256\",\"typ\":\"JWT\"}"));
    proa_buf_char(&text, '.');
    append_base64url(&text, proa_buf_view(&claim));
    proa_buf_printf(form, "grant_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Agrant-type%%3Ajwt-bearer&assertion=");
    proa_buf_str(form, proa_buf_view(&text));
    proa_buf_char(form, '.');
    bool good = sign_rs256(form, crypto, c->private_key, proa_buf_view(&text));
    proa_buf_release(&claim);
    proa_buf_release(&text);
    return good ? PROA_OK : PROA_FAIL(err, INVALID, "the private key of '%.200s' cannot be read", c->email);
}
