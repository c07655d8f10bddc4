/* SPDX-License-Identifier: Apache-2.0
 * read.c - the text of a program becomes steps (docs/transform.md): NAME = operation(ARGUMENT, key=VALUE); ... */
#include "backends/common.h"
#include "backends/transform/transform.h"
#include "backends/transform/text.h"

#include <errno.h>
#include <math.h>
#include <string.h>

typedef struct reader {
    const char *at, *end;
    proa_transform_program *p;
    proa_transform_step *step;
    int32_t steps_cap;
    proa_err *err;
} reader;

/* ---- characters and words ---- */

static void skip_blanks(reader *r)
{
    while (r->at < r->end) {
        if (*r->at == '#') {
            while (r->at < r->end && *r->at != '\n') r->at++;
        } else if (strchr(" \t\r\n", *r->at) && *r->at) {
            r->at++;
        } else {
            return;
        }
    }
}

static bool take_char(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static proa_status fail_expected(reader *r, const char *what)
{
    skip_blanks(r);
    size_t left = (size_t)(r->end - r->at);
    if (!left)
        return PROA_FAIL(r->err, INVALID, "step %d: expected %s at the end of the text", r->step->number, what);
    return PROA_FAIL(r->err, INVALID, "step %d: expected %s at '%.*s'", r->step->number, what,
                     (int)(left < 20 ? left : 20), r->at);
}

/* Characters of names of tensors, operations, files, and of numbers; anything else is quoted. */
static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("_.-+/:", c) != NULL);
}

static proa_status read_word(reader *r, const char *what, proa_str *word)
{
    skip_blanks(r);
    char quote = r->at < r->end && (*r->at == '"' || *r->at == '\'') ? *r->at : '\0';
    const char *from = r->at + (quote != 0);
    const char *to = from;
    if (quote) to = memchr(from, quote, (size_t)(r->end - from));
    else
        while (to < r->end && is_plain(*to)) to++;
    if (!to || to == from) return fail_expected(r, to ? what : "the closing quote of the text");
    *word = (proa_str){proa_arena_strdup(r->p->arena, (proa_str){from, (size_t)(to - from)}),
                       (size_t)(to - from)};
    r->at = to + (quote != 0);
    return PROA_OK;
}

/* ---- values and options ---- */

static int32_t find_value(const proa_transform_program *p, proa_str name)
{
    for (int32_t i = 0; i < p->inputs_count + p->steps_count; i++)
        if (proa_str_is(name, p->values[i].name)) return i;
    return -1;
}

static double number_of(proa_str text)
{
    char *end;
    errno = 0;
    double value = strtod(text.ptr, &end); /* copied to the arena with a NUL */
    return *end || errno == ERANGE ? (double)NAN : value;
}

static proa_status read_value(reader *r, proa_transform_option *o)
{
    static const int32_t most = PROA_TRANSFORM_LIST_MAX;
    int32_t cap = 4;
    o->list = take_char(r, '[');
    o->texts = PROA_ARENA_NEW(r->p->arena, proa_str, cap);
    if (o->list && take_char(r, ']')) return PROA_OK;
    do {
        if (o->count == most)
            return PROA_TRANSFORM_FAIL(r->err, r->step, "option '%.*s' has more than %d elements",
                                       (int)o->key.len, o->key.ptr, most);
        if (o->count == cap) {
            proa_str *more = PROA_ARENA_NEW(r->p->arena, proa_str, (int64_t)cap * 2);
            memcpy(more, o->texts, (size_t)cap * sizeof *more);
            o->texts = more;
            cap *= 2;
        }
        PROA_TRY(read_word(r, "a value", &o->texts[o->count]));
        o->count++;
    } while (o->list && take_char(r, ','));
    if (o->list && !take_char(r, ']')) return fail_expected(r, "',' or ']'");
    o->numbers = PROA_ARENA_NEW(r->p->arena, double, o->count);
    for (int32_t i = 0; i < o->count; i++) o->numbers[i] = number_of(o->texts[i]);
    return PROA_OK;
}

