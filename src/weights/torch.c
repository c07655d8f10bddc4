/* SPDX-License-Identifier: Apache-2.0
 * torch.c - a file of torch.save, in its two formats.
 * Since torch 1.6 it is a zip file: NAME/data.pkl is the pickle, NAME/data/KEY a storage. Before, it was a row of
 * pickles: a magic number, the protocol's version, a description of the machine, the object, the list of the storages'
 * keys; then the storages in the order of the list, each with its number of elements (8 bytes, little-endian) in front.
 * Facts: torch/serialization.py (_save, _legacy_save). */
#include "weights/torch.h"

#include "base/alloc.h"
#include "base/checked.h"

/* ---- the object ---- */

static bool has_tensor(const proa_torch *t, proa_pickle_value dict)
{
    for (proa_torch_iter it = proa_torch_begin(&t->pickle, dict); proa_torch_next(&it);)
        if (proa_torch_is_tensor(t, it.value)) return true;
    return false;
}

/* A state dict, or a dictionary of a training run that holds one. */
static proa_status read_root(proa_torch *t)
{
    static const char *const keys[] = {"state_dict", "model_state_dict", "model", "module"};
    proa_pickle_value root = t->pickle.root;
    PROA_TRY(proa_torch_check_globals(t));
    if (proa_opennmt_is(t)) return proa_opennmt_read(t);
    if (has_tensor(t, root)) return proa_torch_add_all(t, root, "", NULL);
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        proa_pickle_value inner = proa_pickle_get(&t->pickle, root, keys[i]);
        if (inner && has_tensor(t, inner)) return proa_torch_add_all(t, inner, "", NULL);
    }
    return FAIL_TORCH(t, UNSUPPORTED, "holds no dictionary of tensors, as %s has it", "a state_dict");
}

/* ---- the zip format ---- */

static bool is_pickle_name(proa_str name)
{
    const char *slash = memchr(name.ptr, '/', name.len);
    return slash && proa_str_is((proa_str){slash, name.len - (size_t)(slash - name.ptr)}, "/data.pkl");
}

/* The storages are the entries NAME/data/KEY. */
static void list_storages(proa_torch *t, const proa_zip *zip, proa_str folder)
{
    t->place = proa_calloc((size_t)zip->count, sizeof *t->place);
    for (int32_t i = 0; i < zip->count; i++) {
        const proa_zip_entry *e = &zip->entry[i];
        proa_str rest = {e->name.ptr + folder.len, e->name.len - folder.len};
        if (!proa_str_starts(e->name, folder) || !proa_str_starts(rest, proa_str_c("data/"))) continue;
        t->place[i] = (proa_torch_place){e->at, e->bytes};
        proa_map_put(&t->storages, (proa_str){rest.ptr + 5, rest.len - 5}, i);
    }
}

static proa_status check_byte_order(const proa_torch *t, const proa_zip *zip, proa_str folder)
{
    static const char name[] = "byteorder";
    for (int32_t i = 0; i < zip->count; i++) {
        const proa_zip_entry *e = &zip->entry[i];
        if (e->name.len != folder.len + strlen(name) || !proa_str_starts(e->name, folder)) continue;
        if (memcmp(e->name.ptr + folder.len, name, strlen(name)) != 0) continue;
        proa_str order = {(const char *)t->bytes + e->at, (size_t)e->bytes};
        if (!proa_str_is(order, "little"))
            return FAIL_TORCH(t, UNSUPPORTED, "its byte order is '%.*s', must be little",
                              (int)proa_min64(16, e->bytes), order.ptr);
    }
    return PROA_OK;
}

static proa_status read_zip(proa_torch *t, proa_zip *zip)
{
    int32_t i = 0;
    PROA_TRY(proa_zip_open(zip, t->bytes, t->len, t->what, t->err));
    while (i < zip->count && !is_pickle_name(zip->entry[i].name)) i++;
    if (i == zip->count)
        return FAIL_TORCH(t, CORRUPT, "a zip file without %s: not one of torch.save", "NAME/data.pkl");
    const proa_zip_entry *e = &zip->entry[i];
    proa_str folder = {e->name.ptr, e->name.len - strlen("data.pkl")};
    PROA_TRY(check_byte_order(t, zip, folder));
    list_storages(t, zip, folder);
    PROA_TRY(proa_pickle_read(&t->pickle, t->bytes + e->at, e->bytes, t->what, t->err));
    return read_root(t);
}

/* ---- the old format ---- */

/* Reads the pickle at *at, which ends before the file does, and moves *at past it. */
static proa_status next_pickle(const proa_torch *t, int64_t *at, proa_pickle *p)
{
    PROA_TRY(proa_pickle_read(p, t->bytes + *at, proa_min64(t->len - *at, PROA_PICKLE_BYTES_MAX), t->what,
                              t->err));
    *at += p->used;
    return PROA_OK;
}

