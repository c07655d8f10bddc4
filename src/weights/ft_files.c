/* SPDX-License-Identifier: Apache-2.0
 * ft_files.c - the files of a folder of FasterTransformer: its config.ini, and those of numbers, mapped once each. */
#include "weights/ft.h"

#include "base/checked.h"

bool proa_ft_has_file(const proa_ft *ft, const char *name)
{
    char path[PROA_PATH_MAX];
    int32_t ignored;
    if (!ft->dir) return ft->wanted && proa_map_find(ft->wanted, proa_str_c(name), &ignored);
    return proa_path_join(path, ft->dir, name, NULL) == PROA_OK && proa_file_exists(path);
}

proa_status proa_ft_open_file(proa_ft *ft, const char *name, int64_t elements, const char **data, int32_t *file)
{
    char path[PROA_PATH_MAX];
    int64_t bytes;
    if (!proa_map_find(&ft->files, proa_str_c(name), file)) {
        PROA_TRY(proa_path_join(path, ft->dir, name, ft->err));
        *file = proa_weights_add_file(ft->w, name);
        proa_weights_file *row = &ft->w->files[*file];
        PROA_TRY(proa_mmap_open(&row->map, path, ft->err));
        row->path = proa_arena_strdup(&ft->w->arena, proa_str_c(path));
        proa_map_put(&ft->files, proa_str_c(row->name), *file);
    }
    const proa_mmap *map = &ft->w->files[*file].map;
    if (!proa_mul(elements, proa_dtype_bytes(ft->dtype), &bytes) || bytes != map->bytes)
        return PROA_FAIL(ft->err, CORRUPT, "%.120s has %lld bytes, %lld numbers of %s were expected", name,
                         (long long)map->bytes, (long long)elements, proa_dtype_name(ft->dtype));
    *data = (const char *)map->ptr;
    return PROA_OK;
}

proa_status proa_ft_open(proa_weights *w, const char *dir, const char *name,
                         proa_status (*read)(proa_ft *ft, proa_buf *text, void *arg), void *arg, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf ini, text;
    proa_ft ft = {.w = w, .dir = dir, .err = err, .ini = {.what = name}};
    PROA_TRY(proa_path_join(path, dir, name, err));
    proa_map_init(&ft.files, 64);
    proa_buf_init(&text, (size_t)PROA_CONFIG_BYTES_MAX);
    proa_status status = proa_file_read(&ini, path, PROA_CONFIG_BYTES_MAX, err);
    ft.ini.text = proa_buf_view(&ini);
    if (status == PROA_OK) status = read(&ft, &text, arg);
    proa_buf_release(&text);
    proa_buf_release(&ini);
    proa_map_release(&ft.files);
    return status;
}
