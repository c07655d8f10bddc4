/* SPDX-License-Identifier: Apache-2.0
 * Archives of strangers: nothing is written outside the folder, and no link in it leads outside. Input: lines "TYPE
 * NAME TARGET", of which a tar is made (TYPE as in tar; TARGET is a link's, or a file's content); without a digit at
 * its begin, the archive itself. */
#include "../unit/python/tar.h"
#include "base/status.h"
#include "fuzz.h"
#include "python/unpack.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES_MAX 32

static char top[64], env[80], outside[80];

static void end(void)
{
    proa_unpack_remove(top);
}

static void begin(void)
{
    if (!*top) {
        snprintf(top, sizeof top, "%s/proa-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        PROA_ASSERT(mkdtemp(top));
        snprintf(env, sizeof env, "%s/env", top);
        snprintf(outside, sizeof outside, "%s/outside", top);
        int fd = open(outside, O_WRONLY | O_CREAT, 0600);
        PROA_ASSERT(fd >= 0 && write(fd, "as it was", 9) == 9);
        close(fd);
        atexit(end);
    }
    PROA_ASSERT(mkdir(env, 0700) == 0);
}

static void write_tar(int fd, char *text)
{
    unsigned char block[512];
    char *line = strtok_r(text, "\n", &text);
    for (int i = 0; line && i < LINES_MAX; line = strtok_r(NULL, "\n", &text), i++) {
        tar_entry e = {.type = *line, .mode = 06777};
        char *rest = line;
        strsep(&rest, " ");
        e.name = rest ? strsep(&rest, " ") : "";
        e.text = rest ? rest : "";
        size_t bytes = e.type == '0' ? strlen(e.text) : 0;
        tar_head(block, &e, bytes);
        PROA_ASSERT(write(fd, block, 512) == 512);
        for (size_t at = 0; at < bytes; at += 512) {
            memset(block, 0, 512);
            memcpy(block, e.text + at, bytes - at < 512 ? bytes - at : 512);
            PROA_ASSERT(write(fd, block, 512) == 512);
        }
    }
    memset(block, 0, 512);
    PROA_ASSERT(write(fd, block, 512) == 512 && write(fd, block, 512) == 512);
}

static int archive_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    PROA_ASSERT(fd >= 0);
    if (size == 0 || *data < '0' || *data > '9') {
        PROA_ASSERT(write(fd, data, size) == (ssize_t)size);
        return fd;
    }
    char *text = malloc(size + 1);
    PROA_ASSERT(text);
    memcpy(text, data, size);
    text[size] = '\0';
    write_tar(fd, text);
    free(text);
    return fd;
}

static bool accepted;

static int look(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)kind, (void)walk;
    PROA_ASSERT(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    PROA_ASSERT(S_ISLNK(st->st_mode) || (st->st_mode & 06022) == 0);
    if (!accepted || !S_ISLNK(st->st_mode) || strncmp(path + strlen(env), "/bin/python", 11) == 0) return 0;
    char *real = realpath(path, NULL); /* NULL: it leads nowhere */
    PROA_ASSERT(!real || strncmp(real, env, strlen(env)) == 0);
    free(real);
    return 0;
}

static void check(void)
{
    char text[16] = "";
    int entries = 0, fd = open(outside, O_RDONLY);
    PROA_ASSERT(fd >= 0 && read(fd, text, sizeof text) == 9 && memcmp(text, "as it was", 9) == 0);
    close(fd);
    DIR *d = opendir(top);
    PROA_ASSERT(d);
    while (readdir(d)) entries++;
    closedir(d);
    PROA_ASSERT(entries == 4); /* ., .., env, outside */
    PROA_ASSERT(nftw(env, look, 16, FTW_PHYS) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const proa_unpack_limits limits = {64, 1 << 16};
    char path[64];
    proa_err err = {.status = PROA_OK};
    begin();
    int fd = archive_of(data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    accepted = proa_unpack(path, env, &limits, &err) == PROA_OK;
    PROA_ASSERT(accepted == (err.status == PROA_OK) && accepted == (*err.text == '\0'));
    check();
    close(fd);
    proa_unpack_remove(env);
    PROA_ASSERT(access(env, F_OK) != 0);
    return 0;
}
