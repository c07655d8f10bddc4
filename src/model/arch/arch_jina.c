/* SPDX-License-Identifier: Apache-2.0
 * arch_jina.c - Jina's encoders. Jina BERT (jina-embeddings-v2): BERT with ALiBi to both sides in place of learned
 * positions, and a gated FFN; the model for code norms queries and keys, too, and adds the layer's input a second time
 * after attention. jina-embeddings-v3: XLM-RoBERTa with rotary positions, as transformers 5 saves it and as it was
 * published, with adapters of its tasks, of which one may be added to the matrices. Heads: none (hidden states and
 * pooler), sequence classification, token classification, question answering, masked language model.
 * Facts: of Jina BERT the code that is published with it (jina-bert-implementation, jina-bert-v2-qk-post-norm), as
 * text-embeddings-inference and llama.cpp have it; transformers' modeling_jina_embeddings_v3.py; the layout of the
 * adapters is that of xlm-roberta-flash-implementation's modeling_lora.py. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

#include <string.h>

#define STACK    PROA_STACK_ENCODER
#define MODEL    "bert."
#define LAYER    MODEL "encoder.layer.%d."
#define V3       "roberta."
#define V3_LAYER V3 "encoder.layers.%d."

/* clang-format off */
static const proa_key keys[] = {BERT_KEYS(1e-12, 2), END_KEYS}, v3_keys[] = {BERT_KEYS(1e-5, 1), END_KEYS};

#define FFN_TENSOR(COND, name, SLOT, ROLE, ROWS, COLS, LOAD) \
    TENSOR_LOADED(LOAD, LAYER name, SLOT, ROLE, ROWS, COLS, COND)
