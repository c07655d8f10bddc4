/* SPDX-License-Identifier: Apache-2.0
 * tune.c - reads and writes the file of timed algorithms. */
#include "kernels/tune.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/limits.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char first_line[] = "proa tune 1";

void proa_tune_init(proa_tune *t, const char *identity)
{
    size_t n = 0;
    *t = (proa_tune){.count = 0};
    for (const char *c = identity; *c && n < sizeof t->identity - 1; c++)
        if ((unsigned char)*c >= ' ' && *c != 127) t->identity[n++] = *c;
}

void proa_tune_release(proa_tune *t)
{
    free(t->entry);
    t->entry = NULL;
    t->count = t->cap = 0;
}

int64_t proa_tune_bucket(int64_t rows)
{
    int64_t bucket = 1;
    while (bucket < rows && bucket < (int64_t)1 << 40) bucket *= 2;
    return bucket >= 4 && rows <= bucket / 4 * 3 ? bucket / 4 * 3 : bucket;
}

static proa_tune_entry *find_entry(const proa_tune *t, const int64_t key[PROA_TUNE_KEYS])
{
    for (int64_t i = 0; i < t->count; i++)
        if (memcmp(t->entry[i].key, key, sizeof t->entry[i].key) == 0) return &t->entry[i];
    return NULL;
}

const proa_tune_entry *proa_tune_find(const proa_tune *t, const int64_t key[PROA_TUNE_KEYS])
{
    return find_entry(t, key);
}

void proa_tune_put(proa_tune *t, const proa_tune_entry *entry)
{
    proa_tune_entry *known = find_entry(t, entry->key);
    if (known) {
        *known = *entry;
        return;
    }
    if (t->count == PROA_TUNE_ENTRIES_MAX) return;
    if (t->count == t->cap)
        t->entry = proa_realloc(t->entry, (size_t)(t->cap = t->cap ? 2 * t->cap : 64) * sizeof *t->entry);
    t->entry[t->count++] = *entry;
}

/* ---- its path ---- */

static bool base_folder(char *out, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    /* the specification: a relative path is to be ignored */
    if (cache && cache[0] == '/') n = snprintf(out, size, "%s/proa", cache);
    else if (home && home[0] == '/') n = snprintf(out, size, "%s/.cache/proa", home);
    return n > 0 && (size_t)n < size;
}

proa_status proa_tune_path(char *out, const proa_tune *t, const char *device, proa_err *err)
{
    char folder[PROA_PATH_MAX], name[128], word[64];
    size_t n = 0;
    if (!base_folder(folder, sizeof folder))
        return PROA_FAIL(err, NOT_FOUND,
                         "no folder for what was timed: neither XDG_CACHE_HOME nor HOME names one");
    for (const char *c = device; *c && n < sizeof word - 1; c++)
        word[n++] = isalnum((unsigned char)*c) ? *c : '-';
    word[n] = 0;
    snprintf(name, sizeof name, "tune-%s-%016llx.txt", word,
             (unsigned long long)proa_str_hash(proa_str_c(t->identity)));
    return proa_path_join(out, folder, name, err);
}

/* ---- reading ---- */

typedef struct reader {
    const char *at, *end;
    int64_t line;
    proa_err *err;
} reader;

static proa_str next_line(reader *r)
{
    const char *begin = r->at, *stop = memchr(begin, '\n', (size_t)(r->end - begin));
    r->line++;
    r->at = stop ? stop + 1 : r->end;
    return (proa_str){begin, (size_t)((stop ? stop : r->end) - begin)};
}

/* The next word between single spaces, as a C string; false at the end of the line or when it is too long. */
static bool next_word(proa_str *line, char word[32])
{
    size_t n = 0;
    while (n < line->len && line->ptr[n] != ' ') n++;
    if (n == 0 || n > 31) return false;
    memcpy(word, line->ptr, n);
    word[n] = 0;
    size_t skip = n < line->len ? n + 1 : n;
    line->ptr += skip, line->len -= skip;
    return true;
}

static bool read_integer(proa_str *line, int64_t *out)
{
    char word[32];
    if (!next_word(line, word) || strspn(word, "0123456789") != strlen(word) || strlen(word) > 15)
        return false;
    *out = strtoll(word, NULL, 10);
    return true;
}

static bool read_hex(proa_str *line, uint64_t *out)
{
    char word[32];
    if (!next_word(line, word) || strlen(word) != 16 || strspn(word, "0123456789abcdef") != 16) return false;
    *out = strtoull(word, NULL, 16);
    return true;
}

static bool read_time(proa_str *line, float *out)
{
    char word[32];
    if (!next_word(line, word) || strspn(word, "0123456789.") != strlen(word)) return false;
    char *end;
    *out = strtof(word, &end);
    return !*end && *out > 0 && *out < 1e9F;
}

static const char *read_entry(proa_str line, proa_tune_entry *e)
{
    for (int i = 0; i < PROA_TUNE_KEYS; i++)
        if (!read_integer(&line, &e->key[i])) return "a product is 12 whole numbers";
    if (e->key[0] < 1 || e->key[0] != proa_tune_bucket(e->key[0])) return "its rows are no bucket";
    for (int i = 0; i < PROA_TUNE_WORDS; i++)
        if (!read_hex(&line, &e->algorithm[i])) return "an algorithm is 8 words of 16 hexadecimal digits";
    if (!read_time(&line, &e->us) || !read_time(&line, &e->first_us)) return "two times above 0 end the line";
    return line.len ? "there is more after the two times" : NULL;
}

