/* SPDX-License-Identifier: Apache-2.0
 * arch_rows.h - the notation of the architecture tables: one macro for each kind of line in arch_*.c.
 *
 * Only arch_*.c and derive.c include this header, because its macros have no prefix. An architecture is three tables
 * and a row: keys of config.json, tensors of the checkpoint, programs of steps; and the proa_arch that joins them. The
 * tables are laid by hand, one entry a line, inside a clang-format off block. arch_llama.c is the example to copy.
 *
 * Letters in the shapes below: T rows (tokens) of the step, S rows that the head computes, H hidden size,
 * Q = heads * head_dim, K = kv_heads * head_dim, F FFN size, V columns of the output (vocabulary or labels). */
#ifndef PROA_MODEL_ARCH_ROWS_H
#define PROA_MODEL_ARCH_ROWS_H

#include "model/arch.h"

/* clang-format off */

/* ---- Keys of config.json: proa_key. FIELD is a member of proa_config; MOST names a limit, PROA_<MOST>_MAX. ---- */

#define REQUIRED(key, field, MOST)            PROA_KEY_REQUIRED(key, field, 1, PROA_##MOST##_MAX)
#define INTEGER(key, field, least, MOST, def) PROA_KEY_INTEGER(key, field, least, PROA_##MOST##_MAX, def)
#define KV_HEADS(def)                         PROA_KEY_KV_HEADS("num_key_value_heads", def)
#define EPSILON(key, def)                     PROA_KEY_NUMBER(key, norm_eps, 0, 1, def) /* of the norms */
#define NUMBER(key, field, least, most, def)  PROA_KEY_NUMBER(key, field, least, most, def)
#define SWITCH(key, field, def)               PROA_KEY_SWITCH(key, field, def)
/* pad_token_id of the class where config.json has none, for its classifier of texts. */
#define PAD(def)                              PROA_KEY_INTEGER("pad_token_id", pad, INT32_MIN, INT32_MAX, def)
#define ACTIVATION(key, ACT)                  PROA_KEY_ACTIVATION(key, PROA_ACT_##ACT)  /* of the FFN */
#define END_KEYS                              {0}
/* The sizes by their usual names. LAYERS_FIELD: layers, or encoder_layers. */
#define SIZE_KEYS(LAYERS_FIELD) \
    REQUIRED("vocab_size",          vocab,        VOCAB),  \
    REQUIRED("hidden_size",         hidden,       HIDDEN), \
    REQUIRED("num_hidden_layers",   LAYERS_FIELD, LAYERS), \
    REQUIRED("num_attention_heads", heads,        HEADS),  \
    REQUIRED("intermediate_size",   ffn,          FFN)

/* ---- Tensors of the checkpoint: proa_name. ----
 * "%d" in NAME stands for the layer. SLOT is where the tensor goes (PROA_SLOT_LIST; a bias goes to SLOT_B). ROWS and
 * COLS are its shape (proa_dim). Each file defines STACK, the stack of layers that the tensors belong to. Tensors of
 * one slot are stacked along their rows in the order of the table: q, k, v make one [Q + 2K, H] matrix.
 *
 * MATRIX       [ROWS, COLS], packed for the linear product y = x W^T
 * TRANSPOSED   the same, but stored as [COLS, ROWS] (GPT-2's Conv1D)
 * TABLE        [ROWS, COLS], read in place, row by row (embeddings)
 * TABLE_SINUSOIDS
 *              [POSITIONS, HIDDEN], fixed positions, made if the checkpoint lacks them; sines before cosines
 *              (HALVES, or with fairseq's frequencies ENDS) or in turn (PAIRS)
 * MATRIX_F32   [ROWS, COLS], copied to f32 (T5's position biases)
 * VECTOR       [ROWS], copied to f32 (norms, biases)
 * VECTOR_1     [ROWS], copied to f32 with 1 added (Gemma's norms)
 * ..._IF       only under a condition of PROA_CONDITION_LIST: TIED, UNTIED, GATED, PLAIN, ATTN_BIAS, PRESENT, ...
 * ..._LOADED   with a load action (proa_load): QKV_GROUPS, QVK_QUARTERS, EVEN_ODD, HEADS_TURNED, NORMALISED, ONES,
 *              SPREAD
 * HEAD_MATRIX  one for each head, out of a tensor that has the rows of all heads
 * EXPERT_...   one for each expert: the second "%d" of NAME is the expert's number; with one "%d" the tensor is
 *              [experts, ROWS, COLS]
 * TIED_HEAD    the embedding [VOCAB, HIDDEN] used a second time, as the matrix of a tied head
 * TIED_HEAD_OF the same with COLS columns */
