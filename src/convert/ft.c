/* SPDX-License-Identifier: Apache-2.0
 * ft.c - writes a folder of FasterTransformer: config.ini, and a file of plain numbers for each tensor and rank, by the
 * tables of weights/ft_models.c, which the reader uses too. A file is [in][groups][out]. If it is split over ranks,
 * NAME.R.bin has the part of the outputs or of the inputs that belongs to rank R.
 * Facts: NVIDIA/FasterTransformer, examples/pytorch/{gpt,gptj,gptneox,t5}/utils/huggingface_*_convert.py. */
#include "convert/bound.h"
#include "convert/folder.h"
#include "convert/outfile.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "weights/ft.h"
#include <string.h>

enum { GROUPS_MAX = 3, NAME_BYTES = 256, RANKS_MAX = 256 };

/* The files NAME.bin or NAME.0.bin, NAME.1.bin, ... */
typedef struct file {
    const proa_ft_tensor *row;
    const char *name;                    /* without rank and ".bin" */
    proa_bound_tensor group[GROUPS_MAX]; /* the tensors side by side; one tensor of all groups: the first */
    int32_t groups_found;
    int32_t groups;              /* side by side in the file; 1 in a sum */
    bool turned;                 /* the weights are [out, in], the file [in, out] */
    int64_t in, out;             /* of the whole; out is that of one group */
    int64_t local_in, local_out; /* of a rank */
    int32_t ranks;
} file;

typedef struct writer {
    const proa_convert_job *job;
    const proa_ft_model *model;
    proa_bound bound;
    proa_ft_facts facts;
    proa_ft ft; /* for the conditions of the tables */
    file *files;
    int64_t count, cap;
    proa_map names; /* of files without ranks, to the row of files */
    proa_buf ini;
    uint64_t key;
    proa_convert_progress progress;
} writer;

/* ---- what the model is ---- */

static int64_t first_end(const proa_config *c)
{
    return c->end_count ? c->end_ids[0] : -1;
}

static void set_facts(writer *w)
{
    const proa_config *c = &w->bound.config;
    const int64_t dim[PROA_FT_DIM_COUNT] = {[PROA_FT_ONE] = 1,
                                            [PROA_FT_HIDDEN] = c->hidden,
                                            [PROA_FT_INNER] = c->heads * c->head_dim,
                                            [PROA_FT_FFN] = c->ffn,
                                            [PROA_FT_VOCAB] = c->vocab,
                                            [PROA_FT_POSITIONS] = c->context,
                                            [PROA_FT_HEADS] = c->heads,
                                            [PROA_FT_BUCKETS] = c->rel_buckets,
                                            [PROA_FT_LAYERS] = c->layers,
                                            [PROA_FT_ENCODER_LAYERS] = c->encoder_layers};
    w->facts = (proa_ft_facts){.head_dim = c->head_dim,
                               .rotary_dim = c->rotary_dim,
                               .rel_distance = c->rel_distance,
                               .ranks = w->job->ranks,
                               .eps = c->norm_eps,
                               .bos = c->bos,
                               .eos = first_end(c),
                               .pad = c->pad,
                               .decoder_start = c->decoder_start,
                               .relu = c->act == PROA_ACT_RELU,
                               .gated = c->gated,
                               .tied = c->tied,
                               .parallel = c->parallel,
                               .act = proa_act_name(c->act)};
    memcpy(w->facts.dim, dim, sizeof dim);
    w->facts.ffn = c->gated ? "gated-gelu" : "relu";
    w->ft.gated = c->gated, w->ft.tied = c->tied, w->ft.parallel = c->parallel;
    w->ft.ranks = w->job->ranks;
}

