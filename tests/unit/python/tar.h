/* SPDX-License-Identifier: Apache-2.0
 * tar.h - writes small archives, well meant and hostile, for the tests of environments. */
#ifndef TESTS_TAR_H
#define TESTS_TAR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct tar_entry {
    const char *name;
    char type;        /* '0' file, '1' hard link, '2' symbolic link, '3' device, '5' folder, '6' fifo */
    unsigned mode;    /* 0: 0644 */
    const char *text; /* of a file its content, of a link its target */
} tar_entry;

static inline void tar_head(unsigned char head[512], const tar_entry *e, size_t bytes)
{
    char *text = (char *)head;
    memset(head, 0, 512);
    snprintf(text, 100, "%s", e->name);
    snprintf(text + 100, 8, "%07o", e->mode ? e->mode : 0644);
    snprintf(text + 108, 8, "%07o", 0);
    snprintf(text + 116, 8, "%07o", 0);
    snprintf(text + 124, 12, "%011zo", bytes);
    snprintf(text + 136, 12, "%011o", 1000000000u); /* 2001-09-09 */
    text[156] = e->type;
    if (e->type == '1' || e->type == '2') snprintf(text + 157, 100, "%s", e->text);
    memcpy(text + 257, "ustar\00000", 8);
    memset(head + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += head[i];
    snprintf(text + 148, 8, "%06o", sum);
}

/* Writes the entries, up to one without a name, as `path`: gzip where `mode` is "wb", plain where it is "wbT". */
static inline void tar_write(const char *path, const tar_entry *entries, const char *mode)
{
    unsigned char block[512];
    gzFile out = gzopen(path, mode);
    if (!out) abort();
    for (const tar_entry *e = entries; e->name; e++) {
        size_t bytes = e->type == '0' && e->text ? strlen(e->text) : 0;
        tar_head(block, e, bytes);
        gzwrite(out, block, 512);
        for (size_t at = 0; at < bytes; at += 512) {
            memset(block, 0, 512);
            memcpy(block, e->text + at, bytes - at < 512 ? bytes - at : 512);
            gzwrite(out, block, 512);
        }
    }
    memset(block, 0, 512);
    gzwrite(out, block, 512);
    gzwrite(out, block, 512);
    if (gzclose(out) != Z_OK) abort();
}

#endif
