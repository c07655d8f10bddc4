/* SPDX-License-Identifier: Apache-2.0
 * listing.c - reads pages of listings, which are untrusted: keys, sizes and tokens are checked. */
#include "hub/cloud/listing.h"

#include "base/alloc.h"
#include "base/json.h"
#include "hub/cloud/xml.h"
#include "hub/crypto.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void proa_cloud_listing_init(proa_cloud_listing *l)
{
    *l = (proa_cloud_listing){.count = 0};
    proa_arena_init(&l->arena);
}

void proa_cloud_listing_release(proa_cloud_listing *l)
{
    proa_arena_release(&l->arena);
    free(l->entries);
    *l = (proa_cloud_listing){.count = 0};
}

/* ---- one object ---- */

typedef struct object {
    proa_str key, size, etag, md5 /* base64 */, generation;
} object;

static bool read_size(int64_t *out, proa_str text)
{
    *out = 0;
    if (text.len == 0 || text.len > 18) return false;
    for (size_t i = 0; i < text.len; i++) {
        if (!isdigit((unsigned char)text.ptr[i])) return false;
        *out = 10 * *out + (text.ptr[i] - '0');
    }
    return *out <= PROA_HUB_FILE_BYTES_MAX;
}

/* The 32 digits of an md5 in base64, which has 24 characters. */
static bool decode_md5(char out[33], proa_str text)
{
    unsigned char bytes[18];
    if (text.len != 24 || text.ptr[22] != '=' || text.ptr[23] != '=') return false;
    for (size_t group = 0; group < 6; group++) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) {
            size_t at = group * 4 + i;
            int digit = at < 22 ? proa_base64_digit(text.ptr[at]) : 0;
            if (digit < 0) return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (size_t i = 0; i < 3; i++) bytes[group * 3 + i] = (unsigned char)(bits >> (16 - 8 * i));
    }
    proa_crypto_hex(out, bytes, 16);
    return true;
}

static bool is_md5(proa_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isdigit((unsigned char)text.ptr[i]) && !(text.ptr[i] >= 'a' && text.ptr[i] <= 'f')) return false;
    return text.len == 32;
}

/* A name for bytes whose checksum the store does not tell: of key and state of the object. It is no checksum. */
static void name_state(char out[PROA_HUB_REVISION_MAX], const object *o, proa_str state)
{
    const proa_crypto *crypto;
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES];
    proa_buf text;
    if (proa_crypto_open(&crypto, NULL) != PROA_OK) return; /* the store has opened it */
    proa_buf_init(&text, PROA_HUB_URL_MAX);
    proa_buf_str(&text, o->key), proa_buf_char(&text, '\0');
    proa_buf_str(&text, o->size), proa_buf_char(&text, '\0');
    proa_buf_str(&text, state);
    proa_crypto_sha256(crypto, sum, proa_buf_view(&text));
    out[0] = 'o', proa_crypto_hex(out + 1, sum, 20);
    proa_buf_release(&text);
}

static proa_str strip_quotes(proa_str s)
{
    if (s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"') s.ptr++, s.len -= 2;
    return s;
}

static bool is_plain(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] <= ' ' || (unsigned char)s.ptr[i] > '~' || s.ptr[i] == '"') return false;
    return s.len > 0 && s.len < 200;
}

