/* SPDX-License-Identifier: Apache-2.0
 * page_folder.c - a folder of pages: its thread, what is in it, and its bound. */
#include "kv/page_folder.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MODEL_DIGITS = 16,                                              /* of a name: the fingerprint, ... */
    KEY_DIGITS = 2 * PROA_SHA256_BYTES,                             /* ... and the key */
    NAME_BYTES = MODEL_DIGITS + 1 + KEY_DIGITS + (int)sizeof ".kv", /* with the end */
    LOOK_MS = 10000, /* after so long the folder is looked at again, if it has changed */
    RUBBISH_S = 600, /* a file that was never renamed is left by a process that died */
    KEPT_PART = 10   /* a folder that is too full loses a tenth of its bound more */
};

typedef struct job_list {
    proa_page_job *first, **last;
} job_list;

struct proa_page_folder {
    proa_page_format format;
    char path[PROA_PATH_MAX];
    char model[MODEL_DIGITS + 1]; /* how names of this model begin */
    int folder;                   /* descriptor */
    int64_t bytes_max;
    pthread_t thread;
    bool runs;
    /* the thread's */
    int64_t bytes;             /* of all files, as far as it knows */
    int64_t looked_ns;         /* when it looked at the folder */
    struct timespec looked_at; /* the folder's time of change then */
    bool warned;               /* that writing fails */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    job_list reads, writes, finished;
    proa_page_key *keys; /* [pages] of this model's files, sorted */
    int64_t pages, room;
    bool stop;
};

/* ---- lists ---- */

