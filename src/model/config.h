/* SPDX-License-Identifier: Apache-2.0
 * config.h - what a config.json says, in the same words for all architectures.
 * Owner:   proa_config_read fills the caller's struct; its arrays live in the caller's arena.
 * Way in:  an architecture's row (arch.h) lists its keys; proa_config_read walks the list. */
#ifndef PROA_MODEL_CONFIG_H
#define PROA_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/json.h"
#include "model/rope.h"
#include "proa/proa.h"

/* Relative positions that meet the query and the key (relative.h). Learned ones are a table of 2 * span rows, of
 * which row span + b is that of distances q_pos - k_pos of bucket b; others are sinusoids. */
typedef struct proa_relative_params {
    bool used;
    int64_t span; /* 0: sinusoids (XLNet) */
    int64_t distance; /* > 0: buckets grow with the logarithm up to this distance (DeBERTa); 0: they are distances */
    int64_t clamp;   /* > 0: farther positions count as this far */
    bool queries;    /* positions meet keys (DeBERTa's p2c) */
    bool keys_alone; /* and no queries; else they meet queries (c2p) */
    bool normed;     /* the table of positions is normed */
    bool own;        /* they have projections of their own, not those of the content */
} proa_relative_params;

/* Factors of single products (PROA_FACTOR; muP), and of the parts of MIX: of v, B, C, rates and gates. 0 means 1. */
typedef struct proa_factors {
    double mix, mix_out, attention_out, ffn_up, ffn_out, shared_out, layer_project, router, stream_router;
    double parts[5];
} proa_factors;