/* The type of most of the stored matrices' numbers, unless the job names one. */
static proa_dtype choose_dtype(const writer *w)
{
    int64_t numbers[PROA_DTYPE_COUNT] = {0};
    if (w->job->dtype_given) return w->job->dtype;
    for (int64_t i = 0; i < w->count; i++) {
        const proa_tensor_source *s = &w->files[i].group[0].param->part[0].source;
        proa_dtype dtype = proa_tensor_source_is_float(s) ? s->view.dtype : PROA_DTYPE_F16;
        numbers[dtype] += w->files[i].in * w->files[i].out;
    }
    proa_dtype most = PROA_DTYPE_F32;
    for (int d = 0; d < PROA_DTYPE_COUNT; d++)
        if (numbers[d] > numbers[most]) most = (proa_dtype)d;
    return most;
}

/* ---- which files ---- */

static file *find_file(writer *w, const proa_ft_tensor *row, const char *name)
{
    int32_t at;
    if (proa_map_find(&w->names, proa_str_c(name), &at)) return &w->files[at];
    if (w->count == w->cap) {
        int64_t cap = w->cap ? 2 * w->cap : 64;
        file *more = PROA_ARENA_NEW(&w->bound.arena, file, cap);
        if (w->count) memcpy(more, w->files, (size_t)w->count * sizeof *more);
        w->files = more, w->cap = cap;
    }
    file *f = &w->files[w->count];
    *f = (file){.row = row, .name = proa_arena_strdup(&w->bound.arena, proa_str_c(name))};
    proa_map_put(&w->names, proa_str_c(f->name), (int32_t)w->count++);
    return f;
}

/* FasterTransformer adds a shared bias once on each rank where attention and FFN are parallel, and once in all where
 * they follow each other; its converter divides it in both cases. So no folder of several ranks is right for both. */
static proa_status check_shared(const writer *w, const proa_ft_tensor *row, proa_err *err)
{
    if (!row->shared || w->ft.parallel || w->job->ranks == 1) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "FasterTransformer's '%s' without use_parallel_residual can be written for 1 rank only",
                     w->model->section);
}

static proa_status set_sizes(const writer *w, file *f, proa_err *err)
{
    const proa_ft_tensor *row = f->row;
    f->in = w->facts.dim[row->in], f->out = w->facts.dim[row->out];
    f->ranks = row->split == PROA_FT_WHOLE ? 1 : w->job->ranks;
    f->groups = row->summed ? 1 : row->groups;
    int64_t cut = row->split == PROA_FT_INPUTS ? f->in : f->out;
    PROA_TRY(check_shared(w, row, err));
    if (cut % f->ranks)
        return PROA_FAIL(err, INVALID, "%s: %lld rows or columns cannot be shared by %d ranks", f->name,
                         (long long)cut, f->ranks);
    f->local_in = row->split == PROA_FT_INPUTS ? f->in / f->ranks : f->in;
    f->local_out = row->split == PROA_FT_OUTPUTS ? f->out / f->ranks : f->out;
    return PROA_OK;
}

/* A name of the table with the layer in place of "%d". */
static void fill_layer(char out[NAME_BYTES], const char *name, int64_t layer)
{
    const char *mark = strstr(name, "%d");
    if (!mark) snprintf(out, NAME_BYTES, "%s", name);
    else snprintf(out, NAME_BYTES, "%.*s%lld%s", (int)(mark - name), name, (long long)layer, mark + 2);
}

static proa_status add_tensor(writer *w, const proa_ft_tensor *row, int64_t layer, proa_err *err)
{
    char name[NAME_BYTES];
    proa_bound_tensor t;
    bool of_layer = strstr(row->name, "%d") != NULL;
    fill_layer(name, row->file, layer);
    if (!proa_bound_find(&w->bound, row->name, of_layer ? layer : -1, 0, 1, &t)) {
        if (row->when == PROA_FT_IF_FILE) return PROA_OK;
        return PROA_FAIL(err, UNSUPPORTED, "FasterTransformer's '%s' needs '%s', which the model has not",
                         w->model->section, row->name);
    }
    file *f = find_file(w, row, name);
    f->turned = row->turned || t.name->role == PROA_ROLE_TRANSPOSED;
    f->group[row->group < 0 ? 0 : row->group] = t;
    f->groups_found += row->group < 0 ? row->groups : 1;
    return set_sizes(w, f, err);
}