static proa_status read_option(reader *r, proa_str key)
{
    proa_transform_step *s = r->step;
    for (int32_t i = 0; i < s->options_count; i++)
        if (proa_str_eq(s->options[i].key, key))
            return PROA_TRANSFORM_FAIL(r->err, s, "option '%.*s' is given twice", (int)key.len, key.ptr);
    if (s->options_count == PROA_TRANSFORM_OPTIONS_MAX)
        return PROA_TRANSFORM_FAIL(r->err, s, "more than %d options", PROA_TRANSFORM_OPTIONS_MAX);
    if (!s->options)
        s->options = PROA_ARENA_NEW(r->p->arena, proa_transform_option, PROA_TRANSFORM_OPTIONS_MAX);
    proa_transform_option *o = &s->options[s->options_count++];
    o->key = key;
    return read_value(r, o);
}

static proa_status add_argument(reader *r, proa_str name)
{
    proa_transform_step *s = r->step;
    int32_t value = find_value(r->p, name);
    if (value < 0)
        return PROA_TRANSFORM_FAIL(r->err, s, "'%.*s' is no input and no earlier step", (int)name.len, name.ptr);
    if (s->args_count == PROA_TRANSFORM_ARGS_MAX)
        return PROA_TRANSFORM_FAIL(r->err, s, "more than %d arguments", PROA_TRANSFORM_ARGS_MAX);
    if (!s->args) s->args = PROA_ARENA_NEW(r->p->arena, int32_t, PROA_TRANSFORM_ARGS_MAX);
    s->args[s->args_count++] = value;
    if (value >= r->p->inputs_count) s->needs |= r->p->steps[value - r->p->inputs_count].needs;
    return PROA_OK;
}

static proa_status read_items(reader *r)
{
    if (take_char(r, ')')) return PROA_OK;
    do {
        proa_str word;
        PROA_TRY(read_word(r, "an argument or an option", &word));
        PROA_TRY(take_char(r, '=') ? read_option(r, word) : add_argument(r, word));
    } while (take_char(r, ','));
    return take_char(r, ')') ? PROA_OK : fail_expected(r, "',' or ')'");
}

static proa_status check_options(const proa_transform_step *s, proa_err *err)
{
    for (int32_t i = 0; i < s->options_count; i++) {
        const proa_transform_option *o = &s->options[i];
        if (o->used) continue;
        if (!*s->operation->options)
            return PROA_TRANSFORM_FAIL(err, s, "option '%s' is not known; there are none", o->key.ptr);
        return PROA_TRANSFORM_FAIL(err, s, "option '%s' is not known, or not with the others; there are %s",
                                   o->key.ptr, s->operation->options);
    }
    return PROA_OK;
}

/* ---- steps ---- */

static proa_status finish_step(reader *r, proa_transform_value *out)
{
    proa_transform_step *s = r->step;
    proa_transform_value *args = PROA_ARENA_NEW(r->p->arena, proa_transform_value, s->args_count);
    const proa_transform_op *op = s->operation;
    if (s->args_count < op->args_min || s->args_count > op->args_max)
        return PROA_TRANSFORM_FAIL(r->err, s, "takes %s%d argument%s, got %d",
                                   op->args_max > op->args_min ? "at least " : "", op->args_min,
                                   op->args_min == 1 ? "" : "s", s->args_count);
    for (int32_t i = 0; i < s->args_count; i++) args[i] = r->p->values[s->args[i]];
    if (op->read) PROA_TRY(op->read(s, r->p, r->err));
    PROA_TRY(check_options(s, r->err));
    return op->shape(s, args, out, r->err);
}

static proa_status read_operation(reader *r, proa_str name)
{
    proa_transform_step *s = r->step;
    s->operation = proa_transform_op_find(name);
    if (!s->operation)
        return PROA_FAIL(r->err, INVALID, "step %d: '%.*s' is no operation; there are %s", s->number,
                         (int)(name.len < 64 ? name.len : 64), name.ptr, proa_transform_op_names());
    return read_items(r);
}