typedef struct proa_config {
    /* sizes; 0: the architecture has none */
    int64_t vocab, hidden, layers, encoder_layers, heads, kv_heads, head_dim, ffn;
    int64_t input_vocab; /* of an encoder whose vocabulary is not that of its decoder (FSMT); else 0 */
    /* of the encoder, where its sizes are not those of the decoder; else 0 */
    int64_t encoder_heads, encoder_head_dim, encoder_ffn;
    /* Layers with heads of another shape (Gemma 4's without a window): other_heads[layer]; NULL: there are none. They
     * have as many heads of queries, of which a rank may have other ones. */
    bool *other_heads;
    int64_t other_head_dim, other_kv_heads, other_query_heads;
    int64_t *ffn_sizes; /* [layers] of a layer's FFN, of which `ffn` is the largest; NULL: all have `ffn` */
    /* Inputs of each layer beside the residual stream (Gemma 4, Gemma 3n): their width, 0: there are none; the rows of
     * their table, and what multiplies them. */
    int64_t layer_input, layer_vocab;
    double layer_embed_scale;
    /* Streams of rows, of which a layer computes one and mixes the others (AltUp, Gemma 3n); 0: there is one. The rank
     * of the learned residual (LAuReL). deviations[layer]: gates of the FFN below the mean plus so many standard
     * deviations are 0, in layers where it is not -infinity; NULL: in none. */
    int64_t streams, laurel;
    double *deviations;
    int64_t context;         /* positions: of the learned table, or max_position_embeddings */
    int64_t position_offset; /* rows of the learned table before that of position 0 */
    int64_t narrow;          /* width of the stream within a layer (MobileBERT's bottleneck); 0: hidden */
    int64_t ffns;            /* dense FFNs of a layer, one after the other; 0: one */
    int64_t embed;           /* width of the embedding; read as 0: hidden */
    int64_t merged_task; /* 1 + the task whose adapter is added to all matrices when they are loaded; 0: none */
    int64_t merged_rank; /* of that adapter */
    double merged_scale;
    /* columns of the head of a masked language model, or rows of an embedder's; read as 0: embed */
    int64_t head_embed;
    int64_t extra_tokens; /* rows of the embedding behind those of the vocabulary: an image (Mllama) */
    int64_t types, labels;
    int64_t tasks;        /* rows of a table of tasks, of which the first is used (ERNIE) */
    int64_t adapter;      /* width of an adapter behind the FFN (X-MOD) */
    const char *language; /* of a checkpoint with tensors for several, the one that is used; NULL: it has none */
    int64_t boxes;        /* rows of the tables of coordinates, of which the first is used (LayoutLM) */
    int64_t segments;     /* rows of the table by which token types change attention: 2 (XLNet), or 0 */
    /* mixtures of experts: how many a layer has, their FFN size and that of the shared expert */
    int64_t experts, expert_ffn, shared_ffn;
    int64_t expert_latent; /* the width of what experts read and make, if it is not the hidden size; 0: it is */
    bool *expert_layers; /* [layers] which layers have experts in place of the dense FFN; NULL: all, if there are any */
    proa_router router;                 /* how they are chosen; a correction is a weight of the layer */
    double expert_limit, expert_offset; /* proa_experts */
    bool experts_apart; /* each expert has tensors of its own (set by proa_bind, where a row has both forms) */
    bool experts_in_rows; /* stacked experts are [experts, rows, cols], not transposed (set by proa_bind) */
    /* latent attention (MLA): the sizes of q's low rank (0: none), of the latent keys, of a head's query and key
     * without and with position, of its value. head_dim is kv_lora + qk_rope then, and there is one key head */
    int64_t q_lora, kv_lora, qk_nope, qk_rope, v_dim;
    /* Sparse attention (DeepSeek V3.2): an indexer of index_heads heads of index_dim numbers picks for each row the
     * index_topk keys that it sees; 0: it sees all. picking_layers[layer]: whether the layer has an indexer, else it
     * sees what the last layer before it that has one has picked; NULL: all have. index_pairs: its positions rotate
     * pairs. Its keys are in the pool's layers of the other shape, a key of one layer where those of Gemma 4 have keys
     * and the next layer's where they have values. */
    int64_t index_heads, index_dim, index_topk;
    bool *picking_layers, index_pairs;
    bool rope_pairs;       /* positions rotate pairs, not halves */
    int64_t unused_layers; /* after the last one in the checkpoint: multi-token prediction */
    /* synthetic.h: the layers' matrices are codes of 4 or 8 bits in groups of that many inputs; e4m3 instead of int8 */
    int64_t code_group, code_bits;
    bool code_e4m3;
    /* BitNet's quantisation: rows that products of the layers read are rounded to codes of so many bits, 0: not; and
     * their matrices are stored as they were before they were rounded to -1, 0 and 1 times a scale. */
    int64_t input_bits;
    bool ternary_masters;
    /* [layers] which layers have attention, NULL: all; which a recurrent state, NULL: none; which an FFN, dense or a
     * mixture, NULL: all. A layer may have several, or one alone. */
    bool *attending_layers, *recurrent_layers, *ffn_layers;
    /* Layers that share blocks of weights (Zamba2): block_layers[layer] is the first one that has the block of a layer,
     * which its tensors are named by, block_uses[layer] the number of layers with blocks before it. block_adapters:
     * pairs (ending of the name of a matrix, that of its adapters, with %d for the use), NULL-terminated, which are
     * added when the matrix is loaded. NULL: there are none. keeps_embeds: such layers read the embeddings, too. */
    int32_t *block_layers, *block_uses;
    const char *const *block_adapters;
    bool keeps_embeds;
    int32_t *kv_sources; /* [layers] whose keys and values a layer attends to: its own, or those of an earlier layer;
                            NULL: all their own */
    bool k_is_v;         /* in layers with other heads one product makes keys and values (Gemma 4) */
    /* of a recurrent state (gated delta rule, Mamba-2, a short convolution): the heads of q and k (Mamba-2's groups of
     * C and B), those of values, the sizes of both (key_dim 0: the convolution's rows are all of the state), and the
     * rows that the convolution sees; in how many groups the output is normed (0: each head), and whether it is gated
     * before that */
    int64_t key_heads, value_heads, key_dim, value_dim, conv_taps, recall_groups;
    bool gate_first, mix_bias, mix_out_bias, conv_bias;
    bool recall_plain;   /* the output is not normed, only gated */
    bool recall_sigmoid; /* its gates go through a sigmoid, not through the convolution's activation */
    double recall_eps;   /* of its norm; 0: norm_eps */
    double latent_eps;   /* of the norms of latent attention; 0: norm_eps */
    bool mix_rates;      /* one product makes the rates, too (Mamba-2) */
    bool mix_gated;      /* what is convolved has gates, too (LFM2) */
    bool gates_apart;    /* the gates of the output are a product of their own, behind the others in MIX */
    bool negative_eigen; /* a row changes its key's value by up to twice the difference (OLMo Hybrid) */
    bool channel_decays; /* each number of a key has a decay of its own (Kimi Linear) */
    double decay_floor;  /* the least logarithm of a decay; 0: none (proa_delta) */
    int64_t gate_rank;   /* of the products that make decays and gates; 0: these are of the layer's input */
    double step_min, step_max; /* limits of Mamba's steps */
    /* Mamba-1: the rank of what makes the steps, which are those of each column of values; it, B and C are made of the
     * convolved values (PARAMS). 0: not Mamba-1. And the epsilon of their norms. */
    int64_t step_rank;
    double params_eps;
    bool attention_gate; /* the output of attention is multiplied by the sigmoid of a gate (Qwen3-Next) */
    bool shared_gate;    /* the shared expert's output is multiplied by a sigmoid */
    double norm_eps;
    proa_act act;
    bool learned_positions; /* added to the tokens' embeddings */
    bool embed_normed;      /* and then they are normed (encoders whose layers begin with a norm) */
    proa_act head_act;      /* of the head's dense layer, if it is not `act` */
    bool gated;             /* T5: act(wi_0 x) * wi_1 x instead of act(wi x) */
    bool tied;              /* the head is the embedding table */
    bool regression;
    bool attention_bias, mlp_bias, qk_norm;
    bool parallel;          /* attention and FFN both read the layer's input (GPT-J, GPT-NeoX, Falcon) */
    bool one_norm;          /* and the same normed copy of it */
    bool post_norm;         /* the stream is normed after each sublayer, not a copy before it (OPT-350m) */
    bool out_norms;         /* what attention and FFN give is normed, too (HyperCLOVA X) */
    bool normed_head;       /* each row of the head is divided by its norm (Baichuan 2) */
    bool no_final_norm;     /* the head reads the stream as it is */
    bool bare_pooler;       /* the pooler gives the first row as it is (MobileBERT) */
    bool bare_norms;        /* norms have no weights and no biases (Galactica) */
    double attention_scale; /* of q k^T */
    bool layer_scaled;      /* divided by the number of the layer, from 1 on (GPT-2) */
    /* Embeddings of the token mask_id are zeros; the others are scaled by mask_keep over the share that is not masked
     * (ESM); 0: not */
    double mask_keep;
    int64_t mask_id;
    double logit_scale; /* of the head's input: T5 v1.0's d^-0.5 */
    double embed_scale; /* of the embedded tokens: Gemma's sqrt(hidden) */
    bool embed_scale_apart; /* transformers applies it behind the embedding's module: PEFT's inputs are without it */
    proa_factors factors;
    double residual_scale;           /* of what attention and FFN add to the residual stream (Granite) */
    proa_query_scale query_scale;    /* factors of queries by position; beta 0: none */
    double attention_cap, logit_cap; /* soft caps of scores and of logits; 0: none */
    double qkv_clip;                 /* q, k and v are limited to +-this; 0: not */
    double stream_scale; /* of the steps SCALE: of the normed copy to which a sublayer adds (ChatGLM-6B) */
    double alibi_max;    /* the slopes' largest exponent; 0: no ALiBi */
    double alibi_scale;  /* multiplies the slopes; 0: 1 (Falcon's 1 / sqrt(head_dim)) */
    /* rotary positions: how many numbers of a head are rotated, and by which frequencies. Layers with a window use
     * local_rope if its theta is not 0 (Gemma 3) */
    int64_t rotary_dim;
    proa_rope_params rope, local_rope;
    const bool *rotated_layers; /* [layers] which layers rotate q and k, the others know no positions; NULL: all do */
    /* sliding window; window_layers[layer]: whether the layer uses it, NULL: all. Of two stacks the encoder has it
     * (LongT5) */
    int64_t window, window_from;
    int64_t window_pattern; /* > 0: every such layer has none, the others have it (Gemma); 0: layers from window_from */
    bool window_used;
    bool window_chunked; /* the window of a row begins at the last multiple of it (Llama 4) */
    bool *window_layers;
    /* Both stacks of an encoder-decoder have windows (T5Gemma): the encoder that of encoder_window, in its layers of
     * encoder_window_layers; NULL: all */
    bool both_windows;
    int64_t encoder_window;
    bool *encoder_window_layers;
    /* T5's relative positions */
    int64_t rel_buckets, rel_distance;
    /* The first tokens of an encoder's input that all others see beside their window and that see all others
     * (Longformer): so many; < 0: those before the first token globals_end, of which an input has globals_ends. */
    int64_t globals, globals_end, globals_ends;
    int64_t input_context; /* > 0: an encoder before a decoder knows so many positions, not `context` */
    int64_t side_block; /* > 0: rows of a block, whose sums are side keys of an encoder's attention (LongT5) */
    proa_relative_params relative;
    /* a convolution over the rows of an input, after the first layer (DeBERTa v2): rows of a window; 0: none */
    int64_t conv_width;
    proa_act conv_act;
    bool bidirectional; /* rows of a causal stack see both sides (EmbeddingGemma) */
    bool head_of_mean;  /* of the rows of an input, not of one of them */
    bool head_late;     /* and of what the head's dense layer makes of each (EuroBERT) */
    /* of a rank (ranks/shard.h): heads of all ranks, and the first one of this rank; 0: it has all */
    int64_t all_heads, first_head, all_kv_heads, first_kv_head;
    /* Groups of the norm of a recurrent layer's output that several ranks have parts of: columns of a whole one, and
     * the first column of this rank; recall_groups are those of all ranks then. recall_width 0: groups are whole. */
    int64_t recall_width, first_value;
    int64_t gate_parts; /* ranks that have parts of the gates of an FFN whose largest are kept; 0: one has all */
    int64_t own_experts, first_expert; /* whole experts of this rank; 0: it has all, or a part of each */
    int64_t head_split; /* outputs that each rank's part of the head has; 0: each rank has the whole head */
    /* Ranks that make whole sums: columns of each sum that a rank makes (the last has the rest), and of those of
     * experts of a latent width; the most inputs of a product by columns, of all ranks and of one, and room for those
     * of all where they have different numbers. 0: each rank makes a term of every sum. */
    int64_t sum_split, latent_split, sum_inputs, sum_part, sum_padded;
    /* a draft head (heads/eagle.h): columns of its output; the width of the hidden states of its target that it reads,
     * and before which layers of the target they are taken, -1: as published for its number of layers */
    int64_t draft_vocab, states;
    int64_t tapped[PROA_TAPS_MAX];
    bool states_normed;
    /* ids; -1: none */
    int64_t prefix_end;   /* the tokens of a prompt before the first of these are its prefix (prefix.h) */
    int64_t blank_ids[2]; /* the blank that is filled: the first one that the prompt has */
    int64_t bos, pad, decoder_start;
    int64_t passed_over; /* a classifier reads the last row of an input whose token is not this one */
    bool starts_with_last; /* the decoder begins with the last token of the input, a language (mBART's classes) */
    int32_t end_ids[PROA_END_IDS_MAX];
    int32_t end_count;
} proa_config;