static proa_status skip_pickles(const proa_torch *t, int64_t *at, int count)
{
    for (int i = 0; i < count; i++) {
        proa_pickle p;
        proa_status status = next_pickle(t, at, &p);
        proa_pickle_release(&p);
        if (status != PROA_OK) return status;
    }
    return PROA_OK;
}

/* Bytes of an element of each storage, by its key: the file's list of storages has only keys. */
static proa_status map_types(const proa_torch *t, proa_map *types)
{
    for (proa_pickle_value v = 1; v <= t->pickle.count; v++) {
        proa_torch_storage s;
        if (proa_pickle_kind_of(&t->pickle, v) != PROA_PICKLE_OUTSIDE) continue;
        PROA_TRY(proa_torch_storage_of(t, v, &s));
        proa_map_put(types, s.key, (int32_t)s.element_bytes);
    }
    return PROA_OK;
}

/* The storage at *at: its number of elements, then these. */
static proa_status place_storage(proa_torch *t, int64_t *at, int32_t i, proa_str key, const proa_map *types)
{
    int shown = (int)proa_min64(60, (int64_t)key.len);
    int32_t element_bytes = 0;
    uint64_t elements = 0;
    int64_t bytes;
    if (!key.len || !proa_map_find(types, key, &element_bytes))
        return FAIL_TORCH(t, CORRUPT, "storage '%.*s' is of no tensor", shown, key.ptr);
    for (int b = 0; b < 8 && t->len - *at >= 8; b++) elements |= (uint64_t)t->bytes[*at + b] << (8 * b);
    if (t->len - *at < 8 || elements > INT64_MAX || !proa_mul((int64_t)elements, element_bytes, &bytes) ||
        bytes > t->len - *at - 8)
        return FAIL_TORCH(t, CORRUPT, "storage '%.*s' at byte %lld goes beyond the file's end", shown,
                          key.ptr, (long long)*at);
    t->place[i] = (proa_torch_place){*at + 8, bytes};
    if (!proa_map_put(&t->storages, key, i))
        return FAIL_TORCH(t, CORRUPT, "storage '%.*s' twice", shown, key.ptr);
    *at += 8 + bytes;
    return PROA_OK;
}

static proa_status place_storages(proa_torch *t, int64_t at, const proa_pickle *keys, const proa_map *types)
{
    const proa_pickle_node *list = proa_pickle_at(keys, keys->root);
    if (list->kind != PROA_PICKLE_LIST) return FAIL_TORCH(t, CORRUPT, "no list of %s", "storages");
    t->place = proa_calloc((size_t)list->count, sizeof *t->place);
    for (int32_t i = 0; i < list->count; i++)
        PROA_TRY(place_storage(t, &at, i, proa_pickle_text(keys, list->items[i]), types));
    return PROA_OK;
}

static proa_status read_legacy(proa_torch *t, proa_pickle *keys, proa_map *types)
{
    int64_t at = 0;
    PROA_TRY(skip_pickles(t, &at, 3));
    PROA_TRY(next_pickle(t, &at, &t->pickle));
    PROA_TRY(proa_torch_check_globals(t));
    PROA_TRY(map_types(t, types));
    PROA_TRY(next_pickle(t, &at, keys));
    PROA_TRY(place_storages(t, at, keys, types));
    return read_root(t);
}

/* ---- both ---- */

static void torch_init(proa_torch *t, proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                       proa_err *err)
{
    *t = (proa_torch){.w = w, .bytes = bytes, .len = len, .file = file, .err = err, .what = w->files[file].name};
    proa_map_init(&t->storages, 64);
    proa_map_init(&t->names, 64);
}

static void torch_release(proa_torch *t)
{
    proa_pickle_release(&t->pickle);
    proa_map_release(&t->storages);
    proa_map_release(&t->names);
    free(t->place);
}

proa_status proa_torch_zip_read(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                proa_err *err)
{
    proa_torch t;
    proa_zip zip = {.entry = NULL};
    torch_init(&t, w, bytes, len, file, err);
    proa_status status = read_zip(&t, &zip);
    proa_zip_release(&zip);
    torch_release(&t);
    return status;
}

proa_status proa_torch_legacy_read(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                   proa_err *err)
{
    proa_torch t;
    proa_pickle keys = {.root = 0};
    proa_map types;
    torch_init(&t, w, bytes, len, file, err);
    proa_map_init(&types, 64);
    proa_status status = read_legacy(&t, &keys, &types);
    proa_map_release(&types);
    proa_pickle_release(&keys);
    torch_release(&t);
    return status;
}