/* `B = A`: another name for the same value. */
static proa_status read_same(reader *r, proa_str name)
{
    r->step->operation = proa_transform_op_find(proa_str_c("pass"));
    return add_argument(r, name);
}

static proa_status read_step(reader *r)
{
    proa_transform_program *p = r->p;
    proa_str name, operation;
    if (p->steps_count == PROA_TRANSFORM_STEPS_MAX)
        return PROA_FAIL(r->err, LIMIT, "more than %d steps", PROA_TRANSFORM_STEPS_MAX);
    r->step = &p->steps[p->steps_count];
    r->step->number = p->steps_count + 1;
    r->step->needs = (uint64_t)1 << p->steps_count;
    PROA_TRY(read_word(r, "the name of a step", &name));
    if (find_value(p, name) >= 0)
        return PROA_FAIL(r->err, INVALID, "step %d: there is a '%s' already", r->step->number, name.ptr);
    if (!take_char(r, '=')) return fail_expected(r, "'='");
    PROA_TRY(read_word(r, "an operation", &operation));
    PROA_TRY(take_char(r, '(') ? read_operation(r, operation) : read_same(r, operation));
    proa_transform_value *out = &p->values[p->inputs_count + p->steps_count];
    PROA_TRY(finish_step(r, out));
    out->name = name.ptr;
    p->steps_count++;
    skip_blanks(r);
    return r->at == r->end || take_char(r, ';') ? PROA_OK : fail_expected(r, "';'");
}

/* ---- the whole ---- */

static proa_status set_input(proa_transform_program *p, proa_transform_value *v,
                             const Inference__ModelInput *in, proa_err *err)
{
    size_t rank = in->reshape ? in->reshape->n_shape : in->n_dims;
    const int64_t *dims = in->reshape ? in->reshape->shape : in->dims;
    if (in->optional)
        return PROA_FAIL(err, INVALID,
                         "input '%s' of model '%s' is optional: a transform needs all of its inputs",
                         in->name, p->model_name);
    if (rank + p->batched > PROA_SERVE_RANK_MAX)
        return PROA_FAIL(err, LIMIT, "input '%s' of model '%s' has more than %d dimensions", in->name,
                         p->model_name, PROA_SERVE_RANK_MAX);
    *v = (proa_transform_value){.name = in->name, .type = (proa_type)in->data_type, .rank = (int32_t)rank};
    if (rank) memcpy(v->shape, dims, rank * sizeof *dims);
    return PROA_OK;
}

static bool is_used(const proa_transform_program *p, int32_t value)
{
    for (int32_t i = 0; i < p->steps_count; i++)
        for (int32_t k = 0; k < p->steps[i].args_count; k++)
            if (p->steps[i].args[k] == value) return true;
    return false;
}

static void add_output(proa_transform_program *p, const char *name, int32_t value)
{
    p->outputs[p->outputs_count++] = (proa_transform_output){name, value};
    if (value >= p->inputs_count) p->steps[value - p->inputs_count].is_output = true;
}

static proa_status set_outputs(proa_transform_program *p, const Inference__ModelConfig *c, proa_err *err)
{
    p->outputs = PROA_ARENA_NEW(p->arena, proa_transform_output, (int64_t)c->n_output + p->steps_count);
    for (size_t i = 0; i < c->n_output; i++) {
        int32_t value = find_value(p, proa_str_c(c->output[i]->name));
        if (value < 0)
            return PROA_FAIL(err, INVALID, "output '%s' of model '%s' is made by no step", c->output[i]->name,
                             p->model_name);
        add_output(p, c->output[i]->name, value);
    }
    for (int32_t i = 0; i < p->steps_count && !c->n_output; i++) {
        int32_t value = p->inputs_count + i;
        if (!is_used(p, value)) add_output(p, p->values[value].name, value);
    }
    return PROA_OK;
}