#define ORDINARY (IF(GATED) | IF(QK_PLAIN)) /* a gated FFN of the models for text */
#define CODE     (IF(GATED) | IF(QK_NORM))
#define NORM_TENSORS(COND, name, SLOT, ROWS) \
    TENSOR(LAYER name ".weight", SLOT,     VECTOR, ROWS, NONE, COND), \
    TENSOR(LAYER name ".bias",   SLOT##_B, VECTOR, ROWS, NONE, COND)
#define BODY_TENSORS \
    BERT_EMBEDDINGS(MODEL), BERT_EMBED_NORM(MODEL),                                                               \
    TENSOR(MODEL "embeddings.position_embeddings.weight", POSITIONS, TABLE, CONTEXT, HIDDEN, IF(LEARNED_POSITIONS)),   \
    BERT_ATTENTION(LAYER), BERT_NORM(LAYER "attention.output.LayerNorm", ATTN_NORM),                                  \
    NORM_TENSORS(IF(QK_NORM), "attention.self.layer_norm_q", Q_NORM,        Q),                                       \
    NORM_TENSORS(IF(QK_NORM), "attention.self.layer_norm_k", K_NORM,        KV),                                      \
    NORM_TENSORS(IF(QK_NORM), "layer_norm_1",                ATTN_OUT_NORM, HIDDEN),                                  \
    NORM_TENSORS(IF(QK_NORM), "layer_norm_2",                FFN_NORM,      HIDDEN),                                  \
    NORM_TENSORS(ORDINARY,    "mlp.layernorm",               FFN_NORM,      HIDDEN),                                  \
    NORM_TENSORS(IF(PLAIN) | IF(QK_PLAIN), "output.LayerNorm", FFN_NORM,    HIDDEN),                                  \
    FFN_TENSOR(ORDINARY,  "mlp.gated_layers.weight",   UP,     MATRIX, GATE_UP, HIDDEN, ROWS),                        \
    FFN_TENSOR(ORDINARY,  "mlp.wo.weight",             DOWN,   MATRIX, HIDDEN,  FFN,    ROWS),                        \
    FFN_TENSOR(ORDINARY,  "mlp.wo.bias",               DOWN_B, VECTOR, HIDDEN,  NONE,   ROWS),                        \
    FFN_TENSOR(CODE,      "mlp.up_gated_layer.weight", UP,     MATRIX, GATE_UP, HIDDEN, HALVES_TURNED),               \
    FFN_TENSOR(CODE,      "mlp.down_layer.weight",     DOWN,   MATRIX, HIDDEN,  FFN,    ROWS),                        \
    FFN_TENSOR(CODE,      "mlp.down_layer.bias",       DOWN_B, VECTOR, HIDDEN,  NONE,   ROWS),                        \
    FFN_TENSOR(IF(PLAIN), "intermediate.dense.weight", UP,     MATRIX, FFN,     HIDDEN, ROWS),                        \
    FFN_TENSOR(IF(PLAIN), "intermediate.dense.bias",   UP_B,   VECTOR, FFN,     NONE,   ROWS),                        \
    FFN_TENSOR(IF(PLAIN), "output.dense.weight",       DOWN,   MATRIX, HIDDEN,  FFN,    ROWS),                        \
    FFN_TENSOR(IF(PLAIN), "output.dense.bias",         DOWN_B, VECTOR, HIDDEN,  NONE,   ROWS)
#define V3_TENSORS \
    BERT_EMBEDDINGS(V3),                                             \
    VECTOR(V3 "emb_ln.weight",                EMBED_NORM,   EMBED),  \
    VECTOR(V3 "emb_ln.bias",                  EMBED_NORM_B, EMBED),  \
    MATRIX(V3_LAYER "mixer.Wqkv.weight",      QKV,    QKV,    HIDDEN), \
    VECTOR(V3_LAYER "mixer.Wqkv.bias",        QKV_B,  QKV),          \
    MATRIX(V3_LAYER "mixer.out_proj.weight",  O,      HIDDEN, Q),    \
    VECTOR(V3_LAYER "mixer.out_proj.bias",    O_B,    HIDDEN),       \
    BERT_NORM(V3_LAYER "norm1", ATTN_NORM),                          \
    MATRIX(V3_LAYER "mlp.fc1.weight",         UP,     FFN,    HIDDEN), \
    VECTOR(V3_LAYER "mlp.fc1.bias",           UP_B,   FFN),          \
    MATRIX(V3_LAYER "mlp.fc2.weight",         DOWN,   HIDDEN, FFN),  \
    VECTOR(V3_LAYER "mlp.fc2.bias",           DOWN_B, HIDDEN),       \
    BERT_NORM(V3_LAYER "norm2", FFN_NORM)

static const proa_name bare_tensors[] = {BODY_TENSORS, BERT_POOLER(MODEL, IF(PRESENT)), END_TENSORS};
static const proa_name cls_tensors[] = {
    BODY_TENSORS, BERT_POOLER(MODEL, 0), CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name token_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name qa_tensors[] = {BODY_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name mlm_tensors[] = {BODY_TENSORS, BERT_MLM_TENSORS(MODEL, HIDDEN), END_TENSORS};
static const proa_name v3_bare_tensors[] = {V3_TENSORS, BERT_POOLER(V3, IF(PRESENT)), END_TENSORS};
static const proa_name v3_cls_tensors[] = {V3_TENSORS, DENSE_CLASSIFIER_TENSORS, END_TENSORS};
static const proa_name v3_token_tensors[] = {V3_TENSORS, CLASSIFIER_TENSORS("classifier"), END_TENSORS};
static const proa_name v3_qa_tensors[] = {V3_TENSORS, CLASSIFIER_TENSORS("qa_outputs"), END_TENSORS};
static const proa_name v3_mlm_tensors[] = {V3_TENSORS, ROBERTA_MLM_TENSORS(V3), END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL}, *const v3_prefixes[] = {V3, NULL};
static const char *const aliases[] = {BERT_ALIASES, NULL}, *const v3_aliases[] = {ROBERTA_ALIASES, NULL};
static const char *const ignored[] = {BERT_PRETRAINING, UNUSED_POOLER, NULL};
/* Matrices that the published file has beside the adapters of its tasks. */
static const char *const v3_tasks_aliases[] = {ROBERTA_ALIASES, ".weight", ".parametrizations.weight.original", NULL};
static const char *const v3_tasks_ignored[] = {
    ROBERTA_PRETRAINING, "rotary_emb.inv_freq", "parametrizations.weight.0.lora_A", "parametrizations.weight.0.lora_B",
    NULL};
static const char *const v3_merged[] = {".parametrizations.weight.original", ".parametrizations.weight.0.lora_A",
                                        ".parametrizations.weight.0.lora_B", NULL};
static const char *const v3_ignored[] = {ROBERTA_PRETRAINING, UNUSED_POOLER, "rotary_emb.inv_freq", NULL};

static const proa_step embed[] = {
    EMBED_TO(D, TOKENS,    0),
    EMBED_TO(D, POSITIONS, OF_POS | ADD | IF(LEARNED_POSITIONS)),
    EMBED_TO(D, TYPES,     OF_TYPE | ADD),
    NORM    (D, X,         EMBED_NORM),
    END};
static const proa_step v3_embed[] = {
    EMBED_TO(D, TOKENS, 0),
    EMBED_TO(D, TYPES,  OF_TYPE | ADD),
    NORM    (D, X,      EMBED_NORM),
    ROPE_TABLE,
    END};
static const proa_step layer[] = {
    LINEAR      (X, QKV, QKV,  0),
    STEP        (HEADS_NORM, QKV, QKV, Q_NORM, PROA_WHOLE | IF(QK_NORM)),
    STEP        (HEADS_NORM, QKV, QKV, K_NORM, PROA_OF_K | PROA_WHOLE | IF(QK_NORM)),
    KV_APPEND,
    ATTEND,
    LINEAR      (A, D,   O,    ADD_X),
    NORM_IF     (QK_PLAIN, D, X, ATTN_NORM),
    STEP        (NORM, D, X, ATTN_NORM, PROA_ADD | IF(QK_NORM)),
    NORM_IF     (QK_NORM, X, X, ATTN_OUT_NORM),
    LINEAR_GATED(X, F,   UP,   IF(GATED)),
    LINEAR      (F, D,   DOWN, ADD_X | IF(GATED)),
    LINEAR      (X, U,   UP,   ACT | IF(PLAIN)),
    LINEAR      (U, D,   DOWN, ADD_X | IF(PLAIN)),
    NORM        (D, X,   FFN_NORM),
    END};
static const proa_step v3_layer[] = {POST_NORM_LAYER};
static const proa_step headless[] = NO_HEAD, pool[] = POOLER_HEAD, token_head[] = ROWS_HEAD;
static const proa_step cls_head[] = POOLED_HEAD, v3_cls_head[] = DENSE_HEAD(TANH);
static const proa_step mlm_head[] = MLM_HEAD(HEAD_ACT), v3_mlm_head[] = MLM_HEAD(GELU);
/* clang-format on */

/* The FFN by its name: a gated GELU or ReLU, or BERT's. The heads' activation is hidden_act. */
static proa_status read_ffn(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str type = {"original", 8};
    PROA_TRY(proa_json_get_str(&type, json, "feed_forward_type", err));
    c->head_act = c->act;
    c->gated = !proa_str_is(type, "original");
    if (!c->gated) return PROA_OK;
    c->act = proa_str_is(type, "reglu") ? PROA_ACT_RELU : PROA_ACT_GELU;
    if (proa_str_is(type, "geglu") || proa_str_is(type, "reglu")) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'feed_forward_type' '%.*s' is not supported (geglu, reglu, original are)",
                     (int)type.len, type.ptr);
}

/* The model for code has the class names of the others: the code that it names tells it. */
static bool names_code(const proa_json *json)
{
    static const char part[] = "qk-post-norm";
    proa_str texts[] = {proa_json_str(proa_json_get(json, "_name_or_path")),
                        proa_json_str(proa_json_get(proa_json_get(json, "auto_map"), "AutoConfig")),
                        proa_json_str(proa_json_get(proa_json_get(json, "auto_map"), "AutoModel"))};
    for (size_t i = 0; i < PROA_COUNT(texts); i++)
        if (texts[i].len && memmem(texts[i].ptr, texts[i].len, part, sizeof part - 1)) return true;
    return false;
}

static proa_status finish_jina(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str positions = {"absolute", 8}, pooler = {"mean", 4};
    PROA_UNUSED(arena);
    c->qk_norm = names_code(json);
    PROA_TRY(proa_config_read_labels(c, json, err));
    PROA_TRY(read_ffn(c, json, err));
    if (c->qk_norm && !c->gated)
        return PROA_FAIL(err, UNSUPPORTED,
                         "'feed_forward_type' original with norms of queries and keys is not supported");
    PROA_TRY(proa_json_get_str(&pooler, json, "emb_pooler", err));
    if (!proa_str_is(pooler, "mean"))
        return PROA_FAIL(err, UNSUPPORTED, "'emb_pooler' '%.*s' is not supported (mean is)", (int)pooler.len,
                         pooler.ptr);
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, "alibi")) return c->alibi_max = 8, PROA_OK;
    c->learned_positions = true;
    return proa_bert_check_positions(json, "absolute", err);
}