typedef enum proa_key_kind { PROA_KEY_INT, PROA_KEY_DOUBLE, PROA_KEY_BOOL, PROA_KEY_ACT } proa_key_kind;

/* One key of config.json. Later rows win, so aliases follow each other. */
typedef struct proa_key {
    const char *key;
    proa_key_kind kind;
    size_t offset;               /* of the field in proa_config */
    double min, max;             /* of INT and DOUBLE */
    bool required, null_is_zero; /* null: the field is 0, where a missing key has the fallback */
    double fallback;             /* when absent and not required */
} proa_key;

#define PROA_KEY_REQUIRED(name, field, lo, hi)                                                               \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_INT, .offset = offsetof(proa_config, field), .min = lo, .max = hi,     \
        .required = true                                                                                     \
    }
#define PROA_KEY_INTEGER(name, field, lo, hi, def)                                                           \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_INT, .offset = offsetof(proa_config, field), .min = lo, .max = hi,     \
        .fallback = def                                                                                      \
    }
/* Of heads of keys and values: null means one for each query head, a missing key the number of the class. */
#define PROA_KEY_KV_HEADS(name, def)                                                                         \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_INT, .offset = offsetof(proa_config, kv_heads), .min = 1,              \
        .max = PROA_HEADS_MAX, .null_is_zero = true, .fallback = def                                         \
    }
