/* SPDX-License-Identifier: Apache-2.0
 * derive.c - makes rows of other rows: a classifier, an embedder, a decoder alone, ... of the same layers.
 * A classifier of texts has its labels from one row of each input, one of tokens and one of spans (question answering)
 * from each row, an embedder gives the normed states. Of several inputs the best choice is the one with the largest
 * number. Facts: transformers' modeling_layers.py and the classes of the models that have heads of their own (GPT-2,
 * BLOOM, OPT, BART, T5, BERT, ...), which differ in names alone. */
#include "model/derive.h"

#include "model/arch/arch_rows.h"
#include "model/multimodal.h"

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
/* Of encoder-decoders, which read the row of the last end token through one more layer. */
static const proa_name class_names[] = {
    MATRIX   ("classification_head.dense.weight",    HEAD_DENSE,   HIDDEN, HIDDEN),
    VECTOR   ("classification_head.dense.bias",      HEAD_DENSE_B, HIDDEN),
    MATRIX   ("classification_head.out_proj.weight", HEAD,         LABELS, HIDDEN),
    VECTOR   ("classification_head.out_proj.bias",   HEAD_B,       LABELS),
    END_TENSORS};
/* Of those that end in one product (T5Gemma). */
static const proa_name out_names[] = {
    MATRIX   ("score.out_proj.weight",               HEAD,         LABELS, HIDDEN),
    VECTOR   ("score.out_proj.bias",                 HEAD_B,       LABELS),
    END_TENSORS};
/* Of encoders, behind their pooler. */
static const proa_name choice_names[] = {
    MATRIX   ("classifier.weight",                   HEAD,         LABELS, HIDDEN),
    VECTOR   ("classifier.bias",                     HEAD_B,       LABELS),
    END_TENSORS};
static const proa_name follow_names[] = {
    MATRIX   ("cls.seq_relationship.weight",         HEAD,         LABELS, HIDDEN),
    VECTOR   ("cls.seq_relationship.bias",           HEAD_B,       LABELS),
    END_TENSORS};
static const proa_step headless[] = {GATHER(OUT), END};
static const proa_step class_head[] = {
    GATHER(H),
    LINEAR(H,  HN,  HEAD_DENSE, TANH),
    LINEAR(HN, OUT, HEAD,       0),
    END};
static const proa_step rows_head[] = {GATHER(H), LINEAR(H, OUT, HEAD, 0), END};
static const proa_step pooled_head[] = {GATHER(H), LINEAR(H, HN, POOL, TANH), LINEAR(HN, OUT, HEAD, 0), END};
/* What a decoder over the input begins with: it keeps what the encoder made of the same rows. */
static const proa_step keep_encoded[] = {SCALE(X, KEPT), END};
static const proa_step nothing[] = {END};
/* clang-format on */

/* Classifiers of tokens that have code of their own call the product so (GPT-2, GPT-NeoX, BLOOM, Falcon, MPT). */
static const char *const token_aliases[] = {"score.weight", "classifier.weight", "score.bias",
                                            "classifier.bias", NULL};

