/* SPDX-License-Identifier: Apache-2.0
 * ft.c - a folder of FasterTransformer: config.ini, and a file of plain numbers for each tensor and rank.
 * The tensors are given the names and shapes of the Hugging Face checkpoint that they were made from, so that a model's
 * row binds either. A tensor in the files of several ranks is one source in pieces; nothing is copied.
 * Facts: NVIDIA/FasterTransformer, examples/pytorch/{gpt,gptj,gptneox,t5}/utils/huggingface_*_convert.py. */
#include "weights/ft.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdio.h>

/* ---- tensors ---- */

/* A tensor while it is put together from the files of its ranks. */
typedef struct joiner {
    const proa_ft_tensor *row;
    int64_t in, out;              /* of the whole; out is that of one group */
    int64_t local_in, local_out;  /* of a rank */
    int32_t ranks, first, groups; /* groups [first, first + groups) are taken */
    proa_tensor_piece *piece;     /* [ranks * groups] */
    int32_t file;                 /* of the last rank */
} joiner;

static proa_status begin_join(const proa_ft *ft, const proa_ft_tensor *row, joiner *j)
{
    *j = (joiner){.row = row, .in = ft->dim[row->in], .out = ft->dim[row->out], .ranks = 1};
    if (row->split != PROA_FT_WHOLE) j->ranks = ft->ranks;
    int64_t cut = row->split == PROA_FT_INPUTS ? j->in : j->out;
    if (cut % j->ranks)
        return FAIL_FT(ft, INVALID, "%s: %lld rows or columns cannot be shared by %d ranks", row->file,
                       (long long)cut, j->ranks);
    j->local_in = row->split == PROA_FT_INPUTS ? j->in / j->ranks : j->in;
    j->local_out = row->split == PROA_FT_OUTPUTS ? j->out / j->ranks : j->out;
    j->first = row->group < 0 ? 0 : row->group;
    j->groups = row->group < 0 ? row->groups : 1;
    j->piece = PROA_ARENA_NEW(&ft->w->arena, proa_tensor_piece, (int64_t)j->ranks * j->groups);
    return PROA_OK;
}

/* The pieces that a rank has: for each group a matrix [local_in, local_out] with the groups between its rows. */
static proa_status join_rank(proa_ft *ft, joiner *j, int32_t rank, int64_t layer)
{
    char base[PROA_FT_NAME_MAX], name[PROA_FT_NAME_MAX + 16];
    const char *data = NULL;
    int64_t stride = j->row->groups * j->local_out, elements = 0;
    snprintf(base, sizeof base, j->row->file, (int)layer);
    if (j->row->split == PROA_FT_WHOLE) snprintf(name, sizeof name, "%s.bin", base);
    else snprintf(name, sizeof name, "%s.%d.bin", base, rank);
    if (!proa_mul(j->local_in, stride, &elements)) return FAIL_FT(ft, LIMIT, "%s is too large", name);
    PROA_TRY(proa_ft_open_file(ft, name, elements, &data, &j->file));
    for (int32_t g = 0; g < j->groups; g++) {
        proa_tensor_piece *p = &j->piece[(int64_t)rank * j->groups + g];
        const char *at = data + (j->first + g) * j->local_out * proa_dtype_bytes(ft->dtype);
        p->view = proa_view_2d((void *)(uintptr_t)at, ft->dtype, j->local_in, j->local_out);
        p->view.stride[0] = stride;
        p->row = j->row->split == PROA_FT_INPUTS ? rank * j->local_in : 0;
        p->col = g * j->out + (j->row->split == PROA_FT_OUTPUTS ? rank * j->local_out : 0);
    }
    return PROA_OK;
}

/* Each rank adds its part of a vector, and the ranks are summed. */
static const float *factors_of_ranks(const proa_ft *ft, int64_t n)
{
    float *factor = PROA_ARENA_NEW(&ft->w->arena, float, n);
    for (int64_t i = 0; i < n; i++) factor[i] = (float)ft->ranks;
    return factor;
}

