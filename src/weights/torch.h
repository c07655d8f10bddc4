/* SPDX-License-Identifier: Apache-2.0
 * torch.h - a file of torch.save while it is read: its pickle, where its storages are, and the tensors made of both.
 * Internal to this folder: torch_tensor.c makes views, torch_dict.c adds the tensors of a state dict, opennmt.c knows
 * what OpenNMT-py saves, torch.c opens both formats. */
#ifndef PROA_WEIGHTS_TORCH_H
#define PROA_WEIGHTS_TORCH_H

#include "weights/parts.h"
#include "weights/pickle.h"
#include "weights/zip.h"

/* The bytes of a storage in the file. */
typedef struct proa_torch_place {
    int64_t at, bytes;
} proa_torch_place;

typedef struct proa_torch {
    proa_weights *w;
    const unsigned char *bytes;
    int64_t len;
    int32_t file;
    const char *what; /* the file's name */
    proa_err *err;
    proa_pickle pickle;
    proa_map storages;       /* key of a storage to its place */
    proa_torch_place *place; /* [storages.count], heap */
    proa_map names;          /* of the tensors that were added */
} proa_torch;

#define FAIL_TORCH(t, status, fmt, ...)                                                                      \
    PROA_FAIL((t)->err, status, "%.*s: " fmt, PROA_NAME_SHOWN, (t)->what, __VA_ARGS__)

/* torch_tensor.c. UNSUPPORTED, with the name, if the pickle refers to a class or function that is not in its table. */
PROA_MUST_CHECK proa_status proa_torch_check_globals(const proa_torch *t);
/* Whether the value is a tensor, or a parameter, which wraps one. */
bool proa_torch_is_tensor(const proa_torch *t, proa_pickle_value v);
/* The view of a tensor; shape, strides and storage are checked against the file. name: for errors. */
PROA_MUST_CHECK proa_status proa_torch_view(const proa_torch *t, proa_pickle_value v, const char *name,
                                            proa_view *out);
/* What a persistent id says of a storage: its key, and the bytes that its type and its number of elements need. */
typedef struct proa_torch_storage {
    proa_str key;
    const struct proa_torch_global *type;
    int64_t elements, element_bytes;
    int64_t first; /* of the storage with that key: a view of a storage in the old format; in elements */
} proa_torch_storage;
PROA_MUST_CHECK proa_status proa_torch_storage_of(const proa_torch *t, proa_pickle_value v,
                                                  proa_torch_storage *out);

/* torch_dict.c: the members of a dict or an OrderedDict, in order; others have none. */
typedef struct proa_torch_iter {
    const proa_pickle *p;
    const proa_pickle_node *list; /* of an OrderedDict that was made of a list of pairs */
    const proa_pickle_node *node;
    int32_t at;
    proa_pickle_value key, value;
} proa_torch_iter;
proa_torch_iter proa_torch_begin(const proa_pickle *p, proa_pickle_value dict);
bool proa_torch_next(proa_torch_iter *it);

/* torch_dict.c: adds the tensors of a state dict under their names, without `drop` at the beginning, with `prefix` in
 * its place. drop may be NULL. */
PROA_MUST_CHECK proa_status proa_torch_add_all(proa_torch *t, proa_pickle_value dict, const char *prefix,
                                               const char *drop);

/* opennmt.c: whether the root is what OpenNMT-py saves; its tensors and the texts that describe the model. */
bool proa_opennmt_is(const proa_torch *t);
PROA_MUST_CHECK proa_status proa_opennmt_read(proa_torch *t);

#endif