/* One form of the rows of a kind: the endings of the names of row and class, and the head. */
static const struct head_form {
    proa_kind kind;
    proa_head_form form;
    const char *row, *class;
    proa_head_rows rows;
    proa_dim outputs;
    const proa_name *names;
    const proa_step *head; /* NULL: that of the origin */
} head_forms[] = {
#define FORM(kind, form, ...)                                                                                \
    {                                                                                                        \
        PROA_KIND_##kind, PROA_FORM_##form, __VA_ARGS__                                                      \
    }
    FORM(DECODER, BARE, "_embed", "Model", PROA_ROWS_ALL, PROA_DIM_HIDDEN, no_names, headless),
    FORM(DECODER, TEXTS, "_cls", "ForSequenceClassification", PROA_ROWS_LAST, PROA_DIM_LABELS, score_names, NULL),
    FORM(DECODER, TOKENS, "_token", "ForTokenClassification", PROA_ROWS_ALL, PROA_DIM_LABELS, score_names, NULL),
    FORM(DECODER, SPANS, "_qa", "ForQuestionAnswering", PROA_ROWS_ALL, PROA_DIM_LABELS, span_names, NULL),
    FORM(ENCODER_DECODER, TEXTS, "_cls", "ForSequenceClassification", PROA_ROWS_END, PROA_DIM_LABELS,
         class_names, class_head),
    FORM(ENCODER_DECODER, ENDS, "_cls", "ForSequenceClassification", PROA_ROWS_LAST, PROA_DIM_LABELS,
         out_names, rows_head),
    FORM(ENCODER_DECODER, TOKENS, "_token", "ForTokenClassification", PROA_ROWS_ALL, PROA_DIM_LABELS,
         out_names, rows_head),
    FORM(ENCODER_DECODER, SPANS, "_qa", "ForQuestionAnswering", PROA_ROWS_ALL, PROA_DIM_LABELS, span_names,
         rows_head),
    FORM(ENCODER_DECODER, CAUSAL, "_causal", "ForCausalLM", PROA_ROWS_LAST, PROA_DIM_VOCAB, no_names, NULL),
    FORM(ENCODER, CAUSAL, "_causal", "ForCausalLM", PROA_ROWS_LAST, PROA_DIM_VOCAB, no_names, NULL),
    FORM(ENCODER, CHOICES, "_choice", "ForMultipleChoice", PROA_ROWS_FIRST, PROA_DIM_LABELS, choice_names,
         pooled_head),
    FORM(ENCODER, FOLLOWS, "_next", "ForNextSentencePrediction", PROA_ROWS_FIRST, PROA_DIM_LABELS,
         follow_names, pooled_head),
#undef FORM
};

enum { ROWS_MAX = PROA_COUNT(written) * (1 + PROA_COUNT(head_forms)) + PROA_MULTIMODAL_MAX + 1 };
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

static bool ends_with(const char *text, const char *ending)
{
    return proa_str_ends(proa_str_c(text), proa_str_c(ending));
}

