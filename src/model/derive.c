/* SPDX-License-Identifier: Apache-2.0
 * derive.c - makes rows of the rows of decoders: a classifier, an embedder, ... on the same layers.
 * A classifier of texts has its labels from one row of each input, one of tokens and one of spans (question answering)
 * from each row, an embedder gives the normed states. Facts: transformers' modeling_layers.py and the classes of the
 * models that have heads of their own (GPT-2, BLOOM, OPT, ...), which differ in names alone. */
#include "model/derive.h"

#include "model/arch/arch_rows.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STACK PROA_STACK_ENCODER

static const proa_arch *const written[] = {
#define ROW(name) &proa_arch_##name,
    PROA_ARCH_LIST(ROW)
#undef ROW
};

/* clang-format off */
/* EMBED: what a row of the decoder's head has, which is hidden but for OPT-350m. */
static const proa_name score_names[] = {
    MATRIX   ("score.weight",             HEAD,   LABELS, EMBED),
    VECTOR_IF(PRESENT, "score.bias",      HEAD_B, LABELS),
    END_TENSORS};
static const proa_name span_names[] = {
    MATRIX   ("qa_outputs.weight",        HEAD,   LABELS, EMBED),
    VECTOR_IF(PRESENT, "qa_outputs.bias", HEAD_B, LABELS),
    END_TENSORS};
static const proa_name no_names[] = {END_TENSORS};
static const proa_step headless[] = {GATHER(OUT), END};
/* clang-format on */

/* Classifiers of tokens that have code of their own call the product so (GPT-2, GPT-NeoX, BLOOM, Falcon, MPT). */
static const char *const token_aliases[] = {"score.weight", "classifier.weight", "score.bias",
                                            "classifier.bias", NULL};

/* One form: the endings of the names of row and class, and the head. */
static const struct head_form {
    proa_head_form form;
    const char *row, *class;
    proa_head_rows rows;
    proa_dim outputs;
    const proa_name *names;
    const char *const *aliases;
} head_forms[] = {
    {PROA_FORM_BARE, "_embed", "Model", PROA_ROWS_ALL, PROA_DIM_HIDDEN, no_names, NULL},
    {PROA_FORM_TEXTS, "_cls", "ForSequenceClassification", PROA_ROWS_LAST, PROA_DIM_LABELS, score_names, NULL},
    {PROA_FORM_TOKENS, "_token", "ForTokenClassification", PROA_ROWS_ALL, PROA_DIM_LABELS, score_names,
     token_aliases},
    {PROA_FORM_SPANS, "_qa", "ForQuestionAnswering", PROA_ROWS_ALL, PROA_DIM_LABELS, span_names, NULL},
};

enum { ROWS_MAX = PROA_COUNT(written) * (1 + PROA_COUNT(head_forms)) + 1 };
static const proa_arch *rows[ROWS_MAX];
static pthread_once_t rows_made = PTHREAD_ONCE_INIT;
static proa_arena rows_arena; /* never released */

static const char *join_names(const char *a, const char *b)
{
    size_t bytes = strlen(a) + strlen(b) + 1;
    char *out = PROA_ARENA_NEW(&rows_arena, char, (int64_t)bytes);
    snprintf(out, bytes, "%s%s", a, b);
    return out;
}

static int64_t list_length(const char *const *list)
{
    int64_t n = 0;
    while (list && list[n]) n++;
    return n;
}

/* Both lists, one behind the other; either may be NULL. */
static const char *const *join_lists(const char *const *a, const char *const *b)
{
    int64_t n = list_length(a), m = list_length(b);
    const char **out = PROA_ARENA_NEW(&rows_arena, const char *, n + m + 1);
    for (int64_t i = 0; i < n; i++) out[i] = a[i];
    for (int64_t i = 0; i < m; i++) out[n + i] = b[i];
    return out;
}

static const char *const *class_names(const proa_arch *decoder, const char *ending)
{
    int64_t n = list_length(decoder->stems);
    const char **out = PROA_ARENA_NEW(&rows_arena, const char *, n + 1);
    for (int64_t i = 0; i < n; i++) out[i] = join_names(decoder->stems[i], ending);
    return out;
}

/* What the names of the layers begin with, up to the first point: "transformer." of "transformer.wte.weight". */
static const char *body_prefix(const proa_arch *decoder)
{
    const proa_name *n = decoder->names;
    while (n->slot != PROA_SLOT_TOKENS) n++;
    int length = (int)(strchr(n->name, '.') - n->name) + 1;
    char *out = PROA_ARENA_NEW(&rows_arena, char, length + 1);
    snprintf(out, (size_t)length + 1, "%.*s", length, n->name);
    return out;
}