#define PROA_KEY_NUMBER(name, field, lo, hi, def)                                                            \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_DOUBLE, .offset = offsetof(proa_config, field), .min = lo, .max = hi,  \
        .fallback = def                                                                                      \
    }
#define PROA_KEY_SWITCH(name, field, def)                                                                    \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_BOOL, .offset = offsetof(proa_config, field), .fallback = def          \
    }
#define PROA_KEY_ACTIVATION(name, def)                                                                       \
    {                                                                                                        \
        .key = name, .kind = PROA_KEY_ACT, .offset = offsetof(proa_config, act), .fallback = def             \
    }

/* Whether the key is there and null, which for some keys means more than a key that is not there. */
bool proa_config_is_null(const proa_json *json, const char *key);

/* Fills *c from the keys (a row whose key is NULL ends them). INVALID with the key, its value and its range. */
PROA_MUST_CHECK proa_status proa_config_read(proa_config *c, const proa_json *json, const proa_key *keys,
                                             proa_err *err);
/* An activation by its name; fallback: where there is none. */
PROA_MUST_CHECK proa_status proa_config_read_act(proa_act *act, const proa_json *json, const char *key,
                                                 proa_act fallback, proa_err *err);
/* labels and regression, of a classification head: num_labels, or the entries of id2label, or two. */
PROA_MUST_CHECK proa_status proa_config_read_labels(proa_config *c, const proa_json *json, proa_err *err);
/* Whether tables of relative positions can be made for these sizes. */
PROA_MUST_CHECK proa_status proa_config_check_relative(const proa_config *c, proa_err *err);
/* rotary_dim: the part of the head size that `partial_rotary_factor` names, of the head size that c has. part: if it is
 * missing. */