#define TENSOR(name, SLOT, ROLE, ROWS, COLS, flags) \
    {name, STACK, PROA_SLOT_##SLOT, PROA_ROLE_##ROLE, PROA_DIM_##ROWS, PROA_DIM_##COLS, flags, \
     PROA_LOAD_ROWS}
#define TENSOR_LOADED(LOAD, name, SLOT, ROLE, ROWS, COLS, flags) \
    {name, STACK, PROA_SLOT_##SLOT, PROA_ROLE_##ROLE, PROA_DIM_##ROWS, PROA_DIM_##COLS, flags, PROA_LOAD_##LOAD}

#define MATRIX(name, SLOT, ROWS, COLS)        TENSOR(name, SLOT, MATRIX, ROWS, COLS, 0)
#define MATRIX_IF(COND, name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, PROA_IF(COND))
#define TRANSPOSED(name, SLOT, ROWS, COLS)    TENSOR(name, SLOT, TRANSPOSED, ROWS, COLS, 0)
#define TABLE(name, SLOT, ROWS, COLS)         TENSOR(name, SLOT, TABLE, ROWS, COLS, 0)
#define TABLE_SHARED(name, SLOT, ROWS, COLS)  TENSOR(name, SLOT, TABLE, ROWS, COLS, PROA_SHARED)
#define TABLE_SINUSOIDS(FORM, name, flags) \
    TENSOR_LOADED(SINUSOID_##FORM, name, POSITIONS, TABLE, POSITIONS, HIDDEN, flags)
#define MATRIX_F32(name, SLOT, ROWS, COLS)    TENSOR(name, SLOT, F32, ROWS, COLS, 0)
#define VECTOR(name, SLOT, ROWS)              TENSOR(name, SLOT, VECTOR, ROWS, NONE, 0)
#define VECTOR_1(name, SLOT, ROWS)            TENSOR(name, SLOT, VECTOR, ROWS, NONE, PROA_PLUS_ONE)
#define VECTOR_IF(COND, name, SLOT, ROWS)     TENSOR(name, SLOT, VECTOR, ROWS, NONE, PROA_IF(COND))
#define MATRIX_LOADED(LOAD, name, SLOT, ROWS, COLS) TENSOR_LOADED(LOAD, name, SLOT, MATRIX, ROWS, COLS, 0)
#define MATRIX_LOADED_IF(COND, LOAD, name, SLOT, ROWS, COLS) \
    TENSOR_LOADED(LOAD, name, SLOT, MATRIX, ROWS, COLS, PROA_IF(COND))
#define VECTOR_LOADED(LOAD, name, SLOT, ROWS) TENSOR_LOADED(LOAD, name, SLOT, VECTOR, ROWS, NONE, 0)
#define VECTOR_LOADED_IF(COND, LOAD, name, SLOT, ROWS) \
    TENSOR_LOADED(LOAD, name, SLOT, VECTOR, ROWS, NONE, PROA_IF(COND))
#define EXPERT_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, PROA_PER_EXPERT)
#define EXPERT_VECTOR(name, SLOT, ROWS)       TENSOR(name, SLOT, VECTOR, ROWS, NONE, PROA_PER_EXPERT)
#define EXPERT_LOADED(LOAD, name, SLOT, ROLE, ROWS, COLS) \
    TENSOR_LOADED(LOAD, name, SLOT, ROLE, ROWS, COLS, PROA_PER_EXPERT)
#define HEAD_MATRIX(LOAD, name, SLOT, ROLE, ROWS, COLS) \
    TENSOR_LOADED(LOAD, name, SLOT, ROLE, ROWS, COLS, PROA_OF_HEADS)
#define EXPERT_MATRIX_IF(COND, name, SLOT, ROWS, COLS) \
    TENSOR(name, SLOT, MATRIX, ROWS, COLS, PROA_PER_EXPERT | PROA_IF(COND))
#define EXPERT_VECTOR_IF(COND, name, SLOT, ROWS) \
    TENSOR(name, SLOT, VECTOR, ROWS, NONE, PROA_PER_EXPERT | PROA_IF(COND))
#define TIED_HEAD_OF(name, COLS) TENSOR(name, HEAD, MATRIX, VOCAB, COLS, PROA_IF(TIED) | PROA_SHARED)
#define TIED_HEAD(name) TIED_HEAD_OF(name, HIDDEN)
#define END_TENSORS                           {0}

/* ---- Steps of a program: proa_step. ----
 * IN and OUT are registers (PROA_REG_LIST), W is a slot. A linear product adds the bias of its slot if there is one.
 * FLAGS: 0, or some of the enumeration below, joined with |.
 *
 * EMBED(W)              X = W[ids]                           W [vocab, H]
 * EMBED_TO(OUT, W, flags)
 *                       OUT = W[ids], with OF_POS W[positions], with OF_TYPE W[token types], with OF_NONE the first
 *                       row of W; ADD: added to OUT
 * DROP_MASKED(OUT)      rows of OUT of the token mask_id = 0, the others *= mask_keep / the share of these others in
 *                       their sequence, if the configuration has a mask_keep
 * ROPE_TABLE            ROPE = cosines and sines of the step's positions, [T, rotary_dim], for all layers
 * ROPE_TABLE_OF(W)      the same by frequencies of the checkpoint, W [rotary_dim / 2], if it has them
 * LOCAL_ROPE_TABLE      the same for the layers with a window, if they have other frequencies
 * NORM(IN, OUT, W)      OUT = norm(IN) * W (+ bias)          [T, H]; the kind (RMS or LayerNorm) is the row's
 * NORM_IF(COND, ...)    the same under a condition
 *                       a row that is wider than W is normed in groups of as many columns as W has
 * NORM_ADD(IN, OUT, W)  OUT += norm(IN) * W (+ bias)         [T, H]; IN is overwritten
 * Q_NORM(W), K_NORM(W)  each head of q, or of k, in QKV = norm(head) * W, W [head_dim] or [heads, head_dim]
 * K_NORM_OWN(W), V_NORM_OWN(W)
 *                       the same of k, or of v, in layers that make their keys and values themselves
 * Q_NORM_WHOLE, K_NORM_WHOLE
 *                       the heads of q [T, Q], or of k [T, K], normed as one row
 * LINEAR(IN, OUT, W, flags)
 *                       OUT = IN W^T + bias                  [T, cols] -> [T, rows]; by W:
 *                         QKV       N [T, H] -> QKV [T, Q + 2K], q, k, v side by side; QKV_GLOBAL likewise, of global
 *                                   rows
 *                         V         X [T, H] -> QKV, its last columns (BEHIND), where QKV has rows of q and k alone
 *                         O         A [T, Q] -> X or D [T, H]
 *                         UP        N [T, H] -> U [T, F]
 *                         DOWN      U or F [T, F] -> X or D [T, H]
 *                         CROSS_Q   N [T, H] -> CQ [T, Q]
 *                         CROSS_KV  X [T, H] -> CKV [T, 2K]  (of the encoder's output)
 *                         HEAD      HN [S, H] -> OUT [S, V]
 *                         ROUTER    N [T, H] -> ROUTER [T, experts]
 *                         MIX       N [T, H] -> MIX [T, 2 Hk dk + 2 Hv dv]: q, k, v, gates of a recurrent layer; the
 *                                   gates may be a product of their own (GATE_UP, BEHIND);
 *                                   with mix_rates also [T, Hv] before the gates; with mix_gated gates of what is
 *                                   convolved, that, gates: [T, 3 Hv dv]
 *                         RATES     N [T, H] -> RATES [T, 2 Hv]; of Mamba-1 PARAMS [T, step rank] -> [T, H dv]
 *                         PARAMS    MIXED [T, H dv] -> PARAMS [T, step rank + 2 dk]
 *                         DECAY_DOWN, DECAY_UP, GATE_DOWN, GATE_UP
 *                                   N [T, H] -> PARAMS [T, gate rank] -> RATES or MIX, their last columns (BEHIND)
 *                         MIX_OUT   RECALL [T, Hv dv] -> X [T, H]
 *                         SHARED_GATE  N [T, H] -> GATE [T, 1]
 * LINEAR_GATED(IN, OUT, W, flags)
 *                       OUT = act(IN W_gate^T) * (IN W_up^T) [T, H] -> [T, F]; W is the two stacked, [2F, H]
 * SCALE(IN, OUT)        OUT = stream_scale * IN
 *                       (EMBED_TO, NORM and SCALE to PAIR make its first half, with SECOND its second one)
 * SCALE_QUERIES(flags)  q in QKV [T, Q] *= 1 + beta log(1 + floor((position + offset) / length)), if the configuration
 *                       has a query_scale; a smooth one: by max(1, beta log(position + offset))
 * SCALE_COLUMNS(IN, OUT, W)
 *                       OUT = IN [T, H], each column times its number of W [H], and that of the bias added; where W
 *                       is shorter than a row, its first columns
 * CLIP_IF(COND)         QKV limited to +-qkv_clip, in place
 * XIELU(W)              U [T, F] = xIELU(U), in place, by W [4]: alpha_p, alpha_n, beta, eps
 * ROUND_INPUTS(IN)      the rows of IN, which only products read, rounded to codes of input_bits, in place, if the
 *                       checkpoint's quantisation rounds them (BitNet)
 * ROTATE, ROTATE_PAIRS  the first r = rotary_dim numbers of each head of q and k in QKV are rotated: halves
 *                       (i, i + r/2) as in Llama and GPT-NeoX, or pairs (2i, 2i + 1) as in GPT-J
 * BLOCK_ROPE_TABLE, ROTATE_BLOCK
 *                       the same by the block positions, of the second half of each head (prefix.h)
 * KV_APPEND             k and v of QKV [T, K] each are written to this layer's KV pages
 * ATTEND                A = softmax(scale q k^T + bias, mask) v  [T, Q], over the sequence's KV pages
 *                       with relative positions (REL_EMBED, REL) over the keys and values of QKV itself
 * PICK_KEYS(W)          INDEX_K [T, index_dim] = LayerNorm(INDEX_K) * W + bias, rotated, and written to this layer's
 *                       pages of the indexer; INDEX_Q [T, index_heads index_dim] rotated; PICKED [T, index_topk] = the
 *                       positions of the keys with the largest sum over the heads of INDEX_W relu(INDEX_Q INDEX_K)
 * ATTEND_PICKED         ATTEND over these keys alone
 * SPAN_MEAN(IN, OUT, flags) the first row of each sequence of OUT = the mean of its rows of IN [T, H]
 * BLOCK_SUMS(IN, OUT)   OUT [T / side_block, H] = the sums of the rows of each block of rows of a sequence, IN [T, H]
 * NORM_BLOCKS(IN, OUT, W), LINEAR_BLOCKS(IN, OUT, W)
 *                       NORM and LINEAR of such rows
 * ATTEND_BLOCKS         ATTEND, also over the keys and values in BLOCK_QKV, with the bias BLOCK_BIAS
 *                       (all of them only if the configuration has a side_block; else ATTEND is left)
 * ATTEND_GLOBALS        the global rows of A [T, Q] again, over all keys of their sequence in QKV; ATTEND before it
 *                       made the other rows, which see their window and the global rows
 * UNFOLD(IN, OUT, flags) OUT = the conv_width rows around each row of IN [T, H], so that a convolution is a LINEAR
 *                        with CONV [H, conv_width H]; E [T, E] likewise
 * CROSS_APPEND          k and v of CKV are written to this layer's pages of encoder outputs; of an encoder that decodes
 *                       its input they are scratch, or CROSS_ATTEND reads CKV
 * CROSS_ATTEND          A = attention of CQ [T, Q] over the encoder outputs
 * HEADS_LINEAR(IN, OUT, W, flags)
 *                       each head of OUT = each head of IN times its own matrix; KEEP: qk_rope numbers go by it
 * ROUTE(W)              EXPERT_W, EXPERT_IDS [T, k] = the experts that ROUTER [T, experts] chooses; W the slot of
 *                       a correction (there may be none); EXPERT_SCALES [experts] multiplies the weights
 * EXPERTS(IN, OUT, flags)
 *                       OUT = sum of the chosen experts of IN  [T, H] -> [T, H], with EXPERT_UP and EXPERT_DOWN, and
 *                       EXPERT_BIAS [H] added once, if there is one; of a latent width EXPERT_IN -> EXPERT_OUT, made
 *                       from N and read to X by products with EXPERT_IN and EXPERT_OUT
 * GATE_SPARSE           OUT [T, F] = act(gates of IN [T, 2F] above their threshold) * the columns behind them
 * FIRST_STREAM ... JOIN_STREAMS
 *                       AltUp's streams, [T, streams H]; arch_gemma3n.c has all of these steps
 * GATE_LAYER(IN, OUT, flags)
 *                       OUT [T, layer_input] = act(OUT) * the columns of IN that are this layer's
 * SIGMOID_MUL(OUT, IN, W, flags)
 *                       OUT *= sigmoid(IN), IN [T, 1]; the columns of OUT that the product with W reads
 * GATE_HEADS            A [T, Q] *= sigmoid(the gates in QKV), which come before q, k and v there
 * CONV_STATE(IN, OUT, W)
 *                       OUT = act(the causal convolution of the first columns of IN with W [columns, taps])
 * SCALE_PARTS           each part of MIX times its factor
 * GATE_INPUTS(IN, OUT)  OUT [T, d] = the first d columns of IN times the next d ones
 * GATE_OUTPUTS(IN, OUT) OUT [T, d] *= conv_act(the last d columns of IN)
 * GATED_DELTA(IN, OUT, W)
 *                       OUT [T, Hv dv] = the gated delta rule of q, k and v in IN by RATES [T, 2 Hv]; W is DECAY [Hv],
 *                       with a bias; by channel (channel_decays) RATES [T, Hv + Hv dk], the bias [Hv dk]
 * SELECTIVE_SCAN(IN, OUT, W)
 *                       OUT [T, H dv] = Mamba-2's recurrence of v, B and C in IN by the rates in MIX, which are behind
 *                       the convolved columns; W is DECAY [H], with a bias; it has SKIP [H], too. Without mix_rates
 *                       the recurrence of k, q and v in IN, in this order, by DECAY alone
 * NORM_PARAMS           the three parts of PARAMS = norm(part) * W, W STEP_NORM, B_NORM, C_NORM
 * CHANNEL_SCAN(IN, OUT, W)
 *                       OUT [T, H dv] = Mamba-1's recurrence of v in IN, B and C in PARAMS, by RATES [T, H dv]; W is
 *                       DECAY [H dv, dk], with a bias [H dv], SKIP [H dv]
 * NORM_GATED(IN, OUT, W) each of recall_groups groups (0: each head) of OUT = norm(group) * W, before that (gate_first)
 *                       or then times conv_act(the last columns of IN); ranks that have parts of a group run it as
 *                       several steps (ranks/collective.h)
 * GATHER(OUT)           OUT [S, H] = the rows of X that the head computes
 * END                   ends a program */
#define STEP(OP, IN, OUT, W, flags)   {PROA_STEP_##OP, PROA_REG_##IN, PROA_REG_##OUT, PROA_SLOT_##W, flags}
/* A step without weights. */
#define STEP_BARE(OP, IN, OUT, flags) {PROA_STEP_##OP, PROA_REG_##IN, PROA_REG_##OUT, 0, flags}

/* A flag of any step: only under a condition of PROA_CONDITION_LIST. */
#define IF(COND)                      PROA_IF(COND)

#define EMBED(W)                      STEP(EMBED, NONE, X, W, 0)
#define EMBED_TO(OUT, W, flags)       STEP(EMBED, NONE, OUT, W, flags)
#define DROP_MASKED(OUT)              STEP_BARE(DROP_MASKED, NONE, OUT, IF(MASKS_DROPPED))
#define ROPE_TABLE                    STEP_BARE(ROPE_TABLE, NONE, ROPE, 0)
#define LOCAL_ROPE_TABLE              STEP_BARE(ROPE_TABLE, NONE, LOCAL_ROPE, IF(LOCAL_ROPE))
#define ROPE_TABLE_OF(W)              STEP(ROPE_TABLE, NONE, ROPE, W, IF(ROTARY))
#define ROPE_TABLE_IF(COND)           STEP_BARE(ROPE_TABLE, NONE, ROPE, IF(COND))
#define NORM(IN, OUT, W)              STEP(NORM, IN, OUT, W, 0)
#define NORM_IF(COND, IN, OUT, W)     STEP(NORM, IN, OUT, W, IF(COND))
#define NORM_ADD(IN, OUT, W)          STEP(NORM, IN, OUT, W, PROA_ADD)
#define Q_NORM(W)                     STEP(HEADS_NORM, QKV, QKV, W, 0)
#define K_NORM(W)                     STEP(HEADS_NORM, QKV, QKV, W, PROA_OF_K)
#define Q_NORM_IF(COND, W)            STEP(HEADS_NORM, QKV, QKV, W, IF(COND))
#define K_NORM_IF(COND, W)            STEP(HEADS_NORM, QKV, QKV, W, PROA_OF_K | IF(COND))
#define K_NORM_OWN(W)                 STEP(HEADS_NORM, QKV, QKV, W, PROA_OF_K | IF(OWN_KV))
#define V_NORM_OWN(W)                 STEP(HEADS_NORM, QKV, QKV, W, PROA_OF_V | IF(OWN_KV))
#define Q_NORM_WHOLE(W)               STEP(HEADS_NORM, QKV, QKV, W, PROA_WHOLE)
#define K_NORM_WHOLE(W)               STEP(HEADS_NORM, QKV, QKV, W, PROA_OF_K | PROA_WHOLE)
#define LINEAR(IN, OUT, W, flags)     STEP(LINEAR, IN, OUT, W, flags)
#define LINEAR_GATED(IN, OUT, W, flags) STEP(LINEAR_GATED, IN, OUT, W, flags)
#define SCALE(IN, OUT)                STEP_BARE(SCALE, IN, OUT, 0)
#define SCALE_COLUMNS(IN, OUT, W)     STEP(SCALE_COLUMNS, IN, OUT, W, 0)
#define SCALE_COLUMNS_IF(COND, IN, OUT, W) STEP(SCALE_COLUMNS, IN, OUT, W, COND)
#define SCALE_QUERIES(flags)          STEP_BARE(QUERY_SCALE, QKV, QKV, (flags) | IF(QUERY_SCALE))
#define CLIP_IF(COND)                 STEP_BARE(CLIP, QKV, QKV, IF(COND))
#define XIELU(W)                      STEP(XIELU, U, U, W, 0)
#define ROUND_INPUTS(IN)              STEP_BARE(ROUND_ROWS, IN, IN, IF(INPUTS_ROUNDED))
#define ROTATE                        STEP_BARE(ROPE, QKV, QKV, 0)
#define ROTATE_IF(COND)               STEP_BARE(ROPE, QKV, QKV, IF(COND))
#define ROTATE_PAIRS                  STEP_BARE(ROPE, QKV, QKV, PROA_INTERLEAVED)
#define BLOCK_ROPE_TABLE              STEP_BARE(ROPE_TABLE, NONE, BLOCK_ROPE, PROA_BLOCK)
#define ROTATE_BLOCK                  STEP_BARE(ROPE, QKV, QKV, PROA_BLOCK)
#define KV_APPEND                     STEP_BARE(KV_APPEND, QKV, NONE, 0)
#define ATTEND                        STEP_BARE(ATTEND, QKV, A, 0)
#define PICK_KEYS(W)                  STEP(PICK_KEYS, INDEX_Q, PICKED, W, IF(PICKS))
#define ATTEND_PICKED                 STEP_BARE(ATTEND, QKV, A, PROA_OF_PICKED)
#define SPAN_MEAN(IN, OUT, flags)     STEP_BARE(SPAN_MEAN, IN, OUT, flags)
#define BLOCK_SUMS(IN, OUT)           STEP_BARE(BLOCK_SUMS, IN, OUT, IF(SIDE_BLOCKS))
#define NORM_BLOCKS(IN, OUT, W)       STEP(NORM, IN, OUT, W, PROA_OF_BLOCKS | IF(SIDE_BLOCKS))
#define LINEAR_BLOCKS(IN, OUT, W)     STEP(LINEAR, IN, OUT, W, PROA_OF_BLOCKS | IF(SIDE_BLOCKS))
#define ATTEND_BLOCKS                 STEP_BARE(ATTEND, QKV, A, PROA_OF_BLOCKS)
#define ATTEND_GLOBALS                STEP_BARE(ATTEND, QKV, A, PROA_OF_GLOBALS | IF(GLOBALS))
#define UNFOLD(IN, OUT, flags)        STEP_BARE(UNFOLD, IN, OUT, flags)
#define CROSS_APPEND                  STEP_BARE(CROSS_APPEND, CKV, NONE, 0)
#define CROSS_ATTEND                  STEP_BARE(CROSS_ATTEND, CQ, A, 0)
#define HEADS_LINEAR(IN, OUT, W, flags) STEP(HEADS_LINEAR, IN, OUT, W, flags)
#define ROUTE(W)                      STEP(ROUTE, ROUTER, EXPERT_W, W, IF(EXPERTS))
#define EXPERTS(IN, OUT, flags)       STEP(EXPERTS, IN, OUT, EXPERT_UP, (flags) | IF(EXPERTS))
#define GATE_LAYER(IN, OUT, flags)    STEP_BARE(GATE_LAYER, IN, OUT, flags)
#define SIGMOID_MUL(OUT, IN, W, flags) STEP(SIGMOID_MUL, IN, OUT, W, flags)
#define GATE_HEADS                    STEP_BARE(GATE_HEADS, QKV, A, IF(ATTENDS))
#define CONV_STATE(IN, OUT, W)        STEP(CONV_STATE, IN, OUT, W, IF(RECURS))
#define SCALE_PARTS                   STEP_BARE(SCALE_PARTS, MIX, MIX, IF(RECURS) | IF(MIX_SCALED))
#define GATE_INPUTS(IN, OUT)          STEP_BARE(GATE_INPUTS, IN, OUT, IF(RECURS))
#define GATE_OUTPUTS(IN, OUT)         STEP_BARE(GATE_OUTPUTS, IN, OUT, IF(RECURS))
#define GATED_DELTA(IN, OUT, W)       STEP(GATED_DELTA, IN, OUT, W, IF(RECURS))
#define SELECTIVE_SCAN(IN, OUT, W)    STEP(SELECTIVE_SCAN, IN, OUT, W, IF(RECURS))
#define NORM_PARAMS                   STEP_BARE(NORM_PARAMS, PARAMS, PARAMS, IF(RECURS))
#define CHANNEL_SCAN(IN, OUT, W)      STEP(SELECTIVE_SCAN, IN, OUT, W, PROA_BY_CHANNEL | IF(RECURS))
#define NORM_GATED(IN, OUT, W)        STEP(NORM_GATED, IN, OUT, W, IF(RECURS))
/* What a layer with a gated delta rule makes of MIX and RATES. */
#define RECALL_DELTA                       \
    CONV_STATE  (MIX,    MIXED,  MIX_CONV),    \
    GATED_DELTA (MIXED,  RECALL, DECAY),       \
    NORM_GATED  (MIX,    RECALL, RECALL_NORM), \
    LINEAR      (RECALL, X,      MIX_OUT, ADD | IF(RECURS))
/* Its convolution's weights, of which q, k and v have tensors of their own. */
#define DELTA_CONVOLUTIONS(M) \
    TENSOR(M "q_conv1d.weight", MIX_CONV, F32, RECALL_KEYS, TAPS, IF(RECURS)), \
    TENSOR(M "k_conv1d.weight", MIX_CONV, F32, RECALL_KEYS, TAPS, IF(RECURS)), \
    TENSOR(M "v_conv1d.weight", MIX_CONV, F32, RECALLED,    TAPS, IF(RECURS))
#define GATHER(OUT)                   STEP_BARE(GATHER, X, OUT, 0)
#define END                           {PROA_STEP_END}

/* Flags of steps; arch.h says which step takes which. */
enum {
    ADD     = PROA_ADD,     /* add to what OUT holds */
    ADD_X   = PROA_ADD_X,   /* OUT = X + the product */
    ACT     = PROA_ACT,     /* then the configuration's activation */
    TANH    = PROA_ACT_IS(TANH), /* then tanh */
    RELU    = PROA_ACT_IS(RELU),
    GELU    = PROA_ACT_IS(GELU),
    SCALED  = PROA_SCALED,  /* times logit_scale, or of an embedding embed_scale */
    INPUTS  = PROA_INPUTS,  /* with SCALED of an embedding: input embeddings in place of its rows are scaled, too;
                               of experts: their weights multiply what they read */
    EXACT   = PROA_EXACT,   /* with SCALED of an embedding: the scale is not rounded to the table's type */
    CAPPED  = PROA_CAPPED,  /* then logit_cap * tanh(y / logit_cap) */
    OF_POS  = PROA_OF_POS,
    OF_TYPE = PROA_OF_TYPE,
    OF_NONE = PROA_OF_NONE,
    OF_REST = PROA_OF_REST, /* reads the last columns of IN, of which another product reads the first ones */
    CONV_ACT     = PROA_CONV_ACT,     /* then the activation of the convolution */
    OF_K    = PROA_OF_K,
    KEEP    = PROA_KEEP,
    SECOND  = PROA_SECOND, /* the second half of PAIR */
    HEAD_ACT     = PROA_HEAD_ACT,     /* then the activation of the head */
    RESIDUAL = PROA_RESIDUAL, /* times residual_scale */
    BEHIND   = PROA_BEHIND,   /* to the last columns of OUT, of which another product makes the first ones */
    FACTOR   = PROA_FACTOR,   /* times the factor of the product with W */
    FORK    = PROA_FORK,  /* may run at the same time as the steps up to the next JOIN */
    JOIN    = PROA_JOIN
};

/* The head of most models: the last rows are normed and multiplied with [VOCAB, HIDDEN]. */
#define LM_HEAD(flags)          \
    GATHER(H),                  \
    NORM(H, HN, FINAL_NORM),    \
    LINEAR(HN, OUT, HEAD, flags), \
    END

/* The layer of BERT and of the encoders after it: attention and a plain FFN, each normed together with its input. */
#define POST_NORM_LAYER          \
    LINEAR(X, QKV, QKV,  0),     \
    ROTATE_IF(ROTARY),           \
    KV_APPEND,                   \
    ATTEND,                      \
    LINEAR(A, D,   O,    ADD_X), \
    NORM  (D, X,   ATTN_NORM),   \
    LINEAR(X, U,   UP,   ACT),   \
    LINEAR(U, D,   DOWN, ADD_X), \
    NORM  (D, X,   FFN_NORM),    \
    END

/* The layer of encoders that norm what attention and the FFN read. */
#define PRE_NORM_LAYER           \
    NORM  (X, N,   ATTN_NORM),   \
    LINEAR(N, QKV, QKV,  0),     \
    ROTATE_IF(ROTARY),           \
    KV_APPEND,                   \
    ATTEND,                      \
    LINEAR(A, X,   O,    ADD),   \
    NORM  (X, N,   FFN_NORM),    \
    LINEAR(N, U,   UP,   ACT),   \
    LINEAR(U, X,   DOWN, ADD),   \
    END

/* ---- The row. ---- */
#define STRINGS(...)   (const char *const[]){__VA_ARGS__, NULL}
/* What generating decoders have in common. */
#define DECODER(NORM)  .kind = PROA_KIND_DECODER, .norm = PROA_NORM_##NORM, \
                       .head_rows = PROA_ROWS_LAST, .outputs = PROA_DIM_VOCAB
/* The other classes on a row's layers: those whose names are one of the rest of the arguments and the ending of a form
 * of `which`; of a decoder the bare one, too (HEADS). */
enum {
    TEXTS    = 1 << PROA_FORM_TEXTS,
    ENDS     = 1 << PROA_FORM_ENDS,
    TOKENS   = 1 << PROA_FORM_TOKENS,
    SPANS    = 1 << PROA_FORM_SPANS,
    DECODERS = 1 << PROA_FORM_CAUSAL,
    CHOICES  = 1 << PROA_FORM_CHOICES,
    FOLLOWS  = 1 << PROA_FORM_FOLLOWS
};
#define FORMS(which, ...) .stems = STRINGS(__VA_ARGS__), .forms = (which)
#define HEADS(which, ...) FORMS((which) | 1 << PROA_FORM_BARE, __VA_ARGS__)
#define NO_HEADS .stems = NULL, .forms = 0
/* A layer with LayerNorm before its sublayers, or after them: OPT, XLM. */
#define PRE_OR_POST_NORM_LAYER \
    { \
        NORM_IF(PRE_NORM,  X, N, ATTN_NORM), \
        LINEAR (N, QKV, QKV,  IF(PRE_NORM)), \
        LINEAR (X, QKV, QKV,  IF(POST_NORM)), \
        KV_APPEND, \
        ATTEND, \
        LINEAR (A, X,   O,    ADD | IF(PRE_NORM)), \
        LINEAR (A, D,   O,    ADD_X | IF(POST_NORM)), \
        NORM_IF(POST_NORM, D, X, ATTN_NORM), \
        NORM_IF(PRE_NORM,  X, N, FFN_NORM), \
        LINEAR (N, U,   UP,   ACT | IF(PRE_NORM)), \
        LINEAR (X, U,   UP,   ACT | IF(POST_NORM)), \
        LINEAR (U, X,   DOWN, ADD | IF(PRE_NORM)), \
        LINEAR (U, D,   DOWN, ADD_X | IF(POST_NORM)), \
        NORM_IF(POST_NORM, D, X, FFN_NORM), \
        END \
    }
#define CAUSAL(embed, layer) [PROA_STACK_DECODER] = {embed, layer, NULL, true}
/* clang-format on */

#endif