static bool is_wanted(const writer *w, const proa_ft_tensor *row)
{
    if (row->when == PROA_FT_COPY_IF_TIED) return w->ft.tied;
    if (row->when == PROA_FT_COPY_IF_PARALLEL) return w->ft.parallel;
    return row->when == PROA_FT_IF_FILE || proa_ft_applies(&w->ft, row);
}

static proa_status add_files(writer *w, proa_err *err)
{
    for (int i = 0; w->model->tables[i]; i++)
        for (const proa_ft_tensor *row = w->model->tables[i]; row->name; row++)
            for (int64_t layer = 0; layer < w->facts.dim[row->layers] && is_wanted(w, row); layer++)
                PROA_TRY(add_tensor(w, row, layer, err));
    const char *left = proa_bound_left(&w->bound);
    if (left)
        return PROA_FAIL(err, UNSUPPORTED, "FasterTransformer's '%s' has no file for '%s'", w->model->section,
                         left);
    for (int64_t i = 0; i < w->count; i++)
        if (w->files[i].groups_found != w->files[i].row->groups)
            return PROA_FAIL(err, UNSUPPORTED, "%s: %d of %d tensors were found", w->files[i].name,
                             w->files[i].groups_found, w->files[i].row->groups);
    return PROA_OK;
}

/* ---- config.ini ---- */

static const char *file_name(writer *w, const file *f, int32_t rank)
{
    if (f->row->split == PROA_FT_WHOLE) return proa_arena_printf(&w->bound.arena, "%s.bin", f->name);
    return proa_arena_printf(&w->bound.arena, "%s.%d.bin", f->name, rank);
}

/* Reads the config.ini back as the reader does, with the files that there will be. */
static proa_status read_config(writer *w, proa_config *out, proa_map *wanted, proa_buf *text, proa_err *err)
{
    const proa_ft_model *model;
    const proa_arch *arch;
    proa_json *json = NULL;
    proa_ft ft = {.wanted = wanted, .err = err, .ini = {proa_buf_view(&w->ini), "config.ini"}};
    for (int64_t i = 0; i < w->count; i++)
        for (int32_t rank = 0; rank < w->files[i].ranks; rank++)
            proa_map_put(wanted, proa_str_c(file_name(w, &w->files[i], rank)), (int32_t)i);
    PROA_TRY(proa_ft_read_model(&ft, &model, text));
    PROA_TRY(proa_json_parse(&json, proa_buf_view(text), "config.ini", err));
    proa_status status = proa_arch_configure(&arch, out, json, NULL, &w->bound.arena, err);
    proa_json_free(json);
    return status;
}

static proa_status check_config(writer *w, proa_err *err)
{
    proa_config read;
    proa_map wanted;
    proa_buf text;
    proa_buf_init(&text, PROA_CONFIG_BYTES_MAX);
    proa_map_init(&wanted, 64);
    proa_status status = read_config(w, &read, &wanted, &text, err);
    if (status == PROA_OK) status = proa_bound_compare(&w->bound, &read, "FasterTransformer", err);
    proa_map_release(&wanted);
    proa_buf_release(&text);
    return status;
}

/* ---- which model ---- */

static proa_status try_model(writer *w, const proa_ft_model *model, const proa_arch *class, proa_err *err)
{
    w->model = model, w->count = 0;
    proa_map_release(&w->names);
    proa_map_init(&w->names, 64);
    if (!proa_bound_aim(&w->bound, class))
        return PROA_FAIL(err, UNSUPPORTED, "FasterTransformer's '%s' computes something else", model->section);
    PROA_TRY(add_files(w, err));
    w->facts.dtype = choose_dtype(w);
    proa_buf_clear(&w->ini);
    model->write(&w->ini, &w->facts);
    return check_config(w, err);
}