PROA_MUST_CHECK proa_status proa_config_read_rotary_dim(proa_config *c, const proa_json *json, double part,
                                                        proa_err *err);
/* rope_parameters (transformers 5) or rope_theta with rope_scaling (before) into c->rope, whose theta may hold another
 * default than 10000; by layer type also into c->local_rope. The context grows to what the scaling makes of it.
 * rotary_dim is set before. Unknown types are UNSUPPORTED. */
PROA_MUST_CHECK proa_status proa_config_read_rope(proa_config *c, const proa_json *json, proa_arena *arena,
                                                  proa_err *err);
/* layer_types, or sliding_window_pattern where c->window_pattern has a default for it, or use_sliding_window with
 * max_window_layers. */
PROA_MUST_CHECK proa_status proa_config_read_window(proa_config *c, const proa_json *json, proa_arena *arena,
                                                    proa_err *err);
/* sliding_window alone, which all layers have: models whose code looks at no other key. */
PROA_MUST_CHECK proa_status proa_config_read_common_window(proa_config *c, const proa_json *json, proa_err *err);
/* What all layers have, or one of them, beside their FFN. */
void proa_config_mix_all(proa_config *c, bool attends, bool recurs, proa_arena *arena);
void proa_config_mix(proa_config *c, int64_t layer, bool attends, bool recurs);
/* Where there are layer_types: which layers have a recurrent state ("linear_attention", "mamba", "conv") and which
 * attention ("full_attention", "attention"), in place of what proa_config_mix_all made. */
