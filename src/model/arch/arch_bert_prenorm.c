/* SPDX-License-Identifier: Apache-2.0
 * arch_bert_prenorm.c - relatives of BERT whose layers norm what attention and the FFN read: Megatron-BERT,
 * RoBERTa-PreLayerNorm, XLM-RoBERTa-XL, ESM-2 (also ESM-1b). They have one layer, of which ESM-2's rotates queries and
 * keys, where the others have learned positions. ESM leaves out the embeddings of mask tokens. Heads: none (hidden
 * states and pooler), sequence classification, token classification, question answering, masked language model.
 * Facts: transformers' modeling_{megatron_bert,roberta_prelayernorm,xlm_roberta_xl,esm}.py. */
#include "model/arch/bert_rows.h"

#define STACK PROA_STACK_ENCODER
#define LAYER "encoder.layer.%d."

/* clang-format off */
static const proa_key keys[] = {BERT_KEYS(1e-12, 2), END_KEYS}, xl_keys[] = {BERT_KEYS(1e-5, 1), END_KEYS};
static const proa_key esm_keys[] = {
    REQUIRED  ("vocab_size",              vocab,          VOCAB),
    INTEGER   ("hidden_size",             hidden,         1, HIDDEN,  768),
    INTEGER   ("num_hidden_layers",       encoder_layers, 1, LAYERS,  12),
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,   12),
    INTEGER   ("intermediate_size",       ffn,            1, FFN,     3072),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 1026),
    EPSILON   ("layer_norm_eps",          1e-12),
    SWITCH    ("emb_layer_norm_before",   embed_normed,   0),
    SWITCH    ("tie_word_embeddings",     tied,           1),
    END_KEYS};

#define LAYER_TENSORS(M, ATTENTION_NORM, SECOND_NORM) \
    BERT_ATTENTION(M LAYER), BERT_NORM(M LAYER ATTENTION_NORM, ATTN_NORM), \
    BERT_FFN(M LAYER), BERT_NORM(M LAYER SECOND_NORM, FFN_NORM)
#define MEGATRON_TENSORS \
    BERT_EMBEDDINGS("bert."), BERT_POSITIONS("bert.", CONTEXT), LAYER_TENSORS("bert.", "attention.ln", "ln"), \
    BERT_NORM("bert.encoder.ln", FINAL_NORM)
#define PRELAYER "roberta_prelayernorm."
#define PRELAYER_TENSORS \
    BERT_EMBEDDINGS(PRELAYER), BERT_POSITIONS(PRELAYER, POSITIONS), BERT_EMBED_NORM(PRELAYER),   \
    LAYER_TENSORS(PRELAYER, "attention.LayerNorm", "intermediate.LayerNorm"),                    \
    BERT_NORM(PRELAYER "LayerNorm", FINAL_NORM)
#define XL_TENSORS \
    BERT_EMBEDDINGS("roberta."), BERT_POSITIONS("roberta.", POSITIONS),       \
    LAYER_TENSORS("roberta.", "attention.self_attn_layer_norm", "LayerNorm"), \
    BERT_NORM("roberta.encoder.LayerNorm", FINAL_NORM)
#define ESM_TENSORS \
    TABLE ("esm.embeddings.word_embeddings.weight", TOKENS,    VOCAB, EMBED),                                     \
    TENSOR("esm.embeddings.position_embeddings.weight", POSITIONS, TABLE, POSITIONS, EMBED, IF(LEARNED_POSITIONS)), \
    VECTOR_IF(EMBED_NORMED, "esm.embeddings.layer_norm.weight", EMBED_NORM,   EMBED),                             \
    VECTOR_IF(EMBED_NORMED, "esm.embeddings.layer_norm.bias",   EMBED_NORM_B, EMBED),                             \
    TENSOR("esm.rotary_embeddings.inv_freq", INV_FREQ, VECTOR, ROTARY_HALF, NONE, IF(ROTARY) | IF(PRESENT)),      \
    LAYER_TENSORS("esm.", "attention.LayerNorm", "LayerNorm"),                                                    \
    BERT_NORM("esm.encoder.emb_layer_norm_after", FINAL_NORM)

/* The tensors of a family with each of its heads. FORM: BERT's head for sequences, or RoBERTa's. */
#define ALL_TENSORS(short, M, BODY, ...) \
    short##_bare_tensors[] = {BODY, BERT_POOLER(M, IF(PRESENT)), END_TENSORS},                 \
    short##_cls_tensors[] = {BODY, __VA_ARGS__, END_TENSORS},                                  \
    short##_token_tensors[] = {BODY, CLASSIFIER_TENSORS("classifier"), END_TENSORS}
