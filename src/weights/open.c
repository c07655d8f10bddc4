/* SPDX-License-Identifier: Apache-2.0
 * open.c - opens a checkpoint: finds the files of a folder by the table of its forms, reads them, indexes the tensors,
 * and joins those of quantised weights. */
#include "weights/weights.h"

#include "base/checked.h"
#include "weights/packed.h"
#include "weights/parts.h"
#include <dirent.h>
#include <stdlib.h>

/* ---- the forms of a folder ---- */

static proa_status read_one(proa_weights *w, const char *dir, const char *name, proa_err *err)
{
    char path[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(path, dir, name, err));
    return proa_weights_read_file(w, path, err);
}

/* "NAME-00002-of-00003.gguf" is part 2 of 3; other names are part 1 of 1. Returns the number of parts. */
static int part_of(proa_str name, int *part)
{
    const char pattern[] = "-00001-of-00003";
    size_t n = sizeof pattern - 1, ending = sizeof ".gguf" - 1;
    *part = 1;
    if (name.len < n + ending) return 1;
    const char *at = name.ptr + name.len - ending - n;
    for (size_t i = 0; i < n; i++) {
        bool digit = at[i] >= '0' && at[i] <= '9';
        if (pattern[i] >= '0' && pattern[i] <= '9' ? !digit : at[i] != pattern[i]) return 1;
    }
    *part = (int)strtol(at + 1, NULL, 10);
    return (int)strtol(at + n - 5, NULL, 10);
}

/* The packed part of w->rank, or any part of a folder for fewer ranks. The name is that of the first of several:
 * "model-00001-of-00002.proa". */
static proa_status read_packed_part(proa_weights *w, const char *dir, const char *name, proa_err *err)
{
    char part[PROA_PATH_MAX];
    int first, count = part_of(proa_str_c(name), &first);
    snprintf(part, sizeof part, "%s", name);
    if (count > 1) snprintf(part, sizeof part, PROA_PACKED_PART, w->rank % count + 1, count);
    return read_one(w, dir, part, err);
}

/* A form is found by the name of a file, or by an ending that one file of the folder has: "*.pt". */
typedef struct folder_form {
    const char *pattern;
    proa_status (*read)(proa_weights *w, const char *dir, const char *name, proa_err *err);
} folder_form;

/* In order of preference; transformers, too, prefers safetensors, and a single file to an index. */
static const folder_form folder_forms[] = {
    {"model.safetensors", read_one},
    {"model.safetensors.index.json", proa_index_read},
    {"pytorch_model.bin", read_one},
    {"pytorch_model.bin.index.json", proa_index_read},
    {PROA_PACKED_NAME, read_one},
    {"*.proa", read_packed_part},
    {"*.gguf", read_one},
    {"*.pt", read_one}, /* OpenNMT-py */
    {"config.ini", proa_ft_read},
};

/* The reader of the first file finds the others. */
static bool is_later_part(proa_str name)
{
    int part;
    bool split = proa_str_ends(name, proa_str_c(".gguf")) || proa_str_ends(name, proa_str_c(".proa"));
    return split && part_of(name, &part) >= 1 && part != 1;
}

/* The file of the folder that has this ending: the first by name. Returns how many there are. */
static int find_ending(char name[PROA_PATH_MAX], const char *folder, proa_str ending)
{
    int found = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        proa_str file = proa_str_c(e->d_name);
        if (!proa_str_ends(file, ending) || is_later_part(file)) continue;
        if (found++ == 0 || strcmp(e->d_name, name) < 0) snprintf(name, PROA_PATH_MAX, "%s", e->d_name);
    }
    if (dir) closedir(dir);
    return found;
}

/* The number of files in dir that fit the form; name: the first of them. */
static int find_form(char name[PROA_PATH_MAX], const char *dir, const folder_form *form)
{
    char path[PROA_PATH_MAX];
    if (form->pattern[0] == '*') return find_ending(name, dir, proa_str_c(form->pattern + 1));
    snprintf(name, PROA_PATH_MAX, "%s", form->pattern);
    return proa_path_join(path, dir, name, NULL) == PROA_OK && proa_file_exists(path);
}