proa_status proa_transform_read(proa_transform_program *p, proa_str text, const Inference__ModelConfig *c,
                                proa_arena *arena, proa_err *err)
{
    reader r = {.at = text.ptr, .end = text.ptr + text.len, .p = p, .err = err};
    p->arena = arena;
    p->batched = c->max_batch_size > 0;
    p->values = PROA_ARENA_NEW(arena, proa_transform_value, (int64_t)c->n_input + PROA_TRANSFORM_STEPS_MAX);
    p->steps = PROA_ARENA_NEW(arena, proa_transform_step, PROA_TRANSFORM_STEPS_MAX);
    for (size_t i = 0; i < c->n_input; i++) PROA_TRY(set_input(p, &p->values[i], c->input[i], err));
    p->inputs_count = (int32_t)c->n_input;
    for (skip_blanks(&r); r.at < r.end; skip_blanks(&r)) {
        proa_status status = read_step(&r);
        if (status == PROA_OK) continue;
        proa_err_prefix(err, "model '%s', parameter 'steps'", p->model_name);
        return status;
    }
    if (!p->steps_count)
        return PROA_FAIL(err, INVALID, "model '%s', parameter 'steps': there is no step", p->model_name);
    return set_outputs(p, c, err);
}

void proa_transform_close(proa_transform_program *p)
{
    for (int32_t i = 0; p->steps && i < PROA_TRANSFORM_STEPS_MAX; i++)
        proa_text_features_close(p->steps[i].features);
}

/* ---- against the configuration's outputs ---- */

/* Open dimensions fit any; the batch dimension is left out on both sides. */
static bool value_fits(const proa_transform_value *v, const int64_t *dims, size_t rank)
{
    bool same = (size_t)v->rank == rank;
    for (size_t i = 0; i < rank && same; i++)
        same = v->shape[i] == -1 || dims[i] == -1 || v->shape[i] == dims[i];
    return same;
}

static proa_status wrong_shape(const proa_transform_program *p, const proa_transform_value *v,
                               const int64_t *dims, size_t rank, proa_err *err)
{
    char have[PROA_DIMS_TEXT], want[PROA_DIMS_TEXT];
    int64_t full_shape[2][PROA_SERVE_RANK_MAX + 1] = {{-1}, {-1}};
    size_t lead = p->batched;
    if (v->rank) memcpy(full_shape[0] + lead, v->shape, (size_t)v->rank * sizeof *dims);
    if (rank) memcpy(full_shape[1] + lead, dims, rank * sizeof *dims);
    return PROA_FAIL(err, INVALID,
                     "model '%s', tensor '%s': the model expects %zu dimensions (shape %s) but the model "
                     "configuration specifies %zu dimensions %s%s)",
                     p->model_name, v->name, (size_t)v->rank + lead,
                     proa_dims_text(have, full_shape[0], (size_t)v->rank + lead), rank + lead,
                     lead ? "(an initial batch dimension because max_batch_size > 0 followed by the explicit "
                            "tensor shape, making complete shape "
                          : "(shape ",
                     proa_dims_text(want, full_shape[1], rank + lead));
}

proa_status proa_transform_check(const proa_transform_program *p, const Inference__ModelConfig *c, proa_err *err)
{
    for (size_t i = 0; i < c->n_output; i++) {
        const Inference__ModelOutput *o = c->output[i];
        const proa_transform_value *v = &p->values[p->outputs[i].value];
        size_t rank = o->reshape ? o->reshape->n_shape : o->n_dims;
        const int64_t *dims = o->reshape ? o->reshape->shape : o->dims;
        if ((proa_type)o->data_type != v->type)
            return PROA_FAIL(
                err, INVALID,
                "unable to load model '%s', configuration expects datatype %s for output '%s', model "
                "provides %s",
                p->model_name, proa_type_config_name((proa_type)o->data_type), o->name,
                proa_type_config_name(v->type));
        if (rank > PROA_SERVE_RANK_MAX || !value_fits(v, dims, rank)) {
            if (rank > PROA_SERVE_RANK_MAX) rank = PROA_SERVE_RANK_MAX;
            return wrong_shape(p, v, dims, rank, err);
        }
    }
    return PROA_OK;
}