static proa_status finish_v3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rotary_dim = c->hidden / c->heads;
    c->rope.theta = 20000;
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_config_read_rope(c, json, arena, err);
}

/* The adapter of the task that config.json chooses by a key of Proa's own, among those that it has. */
static proa_status read_task(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str task = {"", 0};
    double alpha = 1;
    const proa_json *all = proa_json_get(json, "lora_adaptations");
    PROA_TRY(proa_json_get_str(&task, json, "lora_task", err));
    if (task.len == 0) return PROA_OK;
    c->merged_rank = 4;
    PROA_TRY(proa_json_get_int(&c->merged_rank, json, "lora_rank", 1, PROA_LORA_RANK_MAX, err));
    PROA_TRY(proa_json_get_double(&alpha, json, "lora_alpha", 0, 1e6, err));
    c->merged_scale = alpha / (double)c->merged_rank;
    for (int64_t i = 0; i < proa_json_len(all) && !c->merged_task; i++)
        if (proa_str_eq(proa_json_str(proa_json_at(all, i)), task)) c->merged_task = i + 1;
    if (c->merged_task) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'lora_task' is '%.*s', which is none of 'lora_adaptations'",
                     (int)proa_min64((int64_t)task.len, 60), task.ptr);
}

/* The published file, whose class is that of XLM-RoBERTa: without a task its code uses no adapter. */
static proa_status finish_v3_tasks(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(arena);
    c->rotary_dim = c->hidden / c->heads;
    c->rope.theta = 10000;
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rotary_emb_base", 1, 1e12, err));
    PROA_TRY(read_task(c, json, err));
    PROA_TRY(proa_config_read_labels(c, json, err));
    return proa_bert_check_positions(json, "rotary", err);
}

