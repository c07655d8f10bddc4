/* SPDX-License-Identifier: Apache-2.0
 * files.c - finds a model's small file by name: in its folder, or among the texts that its checkpoint gives. */
#include "base/files.h"

#include "base/file.h"
#include <stdio.h>
#include <string.h>

proa_files proa_files_of(const char *dir)
{
    return (proa_files){.dir = dir};
}

static const proa_made_file *find_made(const proa_files *f, const char *name)
{
    for (int32_t i = 0; i < f->made_count; i++)
        if (strcmp(f->made[i].name, name) == 0) return &f->made[i];
    return NULL;
}

static bool on_disk(const proa_files *f, const char *name, char *path)
{
    return f->dir && proa_path_join(path, f->dir, name, NULL) == PROA_OK && proa_file_exists(path);
}

/* The made text that is read for this name; NULL if it is a file, or nothing. */
static const proa_made_file *choose_file(const proa_files *f, const char *name)
{
    char path[PROA_PATH_MAX];
    const proa_made_file *made = find_made(f, name);
    return made && (f->made_first || !on_disk(f, name, path)) ? made : NULL;
}

bool proa_files_has(const proa_files *f, const char *name)
{
    char path[PROA_PATH_MAX];
    return find_made(f, name) || on_disk(f, name, path);
}

const char *proa_files_name(char *out, const proa_files *f, const char *name)
{
    const char *dir = f->dir ? f->dir : "";
    if (choose_file(f, name))
        snprintf(out, PROA_PATH_MAX, "%.*s: %s", PROA_PATH_MAX - 128, f->what ? f->what : dir, name);
    else snprintf(out, PROA_PATH_MAX, "%.*s/%s", PROA_PATH_MAX - 128, dir, name);
    return out;
}

static proa_status read_made(proa_buf *buf, const proa_made_file *made, int64_t bytes_max, const char *name,
                             proa_err *err)
{
    proa_buf_init(buf, (size_t)bytes_max);
    if (made->write) PROA_TRY(made->write(made->arg, buf, err));
    else proa_buf_str(buf, made->text);
    if (buf->full) return PROA_FAIL(err, LIMIT, "'%s' is longer than %lld bytes", name, (long long)bytes_max);
    return PROA_OK;
}

proa_status proa_files_read(proa_buf *buf, const proa_files *f, const char *name, int64_t bytes_max, proa_err *err)
{
    char path[PROA_PATH_MAX];
    const proa_made_file *made = choose_file(f, name);
    if (made) return read_made(buf, made, bytes_max, proa_files_name(path, f, name), err);
    proa_buf_init(buf, (size_t)bytes_max);
    if (!f->dir) return PROA_FAIL(err, NOT_FOUND, "%s has no %s", f->what ? f->what : "the model", name);
    PROA_TRY(proa_path_join(path, f->dir, name, err));
    return proa_file_read(buf, path, bytes_max, err);
}

proa_status proa_files_json(proa_json **out, const proa_files *f, const char *name, int64_t bytes_max,
                            proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf text;
    *out = NULL;
    proa_status status = proa_files_read(&text, f, name, bytes_max, err);
    if (status == PROA_OK)
        status = proa_json_parse_python(out, proa_buf_view(&text), proa_files_name(path, f, name), err);
    proa_buf_release(&text);
    return status;
}