static proa_status add_object(proa_cloud_listing *l, const object *o, proa_str prefix, proa_err *err)
{
    proa_hub_entry e = {.size = -1, .wanted = true};
    proa_str etag = strip_quotes(o->etag), state = o->generation.len ? o->generation : etag;
    int shown = o->key.len < 200 ? (int)o->key.len : 200;
    const char *key = o->key.ptr ? o->key.ptr : "";
    if (!proa_str_starts(o->key, prefix) || proa_str_has_nul(o->key) || !proa_utf8_valid(o->key))
        return PROA_FAIL(err, CORRUPT, "the list names an object '%.*s' that was not requested", shown, key);
    if (!read_size(&e.size, o->size))
        return PROA_FAIL(err, CORRUPT, "the list names no size for '%.*s', or one above %lld bytes", shown,
                         key, (long long)PROA_HUB_FILE_BYTES_MAX);
    if (!is_plain(state)) return PROA_FAIL(err, CORRUPT, "the list names no etag for '%.*s'", shown, key);
    if (l->count >= PROA_CLOUD_OBJECTS_MAX)
        return PROA_FAIL(err, LIMIT, "the repository has more than %d objects", PROA_CLOUD_OBJECTS_MAX);
    if (o->key.len == prefix.len) return PROA_OK; /* the folder itself */
    e.path = proa_arena_strdup(&l->arena, (proa_str){o->key.ptr + prefix.len, o->key.len - prefix.len});
    e.match = proa_arena_strdup(&l->arena, state);
    if (is_md5(etag)) memcpy(e.etag, etag.ptr, 32);
    else if (!decode_md5(e.etag, o->md5)) name_state(e.etag, o, state);
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->entries = proa_realloc(l->entries, (size_t)l->cap * sizeof *l->entries);
    }
    l->entries[l->count++] = e;
    return PROA_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const proa_hub_entry *)a)->path, ((const proa_hub_entry *)b)->path);
}

proa_status proa_cloud_listing_sort(proa_cloud_listing *l, proa_err *err)
{
    if (l->count) qsort(l->entries, (size_t)l->count, sizeof *l->entries, by_path);
    for (int64_t i = 1; i < l->count; i++)
        if (strcmp(l->entries[i].path, l->entries[i - 1].path) == 0)
            return PROA_FAIL(err, CORRUPT, "the list names '%.200s' twice", l->entries[i].path);
    return PROA_OK;
}

/* ---- listings in XML ---- */

enum field {
    FIELD_KEY,
    FIELD_SIZE,
    FIELD_ETAG,
    FIELD_MD5,
    FIELD_OBJECT,
    FIELD_NEXT,
    FIELD_MORE,
    FIELD_ENCODING,
    FIELD_ROOT
};

static const struct {
    proa_cloud_kind kind;
    const char *path;
    enum field field;
} fields[] = {{PROA_CLOUD_S3, "ListBucketResult/Contents/Key", FIELD_KEY},
              {PROA_CLOUD_S3, "ListBucketResult/Contents/Size", FIELD_SIZE},
              {PROA_CLOUD_S3, "ListBucketResult/Contents/ETag", FIELD_ETAG},
              {PROA_CLOUD_S3, "ListBucketResult/Contents", FIELD_OBJECT},
              {PROA_CLOUD_S3, "ListBucketResult/NextContinuationToken", FIELD_NEXT},
              {PROA_CLOUD_S3, "ListBucketResult/IsTruncated", FIELD_MORE},
              {PROA_CLOUD_S3, "ListBucketResult/EncodingType", FIELD_ENCODING},
              {PROA_CLOUD_S3, "ListBucketResult", FIELD_ROOT},
              {PROA_CLOUD_AZURE, "EnumerationResults/Blobs/Blob/Name", FIELD_KEY},
              {PROA_CLOUD_AZURE, "EnumerationResults/Blobs/Blob/Properties/Content-Length", FIELD_SIZE},
              {PROA_CLOUD_AZURE, "EnumerationResults/Blobs/Blob/Properties/Etag", FIELD_ETAG},
              {PROA_CLOUD_AZURE, "EnumerationResults/Blobs/Blob/Properties/Content-MD5", FIELD_MD5},
              {PROA_CLOUD_AZURE, "EnumerationResults/Blobs/Blob", FIELD_OBJECT},
              {PROA_CLOUD_AZURE, "EnumerationResults/NextMarker", FIELD_NEXT},
              {PROA_CLOUD_AZURE, "EnumerationResults", FIELD_ROOT}};