int32_t proa_weights_ranks(const char *dir)
{
    char name[PROA_PATH_MAX];
    int part;
    for (size_t i = 0; i < PROA_COUNT(folder_forms); i++)
        if (find_form(name, dir, &folder_forms[i]))
            return folder_forms[i].read == read_packed_part ? part_of(proa_str_c(name), &part) : 1;
    return 1;
}

bool proa_weights_is_ft(const char *dir)
{
    char name[PROA_PATH_MAX];
    for (size_t i = 0; i < PROA_COUNT(folder_forms); i++)
        if (find_form(name, dir, &folder_forms[i])) return folder_forms[i].read == proa_ft_read;
    return false;
}

bool proa_weights_in_folder(const char *dir)
{
    char name[PROA_PATH_MAX];
    for (size_t i = 0; i < PROA_COUNT(folder_forms); i++)
        if (find_form(name, dir, &folder_forms[i])) return true;
    return false;
}

/* In the first of the known forms that the folder has. */
static proa_status read_folder(proa_weights *w, const char *dir, proa_err *err)
{
    char name[PROA_PATH_MAX], known[256] = "";
    for (size_t i = 0; i < PROA_COUNT(folder_forms); i++) {
        const folder_form *form = &folder_forms[i];
        int found = find_form(name, dir, form);
        if (found == 1) return form->read(w, dir, name, err);
        if (found)
            return PROA_FAIL(err, INVALID, "'%s' has %d files %s: give the path of one", dir, found,
                             form->pattern);
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", form->pattern);
    }
    return PROA_FAIL(err, NOT_FOUND, "'%s' has no weights: none of %s", dir, known);
}

/* ---- opening ---- */

/* All files are read: sorts the rows, indexes them, and joins those of one quantised weight. */
static proa_status finish_open(proa_weights *w, proa_err *err)
{
    bool joined;
    proa_weights_index(w);
    PROA_TRY(proa_quantized_join(w, &joined, err));
    if (joined) proa_weights_index(w);
    return PROA_OK;
}

/* Hands w out, or closes it. */
static proa_status deliver_weights(proa_weights **out, proa_weights *w, proa_status status, proa_err *err)
{
    *out = NULL;
    if (status == PROA_OK) status = finish_open(w, err);
    if (status != PROA_OK) {
        proa_weights_close(w);
        return status;
    }
    *out = w;
    return PROA_OK;
}

/* The folder of a file; "." if its path names none. */
static const char *folder_of(proa_weights *w, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return proa_arena_strdup(&w->arena, (proa_str){path, (size_t)proa_max64(slash - path, 1)});
}

proa_status proa_weights_open(proa_weights **out, const char *path, proa_err *err)
{
    return proa_weights_open_rank(out, path, 0, err);
}

proa_status proa_weights_open_rank(proa_weights **out, const char *path, int32_t rank, proa_err *err)
{
    proa_weights *w = proa_weights_new();
    w->rank = rank;
    bool folder = proa_dir_exists(path);
    proa_status status = folder ? read_folder(w, path, err) : proa_weights_read_file(w, path, err);
    w->files_by_name.what = proa_arena_strdup(&w->arena, proa_str_c(path));
    w->files_by_name.made_first = !folder;
    if (folder) w->files_by_name.dir = w->files_by_name.what;
    else if (!w->self_contained) w->files_by_name.dir = folder_of(w, path);
    return deliver_weights(out, w, status, err);
}

proa_status proa_weights_open_bytes(proa_weights **out, const void *bytes, int64_t len, const char *what,
                                    proa_err *err)
{
    proa_weights *w = proa_weights_new();
    int32_t file = proa_weights_add_file(w, what);
    w->files_by_name.what = w->files[file].name;
    return deliver_weights(out, w, proa_weights_read_bytes(w, bytes, len, file, err), err);
}