static const char *const *name_classes(const proa_arch *origin, const char *ending)
{
    int64_t n = list_length(origin->stems);
    const char **out = PROA_ARENA_NEW(&rows_arena, const char *, n + 1);
    for (int64_t i = 0; i < n; i++) {
        bool whole = ends_with(origin->stems[i], "Model");
        out[i] = whole ? origin->stems[i] : join_names(origin->stems[i], ending);
    }
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

static bool is_of_cross(proa_weight_slot slot)
{
    return slot >= PROA_SLOT_CROSS_NORM && slot <= PROA_SLOT_CROSS_OUT_NORM_B;
}

static bool is_of_head(proa_weight_slot slot)
{
    return slot == PROA_SLOT_HEAD || slot == PROA_SLOT_HEAD_B;
}

static bool is_of_pooler(proa_weight_slot slot)
{
    return slot == PROA_SLOT_POOL || slot == PROA_SLOT_POOL_B;
}

/* Whether a row of the form has a tensor of its origin. A decoder alone has its head, but adds nothing to the logits
 * that a checkpoint may lack (final_logits_bias). */
static bool keeps_tensor(const struct head_form *form, const proa_name *n)
{
    if (form->form != PROA_FORM_CAUSAL) return !is_of_head(n->slot);
    if (form->kind == PROA_KIND_ENCODER) return true;
    bool added = n->slot == PROA_SLOT_HEAD_B && n->flags & PROA_IF(PRESENT);
    return n->stack == PROA_STACK_DECODER && !added;
}

/* A decoder alone has tables of its own, and does not use what a checkpoint has of its cross-attention. */
static proa_name in_decoder(proa_name n)
{
    n.stack = PROA_STACK_DECODER;
    if (n.role == PROA_ROLE_TABLE) n.flags &= ~(proa_flags)PROA_SHARED;
    if (is_of_cross(n.slot)) n.flags |= PROA_UNUSED;
    return n;
}

/* The same tensor in a row of the form. A head behind the pooler needs it. */
static proa_name in_form(const struct head_form *form, proa_name n)
{
    if (form->form == PROA_FORM_CAUSAL) return in_decoder(n);
    if (form->kind == PROA_KIND_DECODER) n.stack = PROA_STACK_ENCODER;
    if (form->kind == PROA_KIND_ENCODER && is_of_pooler(n.slot)) n.flags &= ~(proa_flags)PROA_IF(PRESENT);
    return n;
}

/* The tensors of the origin, and those of the new head, which ends the pass of an encoder. */
static const proa_name *make_tensors(const proa_arch *origin, const struct head_form *form)
{
    int64_t count = 0, n = 0;
    while (origin->names[count].name) count++;
    for (const proa_name *h = form->names; h->name; h++) count++;
    proa_name *out = PROA_ARENA_NEW(&rows_arena, proa_name, count + 1);
    for (const proa_name *from = origin->names; from->name; from++)
        if (keeps_tensor(form, from)) out[n++] = in_form(form, *from);
    for (const proa_name *h = form->names; h->name; h++) out[n++] = *h;
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

/* Both programs, one behind the other. */
static const proa_step *join_programs(const proa_step *a, const proa_step *b)
{
    int64_t n = program_length(a), m = program_length(b);
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + m + 1);
    memcpy(out, a, (size_t)n * sizeof *out);
    memcpy(out + n, b, (size_t)(m + 1) * sizeof *out);
    return out;
}

/* A layer that makes the keys and values of the encoder's outputs, which are in KEPT, before it attends to them. */
static const proa_step *make_decoding(const proa_step *layer, const proa_step *cross)
{
    int64_t n = program_length(layer), m = program_length(cross), count = 0;
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + m + 1);
    for (int64_t i = 0; i <= n; i++) {
        for (int64_t k = 0; k < m && layer[i].op == PROA_STEP_CROSS_ATTEND; k++) {
            out[count] = cross[k];
            if (cross[k].in == PROA_REG_X) out[count].in = PROA_REG_KEPT;
            count++;
        }
        out[count++] = layer[i];
    }
    return out;
}

/* A layer without its cross-attention. */
static const proa_step *drop_cross(const proa_step *layer)
{
    int64_t n = program_length(layer), count = 0;
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + 1);
    for (int64_t i = 0; i <= n; i++)
        if (layer[i].op != PROA_STEP_CROSS_ATTEND && !is_of_cross(layer[i].w)) out[count++] = layer[i];
    return out;
}

/* The head of an encoder, with what follows its last layer in it. */
static const proa_step *make_causal_head(const proa_step *head, const proa_step *after)
{
    int64_t n = program_length(after);
    proa_step *out = PROA_ARENA_NEW(&rows_arena, proa_step, n + 2);
    PROA_ASSERT(head->op == PROA_STEP_GATHER && head->out == PROA_REG_H);
    out[0] = head[0];
    for (int64_t i = 0; i < n; i++) {
        out[i + 1] = after[i];
        out[i + 1].in = out[i + 1].out = PROA_REG_H;
    }
    out[n + 1] = (proa_step)END;
    return join_programs(out, head + 1);
}

/* Of a decoder: an encoder whose attention is causal. */
static void take_decoder(proa_arch *row, const proa_arch *decoder, const struct head_form *form)
{
    const char *body = body_prefix(decoder);
    bool bare = form->form == PROA_FORM_BARE;
    row->prefixes = join_lists(decoder->prefixes, STRINGS(body));
    if (form->form == PROA_FORM_TOKENS) row->aliases = join_lists(decoder->aliases, token_aliases);
    if (form->form == PROA_FORM_SPANS) /* these classes of Llama's family call all layers "transformer" */
        row->prefix_aliases = join_lists(decoder->prefix_aliases, STRINGS(body, "transformer."));
    row->kind = PROA_KIND_ENCODER;
    row->stacks[STACK] = decoder->stacks[PROA_STACK_DECODER];
    row->stacks[STACK].after = bare ? make_norm(decoder->head) : NULL;
    row->stacks[PROA_STACK_DECODER] = (proa_stack){NULL, NULL, NULL, false};
    if (!bare) row->head = make_head(decoder->head);
}