static const proa_name ALL_TENSORS(megatron, "bert.", MEGATRON_TENSORS, BERT_POOLER("bert.", 0),
                                   CLASSIFIER_TENSORS("classifier")),
    megatron_qa_tensors[] = {MEGATRON_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS},
    megatron_mlm_tensors[] = {MEGATRON_TENSORS, BERT_MLM_TENSORS("bert.", HIDDEN), END_TENSORS};
static const proa_name ALL_TENSORS(prelayer, PRELAYER, PRELAYER_TENSORS, DENSE_CLASSIFIER_TENSORS),
    prelayer_qa_tensors[] = {PRELAYER_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS},
    prelayer_mlm_tensors[] = {PRELAYER_TENSORS, ROBERTA_MLM_TENSORS(PRELAYER), END_TENSORS};
static const proa_name ALL_TENSORS(xl, "roberta.", XL_TENSORS, DENSE_CLASSIFIER_TENSORS),
    xl_qa_tensors[] = {XL_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS},
    xl_mlm_tensors[] = {XL_TENSORS, ROBERTA_MLM_TENSORS("roberta."), END_TENSORS};
static const proa_name ALL_TENSORS(esm, "esm.", ESM_TENSORS, DENSE_CLASSIFIER_TENSORS),
    esm_mlm_tensors[] = {ESM_TENSORS, ROBERTA_MLM_TENSORS("esm."), END_TENSORS};
static const char *const megatron_prefixes[] = {"bert.", NULL}, *const prelayer_prefixes[] = {PRELAYER, NULL};
static const char *const xl_prefixes[] = {"roberta.", NULL}, *const esm_prefixes[] = {"esm.", NULL};
/* ESM's frequencies are stored, rounded as they were in training, once or in each layer alike. */
static const char *const aliases[] = {
    BERT_ALIASES, ROBERTA_ALIASES, LAYER_NORM_ALIASES,
    "rotary_embeddings.inv_freq", "encoder.layer.0.attention.self.rotary_embeddings.inv_freq",
    NULL};
static const char *const ignored[] = {
    BERT_PRETRAINING, ROBERTA_PRETRAINING, UNUSED_POOLER, "self.rotary_embeddings.inv_freq",
    "contact_head.regression.weight", "contact_head.regression.bias", "esm.embeddings.position_embeddings.weight",
    NULL};

#define EMBED_ALL EMBED(TOKENS), EMBED_TO(X, POSITIONS, OF_POS | ADD), EMBED_TO(X, TYPES, OF_TYPE | ADD)
static const proa_step megatron_embed[] = {EMBED_ALL, END}, xl_embed[] = {EMBED_ALL, END};
static const proa_step prelayer_embed[] = {EMBED_ALL, NORM(X, X, EMBED_NORM), END};
static const proa_step esm_embed[] = {
    EMBED   (TOKENS),
    DROP_MASKED(X),
    EMBED_TO(X, POSITIONS, OF_POS | ADD | IF(LEARNED_POSITIONS)),
    NORM_IF (EMBED_NORMED, X, X, EMBED_NORM),
    ROPE_TABLE_OF(INV_FREQ),
    END};
static const proa_step layer[] = {PRE_NORM_LAYER}, after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, token_head[] = ROWS_HEAD;
static const proa_step pooled_head[] = POOLED_HEAD, dense_head[] = DENSE_HEAD(TANH);
static const proa_step bert_mlm_head[] = MLM_HEAD(ACT), mlm_head[] = MLM_HEAD(GELU);
/* clang-format on */

static proa_status finish_megatron(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_bert_check_positions(json, "absolute", err);
}

/* RoBERTa's positions. */
static proa_status finish_offset(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_roberta_read_positions(c, json, 1, err));
    return finish_megatron(c, json, arena, err);
}

/* While ESM was trained, the embeddings of 0.15 * 0.8 of the tokens were zeros. */
static proa_status read_token_dropout(proa_config *c, const proa_json *json, proa_err *err)
{
    bool drops = false;
    PROA_TRY(proa_json_get_bool(&drops, json, "token_dropout", err));
    c->mask_id = -1;
    PROA_TRY(proa_json_get_int(&c->mask_id, json, "mask_token_id", 0, PROA_VOCAB_MAX, err));
    if (drops) c->mask_keep = 1 - 0.15 * 0.8;
    return PROA_OK;
}

