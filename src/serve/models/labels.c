/* SPDX-License-Identifier: Apache-2.0
 * labels.c - reads the label files of outputs. */
#include "base/file.h"
#include "base/limits.h"
#include "serve/core.h"
#include <string.h>

/* Lines of a label file: class 0 first. As Triton's: a last line without a newline counts, an empty end does not. */
static void split_lines(proa_io *io, char *text, size_t len, proa_arena *arena)
{
    int64_t lines = 0;
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    if (len && text[len - 1] != '\n') lines++;
    const char **labels = PROA_ARENA_NEW(arena, const char *, lines);
    char *at = text;
    for (int64_t i = 0; i < lines; i++) {
        labels[i] = at;
        char *end = memchr(at, '\n', (size_t)(text + len - at));
        if (!end) break;
        *end = 0;
        at = end + 1;
    }
    io->labels = labels;
    io->labels_count = lines;
}

static proa_status read_labels(proa_served_model *m, proa_io *io, const char *filename, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf text;
    PROA_TRY(proa_path_join(path, m->path, filename, err));
    proa_status status = proa_file_read(&text, path, PROA_LABELS_BYTES_MAX, err);
    if (status == PROA_OK)
        split_lines(io, proa_arena_strdup(&m->arena, proa_buf_view(&text)), text.len, &m->arena);
    proa_buf_release(&text);
    return status;
}

/* An ensemble without labels of its own has those of the model that makes the output. */
static void copy_labels(proa_served_model *m, proa_io *io, const proa_served_model *from, const char *output)
{
    const proa_io *source = proa_served_model_output(from, output);
    if (!source || source->labels_count == 0) return;
    const char **labels = PROA_ARENA_NEW(&m->arena, const char *, source->labels_count);
    for (int64_t i = 0; i < source->labels_count; i++)
        labels[i] = proa_arena_strdup(&m->arena, proa_str_c(source->labels[i]));
    io->labels = labels;
    io->labels_count = source->labels_count;
}

static void take_over(proa_served_model *m, proa_io *io)
{
    const Inference__ModelEnsembling *e = m->config->ensemble_scheduling;
    for (size_t i = 0; i < e->n_step && !io->labels; i++)
        for (size_t k = 0; k < e->step[i]->n_output_map; k++) {
            if (strcmp(e->step[i]->output_map[k]->value, io->name) != 0) continue;
            proa_served_model *from = proa_name_table_find(m->server, e->step[i]->model_name,
                                                           e->step[i]->model_version);
            if (!from) continue;
            copy_labels(m, io, from, e->step[i]->output_map[k]->key);
            proa_served_model_drop(from);
        }
}

proa_status proa_served_model_read_labels(proa_served_model *model, proa_err *err)
{
    for (int i = 0; i < model->outputs_count; i++) {
        const char *filename = model->config->output[i]->label_filename;
        if (*filename) PROA_TRY(read_labels(model, &model->outputs[i], filename, err));
        else if (!model->backend) take_over(model, &model->outputs[i]);
    }
    return PROA_OK;
}

const char *proa_served_model_label(const proa_served_model *model, const char *output, int64_t index)
{
    const proa_io *io = proa_served_model_output(model, output);
    return io && index >= 0 && index < io->labels_count ? io->labels[index] : NULL;
}
