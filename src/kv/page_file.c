/* SPDX-License-Identifier: Apache-2.0
 * page_file.c - a page as a file: head, checksums, atomic writing, reading with checks. */
#include "kv/page_file.h"

#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "PROAPAGE";

enum {
    VERSION = 1,
    AT_VERSION = 8,
    AT_FINGERPRINT = 16,
    AT_KEY = 48,
    AT_DTYPE = 80,
    AT_SHAPE = 88,
    AT_IMAGE_BYTES = 112,
    AT_IMAGE_SUM = 120,
    AT_IDS = 128,
    AT_HEAD_SUM = 504
};

/* ---- checksums ---- */

/* Detects accidental damage, at the speed of memory: four sums of folded products over every fourth word. */
static uint64_t checksum_of(const void *bytes, int64_t len)
{
    const unsigned char *p = bytes;
    uint64_t sum[4] = {1, 2, 3, (uint64_t)len};
    uint64_t word;
    for (int64_t at = 0; at < len; at += (int64_t)sizeof word) {
        uint64_t *to = &sum[(at / 8) % 4];
        word = 0;
        memcpy(&word, p + at, (size_t)proa_min64(len - at, 8));
        *to = proa_fold_multiply(*to ^ word ^ 0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u);
    }
    for (int i = 1; i < 4; i++) sum[0] = proa_fold_multiply(sum[0] ^ sum[i], 0xd6e8feb86659fd93u);
    return sum[0];
}

/* ---- the head ---- */

static void write_u32(unsigned char *at, int64_t value)
{
    uint32_t n = (uint32_t)value; /* Proa runs on little-endian machines only */
    memcpy(at, &n, sizeof n);
}

static void write_u64(unsigned char *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint64_t read_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Everything but the checksum of the image and that of the head. */
static void make_head(unsigned char head[PROA_PAGE_HEAD_BYTES], const proa_page_format *f,
                      const proa_page_name *name)
{
    const int64_t shape[6] = {f->layers,        f->kv_heads, f->head_dim,
                              PROA_PAGE_TOKENS, name->count, name->depth};
    const char *dtype = proa_dtype_name(f->dtype);
    memset(head, 0, PROA_PAGE_HEAD_BYTES);
    memcpy(head, magic, sizeof magic);
    write_u32(head + AT_VERSION, VERSION);
    write_u32(head + AT_VERSION + 4, PROA_PAGE_HEAD_BYTES);
    memcpy(head + AT_FINGERPRINT, f->fingerprint, sizeof f->fingerprint);
    memcpy(head + AT_KEY, name->key.bytes, sizeof name->key.bytes);
    memcpy(head + AT_DTYPE, dtype, strnlen(dtype, 8));
    for (int i = 0; i < 6; i++) write_u32(head + AT_SHAPE + 4 * i, shape[i]);
    write_u64(head + AT_IMAGE_BYTES, (uint64_t)f->image_bytes);
    memcpy(head + AT_IDS, name->ids, (size_t)name->count * sizeof *name->ids);
}

void proa_page_head_make(unsigned char head[PROA_PAGE_HEAD_BYTES], const proa_page_format *f,
                         const proa_page_name *name, const char *image)
{
    make_head(head, f, name);
    write_u64(head + AT_IMAGE_SUM, checksum_of(image, f->image_bytes));
    write_u64(head + AT_HEAD_SUM, checksum_of(head, AT_HEAD_SUM));
}

proa_status proa_page_head_check(const unsigned char head[PROA_PAGE_HEAD_BYTES], const proa_page_format *f,
                                 const proa_page_name *name, const char *image, proa_err *err)
{
    /* end and name of each part; the error names the first that differs */
    static const struct {
        int end;
        const char *what;
    } parts[] = {{AT_VERSION, "it is no page of keys and values"},
                 {AT_FINGERPRINT, "it is of another version"},
                 {AT_KEY, "it is of another model"},
                 {AT_DTYPE, "it is of other tokens"},
                 {AT_SHAPE, "it is of another type"},
                 {AT_IMAGE_BYTES, "it is of another shape"},
                 {AT_IMAGE_SUM, "its image has another size"},
                 {AT_HEAD_SUM, "it is of other tokens"}};
    unsigned char wanted[PROA_PAGE_HEAD_BYTES];
    make_head(wanted, f, name);
    memcpy(wanted + AT_IMAGE_SUM, head + AT_IMAGE_SUM, 8);
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        int begin = i ? parts[i - 1].end : 0;
        if (memcmp(head + begin, wanted + begin, (size_t)(parts[i].end - begin)) != 0)
            return PROA_FAIL(err, CORRUPT, "%s", parts[i].what);
    }
    if (read_u64(head + AT_HEAD_SUM) != checksum_of(head, AT_HEAD_SUM))
        return PROA_FAIL(err, CORRUPT, "the checksum of its head is wrong");
    if (read_u64(head + AT_IMAGE_SUM) != checksum_of(image, f->image_bytes))
        return PROA_FAIL(err, CORRUPT, "the checksum of its image is wrong");
    return PROA_OK;
}