static proa_status finish_esm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str positions = {"absolute", 8};
    bool folds = false, decodes = false;
    c->act = PROA_ACT_GELU;
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(proa_json_get_bool(&folds, json, "is_folding_model", err));
    PROA_TRY(proa_json_get_bool(&decodes, json, "is_decoder", err));
    if (folds || decodes)
        return PROA_FAIL(err, UNSUPPORTED, "'%s' true is not supported",
                         folds ? "is_folding_model" : "is_decoder");
    PROA_TRY(read_token_dropout(c, json, err));
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, "rotary")) {
        c->rotary_dim = c->hidden / c->heads;
        return proa_config_read_rope(c, json, arena, err);
    }
    c->learned_positions = true;
    PROA_TRY(proa_bert_check_positions(json, "absolute", err));
    return proa_roberta_read_positions(c, json, 1, err);
}

/* clang-format off */
#define ROW(row, short, type, class, keylist, finisher, head_name, program, rows, outs) \
    .name = row, .hf = STRINGS(class), .model_type = type, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,  \
    .keys = keylist, .names = short##_##head_name##_tensors, .prefixes = short##_prefixes, .aliases = aliases,  \
    .ignored = ignored, .stacks = {[STACK] = {short##_embed, layer, after, false}}, .head = program,            \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs, .finish = finisher
/* A model with its heads. row: its name; cls_program, mlm_program: the heads for sequences and for words; others: what
 * else is behind its pooler; the rest: the decoder of its layers. */
#define FAMILY(row, short, type, class, keylist, finisher, cls_program, mlm_program, others, ...) \
    const proa_arch proa_arch_##row = {                                                                         \
        ROW(#row, short, type, class "Model", keylist, finisher, bare, headless, ALL, HIDDEN), .pool = pool,    \
        others};                                                                                                \
    const proa_arch proa_arch_##row##_cls = {                                                                   \
        ROW(#row "_cls", short, type, class "ForSequenceClassification", keylist, finisher, cls, cls_program,   \
            FIRST, LABELS)};                                                                                    \
    const proa_arch proa_arch_##row##_token = {                                                                 \
        ROW(#row "_token", short, type, class "ForTokenClassification", keylist, finisher, token, token_head,   \
            ALL, LABELS)};                                                                                      \
    const proa_arch proa_arch_##row##_mlm = {                                                                   \
        ROW(#row "_mlm", short, type, class "ForMaskedLM", keylist, finisher, mlm, mlm_program, ALL, VOCAB),    \
        .embedder = &proa_arch_##row, __VA_ARGS__}
#define QA(row, short, type, class, keylist, finisher) \
    const proa_arch proa_arch_##row##_qa = {                                                                    \
        ROW(#row "_qa", short, type, class "ForQuestionAnswering", keylist, finisher, qa, token_head, ALL, LABELS)}

FAMILY(megatron_bert, megatron, "megatron-bert", "MegatronBert", keys, finish_megatron, pooled_head, bert_mlm_head,
       FORMS(CHOICES | FOLLOWS, "MegatronBert"), FORMS(DECODERS, "MegatronBert"));
QA(megatron_bert, megatron, "megatron-bert", "MegatronBert", keys, finish_megatron);
FAMILY(roberta_prelayernorm, prelayer, "roberta-prelayernorm", "RobertaPreLayerNorm", keys, finish_offset, dense_head,
       mlm_head, FORMS(CHOICES, "RobertaPreLayerNorm"), FORMS(DECODERS, "RobertaPreLayerNorm"));
QA(roberta_prelayernorm, prelayer, "roberta-prelayernorm", "RobertaPreLayerNorm", keys, finish_offset);
FAMILY(xlm_roberta_xl, xl, "xlm-roberta-xl", "XLMRobertaXL", xl_keys, finish_offset, dense_head, mlm_head,
       FORMS(CHOICES, "XLMRobertaXL"), FORMS(DECODERS, "XLMRobertaXL"));
QA(xlm_roberta_xl, xl, "xlm-roberta-xl", "XLMRobertaXL", xl_keys, finish_offset);
FAMILY(esm, esm, "esm", "Esm", esm_keys, finish_esm, dense_head, mlm_head, NO_HEADS, NO_HEADS);
/* clang-format on */
