/* SPDX-License-Identifier: Apache-2.0
 * zip.c - the directory of a zip file. Nothing is inflated, so no entry is larger than the file. */
#include "weights/zip.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <string.h>

typedef struct reader {
    const unsigned char *bytes;
    int64_t len;
    const char *what;
    proa_err *err;
    int64_t directory, directory_end; /* where the directory is */
    uint64_t entries;
} reader;

enum {
    END_BYTES = 22,       /* end of central directory */
    LOCATOR_BYTES = 20,   /* in front of it, where there is a zip64 end */
    END64_BYTES = 56,     /* zip64 end of central directory */
    CENTRAL_BYTES = 46,   /* entry of the directory, without its texts */
    LOCAL_BYTES = 30,     /* header of an entry, without its texts */
    COMMENT_MAX = 0xffff, /* of the file, at its very end */
};

#define FAIL_ZIP(r, status, fmt, ...) PROA_FAIL((r)->err, status, "%.120s: " fmt, (r)->what, __VA_ARGS__)

/* The little-endian number of `width` bytes at `at`, which the caller has checked. */
static uint64_t read_number(const reader *r, int64_t at, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value |= (uint64_t)r->bytes[at + i] << (8 * i);
    return value;
}

static bool is_magic(const reader *r, int64_t at, int64_t bytes, const char magic[4])
{
    return at >= 0 && at <= r->len - bytes && memcmp(r->bytes + at, magic, 4) == 0;
}

/* ---- the end of the directory ---- */

static proa_status find_end(const reader *r, int64_t *end)
{
    int64_t last = r->len - END_BYTES;
    for (int64_t at = last; at >= 0 && at >= last - COMMENT_MAX; at--) {
        if (!is_magic(r, at, END_BYTES, "PK\5\6")) continue;
        if ((int64_t)read_number(r, at + 20, 2) == last - at) return *end = at, PROA_OK;
    }
    return FAIL_ZIP(r, CORRUPT, "the file's directory is not at its end: cut short, or no %s file", "zip");
}

static proa_status set_directory(reader *r, int64_t end, uint64_t entries, uint64_t bytes, uint64_t at)
{
    if (at > (uint64_t)end || bytes > (uint64_t)end - at)
        return FAIL_ZIP(r, CORRUPT, "a directory of %llu bytes at %llu goes beyond byte %lld",
                        (unsigned long long)bytes, (unsigned long long)at, (long long)end);
    if (entries > PROA_ZIP_ENTRIES_MAX)
        return FAIL_ZIP(r, LIMIT, "%llu entries, at most %d are read", (unsigned long long)entries,
                        PROA_ZIP_ENTRIES_MAX);
    r->directory = (int64_t)at, r->directory_end = (int64_t)(at + bytes), r->entries = entries;
    return PROA_OK;
}

static proa_status read_end64(reader *r, int64_t locator)
{
    uint64_t at = read_number(r, locator + 8, 8);
    if (at > (uint64_t)locator || !is_magic(r, (int64_t)at, END64_BYTES, "PK\6\6"))
        return FAIL_ZIP(r, CORRUPT, "no zip64 directory at byte %llu", (unsigned long long)at);
    int64_t end = (int64_t)at;
    if (read_number(r, end + 16, 4) || read_number(r, end + 20, 4) ||
        read_number(r, end + 24, 8) != read_number(r, end + 32, 8))
        return FAIL_ZIP(r, UNSUPPORTED, "a zip file in %s", "several parts");
    return set_directory(r, end, read_number(r, end + 32, 8), read_number(r, end + 40, 8),
                         read_number(r, end + 48, 8));
}

static proa_status read_end(reader *r)
{
    int64_t end = 0;
    PROA_TRY(find_end(r, &end));
    if (is_magic(r, end - LOCATOR_BYTES, LOCATOR_BYTES, "PK\6\7")) return read_end64(r, end - LOCATOR_BYTES);
    if (read_number(r, end + 4, 2) || read_number(r, end + 6, 2) ||
        read_number(r, end + 8, 2) != read_number(r, end + 10, 2))
        return FAIL_ZIP(r, UNSUPPORTED, "a zip file in %s", "several parts");
    return set_directory(r, end, read_number(r, end + 10, 2), read_number(r, end + 12, 4),
                         read_number(r, end + 16, 4));
}

/* ---- entries ---- */

/* Sizes and offset of an entry: those that do not fit into 32 bits are in its zip64 extra field. */
typedef struct place {
    uint64_t bytes, packed, header;
} place;

static proa_status read_extra(const reader *r, int64_t at, int64_t end, place *p)
{
    uint64_t *wide[] = {&p->bytes, &p->packed, &p->header};
    while (end - at >= 4) {
        int64_t id = (int64_t)read_number(r, at, 2), next = at + 4 + (int64_t)read_number(r, at + 2, 2);
        if (next > end) break;
        for (at += 4; id == 1 && at < next;) {
            size_t i = 0;
            while (i < PROA_COUNT(wide) && (!wide[i] || *wide[i] != UINT32_MAX)) i++;
            if (i == PROA_COUNT(wide)) break;
            if (next - at < 8) return FAIL_ZIP(r, CORRUPT, "a zip64 field cut %s", "short");
            *wide[i] = read_number(r, at, 8);
            wide[i] = NULL;
            at += 8;
        }
        at = next;
    }
    return PROA_OK;
}