/* One piece is a view like any other. */
static proa_tensor_source end_join(proa_ft *ft, const joiner *j)
{
    int64_t cols = j->out * j->groups;
    proa_tensor_source s = proa_tensor_source_of(j->piece[0].view);
    if ((int64_t)j->ranks * j->groups > 1) {
        proa_tensor_pieces *pieces = PROA_ARENA_NEW(&ft->w->arena, proa_tensor_pieces, 1);
        *pieces = (proa_tensor_pieces){.cols = cols, .count = j->ranks * j->groups, .piece = j->piece};
        s = proa_tensor_source_of(proa_view_2d(pieces, ft->dtype, j->in, cols));
        s.encoding = PROA_ENCODING_PIECES;
    }
    if (j->row->in == PROA_FT_ONE) {
        s.view.rank = 1;
        s.view.shape[0] = cols, s.view.stride[0] = 1;
        s.view.shape[1] = 1, s.view.stride[1] = 0;
    } else if (j->row->turned) s.view = proa_view_transpose(s.view);
    if (j->row->shared && ft->ranks > 1) s.factor = factors_of_ranks(ft, cols);
    return s;
}

static proa_status add_tensor(proa_ft *ft, const proa_ft_tensor *row, int64_t layer)
{
    char name[PROA_FT_NAME_MAX];
    joiner j;
    PROA_TRY(begin_join(ft, row, &j));
    for (int32_t rank = 0; rank < j.ranks; rank++) PROA_TRY(join_rank(ft, &j, rank, layer));
    snprintf(name, sizeof name, row->name, (int)layer);
    proa_weights_tensor t = {
        .name = proa_arena_strdup(&ft->w->arena, proa_str_c(name)), .file = j.file, .final = row->final};
    t.source = end_join(ft, &j);
    return proa_weights_add_tensor(ft->w, t, ft->err);
}

bool proa_ft_applies(const proa_ft *ft, const proa_ft_tensor *row)
{
    char name[PROA_FT_NAME_MAX];
    switch (row->when) {
    case PROA_FT_ALWAYS: return true;
    case PROA_FT_IF_GATED: return ft->gated;
    case PROA_FT_IF_PLAIN: return !ft->gated;
    case PROA_FT_IF_UNTIED: return !ft->tied;
    case PROA_FT_COPY_IF_TIED:
    case PROA_FT_COPY_IF_PARALLEL: return false;
    case PROA_FT_IF_FILE: return snprintf(name, sizeof name, "%s.bin", row->file), proa_ft_has_file(ft, name);
    }
    return false;
}

static proa_status add_table(proa_ft *ft, const proa_ft_tensor *row)
{
    for (; row->name; row++)
        for (int64_t layer = 0; layer < ft->dim[row->layers] && proa_ft_applies(ft, row); layer++)
            PROA_TRY(add_tensor(ft, row, layer));
    return PROA_OK;
}

/* ---- the folder ---- */

/* The ranks are the files of the first tensor that is split. */
static proa_status count_ranks(proa_ft *ft, const proa_ft_tensor *row)
{
    char base[PROA_FT_NAME_MAX], name[PROA_FT_NAME_MAX + 16];
    while (row->split == PROA_FT_WHOLE || !proa_ft_applies(ft, row)) row++;
    snprintf(base, sizeof base, row->file, 0);
    for (ft->ranks = 0; ft->ranks <= PROA_FT_RANKS_MAX; ft->ranks++) {
        snprintf(name, sizeof name, "%s.%d.bin", base, ft->ranks);
        if (!proa_ft_has_file(ft, name)) break;
    }
    if (ft->ranks == 0) return FAIL_FT(ft, NOT_FOUND, "the folder has no file %s", name);
    if (ft->ranks > PROA_FT_RANKS_MAX) return FAIL_FT(ft, LIMIT, "more than %d ranks", PROA_FT_RANKS_MAX);
    return PROA_OK;
}

static proa_status read_tables(proa_ft *ft, proa_buf *config, void *arg)
{
    const proa_ft_model *model;
    PROA_UNUSED(arg);
    PROA_TRY(proa_ft_read_model(ft, &model, config));
    PROA_TRY(count_ranks(ft, model->tables[0]));
    for (int i = 0; model->tables[i]; i++) PROA_TRY(add_table(ft, model->tables[i]));
    proa_str text = {proa_arena_strdup(&ft->w->arena, proa_buf_view(config)), config->len};
    proa_weights_add_made(ft->w, (proa_made_file){.name = "config.json", .text = text});
    return PROA_OK;
}

proa_status proa_ft_read(proa_weights *w, const char *dir, const char *name, proa_err *err)
{
    return proa_ft_open(w, dir, name, read_tables, NULL, err);
}