/* The tensors of the decoder but for its head, and those of the new head. */
static const proa_name *make_tensors(const proa_arch *decoder, const proa_name *head)
{
    int64_t count = 0, n = 0;
    while (decoder->names[count].name) count++;
    for (const proa_name *h = head; h->name; h++) count++;
    proa_name *out = PROA_ARENA_NEW(&rows_arena, proa_name, count + 1);
    for (const proa_name *from = decoder->names; from->name; from++) {
        if (from->slot == PROA_SLOT_HEAD || from->slot == PROA_SLOT_HEAD_B) continue;
        out[n] = *from;
        out[n++].stack = STACK;
    }
    for (const proa_name *h = head; h->name; h++) out[n++] = *h;
    return out;
}

static int64_t program_length(const proa_step *steps)
{
    int64_t n = 0;
    while (steps[n].op != PROA_STEP_END) n++;
    return n;
}

static proa_flags conditions_of(proa_flags flags)
{
    return flags >> PROA_CONDITION_SHIFT << PROA_CONDITION_SHIFT;
}

/* The head of the language model, whose product has neither factors nor caps here. */
static const proa_step *make_head(const proa_step *from)
{
    int64_t n = program_length(from);
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + 1);
    for (int64_t i = 0; i <= n; i++) {
        out[i] = from[i];
        if (from[i].op == PROA_STEP_LINEAR && from[i].w == PROA_SLOT_HEAD)
            out[i].flags = conditions_of(from[i].flags);
    }
    return out;
}

/* The norm of the language model's head, over all rows of the residual stream; NULL: it has none. */
static const proa_step *make_norm(const proa_step *head)
{
    int64_t n = program_length(head), count = 0;
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + 1);
    for (int64_t i = 0; i < n; i++) {
        if (head[i].op != PROA_STEP_NORM) continue;
        out[count] = head[i];
        out[count].in = out[count].out = PROA_REG_X;
        count++;
    }
    out[count] = (proa_step)END;
    return count ? out : NULL;
}

static const proa_arch *make_row(const proa_arch *decoder, const struct head_form *form)
{
    proa_arch *row = PROA_ARENA_NEW(&rows_arena, proa_arch, 1);
    const char *body = body_prefix(decoder);
    bool bare = form->form == PROA_FORM_BARE;
    *row = *decoder;
    row->name = join_names(decoder->name, form->row);
    row->hf = class_names(decoder, form->class);
    row->kind = PROA_KIND_ENCODER;
    row->names = make_tensors(decoder, form->names);
    row->prefixes = join_lists(decoder->prefixes, STRINGS(body));
    row->aliases = join_lists(decoder->aliases, form->aliases);
    if (form->form == PROA_FORM_SPANS) /* these classes of Llama's family call all layers "transformer" */
        row->prefix_aliases = join_lists(decoder->prefix_aliases, STRINGS(body, "transformer."));
    row->stacks[STACK] = decoder->stacks[PROA_STACK_DECODER];
    row->stacks[PROA_STACK_DECODER] = (proa_stack){NULL, NULL, NULL, false};
    row->stacks[STACK].after = bare ? make_norm(decoder->head) : NULL;
    row->head = bare ? headless : make_head(decoder->head);
    row->head_rows = form->rows;
    row->outputs = form->outputs;
    row->stems = NULL;
    row->forms = 0;
    row->decoder = decoder;
    row->form = form->form;
    return row;
}

static void make_rows(void)
{
    int64_t count = 0;
    proa_arena_init(&rows_arena);
    for (size_t i = 0; i < PROA_COUNT(written); i++) rows[count++] = written[i];
    for (size_t i = 0; i < PROA_COUNT(written); i++)
        for (size_t k = 0; k < PROA_COUNT(head_forms) && written[i]->stems; k++)
            if (written[i]->forms & 1u << head_forms[k].form)
                rows[count++] = make_row(written[i], &head_forms[k]);
}

const proa_arch *const *proa_arch_rows(void)
{
    pthread_once(&rows_made, make_rows);
    return rows;
}

const proa_arch *proa_arch_of_form(const proa_arch *decoder, proa_head_form form)
{
    const proa_arch *const *all = proa_arch_rows();
    while (*all && ((*all)->decoder != decoder || (*all)->form != form)) all++;
    return *all;
}

proa_status proa_arch_finish_form(const proa_arch *arch, proa_config *c, const proa_json *json, proa_err *err)
{
    bool causal = true;
    c->encoder_layers = c->layers, c->layers = 0;
    PROA_TRY(proa_json_get_bool(&causal, json, "is_causal", err));
    if (!causal) return PROA_FAIL(err, UNSUPPORTED, "'is_causal' false is not supported");
    if (arch->form == PROA_FORM_BARE && c->embed && c->embed != c->hidden)
        return PROA_FAIL(err, UNSUPPORTED, "hidden states of %lld numbers from layers of %lld are not supported",
                         (long long)c->embed, (long long)c->hidden);
    PROA_TRY(proa_config_read_labels(c, json, err));
    if (arch->form == PROA_FORM_SPANS) c->labels = 2;
    return PROA_OK;
}