/* The data of an entry begins after its local header, whose texts have lengths of their own. */
static proa_status find_data(const reader *r, proa_zip_entry *e, const place *p)
{
    int name = e->name.len > 120 ? 120 : (int)e->name.len;
    e->header = p->header < (uint64_t)r->directory ? (int64_t)p->header : -1;
    if (e->header < 0 || !is_magic(r, e->header, LOCAL_BYTES, "PK\3\4"))
        return FAIL_ZIP(r, CORRUPT, "entry '%.*s': no header at byte %llu", name, e->name.ptr,
                        (unsigned long long)p->header);
    int64_t local_name = (int64_t)read_number(r, e->header + 26, 2);
    e->at = e->header + LOCAL_BYTES + local_name + (int64_t)read_number(r, e->header + 28, 2);
    if (e->at > r->directory || p->bytes > (uint64_t)(r->directory - e->at))
        return FAIL_ZIP(r, CORRUPT, "entry '%.*s': %llu bytes at %lld go beyond byte %lld", name, e->name.ptr,
                        (unsigned long long)p->bytes, (long long)e->at, (long long)r->directory);
    if (local_name != (int64_t)e->name.len ||
        memcmp(r->bytes + e->header + LOCAL_BYTES, e->name.ptr, e->name.len) != 0)
        return FAIL_ZIP(r, CORRUPT, "entry '%.*s' has another name in its header", name, e->name.ptr);
    e->bytes = (int64_t)p->bytes;
    return PROA_OK;
}

/* Reads the entry of the directory at *at, and moves *at past it. */
static proa_status read_entry(const reader *r, int64_t *at, proa_zip_entry *e)
{
    int64_t entry = *at;
    if (entry > r->directory_end - CENTRAL_BYTES || !is_magic(r, entry, CENTRAL_BYTES, "PK\1\2"))
        return FAIL_ZIP(r, CORRUPT, "no directory entry at byte %lld", (long long)entry);
    int64_t name = (int64_t)read_number(r, entry + 28, 2), extra = (int64_t)read_number(r, entry + 30, 2);
    *at = entry + CENTRAL_BYTES + name + extra + (int64_t)read_number(r, entry + 32, 2);
    if (*at > r->directory_end)
        return FAIL_ZIP(r, CORRUPT, "the directory entry at byte %lld is cut short", (long long)entry);
    e->name = (proa_str){(const char *)r->bytes + entry + CENTRAL_BYTES, (size_t)name};
    place p = {read_number(r, entry + 24, 4), read_number(r, entry + 20, 4), read_number(r, entry + 42, 4)};
    PROA_TRY(read_extra(r, entry + CENTRAL_BYTES + name, entry + CENTRAL_BYTES + name + extra, &p));
    int shown = name > 120 ? 120 : (int)name;
    if (read_number(r, entry + 8, 2) & 1)
        return FAIL_ZIP(r, UNSUPPORTED, "entry '%.*s' is encrypted", shown, e->name.ptr);
    if (read_number(r, entry + 10, 2) != 0 || p.packed != p.bytes)
        return FAIL_ZIP(r, UNSUPPORTED, "entry '%.*s' is compressed; torch stores entries as they are", shown,
                        e->name.ptr);
    return find_data(r, e, &p);
}

static int by_header(const void *a, const void *b)
{
    const proa_zip_entry *x = a, *y = b;
    return x->header < y->header ? -1 : x->header > y->header;
}

static proa_status check_overlap(const reader *r, const proa_zip *z)
{
    proa_status status = PROA_OK;
    proa_zip_entry *sorted = proa_calloc((size_t)z->count, sizeof *sorted);
    if (z->count) memcpy(sorted, z->entry, (size_t)z->count * sizeof *sorted);
    qsort(sorted, (size_t)z->count, sizeof *sorted, by_header);
    for (int32_t i = 1; i < z->count && status == PROA_OK; i++) {
        const proa_zip_entry *a = &sorted[i - 1], *b = &sorted[i];
        if (b->header < a->at + a->bytes)
            status = FAIL_ZIP(r, CORRUPT, "entries '%.*s' and '%.*s' overlap",
                              (int)proa_min64(120, (int64_t)a->name.len), a->name.ptr,
                              (int)proa_min64(120, (int64_t)b->name.len), b->name.ptr);
    }
    free(sorted);
    return status;
}

/* names is filled for the check that no two are equal; the caller releases it. */
static proa_status read_entries(const reader *r, proa_zip *z, proa_map *names)
{
    int64_t at = r->directory;
    if (r->entries > (uint64_t)(r->directory_end - r->directory) / CENTRAL_BYTES)
        return FAIL_ZIP(r, CORRUPT, "%llu entries in a directory of %lld bytes",
                        (unsigned long long)r->entries, (long long)(r->directory_end - r->directory));
    z->entry = proa_calloc((size_t)r->entries, sizeof *z->entry);
    proa_map_init(names, (int64_t)r->entries);
    for (uint64_t i = 0; i < r->entries; i++) {
        proa_zip_entry *e = &z->entry[i];
        PROA_TRY(read_entry(r, &at, e));
        z->count++;
        if (!proa_map_put(names, e->name, (int32_t)i))
            return FAIL_ZIP(r, CORRUPT, "entry '%.*s' is there twice",
                            (int)proa_min64(120, (int64_t)e->name.len), e->name.ptr);
    }
    return check_overlap(r, z);
}

proa_status proa_zip_open(proa_zip *z, const unsigned char *bytes, int64_t len, const char *what, proa_err *err)
{
    reader r = {.bytes = bytes, .len = len, .what = what, .err = err};
    *z = (proa_zip){.entry = NULL};
    PROA_TRY(read_end(&r));
    proa_map names = {0};
    proa_status status = read_entries(&r, z, &names);
    proa_map_release(&names);
    return status;
}

void proa_zip_release(proa_zip *z)
{
    free(z->entry);
    *z = (proa_zip){.entry = NULL};
}