/* Of an encoder-decoder: an encoder that decodes its input. */
static void decode_input(proa_arch *row, const proa_arch *pair)
{
    proa_stack *decoder = &row->stacks[PROA_STACK_DECODER];
    row->kind = PROA_KIND_ENCODER;
    decoder->embed = join_programs(keep_encoded, decoder->embed);
    decoder->layer = make_decoding(decoder->layer, pair->cross);
    decoder->after = make_norm(pair->head);
    row->cross = NULL;
}

/* Of an encoder-decoder its decoder, whose class has a table of its own; what a checkpoint has of the encoder is not
 * used. */
static void take_decoder_alone(proa_arch *row, const proa_arch *pair)
{
    static const char *const own_table[] = {"shared.weight", "decoder.embed_tokens.weight", NULL};
    static const char *const encoder[] = {"model.encoder.", "encoder.", NULL};
    row->kind = PROA_KIND_DECODER;
    row->stacks[PROA_STACK_DECODER].layer = drop_cross(pair->stacks[PROA_STACK_DECODER].layer);
    row->stacks[STACK] = (proa_stack){NULL, NULL, NULL, false};
    row->aliases = join_lists(own_table, pair->aliases);
    row->unused_parts = encoder;
    row->cross = NULL;
}

/* Of a masked language model: the same layers, which see one side. */
static void become_decoder(proa_arch *row, const proa_arch *encoder)
{
    const proa_stack *stack = &encoder->stacks[STACK];
    row->kind = PROA_KIND_DECODER;
    row->stacks[PROA_STACK_DECODER] = (proa_stack){stack->embed, stack->layer, NULL, true};
    row->stacks[STACK] = (proa_stack){NULL, NULL, NULL, false};
    row->head = make_causal_head(encoder->head, stack->after ? stack->after : nothing);
    row->embedder = NULL;
}

/* Whether the row of an encoder is a classifier, whose head that of the form is but for the number of labels. */
static bool has_labels(const proa_arch *origin)
{
    return origin->outputs == PROA_DIM_LABELS;
}

/* Of an encoder without a head, or of a classifier: the same layers, which see both sides. */
static void take_encoder(proa_arch *row, const proa_arch *encoder)
{
    row->pool = NULL;
    if (!has_labels(encoder)) return;
    row->head = encoder->head;
    row->head_rows = encoder->head_rows;
}

/* What the forms have of their origins. */
static void take_layers(proa_arch *row, const proa_arch *origin, const struct head_form *form)
{
    bool causal = form->form == PROA_FORM_CAUSAL;
    switch (form->kind) {
    case PROA_KIND_DECODER: take_decoder(row, origin, form); break;
    case PROA_KIND_ENCODER: (causal ? become_decoder : take_encoder)(row, origin); break;
    case PROA_KIND_ENCODER_DECODER: (causal ? take_decoder_alone : decode_input)(row, origin); break;
    }
}

static const proa_arch *make_row(const proa_arch *origin, const struct head_form *form)
{
    proa_arch *row = PROA_ARENA_NEW(&rows_arena, proa_arch, 1);
    *row = *origin;
    row->name = join_names(origin->name, form->row);
    row->hf = name_classes(origin, form->class);
    row->names = has_labels(origin) ? origin->names : make_tensors(origin, form);
    if (form->head) row->head = form->head;
    row->head_rows = form->rows;
    row->outputs = form->outputs;
    row->stems = NULL;
    row->forms = 0;
    row->origin = origin;
    row->form = form->form;
    take_layers(row, origin, form);
    return row;
}

static bool has_form(const proa_arch *origin, const struct head_form *form)
{
    return origin->kind == form->kind && origin->forms & 1u << form->form;
}