/* First as the model is; then with its tied head as a matrix of its own, where the form needs one. */
static proa_status try_heads(writer *w, const proa_ft_model *model, const proa_arch *class, proa_err *err)
{
    proa_err other = {0};
    bool tied = w->bound.config.tied;
    if (try_model(w, model, class, err) == PROA_OK) return PROA_OK;
    w->bound.config.tied = w->facts.tied = w->ft.tied = false;
    if (tied && try_model(w, model, class, &other) == PROA_OK) return proa_err_clear(err), PROA_OK;
    w->bound.config.tied = w->facts.tied = w->ft.tied = tied;
    return PROA_UNSUPPORTED;
}

/* The model of the source's own class, or else the first that computes the same. */
static proa_status choose_model(writer *w, proa_err *err)
{
    for (const proa_ft_model *m = proa_ft_models; m->section; m++) {
        const proa_arch *class = proa_bound_class(m->hf);
        if (class && class == w->bound.source) return try_heads(w, m, class, err);
    }
    for (const proa_ft_model *m = proa_ft_models; m->section; m++) {
        proa_err other = {0};
        const proa_arch *class = proa_bound_class(m->hf);
        if (class && try_heads(w, m, class, &other) == PROA_OK) return PROA_OK;
    }
    return PROA_FAIL(err, UNSUPPORTED,
                     "none of FasterTransformer's models that can be written computes what a %s does",
                     w->bound.source->name);
}

/* ---- numbers ---- */

/* One file of a rank while it is written. */
typedef struct piece {
    const writer *w;
    const file *f;
    int32_t rank;
} piece;

/* out[i * stride], i in [0, n): numbers (row, col + i) of the weight. */
static void read_strided(const proa_bound_tensor *t, int64_t row, int64_t col, int64_t n, float *scratch,
                         float *out, int64_t stride)
{
    proa_bound_read_part(t, 0, row, col, n, scratch);
    for (int64_t i = 0; i < n; i++) out[i * stride] = scratch[i];
}

/* Outputs [first, first + n) of group g, for inputs [in, in + count), to out, whose rows have `stride` numbers. */
static void read_group(const file *f, int g, int64_t in, int64_t count, int64_t first, int64_t n,
                       float *scratch, float *out, int64_t stride)
{
    bool whole = f->row->group < 0; /* one tensor has all groups */
    const proa_bound_tensor *t = &f->group[whole ? 0 : g];
    int64_t at = first + (whole ? g * f->out : 0);
    if (f->row->in == PROA_FT_ONE)
        for (int64_t o = 0; o < n; o++) proa_bound_read_part(t, 0, at + o, 0, 1, out + o);
    else if (f->turned)
        for (int64_t o = 0; o < n; o++) read_strided(t, at + o, in, count, scratch, out + o, stride);
    else
        for (int64_t i = 0; i < count; i++) proa_bound_read_part(t, 0, in + i, at, n, out + i * stride);
}

/* A sum gets its other tensors, a vector that each rank adds is divided. */
static void finish_numbers(const writer *w, const file *f, int64_t count, float *scratch, float *numbers)
{
    for (int g = 1; f->row->summed && g < f->row->groups; g++)
        for (int64_t i = 0; i < count; i++) {
            read_group(f, g, 0, 1, i, 1, NULL, scratch, 1);
            numbers[i] += *scratch;
        }
    for (int64_t i = 0; f->row->shared && i < count; i++) numbers[i] /= (float)w->facts.ranks;
}