typedef struct page_reader {
    proa_cloud_listing *listing;
    proa_cloud_kind kind;
    proa_str prefix;
    proa_arena arena; /* texts of the page's objects */
    object now;
    object *objects; /* [count]; keys are decoded when the page has ended: the element EncodingType may come last */
    int count, cap;
    bool more, encoded, root;
    const char *next;
} page_reader;

static void end_object(page_reader *p)
{
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->objects = proa_realloc(p->objects, (size_t)p->cap * sizeof *p->objects);
    }
    p->objects[p->count++] = p->now;
    p->now = (object){.key = {NULL, 0}};
}

static proa_str keep_text(page_reader *p, proa_str text)
{
    return (proa_str){proa_arena_strdup(&p->arena, text), text.len};
}

static bool end_field(proa_cloud_xml *r, const char *path, proa_str text)
{
    page_reader *p = r->arg;
    size_t i = 0;
    while (i < PROA_COUNT(fields) && (fields[i].kind != p->kind || strcmp(fields[i].path, path) != 0)) i++;
    if (i == PROA_COUNT(fields)) return true;
    switch (fields[i].field) {
    case FIELD_KEY: p->now.key = keep_text(p, text); break;
    case FIELD_SIZE: p->now.size = keep_text(p, text); break;
    case FIELD_ETAG: p->now.etag = keep_text(p, text); break;
    case FIELD_MD5: p->now.md5 = keep_text(p, text); break;
    case FIELD_OBJECT: end_object(p); break;
    case FIELD_NEXT: p->next = text.len ? proa_arena_strdup(&p->listing->arena, text) : NULL; break;
    case FIELD_MORE: p->more = proa_str_is(text, "true"); break;
    case FIELD_ENCODING: p->encoded = proa_str_is(text, "url"); break;
    case FIELD_ROOT: p->root = true; break;
    }
    if (p->count <= PROA_CLOUD_PAGE_OBJECTS_MAX) return true;
    (void)PROA_FAIL(&r->err, LIMIT, "a page has more than %d objects", PROA_CLOUD_PAGE_OBJECTS_MAX);
    return false;
}

/* Undoes the form's encoding of a key: '+' is a space. */
static bool decode_key(page_reader *p, proa_str *key)
{
    char *plus = (char *)(uintptr_t)key->ptr;
    for (size_t i = 0; i < key->len; i++)
        if (plus[i] == '+') plus[i] = ' ';
    char *decoded = proa_arena_url_decode(&p->arena, *key);
    if (decoded) *key = proa_str_c(decoded);
    return decoded != NULL;
}

static proa_status take_page(page_reader *p, proa_err *err)
{
    if (!p->root) return PROA_FAIL(err, CORRUPT, "the answer is no list of objects");
    for (int i = 0; i < p->count; i++) {
        object *o = &p->objects[i];
        if (p->encoded && o->key.ptr && !decode_key(p, &o->key))
            return PROA_FAIL(err, CORRUPT, "the list names a key with a NUL");
        PROA_TRY(add_object(p->listing, o, p->prefix, err));
    }
    if (p->kind == PROA_CLOUD_S3 && p->more != (p->next != NULL))
        return PROA_FAIL(err, CORRUPT, "the list %s",
                         p->more ? "goes on, but names no token for its next page"
                                 : "ends, but names a token for a next page");
    p->listing->next = p->next;
    return PROA_OK;
}

static proa_status add_xml(page_reader *p, proa_str page, proa_err *err)
{
    proa_cloud_xml r = {.on_end = end_field, .arg = p};
    proa_status status = proa_cloud_xml_read(&r, page, err);
    if (status != PROA_OK) proa_err_prefix(err, "the list of objects");
    return status == PROA_OK ? take_page(p, err) : status;
}

/* ---- listings in JSON ---- */

