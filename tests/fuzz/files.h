/* SPDX-License-Identifier: Apache-2.0
 * files.h - for fuzz targets: an input that is a folder of files. Include it once.
 *
 * The files follow one another, each after a line "@@ NAME". After "@@ NAME header" follows the header of a safetensors
 * file alone: its length is put before it, and the tensors are filled with small numbers, so that inputs stay short.
 * Only names of the target's list are written, so that an input cannot leave the folder; a name may have a folder of
 * its own ("1/model.json").
 * Owner: one folder, in memory if there is such a file system, removed at exit. */
#ifndef PROA_TESTS_FUZZ_FILES_H
#define PROA_TESTS_FUZZ_FILES_H

#include "base/file.h"
#include "base/limits.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MARK          "@@ "
#define FILES_TENSORS_BYTES 1200000 /* of a file whose header stands alone: what the largest seed needs */

typedef struct fuzz_files {
    const char *const *names; /* [count] that the target knows */
    size_t count;
} fuzz_files;

static char files_folder[64];

static inline void files_remove(void)
{
    proa_dir_remove(files_folder);
}

/* Makes the folder anew, so that nothing of the last input is left. */
static inline const char *files_begin(void)
{
    if (!files_folder[0]) {
        snprintf(files_folder, sizeof files_folder, "%s/proa-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        PROA_ASSERT(mkdtemp(files_folder));
        atexit(files_remove);
        return files_folder;
    }
    files_remove();
    PROA_ASSERT(mkdir(files_folder, 0700) == 0);
    return files_folder;
}

/* "folder/a/b", with the folder a. */
static inline FILE *files_open(const char *name)
{
    char path[PROA_PATH_MAX];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", files_folder, (int)(slash - name), name);
        mkdir(path, 0700); /* it may be there */
    }
    PROA_ASSERT(proa_path_join(path, files_folder, name, NULL) == PROA_OK);
    FILE *f = fopen(path, "w");
    PROA_ASSERT(f);
    return f;
}

/* Where the last tensor ends by the data_offsets of a header, at most FILES_TENSORS_BYTES. */
static inline size_t files_tensors_end(const char *header, size_t len)
{
    static const char key[] = "\"data_offsets\":[";
    unsigned long long last = 0;
    const char *end = header + len;
    for (const char *at = header; at < end && (at = memmem(at, (size_t)(end - at), key, sizeof key - 1));) {
        char numbers[48] = "";
        at += sizeof key - 1;
        size_t left = (size_t)(end - at), most = sizeof numbers - 1;
        memcpy(numbers, at, left < most ? left : most);
        const char *comma = strchr(numbers, ',');
        unsigned long long to = comma ? strtoull(comma + 1, NULL, 10) : 0;
        if (to > last && to <= FILES_TENSORS_BYTES) last = to;
    }
    return (size_t)last;
}

static inline void files_write_tensors(FILE *f, size_t len)
{
    static unsigned char bytes[FILES_TENSORS_BYTES]; /* 0x3c11: 1.004 as f16, 0.009 as bf16; 0x3c113c11: 0.009 as f32 */
    for (size_t i = bytes[0] ? sizeof bytes : 0; i < sizeof bytes; i += 2) memcpy(bytes + i, "\x11\x3c", 2);
    if (len) fwrite(bytes, 1, len, f);
}

static inline void files_write_one(const fuzz_files *files, proa_str line, proa_str text)
{
    uint64_t header = text.len;
    bool header_alone = proa_str_ends(line, proa_str_c(" header"));
    if (header_alone) line.len -= strlen(" header");
    for (size_t i = 0; i < files->count; i++) {
        if (!proa_str_is(line, files->names[i])) continue;
        FILE *f = files_open(files->names[i]);
        if (header_alone)
            fwrite(&header, sizeof header, 1, f); /* little endian, as all CPUs that we build for */
        if (text.len) fwrite(text.ptr, 1, text.len, f);
        if (header_alone) files_write_tensors(f, files_tensors_end(text.ptr, text.len));
        PROA_ASSERT(fclose(f) == 0);
        return;
    }
}

/* The folder with the files of an input. */
static inline const char *files_write(const fuzz_files *files, const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    const size_t mark = strlen(FILES_MARK);
    files_begin();
    while ((size_t)(end - at) > mark && memcmp(at, FILES_MARK, mark) == 0) {
        at += mark;
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        const char *next = memmem(line_end, (size_t)(end - line_end), "\n" FILES_MARK, mark + 1);
        const char *file_end = next ? next : end;
        proa_str text = {line_end + 1, file_end > line_end ? (size_t)(file_end - line_end - 1) : 0};
        files_write_one(files, (proa_str){at, (size_t)(line_end - at)}, text);
        at = next ? next + 1 : end;
    }
    return files_folder;
}

#endif