static proa_status read_entries(reader *r, proa_tune *out)
{
    while (r->at < r->end) {
        proa_tune_entry e;
        const char *wrong = read_entry(next_line(r), &e);
        if (!wrong && out->count == PROA_TUNE_ENTRIES_MAX) wrong = "there are too many";
        if (!wrong && find_entry(out, e.key)) wrong = "this product was there before";
        if (wrong) return PROA_FAIL(r->err, CORRUPT, "line %lld: %s", (long long)r->line, wrong);
        proa_tune_put(out, &e);
    }
    return PROA_OK;
}

proa_status proa_tune_parse(proa_tune *t, proa_str text, proa_err *err)
{
    reader r = {.at = text.ptr, .end = text.ptr + text.len, .err = err};
    proa_tune fresh = {.count = 0};
    if (!proa_str_is(next_line(&r), first_line))
        return PROA_FAIL(err, CORRUPT, "line 1 is not '%s'", first_line);
    if (!proa_str_is(next_line(&r), t->identity))
        return PROA_FAIL(err, INVALID, "line 2: it was timed on something else than '%s'", t->identity);
    proa_status status = read_entries(&r, &fresh);
    for (int64_t i = 0; i < fresh.count && status == PROA_OK; i++)
        if (!find_entry(t, fresh.entry[i].key)) proa_tune_put(t, &fresh.entry[i]);
    proa_tune_release(&fresh);
    return status;
}

proa_status proa_tune_read(proa_tune *t, const char *path, proa_err *err)
{
    proa_buf text;
    proa_status status = proa_file_read(&text, path, PROA_TUNE_BYTES_MAX, err);
    if (status == PROA_OK) {
        status = proa_tune_parse(t, proa_buf_view(&text), err);
        if (status != PROA_OK) proa_err_prefix(err, "%s", path);
    }
    proa_buf_release(&text);
    return status;
}

proa_status proa_tune_look(proa_tune *t, const char *path, proa_err *err)
{
    proa_buf text;
    char identity[PROA_TUNE_IDENTITY_MAX];
    proa_tune_init(t, "");
    proa_status status = proa_file_read(&text, path, PROA_TUNE_BYTES_MAX, err);
    if (status == PROA_OK) {
        reader r = {.at = text.ptr, .end = text.ptr + text.len};
        next_line(&r);
        proa_str second = next_line(&r);
        snprintf(identity, sizeof identity, "%.*s", second.len < 500 ? (int)second.len : 500, second.ptr);
        proa_tune_init(t, identity);
        status = proa_tune_parse(t, proa_buf_view(&text), err);
        if (status != PROA_OK) proa_err_prefix(err, "%s", path);
    }
    proa_buf_release(&text);
    return status;
}

/* ---- writing ---- */

bool proa_tune_print(proa_buf *out, const proa_tune *t)
{
    proa_buf_printf(out, "%s\n%s\n", first_line, t->identity);
    for (int64_t i = 0; i < t->count; i++) {
        const proa_tune_entry *e = &t->entry[i];
        for (int k = 0; k < PROA_TUNE_KEYS; k++) proa_buf_printf(out, "%lld ", (long long)e->key[k]);
        for (int k = 0; k < PROA_TUNE_WORDS; k++)
            proa_buf_printf(out, "%016llx ", (unsigned long long)e->algorithm[k]);
        proa_buf_printf(out, "%.3f %.3f\n", (double)fmaxf(e->us, 0.001f), (double)fmaxf(e->first_us, 0.001f));
    }
    return !out->full;
}

/* Every folder on the way that is missing. */
static void make_folders(const char *path)
{
    char part[PROA_PATH_MAX];
    for (const char *c = strchr(path + 1, '/'); c; c = strchr(c + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(c - path), path);
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return; /* opening the file says why */
    }
}

static proa_status write_all(int fd, proa_str text, const char *path, proa_err *err)
{
    while (text.len) {
        ssize_t n = write(fd, text.ptr, text.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
        text.ptr += n, text.len -= (size_t)n;
    }
    return PROA_OK;
}

static proa_status write_temporary(const char *path, proa_str text, proa_err *err)
{
    char temporary[PROA_PATH_MAX + 32];
    snprintf(temporary, sizeof temporary, "%s.%lld", path, (long long)getpid());
    make_folders(path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return PROA_FAIL(err, IO, "cannot write '%s': %s", temporary, strerror(errno));
    proa_status status = write_all(fd, text, temporary, err);
    if (close(fd) != 0 && status == PROA_OK)
        status = PROA_FAIL(err, IO, "cannot write '%s': %s", temporary, strerror(errno));
    if (status == PROA_OK && rename(temporary, path) != 0)
        status = PROA_FAIL(err, IO, "cannot write '%s': %s", path, strerror(errno));
    if (status != PROA_OK) unlink(temporary);
    return status;
}

proa_status proa_tune_write(const proa_tune *t, const char *path, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_TUNE_BYTES_MAX);
    proa_status status = proa_tune_print(&text, t) ? write_temporary(path, proa_buf_view(&text), err)
                                                   : PROA_FAIL(err, LIMIT, "'%s' would be too large", path);
    proa_buf_release(&text);
    return status;
}
