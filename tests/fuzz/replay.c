/* SPDX-License-Identifier: Apache-2.0
 * replay.c - a main for a fuzz target without libFuzzer: feeds it the files and the folders' files named as arguments.
 * A folder without files is a failure: a corpus that was lost would otherwise pass. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

#define INPUT_BYTES_MAX (16 * PROA_MIB)

static bool replay_file(const char *path)
{
    proa_buf buf;
    proa_err err = {.status = PROA_OK};
    bool ok = proa_file_read(&buf, path, INPUT_BYTES_MAX, &err) == PROA_OK;
    if (ok) {
        /* A copy of exactly that many bytes, so that the address sanitiser sees a read beyond the end. */
        uint8_t *copy = proa_malloc(buf.len);
        if (buf.len) memcpy(copy, buf.ptr, buf.len);
        LLVMFuzzerTestOneInput(copy, buf.len);
        free(copy);
    } else fprintf(stderr, "%s\n", err.text);
    proa_buf_release(&buf);
    return ok;
}

static int replay_folder(const char *folder)
{
    int files = 0;
    char path[PROA_PATH_MAX];
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        if (proa_path_join(path, folder, entry->d_name, NULL) != PROA_OK || !replay_file(path)) break;
        files++;
    }
    closedir(dir);
    return files;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        int n = proa_dir_exists(argv[i]) ? replay_folder(argv[i]) : replay_file(argv[i]);
        if (n == 0) fprintf(stderr, "nothing to replay in '%s'\n", argv[i]);
        if (n == 0) return 1;
        files += n;
    }
    printf("%d inputs\n", files);
    return files ? 0 : 1;
}