static void fill_item(void *context, int64_t item, int64_t from, int64_t bytes, void *out)
{
    const piece *p = context;
    const file *f = p->f;
    proa_dtype dtype = p->w->facts.dtype;
    int64_t stride = f->groups * f->local_out, row_bytes = stride * proa_dtype_bytes(dtype);
    int64_t in = from / row_bytes, count = bytes / row_bytes;
    int64_t first = f->row->split == PROA_FT_OUTPUTS ? p->rank * f->local_out : 0;
    PROA_UNUSED(item);
    if (f->row->split == PROA_FT_INPUTS) in += p->rank * f->local_in;
    float *numbers = proa_malloc((size_t)(count * stride + proa_max64(count, 1)) * sizeof *numbers);
    for (int g = 0; g < f->groups; g++)
        read_group(f, g, in, count, first, f->local_out, numbers + count * stride, numbers + g * f->local_out,
                   stride);
    finish_numbers(p->w, f, count * stride, numbers + count * stride, numbers);
    proa_from_f32(out, dtype, numbers, count * stride);
    free(numbers);
}

static void drop_weights(const writer *w, const file *f)
{
    for (int32_t g = 0; g < GROUPS_MAX; g++) {
        const proa_param *p = f->group[g].param;
        for (int32_t i = 0; p && i < p->parts; i++)
            if (p->part[i].tensor->source.view.data) proa_weights_drop(w->job->weights, p->part[i].tensor);
    }
}

static int64_t file_bytes(const writer *w, const file *f)
{
    return f->local_in * f->groups * f->local_out * proa_dtype_bytes(w->facts.dtype);
}

static proa_status write_file(writer *w, const file *f, int32_t rank, proa_err *err)
{
    char path[PROA_PATH_MAX];
    piece p = {w, f, rank};
    int64_t bytes = file_bytes(w, f);
    PROA_TRY(proa_path_join(path, w->job->out, file_name(w, f, rank), err));
    if (proa_file_exists(path)) { /* whole: an earlier run of this job wrote it */
        w->progress.done += bytes;
        return PROA_OK;
    }
    proa_outfile_item item = {0, bytes, bytes / f->local_in};
    proa_outfile out = {
        .path = path, .items = &item, .count = 1, .bytes = bytes, .key = w->key, .fill = fill_item, .context = &p};
    return proa_outfile_write(&out, w->job, &w->progress, err);
}

/* ---- the whole ---- */

static proa_status write_files(writer *w, proa_err *err)
{
    for (int64_t i = 0; i < w->count; i++)
        w->progress.total += w->files[i].ranks * file_bytes(w, &w->files[i]);
    for (int64_t i = 0; i < w->count; i++) {
        for (int32_t rank = 0; rank < w->files[i].ranks; rank++)
            PROA_TRY(write_file(w, &w->files[i], rank, err));
        drop_weights(w, &w->files[i]);
    }
    return PROA_OK;
}

static proa_status write_folder(writer *w, proa_err *err)
{
    char path[PROA_PATH_MAX];
    set_facts(w);
    PROA_TRY(choose_model(w, err));
    w->key = proa_convert_key(w->job, "ft");
    PROA_TRY(proa_out_folder_begin(w->job, w->key, err));
    PROA_TRY(write_files(w, err));
    PROA_TRY(proa_out_folder_copy_files(w->job, err));
    PROA_TRY(proa_path_join(path, w->job->out, "config.ini", err));
    PROA_TRY(proa_outfile_put(path, proa_buf_view(&w->ini), err));
    return proa_out_folder_end(w->job, err);
}

proa_status proa_convert_ft(const proa_convert_job *job, proa_err *err)
{
    writer w = {.job = job};
    if (job->ranks < 1 || job->ranks > RANKS_MAX)
        return PROA_FAIL(err, INVALID, "%d ranks, must be 1 to %d", job->ranks, RANKS_MAX);
    PROA_TRY(proa_bound_open(&w.bound, job, err));
    proa_map_init(&w.names, 64);
    proa_buf_init(&w.ini, PROA_CONFIG_BYTES_MAX);
    proa_status status = write_folder(&w, err);
    proa_buf_release(&w.ini);
    proa_map_release(&w.names);
    proa_bound_close(&w.bound);
    return status;
}