/* clang-format off */
#define ENCODER(row, type, class, keylist, tensors, begin, program, heads, rows, outs) \
    .name = row, .hf = STRINGS(class), .model_type = type, .kind = PROA_KIND_ENCODER, .norm = PROA_NORM_LAYER,     \
    .keys = keylist, .names = tensors, .stacks = {[STACK] = {begin, program, NULL, false}}, .head = heads,         \
    .head_rows = PROA_ROWS_##rows, .outputs = PROA_DIM_##outs
#define JINA(row, class, tensors, heads, rows, outs) \
    ENCODER("jina_bert" row, "jina_bert", "JinaBert" class, keys, tensors, embed, layer, heads, rows, outs), \
    .prefixes = prefixes, .aliases = aliases, .ignored = ignored, .finish = finish_jina
#define JINA_3(row, class, tensors, heads, rows, outs) \
    ENCODER("jina_embeddings_v3" row, "jina_embeddings_v3", "JinaEmbeddingsV3" class, v3_keys, tensors, v3_embed, \
            v3_layer, heads, rows, outs), \
    .prefixes = v3_prefixes, .aliases = v3_aliases, .ignored = v3_ignored, .finish = finish_v3

const proa_arch proa_arch_jina_bert = {JINA("", "Model", bare_tensors, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_jina_bert_cls = {
    JINA("_cls", "ForSequenceClassification", cls_tensors, cls_head, FIRST, LABELS)};
const proa_arch proa_arch_jina_bert_token = {
    JINA("_token", "ForTokenClassification", token_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_jina_bert_qa = {
    JINA("_qa", "ForQuestionAnswering", qa_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_jina_bert_mlm = {
    JINA("_mlm", "ForMaskedLM", mlm_tensors, mlm_head, ALL, VOCAB), .embedder = &proa_arch_jina_bert};
const proa_arch proa_arch_jina_embeddings_v3 = {
    JINA_3("", "Model", v3_bare_tensors, headless, ALL, HIDDEN), .pool = pool};
const proa_arch proa_arch_jina_embeddings_v3_tasks = {
    ENCODER("jina_embeddings_v3_tasks", "jina_embeddings_v3_tasks", "XLMRobertaModel", v3_keys, v3_bare_tensors,
            v3_embed, v3_layer, headless, ALL, HIDDEN),
    .key = "lora_adaptations", .prefixes = v3_prefixes, .aliases = v3_tasks_aliases, .ignored = v3_tasks_ignored,
    .merged = v3_merged, .pool = pool, .finish = finish_v3_tasks};
const proa_arch proa_arch_jina_embeddings_v3_cls = {
    JINA_3("_cls", "ForSequenceClassification", v3_cls_tensors, v3_cls_head, FIRST, LABELS)};
const proa_arch proa_arch_jina_embeddings_v3_token = {
    JINA_3("_token", "ForTokenClassification", v3_token_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_jina_embeddings_v3_qa = {
    JINA_3("_qa", "ForQuestionAnswering", v3_qa_tensors, token_head, ALL, LABELS)};
const proa_arch proa_arch_jina_embeddings_v3_mlm = {
    JINA_3("_mlm", "ForMaskedLM", v3_mlm_tensors, v3_mlm_head, ALL, VOCAB),
    .embedder = &proa_arch_jina_embeddings_v3};
/* clang-format on */