PROA_MUST_CHECK proa_status proa_config_read_recurrent(proa_config *c, const proa_json *json, proa_err *err);
/* c->expert_layers: a layer has experts where its number + 1 is a multiple of decoder_sparse_step, unless
 * mlp_only_layers lists it. */
PROA_MUST_CHECK proa_status proa_config_read_expert_layers(proa_config *c, const proa_json *json,
                                                           proa_arena *arena, proa_err *err);
/* c->expert_layers of two stacks: `has` tells by the step of a stack (own: the decoder's) which layers have experts.
 * A layer with experts in one stack only is refused. */
typedef bool proa_has_experts_fn(int64_t layer, int64_t step);
PROA_MUST_CHECK proa_status proa_config_set_expert_layers(proa_config *c, proa_has_experts_fn *has, int64_t own,
                                                          int64_t encoder, proa_arena *arena, proa_err *err);
/* Where there are mlp_layer_types: which layers have experts ("sparse") and which a dense FFN ("dense"), in place of
 * what c->expert_layers holds. */
PROA_MUST_CHECK proa_status proa_config_read_ffn_types(proa_config *c, const proa_json *json, proa_err *err);
/* bos, pad, eos (a number or a list) and decoder_start_token_id; ids outside the vocabulary are none. */
PROA_MUST_CHECK proa_status proa_config_read_ids(proa_config *c, const proa_json *json, proa_err *err);
/* Whether the layer has an indexer; layer < 0: whether some layer has. And how many of [first, end) have. */
bool proa_config_picks(const proa_config *c, int64_t layer);
int64_t proa_config_picking(const proa_config *c, int64_t first, int64_t end);
/* Whether the layer has an FFN, and of which kind; layer < 0: whether some layer has. */
bool proa_config_has_ffn(const proa_config *c, int64_t layer);
bool proa_config_has_experts(const proa_config *c, int64_t layer);
bool proa_config_has_dense(const proa_config *c, int64_t layer);
/* What multiplies q k^T in a layer. */
double proa_config_attention_scale(const proa_config *c, int64_t layer);
/* Whether the layer has attention, or a recurrent state; layer < 0: whether some layer has. */
bool proa_config_attends(const proa_config *c, int64_t layer);
bool proa_config_recurs(const proa_config *c, int64_t layer);
/* Whether a layer has none of the three: no step and no tensor of its own (Mllama without images). */
bool proa_config_is_empty(const proa_config *c, int64_t layer);
/* The shape of a layer's heads, and the size of its FFN. */
bool proa_config_has_other_heads(const proa_config *c, int64_t layer);
int64_t proa_config_head_dim(const proa_config *c, int64_t layer);
int64_t proa_config_heads(const proa_config *c, int64_t layer);
int64_t proa_config_kv_heads(const proa_config *c, int64_t layer);
int64_t proa_config_ffn(const proa_config *c, int64_t layer);
/* Numbers of a head that are rotated: in layers with a window if these have a rope of their own (local), or in the
 * others. */
int64_t proa_config_rotary_dim(const proa_config *c, bool local);
/* Whether gates of a layer's FFN have a threshold; layer < 0: whether some layer's have. */
bool proa_config_has_threshold(const proa_config *c, int64_t layer);
/* Sets kv_sources: the last `shared` layers attend to keys and values of the last layer before them of their kind, with
 * a window or without. INVALID if there is none. Windows are read before. */
PROA_MUST_CHECK proa_status proa_config_share_kv(proa_config *c, int64_t shared, proa_arena *arena,
                                                 proa_err *err);