static void make_rows(void)
{
    int64_t count = 0;
    proa_arena_init(&rows_arena);
    for (size_t i = 0; i < PROA_COUNT(written); i++) rows[count++] = written[i];
    for (size_t i = 0; i < PROA_COUNT(written); i++)
        for (size_t k = 0; k < PROA_COUNT(head_forms); k++)
            if (has_form(written[i], &head_forms[k])) rows[count++] = make_row(written[i], &head_forms[k]);
    for (int i = 0; proa_multimodal_row(i); i++) rows[count++] = proa_multimodal_row(i);
}

const proa_arch *const *proa_arch_rows(void)
{
    pthread_once(&rows_made, make_rows);
    return rows;
}

const proa_arch *proa_arch_of_form(const proa_arch *origin, proa_head_form form)
{
    const proa_arch *const *all = proa_arch_rows();
    while (*all && ((*all)->origin != origin || (*all)->form != form)) all++;
    return *all;
}

/* The layers of a decoder are an encoder's. */
static proa_status finish_decoder(const proa_arch *arch, proa_config *c, const proa_json *json, proa_err *err)
{
    bool causal = true;
    c->encoder_layers = c->layers, c->layers = 0;
    PROA_TRY(proa_json_get_bool(&causal, json, "is_causal", err));
    if (!causal) return PROA_FAIL(err, UNSUPPORTED, "'is_causal' false is not supported");
    if (arch->form == PROA_FORM_BARE && c->embed && c->embed != c->hidden)
        return PROA_FAIL(err, UNSUPPORTED, "hidden states of %lld numbers from layers of %lld are not supported",
                         (long long)c->embed, (long long)c->hidden);
    return PROA_OK;
}

/* A decoder that an encoder's layers become sees one side only if its configuration says so, and has no encoder before
 * it. */
static proa_status become_causal(proa_config *c, const proa_json *json, proa_err *err)
{
    bool decodes = false, crosses = false;
    c->layers = c->encoder_layers, c->encoder_layers = 0;
    PROA_TRY(proa_json_get_bool(&decodes, json, "is_decoder", err));
    PROA_TRY(proa_json_get_bool(&crosses, json, "add_cross_attention", err));
    if (!decodes)
        return PROA_FAIL(err, UNSUPPORTED, "'is_decoder' false is not supported, all rows see both sides");
    if (crosses)
        return PROA_FAIL(err, UNSUPPORTED, "'add_cross_attention' true is not supported without an encoder");
    return PROA_OK;
}

/* A decoder alone has no sizes of its encoder. */
static void leave_encoder(proa_config *c)
{
    c->encoder_layers = c->encoder_heads = c->encoder_ffn = 0;
    c->input_context = 0;
    c->decoder_start = -1;
}

/* Forms whose number of labels config.json does not give. */
static void fix_labels(proa_config *c, proa_head_form form)
{
    bool pair = form == PROA_FORM_SPANS || form == PROA_FORM_FOLLOWS, one = form == PROA_FORM_CHOICES;
    if (!pair && !one) return;
    c->labels = pair ? 2 : 1;
    c->regression = one;
}

proa_status proa_arch_finish_form(const proa_arch *arch, proa_config *c, const proa_json *json,
                                  const proa_json *outer, proa_err *err)
{
    bool causal = arch->form == PROA_FORM_CAUSAL;
    switch (arch->origin->kind) {
    case PROA_KIND_DECODER: PROA_TRY(finish_decoder(arch, c, json, err)); break;
    case PROA_KIND_ENCODER:
        if (causal) return become_causal(c, json, err);
        break;
    case PROA_KIND_ENCODER_DECODER: c->stream_scale = 1; break;
    }
    if (causal) leave_encoder(c);
    if (causal) return PROA_OK;
    PROA_TRY(proa_config_read_labels(c, outer, err));
    fix_labels(c, arch->form);
    return PROA_OK;
}
