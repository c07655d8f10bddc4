/* SPDX-License-Identifier: Apache-2.0
 * torch_dict.c - the dictionaries of a torch pickle: their members, and the tensors of a state dict. */
#include "weights/torch.h"

#include "base/checked.h"

/* ---- members ---- */

proa_torch_iter proa_torch_begin(const proa_pickle *p, proa_pickle_value dict)
{
    const proa_pickle_node *n = proa_pickle_at(p, dict), *list = NULL;
    if (n->kind == PROA_PICKLE_CALL) list = proa_pickle_at(p, proa_pickle_item(p, n->args, 0));
    if (list && list->kind != PROA_PICKLE_LIST && list->kind != PROA_PICKLE_DICT) list = NULL;
    return (proa_torch_iter){.p = p, .node = n, .list = list};
}

/* A pair of the list that an OrderedDict was made of, or of the dict that a Counter was made of. */
static bool next_argument(proa_torch_iter *it)
{
    const proa_pickle_node *list = it->list;
    int32_t step = list->paired ? 2 : 1;
    if (it->at > list->count - step) return it->list = NULL, it->at = 0, false;
    it->key = list->paired ? list->items[it->at] : proa_pickle_item(it->p, list->items[it->at], 0);
    it->value = list->paired ? list->items[it->at + 1] : proa_pickle_item(it->p, list->items[it->at], 1);
    it->at += step;
    return true;
}

bool proa_torch_next(proa_torch_iter *it)
{
    if (it->list && next_argument(it)) return true;
    if (!it->node->paired || it->at + 2 > it->node->count) return false;
    it->key = it->node->items[it->at], it->value = it->node->items[it->at + 1];
    it->at += 2;
    return true;
}

/* ---- tensors of a state dict ---- */

static proa_status check_name(const proa_torch *t, proa_str name)
{
    if (name.len > PROA_TENSOR_NAME_MAX)
        return FAIL_TORCH(t, LIMIT, "tensor '%.60s...': a name of %zu bytes, at most %d are read", name.ptr,
                          name.len, PROA_TENSOR_NAME_MAX);
    if (!proa_utf8_valid(name) || proa_str_has_nul(name))
        return FAIL_TORCH(t, CORRUPT, "tensor '%.*s': its name is not a text",
                          (int)proa_min64(60, (int64_t)name.len), name.ptr);
    return PROA_OK;
}

static proa_status add_tensor(proa_torch *t, proa_str name, proa_pickle_value v)
{
    proa_weights_tensor row = {.name = proa_arena_strdup(&t->w->arena, name), .file = t->file};
    proa_view view;
    PROA_TRY(check_name(t, name));
    PROA_TRY(proa_torch_view(t, v, row.name, &view));
    if (!proa_map_put(&t->names, proa_str_c(row.name), 0))
        return FAIL_TORCH(t, CORRUPT, "tensor '%.*s' is there twice", PROA_NAME_SHOWN, row.name);
    row.source = proa_tensor_source_of(view);
    return proa_weights_add_tensor(t->w, row, t->err);
}

proa_status proa_torch_add_all(proa_torch *t, proa_pickle_value dict, const char *prefix, const char *drop)
{
    char name[PROA_TENSOR_NAME_MAX + 64];
    for (proa_torch_iter it = proa_torch_begin(&t->pickle, dict); proa_torch_next(&it);) {
        proa_str key = proa_pickle_text(&t->pickle, it.key), unwanted = proa_str_c(drop);
        if (!key.len || !proa_torch_is_tensor(t, it.value)) continue;
        if (key.len > PROA_TENSOR_NAME_MAX || proa_str_has_nul(key)) return check_name(t, key);
        if (drop && proa_str_starts(key, unwanted)) key.ptr += unwanted.len, key.len -= unwanted.len;
        int n = snprintf(name, sizeof name, "%s%.*s", prefix, (int)key.len, key.ptr);
        PROA_TRY(add_tensor(t, (proa_str){name, (size_t)n}, it.value));
    }
    return PROA_OK;
}