/* The layer whose keys and values this one attends to. */
int64_t proa_config_kv_source(const proa_config *c, int64_t layer);
/* Whether it makes them itself; layer < 0: whether some layer does. */
bool proa_config_owns_kv(const proa_config *c, int64_t layer);
/* Whether it has a recurrent state and no attention. */
bool proa_config_recurs_alone(const proa_config *c, int64_t layer);
/* Whether one product makes keys and values of that layer. */
bool proa_config_k_is_v(const proa_config *c, int64_t layer);
/* How many of the layers [first, end) have keys and values of their own, of the other shape or of the usual one. */
int64_t proa_config_kv_layers(const proa_config *c, int64_t first, int64_t end, bool other);
/* Operations of attention for one query and one key in the layers [first, end) of a decoder: a multiplication and an
 * addition of each number for the score, and for the sum of values. */
double proa_config_pair_ops(const proa_config *c, int64_t first, int64_t end);
/* How many of the layers [first, end) have attention. */
int64_t proa_config_attending(const proa_config *c, int64_t first, int64_t end);
/* Likewise a recurrent state. */
int64_t proa_config_recurring(const proa_config *c, int64_t first, int64_t end);
/* Columns of the keys, or of B and C, among what is convolved: q and k of it each have as many. */
int64_t proa_config_convolved_keys(const proa_config *c);
/* f32 numbers of the recurrent state of a sequence in one layer, and in all of them. The last rows that the convolution
 * has seen [conv_taps - 1][convolved] come first, then the state [value_heads][key_dim][value_dim]. */
int64_t proa_config_layer_state(const proa_config *c);
int64_t proa_config_state(const proa_config *c);
/* The vocabulary of inputs: of an encoder-decoder what its encoder reads. */
static inline int64_t proa_config_input_vocab(const proa_config *c)
{
    return c->input_vocab > 0 ? c->input_vocab : c->vocab;
}
/* Tokens that an encoder's input has at most. */
static inline int64_t proa_config_input_context(const proa_config *c)
{
    return c->input_context > 0 ? c->input_context : c->context;
}
/* attention_window of Longformer and LED: one number for all layers, of which a row sees half to each side. And a key
 * of ours, for what transformers takes with each call as global_attention_mask: global_tokens, how many first tokens
 * are global; without it as many as c->globals says. */
PROA_MUST_CHECK proa_status proa_config_read_attention_window(proa_config *c, const proa_json *json,
                                                              proa_err *err);
/* The kind of attention of BigBird's encoders: up to some number of tokens transformers attends to all of them,
 * whatever attention_type says; inputs are not longer than that, since blocks attend to random ones. */
PROA_MUST_CHECK proa_status proa_config_read_block_sparse(proa_config *c, const proa_json *json, proa_err *err);
/* Global tokens of an input; < 0: it has not as many tokens globals_end as it must have. */
int64_t proa_config_globals(const proa_config *c, const int32_t *ids, int64_t count);
/* Joins two stacks, each of which was read of an object of its own: `c` has the decoder's numbers, and takes of the
 * encoder's what may differ: layers, FFN size, positions. Refuses other differences. */
PROA_MUST_CHECK proa_status proa_config_join_stacks(proa_config *c, const proa_config *encoder,
                                                    int64_t encoder_layers, proa_err *err);
/* The window of a layer of the only stack, or of the decoder; 0 for none. And of the stack where there are two. */
int32_t proa_config_window(const proa_config *c, int64_t layer);
int32_t proa_config_stack_window(const proa_config *c, bool decoder, int64_t layer);
/* Whether a layer rotates q and k; layer < 0: whether some layer does. And the contrary. */
bool proa_config_rotates(const proa_config *c, int64_t layer);
bool proa_config_lacks_rope(const proa_config *c, int64_t layer);
/* ALiBi's slopes[heads] (Press et al. 2022): 2^-(max / heads), its square, and so on; beyond a power of 2, every
 * second one that twice as many heads would have. */
void proa_config_alibi(const proa_config *c, float *slopes);

#endif