static proa_status add_json(page_reader *p, proa_str page, proa_err *err)
{
    proa_json *root = NULL;
    PROA_TRY(proa_json_parse(&root, page, "the list of objects", err));
    const proa_json *items = proa_json_get(root, "items");
    proa_str next = proa_json_str(proa_json_get(root, "nextPageToken"));
    proa_status status = PROA_OK;
    p->root = proa_json_kind(root) == PROA_JSON_OBJECT;
    if (next.len) p->next = proa_arena_strdup(&p->listing->arena, next);
    for (int64_t i = 0; i < proa_json_len(items); i++) {
        const proa_json *item = proa_json_at(items, i);
        p->now = (object){.key = proa_json_str(proa_json_get(item, "name")),
                          .size = proa_json_str(proa_json_get(item, "size")),
                          .etag = proa_json_str(proa_json_get(item, "etag")),
                          .md5 = proa_json_str(proa_json_get(item, "md5Hash")),
                          .generation = proa_json_str(proa_json_get(item, "generation"))};
        end_object(p);
    }
    if (p->count > PROA_CLOUD_PAGE_OBJECTS_MAX)
        status = PROA_FAIL(err, LIMIT, "a page of the list has more than %d objects",
                           PROA_CLOUD_PAGE_OBJECTS_MAX);
    if (status == PROA_OK) status = take_page(p, err);
    proa_json_free(root);
    return status;
}

proa_status proa_cloud_listing_add(proa_cloud_listing *l, const proa_cloud_address *address,
                                   const char *prefix, proa_str page, proa_err *err)
{
    page_reader p = {.listing = l, .kind = address->kind, .prefix = proa_str_c(prefix)};
    l->next = NULL;
    proa_arena_init(&p.arena);
    proa_status status = p.kind == PROA_CLOUD_GCS ? add_json(&p, page, err) : add_xml(&p, page, err);
    proa_arena_release(&p.arena);
    free(p.objects);
    return status;
}

/* ---- refusals ---- */

typedef struct words {
    char code[64], message[200];
} words;

static bool end_word(proa_cloud_xml *r, const char *path, proa_str text)
{
    words *w = r->arg;
    if (proa_str_ends(proa_str_c(path), proa_str_c("Error/Code")))
        snprintf(w->code, sizeof w->code, "%.*s", (int)text.len, text.ptr);
    if (proa_str_ends(proa_str_c(path), proa_str_c("Error/Message")))
        snprintf(w->message, sizeof w->message, "%.*s", (int)text.len, text.ptr);
    return true;
}

static void json_words(words *w, proa_str body)
{
    proa_json *root = NULL;
    if (proa_json_parse(&root, body, "the answer", NULL) != PROA_OK) return;
    proa_str message = proa_json_str(proa_json_get(proa_json_get(root, "error"), "message")),
             code = proa_json_str(proa_json_get(root, "error"));
    static const char *const names[] = {"error_description", "message", "Message"};
    for (size_t i = 0; i < PROA_COUNT(names) && !message.len; i++)
        message = proa_json_str(proa_json_get(root, names[i]));
    snprintf(w->code, sizeof w->code, "%.*s", (int)code.len, code.ptr ? code.ptr : "");
    snprintf(w->message, sizeof w->message, "%.*s", (int)message.len, message.ptr ? message.ptr : "");
    proa_json_free(root);
}

void proa_cloud_error_words(char *out, size_t size, proa_str body)
{
    words w = {.code = ""};
    proa_cloud_xml r = {.on_end = end_word, .arg = &w};
    out[0] = '\0';
    if (!body.len) return;
    if (body.ptr[0] == '{') json_words(&w, body);
    else if (proa_cloud_xml_read(&r, body, NULL) != PROA_OK) w = (words){.code = ""};
    snprintf(out, size, "%s%s%s", w.code, w.code[0] && w.message[0] ? ": " : "", w.message);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
}
