/* SPDX-License-Identifier: Apache-2.0
 * torch_file.h - writes zip files as torch.save does, for tests and the fuzzer: entries stored as they are. */
#ifndef PROA_TESTS_TORCH_FILE_H
#define PROA_TESTS_TORCH_FILE_H

#include "base/str.h"
#include <string.h>

enum { TORCH_FILE_ENTRIES = 8 };

typedef struct torch_file {
    proa_buf bytes;
    struct {
        char name[64];
        uint32_t at, size;
    } entry[TORCH_FILE_ENTRIES];
    int count;
    /* lies for tests: what the directory says in place of the truth */
    uint16_t method, flags;
    uint32_t more; /* added to each size */
} torch_file;

static inline void torch_file_number(proa_buf *b, uint64_t value, int bytes)
{
    for (; bytes > 0; bytes--, value >>= 8) proa_buf_char(b, (char)(value & 0xff));
}

static inline void torch_file_begin(torch_file *f)
{
    memset(f, 0, sizeof *f);
    proa_buf_init(&f->bytes, 1 << 22);
}

static inline void torch_file_add(torch_file *f, const char *name, const void *data, size_t size)
{
    snprintf(f->entry[f->count].name, sizeof f->entry[0].name, "%s", name);
    f->entry[f->count].at = (uint32_t)f->bytes.len;
    f->entry[f->count++].size = (uint32_t)size;
    proa_buf_append(&f->bytes, "PK\3\4", 4);
    torch_file_number(&f->bytes, 0, 22); /* torch writes the sizes behind the data; readers use the directory's */
    torch_file_number(&f->bytes, strlen(name), 2);
    torch_file_number(&f->bytes, 2, 2);
    proa_buf_str(&f->bytes, proa_str_c(name));
    proa_buf_append(&f->bytes, "FB", 2); /* padding, as torch aligns the data */
    proa_buf_append(&f->bytes, data, size);
}

static inline void torch_file_end(torch_file *f)
{
    size_t directory = f->bytes.len;
    for (int i = 0; i < f->count; i++) {
        uint64_t size = (uint64_t)f->entry[i].size + f->more;
        proa_buf_append(&f->bytes, "PK\1\2", 4);
        torch_file_number(&f->bytes, 0, 4);
        torch_file_number(&f->bytes, f->flags, 2);
        torch_file_number(&f->bytes, f->method, 2);
        torch_file_number(&f->bytes, 0, 8);
        torch_file_number(&f->bytes, size, 4);
        torch_file_number(&f->bytes, size, 4);
        torch_file_number(&f->bytes, strlen(f->entry[i].name), 2);
        torch_file_number(&f->bytes, 0, 12);
        torch_file_number(&f->bytes, f->entry[i].at, 4);
        proa_buf_str(&f->bytes, proa_str_c(f->entry[i].name));
    }
    size_t bytes = f->bytes.len - directory;
    proa_buf_append(&f->bytes, "PK\5\6", 4);
    torch_file_number(&f->bytes, 0, 4);
    torch_file_number(&f->bytes, (uint64_t)f->count, 2);
    torch_file_number(&f->bytes, (uint64_t)f->count, 2);
    torch_file_number(&f->bytes, bytes, 4);
    torch_file_number(&f->bytes, directory, 4);
    torch_file_number(&f->bytes, 0, 2);
}

#endif