static void push_job(job_list *list, proa_page_job *job)
{
    if (!list->first) list->last = &list->first;
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static proa_page_job *pop_job(job_list *list)
{
    proa_page_job *job = list->first;
    if (job) list->first = job->next;
    return job;
}

/* ---- names ---- */

static void put_digits(char *out, const unsigned char *bytes, int digits)
{
    for (int i = 0; i < digits; i++) out[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    out[digits] = '\0';
}

static void name_of_file(char out[NAME_BYTES], const proa_page_folder *f, const proa_page_key *key)
{
    char digits[KEY_DIGITS + 1];
    put_digits(digits, key->bytes, KEY_DIGITS);
    snprintf(out, NAME_BYTES, "%s-%s.kv", f->model, digits);
}

static bool is_page_name(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    return strlen(name) == NAME_BYTES - 1 && strspn(name, hex) == MODEL_DIGITS && name[MODEL_DIGITS] == '-' &&
           strspn(name + MODEL_DIGITS + 1, hex) == KEY_DIGITS && strcmp(name + NAME_BYTES - 4, ".kv") == 0;
}

static bool is_temporary_name(const char *name)
{
    return strncmp(name, ".proa-", 6) == 0 && strlen(name) > 10 && strcmp(name + strlen(name) - 4, ".tmp") == 0;
}

static unsigned char digit_value(char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static proa_page_key key_of_name(const char *name)
{
    const char *digits = name + MODEL_DIGITS + 1;
    proa_page_key key;
    for (int i = 0; i < PROA_SHA256_BYTES; i++)
        key.bytes[i] = (unsigned char)(digit_value(digits[2 * i]) << 4 | digit_value(digits[2 * i + 1]));
    return key;
}

/* ---- which pages there are; under the lock ---- */

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(proa_page_key));
}

/* Where the key is, or would be. */
static int64_t place_of(const proa_page_folder *f, const proa_page_key *key)
{
    int64_t low = 0, high = f->pages;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (compare_keys(&f->keys[middle], key) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool has_key(const proa_page_folder *f, const proa_page_key *key)
{
    int64_t at = place_of(f, key);
    return at < f->pages && proa_page_key_equal(&f->keys[at], key);
}

static void add_key(proa_page_folder *f, const proa_page_key *key)
{
    if (has_key(f, key)) return;
    if (f->pages == f->room) {
        f->room = 2 * f->room + 64;
        f->keys = proa_realloc(f->keys, (size_t)f->room * sizeof *f->keys);
    }
    int64_t at = place_of(f, key);
    memmove(f->keys + at + 1, f->keys + at, (size_t)(f->pages++ - at) * sizeof *f->keys);
    f->keys[at] = *key;
}

static void remove_key(proa_page_folder *f, const proa_page_key *key)
{
    if (!has_key(f, key)) return;
    int64_t at = place_of(f, key);
    memmove(f->keys + at, f->keys + at + 1, (size_t)(--f->pages - at) * sizeof *f->keys);
}

/* ---- what is in the folder ---- */

typedef struct file_entry {
    struct timespec used;
    int64_t bytes;
    char name[NAME_BYTES];
} file_entry;

typedef struct file_list {
    file_entry *at; /* [count] */
    int64_t count, room, bytes;
} file_list;

static void add_file(file_list *list, const char *name, const struct stat *s)
{
    if (list->count == list->room) {
        list->room = 2 * list->room + 64;
        list->at = proa_realloc(list->at, (size_t)list->room * sizeof *list->at);
    }
    file_entry *e = &list->at[list->count++];
    *e = (file_entry){.used = s->st_mtim, .bytes = s->st_size};
    snprintf(e->name, sizeof e->name, "%s", name);
    list->bytes += s->st_size;
}

/* Files of pages, of any model. What is neither that nor rubbish of ours stays untouched. */
static void list_files(const proa_page_folder *f, file_list *list)
{
    struct dirent *entry;
    struct stat s;
    int copy = openat(f->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    while (dir && list->count < PROA_PREFIX_FILES_MAX && (entry = readdir(dir))) {
        bool temporary = is_temporary_name(entry->d_name);
        if (!temporary && !is_page_name(entry->d_name)) continue;
        if (fstatat(f->folder, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode)) continue;
        if (!temporary) add_file(list, entry->d_name, &s);
        else if (time(NULL) - s.st_mtim.tv_sec > RUBBISH_S) unlinkat(f->folder, entry->d_name, 0);
    }
    if (dir) closedir(dir);
    else if (copy >= 0) close(copy);
}

static int compare_use(const void *a, const void *b)
{
    const struct timespec *x = &((const file_entry *)a)->used, *y = &((const file_entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Deletes the files that were used least recently until there is room for `more` bytes, and then for a tenth of the
 * bound, so that this is rare. */
static void make_room(const proa_page_folder *f, file_list *list, int64_t more)
{
    if (list->bytes + more <= f->bytes_max) return;
    int64_t keep = proa_max64(f->bytes_max - f->bytes_max / KEPT_PART - more, 0), gone = 0;
    qsort(list->at, (size_t)list->count, sizeof *list->at, compare_use);
    while (gone < list->count && list->bytes > keep) {
        unlinkat(f->folder, list->at[gone].name, 0);
        list->bytes -= list->at[gone++].bytes;
    }
    list->count -= gone;
    memmove(list->at, list->at + gone, (size_t)list->count * sizeof *list->at);
}

/* Takes stock of the folder, which other processes change, too. more: bytes that are about to be written. */
static void look_at_folder(proa_page_folder *f, int64_t more)
{
    file_list list = {.count = 0};
    struct stat s;
    if (fstat(f->folder, &s) == 0) f->looked_at = s.st_mtim;
    f->looked_ns = proa_clock_ns();
    list_files(f, &list);
    make_room(f, &list, more);
    f->bytes = list.bytes;
    int64_t pages = 0;
    proa_page_key *keys = proa_malloc((size_t)(list.count + 1) * sizeof *keys);
    for (int64_t i = 0; i < list.count; i++)
        if (strncmp(list.at[i].name, f->model, MODEL_DIGITS) == 0)
            keys[pages++] = key_of_name(list.at[i].name);
    qsort(keys, (size_t)pages, sizeof *keys, compare_keys);
    free(list.at);
    pthread_mutex_lock(&f->lock);
    free(f->keys);
    f->keys = keys, f->pages = pages, f->room = pages + 1;
    pthread_mutex_unlock(&f->lock);
}

static void look_if_changed(proa_page_folder *f)
{
    struct stat s;
    if (proa_clock_ns() - f->looked_ns < (int64_t)LOOK_MS * 1000000) return;
    f->looked_ns = proa_clock_ns();
    if (fstat(f->folder, &s) != 0) return;
    if (s.st_mtim.tv_sec != f->looked_at.tv_sec || s.st_mtim.tv_nsec != f->looked_at.tv_nsec)
        look_at_folder(f, 0);
}

/* ---- jobs ---- */

/* That the folder cannot be written to is logged once; later files may succeed. */
static proa_status write_page(proa_page_folder *f, const proa_page_job *job, const char *name)
{
    int64_t bytes = PROA_PAGE_HEAD_BYTES + f->format.image_bytes;
    proa_err err = {.status = PROA_OK};
    if (f->bytes + bytes > f->bytes_max) look_at_folder(f, bytes);
    proa_status status = proa_page_file_write(f->folder, name, &f->format, &job->name, job->image, &err);
    if (status == PROA_OK) f->bytes += bytes;
    else if (!f->warned) PROA_LOG(WARNING, "prefix cache: '%s/%s' %s", f->path, name, err.text);
    f->warned = status != PROA_OK;
    return status;
}

static proa_status read_page(const proa_page_folder *f, const proa_page_job *job, const char *name)
{
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_page_file_read(f->folder, name, &f->format, &job->name, job->image, &err);
    if (status == PROA_OK || status == PROA_NOT_FOUND) return status;
    PROA_LOG(WARNING, "prefix cache: '%s/%s' is not used: %s", f->path, name, err.text);
    unlinkat(f->folder, name, 0);
    return status;
}

static void run_job(proa_page_folder *f, proa_page_job *job)
{
    char name[NAME_BYTES];
    name_of_file(name, f, &job->name.key);
    job->status = job->writes ? write_page(f, job, name) : read_page(f, job, name);
    pthread_mutex_lock(&f->lock);
    if (job->status != PROA_OK) remove_key(f, &job->name.key);
    else add_key(f, &job->name.key);
    push_job(&f->finished, job);
    pthread_cond_signal(&f->done);
    pthread_mutex_unlock(&f->lock);
}

static void *folder_thread(void *arg)
{
    proa_page_folder *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        proa_page_job *job = pop_job(&f->reads);
        if (!job) job = pop_job(&f->writes);
        if (!job && f->stop) break;
        if (!job) proa_cond_wait_ms(&f->work, &f->lock, LOOK_MS);
        pthread_mutex_unlock(&f->lock);
        if (job) run_job(f, job);
        look_if_changed(f);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

void proa_page_folder_submit(proa_page_folder *f, proa_page_job *job)
{
    pthread_mutex_lock(&f->lock);
    push_job(job->writes ? &f->writes : &f->reads, job);
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
}

proa_page_job *proa_page_folder_finished(proa_page_folder *f)
{
    pthread_mutex_lock(&f->lock);
    proa_page_job *job = pop_job(&f->finished);
    pthread_mutex_unlock(&f->lock);
    return job;
}

void proa_page_folder_wait(proa_page_folder *f, int64_t ms)
{
    pthread_mutex_lock(&f->lock);
    if (!f->finished.first) proa_cond_wait_ms(&f->done, &f->lock, ms);
    pthread_mutex_unlock(&f->lock);
}

bool proa_page_folder_has(proa_page_folder *f, const proa_page_key *key)
{
    pthread_mutex_lock(&f->lock);
    bool has = has_key(f, key);
    pthread_mutex_unlock(&f->lock);
    return has;
}

int64_t proa_page_folder_pages(proa_page_folder *f)
{
    pthread_mutex_lock(&f->lock);
    int64_t pages = f->pages;
    pthread_mutex_unlock(&f->lock);
    return pages;
}

/* ---- life ---- */

/* What others could write to would be read as if it were ours. */
static proa_status open_private(proa_page_folder *f, proa_err *err)
{
    struct stat s;
    if (mkdir(f->path, 0700) != 0 && errno != EEXIST)
        return PROA_FAIL(err, IO, "--prefix-dir '%s': cannot be made: %s", f->path, strerror(errno));
    f->folder = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0 || fstat(f->folder, &s) != 0)
        return PROA_FAIL(err, IO, "--prefix-dir '%s': %s", f->path, strerror(errno));
    if (s.st_uid != geteuid())
        return PROA_FAIL(err, INVALID, "--prefix-dir '%s' belongs to another user", f->path);
    if (s.st_mode & (S_IWGRP | S_IWOTH))
        return PROA_FAIL(err, INVALID, "--prefix-dir '%s' can be written to by other users (chmod go-w)",
                         f->path);
    if (faccessat(f->folder, ".", W_OK, 0) != 0)
        return PROA_FAIL(err, IO, "--prefix-dir '%s' cannot be written to: %s", f->path, strerror(errno));
    return PROA_OK;
}

static proa_status check_room(const proa_page_folder *f, proa_err *err)
{
    int64_t file = PROA_PAGE_HEAD_BYTES + f->format.image_bytes;
    if (f->bytes_max >= file) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option 'prefix-dir-size' is %lld bytes, one page of this model has %lld",
                     (long long)f->bytes_max, (long long)file);
}

proa_status proa_page_folder_open(proa_page_folder **out, const char *path, const proa_page_format *format,
                                  int64_t bytes_max, proa_err *err)
{
    *out = NULL;
    if (!*path || strlen(path) >= PROA_PATH_MAX)
        return PROA_FAIL(err, INVALID, "option 'prefix-dir' has %zu bytes, must be 1 to %d", strlen(path),
                         PROA_PATH_MAX - 1);
    proa_page_folder *f = proa_calloc(1, sizeof *f);
    *f = (proa_page_folder){.format = *format, .bytes_max = bytes_max, .folder = -1};
    snprintf(f->path, sizeof f->path, "%s", path);
    put_digits(f->model, format->fingerprint, MODEL_DIGITS);
    pthread_mutex_init(&f->lock, NULL);
    proa_cond_init(&f->work);
    proa_cond_init(&f->done);
    proa_status status = check_room(f, err);
    if (status == PROA_OK) status = open_private(f, err);
    if (status == PROA_OK) {
        look_at_folder(f, 0);
        f->runs = pthread_create(&f->thread, NULL, folder_thread, f) == 0;
        if (!f->runs) status = PROA_FAIL(err, UNAVAILABLE, "cannot start the prefix cache's thread");
    }
    if (status != PROA_OK) return proa_page_folder_close(f), status;
    *out = f;
    return PROA_OK;
}

void proa_page_folder_close(proa_page_folder *f)
{
    if (!f) return;
    if (f->runs) {
        pthread_mutex_lock(&f->lock);
        f->stop = true;
        pthread_cond_signal(&f->work);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    if (f->folder >= 0) close(f->folder);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->done);
    pthread_mutex_destroy(&f->lock);
    free(f->keys);
    free(f);
}