/* ---- files ---- */

static proa_status write_all(int file, const void *bytes, int64_t len, proa_err *err)
{
    const char *p = bytes;
    while (len > 0) {
        ssize_t n = write(file, p, (size_t)len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return PROA_FAIL(err, IO, "cannot be written: %s", strerror(n < 0 ? errno : ENOSPC));
        p += n, len -= n;
    }
    return PROA_OK;
}

static proa_status read_all(int file, void *bytes, int64_t len, proa_err *err)
{
    char *p = bytes;
    while (len > 0) {
        ssize_t n = read(file, p, (size_t)len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return PROA_FAIL(err, IO, "cannot be read: %s", strerror(errno));
        if (n == 0) return PROA_FAIL(err, CORRUPT, "it was cut off");
        p += n, len -= n;
    }
    return PROA_OK;
}

/* The temporary name of a file that is being written; a file that keeps it for long was left by a crash. */
static void temporary_name(char out[48])
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = (uint64_t)getpid();
    snprintf(out, 48, ".proa-%016llx.tmp", (unsigned long long)random);
}

proa_status proa_page_file_write(int folder, const char *name, const proa_page_format *f,
                                 const proa_page_name *page, const char *image, proa_err *err)
{
    unsigned char head[PROA_PAGE_HEAD_BYTES];
    char temporary[48];
    proa_status status = PROA_OK;
    temporary_name(temporary);
    int file = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return PROA_FAIL(err, IO, "cannot be made: %s", strerror(errno));
    proa_page_head_make(head, f, page, image);
    PROA_TRY_OUT(write_all(file, head, sizeof head, err));
    PROA_TRY_OUT(write_all(file, image, f->image_bytes, err));
    if (renameat(folder, temporary, folder, name) != 0)
        status = PROA_FAIL(err, IO, "cannot be renamed: %s", strerror(errno));
out:
    close(file);
    if (status != PROA_OK) unlinkat(folder, temporary, 0);
    return status;
}

static proa_status read_open(int file, const proa_page_format *f, const proa_page_name *page, char *image,
                             proa_err *err)
{
    unsigned char head[PROA_PAGE_HEAD_BYTES];
    struct stat s;
    if (fstat(file, &s) != 0) return PROA_FAIL(err, IO, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(s.st_mode)) return PROA_FAIL(err, CORRUPT, "it is no regular file");
    if (s.st_size != PROA_PAGE_HEAD_BYTES + f->image_bytes)
        return PROA_FAIL(err, CORRUPT, "it has %lld bytes, must have %lld", (long long)s.st_size,
                         (long long)(PROA_PAGE_HEAD_BYTES + f->image_bytes));
    PROA_TRY(read_all(file, head, sizeof head, err));
    PROA_TRY(read_all(file, image, f->image_bytes, err));
    return proa_page_head_check(head, f, page, image, err);
}

proa_status proa_page_file_read(int folder, const char *name, const proa_page_format *f,
                                const proa_page_name *page, char *image, proa_err *err)
{
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return PROA_FAIL(err, NOT_FOUND, "it is not there");
    if (file < 0 && errno == ELOOP) return PROA_FAIL(err, CORRUPT, "it is a link");
    if (file < 0) return PROA_FAIL(err, IO, "cannot be opened: %s", strerror(errno));
    proa_status status = read_open(file, f, page, image, err);
    if (status == PROA_OK) futimens(file, NULL); /* on failure the file only counts as older */
    close(file);
    return status;
}
