/* SPDX-License-Identifier: Apache-2.0
 * arch.h - architectures as data: a model is a row, a layer is a short program.
 * A row of PROA_ARCH_LIST lists the keys of config.json, the tensors of the checkpoint and how each is loaded, and the
 * steps of embedding, layer and head. One loop (steps/) runs the steps; the planner, the packer and explain read the
 * same row. arch_rows.h has the notation of the rows, with the shapes of each step. */
#ifndef PROA_MODEL_ARCH_H
#define PROA_MODEL_ARCH_H

#include "model/config.h"

/* Registers: the buffers that steps read and write, [rows, width]. Widths are in proa_reg_width.
 * enum, name */
#define PROA_REG_LIST(R)                                                                                               \
    R(NONE, "-")                                                                                                       \
    R(X, "x")                     /* the residual stream [T, hidden] */                                                \
    R(N, "n")                     /* a normed copy [T, hidden] */                                                      \
    R(QKV, "qkv")                 /* [T, (heads + 2 kv_heads) * head_dim]: q, k, v side by side */                     \
    R(QD, "q_down")               /* [T, q_lora] */                                                                    \
    R(QH, "q_heads")              /* [T, heads * (qk_nope + qk_rope)] */                                               \
    R(AV, "attn_v")               /* [T, heads * v_dim] */                                                             \
    R(A, "attn")                  /* [T, heads * head_dim] */                                                          \
    R(D, "delta")                 /* [T, hidden]: a sublayer's output before its norm; has the type of X */            \
    R(U, "up")                    /* [T, ffn], or [T, 2 ffn]: workspace for gate and up */                             \
    R(F, "ffn")                   /* [T, ffn]; the larger of the dense FFN and the shared expert's */                  \
    R(ROUTER, "router")           /* [T, experts]: scores of the experts */                                            \
    R(EXPERT_W, "expert_w")       /* [T, k]: weights of the chosen experts */                                          \
    R(EXPERT_IDS, "expert_id")    /* [T, k] int32: which they are */                                                   \
    R(EXPERT_IN, "expert_in")     /* [T, expert_latent]: what experts of a latent width read, */                       \
    R(EXPERT_OUT, "expert_out")   /* and what they make */                                                             \
    R(GATE, "gate")               /* [T, 1]: of the shared expert */                                                   \
    R(CQ, "cross_q")              /* [T, heads * head_dim] */                                                          \
    R(CKV, "cross_kv")            /* [T, 2 kv_heads * head_dim] */                                                     \
    R(ROPE, "rope")               /* [T, rotary_dim]: cosines, sines */                                                \
    R(LOCAL_ROPE, "local_rope")   /* the same, for layers with a window */                                             \
    R(H, "head_in")               /* [S, hidden]: the rows that the head computes */                                   \
    R(HN, "head_norm")            /* [S, hidden] */                                                                    \
    R(OUT, "out")                 /* [S, outputs] */                                                                   \
    R(OUT_PART, "out_part")       /* [S, outputs / ranks]: the columns of this rank */                                 \
    R(PART, "part")               /* [T, hidden or narrow]: this rank's term of a sum */                               \
    R(EXPERT_PART, "expert_part") /* [T, expert_latent]: the same of experts of a latent width */                      \
    R(HEADS_PART, "heads_part")   /* [T, heads * head_dim]: q or k of this rank, */                                    \
    R(HEADS_ALL, "heads_all")     /* [T, the same of all ranks]: for norms of all heads as one row */                  \
    R(BLOCK_ROPE, "block_rope")   /* [T, rotary_dim]: cosines, sines of the block positions */                         \
    R(E, "embed")                 /* [T, embed]: embedded tokens before their projection */                            \
    R(NARROW, "narrow") /* [T, narrow]: the stream within a layer whose sublayers are narrower than X */               \
    R(HE, "head_embed") /* [S, embed]: the head's input after its projection */                                        \
    R(KEPT, "kept")     /* [T, hidden]: embeddings, kept for a convolution after the first layer */                    \
    R(MEANS, "means")   /* [T, hidden]: the mean of each sequence, in its first row, for the head */                   \
    R(BLOCKS, "blocks") /* [T / side_block, hidden]: a row for each block of rows, */                                  \
    R(BLOCK_QKV, "block_qkv") /* [T / side_block, as QKV]: and its q, k, v */                                          \
    R(WINDOWS, "windows")     /* [T, conv_width * embed] */                                                            \
    R(PAIR, "pair")           /* [T, 2 hidden]: two rows side by side (PROA_SECOND) */                                 \
    R(MIX, "mix")             /* [T, mix]: what a recurrent layer makes of its input: q, k, v and gates */             \
    R(MIXED, "mixed")         /* [T, convolved]: q, k and v after the convolution */                                   \
    R(PARAMS, "params") /* [T, step rank + 2 keys]: of Mamba-1, what makes the steps; B and C; or            \
                                   [T, gate rank]: what makes decays, and then gates, of a gated delta rule */         \
    R(RATES, "rates") /* [T, 2 value heads, or values]: how far each head, or column, writes and forgets; by         \
                         channel [T, value heads (1 + key)] */ \
    R(RECALL, "recall")   /* [T, values]: what the recurrent state gives */                                            \
    R(SQUARES, "squares") /* [T, groups]: means of the squares of its groups, if ranks have parts */                   \
    R(MOMENTS_PART, "moments_part") /* [T, 4]: count, mean and variance of the gates that this rank has, */            \
    R(MOMENTS, "moments")           /* [T, 4 ranks]: and of all ranks */                                               \
    R(STATES, "states")             /* [T, states]: hidden states of another model, of several layers */               \
    R(SUM_PART, "sum_part")         /* [T, inputs of a product / ranks]: what this rank has of them, */                \
    R(SUM_PADDED, "sum_padded")     /* [T, ranks * the same]: if some ranks have fewer, and */                         \
    R(SUM_IN, "sum_in")             /* [T, inputs]: of all ranks (PROA_STEP_GATHER_INPUTS) */                          \
    R(LAYER_INPUTS, "layer_inputs") /* [T, layers * layer_input]: inputs of each layer */                              \
    R(LAYER_PROJECT, "layer_project") /* [T, the same]: what the embeddings give to them */                            \
    R(LAYER_GATE, "layer_gate")       /* [T, layer_input] */                                                           \
    R(EXPERT_D, "expert_delta")       /* [T, hidden]: of experts beside a dense FFN, before their norm */              \
    R(STREAMS, "streams")             /* [T, streams * hidden]: AltUp's, of which X is the first */                    \
    R(STREAM_MODES, "stream_modes")   /* [T, streams] */                                                               \
    R(STREAM_COEFS, "stream_coefs")   /* [T, streams * streams] */                                                     \
    R(LAUREL, "laurel")               /* [T, laurel] */                                                                \
    R(HEAD_STREAMS, "head_streams")   /* [S, streams * hidden] */                                                      \
    R(HEAD_OTHERS, "head_others")     /* [S, (streams - 1) * hidden] */                                                \
    R(INDEX_Q, "index_q")             /* [T, index_heads * index_dim]: queries of the indexer, */                      \
    R(INDEX_K, "index_k")             /* [T, index_dim]: its keys, */                                                  \
    R(INDEX_W, "index_w")             /* [T, index_heads]: and the weights of its heads */                             \
    R(PICKED, "picked")               /* [T, index_topk] int32: positions of the keys that it picked */                \
    R(PICKED_KEYS, "picked_keys")     /* [PROA_PICKED_ROWS, ...]: these keys, of a few rows */

typedef enum proa_reg {
#define PROA_REG_ENUM(name, text) PROA_REG_##name,
    PROA_REG_LIST(PROA_REG_ENUM)
#undef PROA_REG_ENUM
        PROA_REG_COUNT
} proa_reg;

/* Slots: where the weights of a layer or of the model are kept. Each slot NAME is followed by its bias slot NAME_B.
 * enum, name, how ranks share it */
#define PROA_SLOT_LIST(W)                                                                                    \
    W(TOKENS, "tokens", NONE)                                                                                \
    W(POSITIONS, "positions", NONE)                                                                          \
    W(LAYER_TOKENS, "layer_tokens", NONE)                                                                    \
    W(LAYER_PROJECT, "layer_project", NONE)                                                                  \
    W(LAYER_PROJECT_NORM, "layer_project_norm", NONE)                                                        \
    W(TYPES, "types", NONE)                                                                                  \
    W(TASKS, "tasks", NONE)                                                                                  \
    W(BOX_X, "box_x", NONE)                                                                                  \
    W(BOX_Y, "box_y", NONE)                                                                                  \
    W(BOX_H, "box_h", NONE)                                                                                  \
    W(BOX_W, "box_w", NONE)                                                                                  \
    W(INV_FREQ, "inv_freq", NONE)                                                                            \
    W(PROJECT_IN, "project_in", NONE)                                                                        \
    W(PROJECT_IN_NORM, "project_in_norm", NONE)                                                              \
    W(EMBED_NORM, "embed_norm", NONE)                                                                        \
    W(REL_BIAS, "rel_bias", COLUMNS)                                                                         \
    W(BLOCK_BIAS, "block_bias", COLUMNS)                                                                     \
    W(BLOCK_NORM, "block_norm", NONE)                                                                        \
    W(REL_EMBED, "rel_embed", NONE)                                                                          \
    W(REL_NORM, "rel_norm", NONE)                                                                            \
    W(REL, "rel", HEADS)                                                                                     \
    W(CONTENT_BIAS, "content_bias", HEADS)                                                                   \
    W(POSITION_BIAS, "position_bias", HEADS)                                                                 \
    W(SEGMENTS, "segments", COLUMNS)                                                                         \
    W(SEGMENT_BIAS, "segment_bias", HEADS)                                                                   \
    W(CONV, "conv", NONE)                                                                                    \
    W(CONV_NORM, "conv_norm", NONE)                                                                          \
    W(PAIR_NORM, "pair_norm", NONE)                                                                          \
    W(BLOCK_OUT, "block_out", NONE)                                                                          \
    W(ATTN_NORM, "attn_norm", NONE)                                                                          \
    W(QKV, "qkv", HEADS)                                                                                     \
    W(QKV_GLOBAL, "qkv_global", HEADS)                                                                       \
    W(V, "v", HEADS)                                                                                         \
    W(Q_DOWN, "q_down", NONE)                                                                                \
    W(Q_DOWN_NORM, "q_down_norm", NONE)                                                                      \
    W(Q, "q", HEADS)                                                                                         \
    W(Q_LATENT, "q_latent", HEADS)                                                                           \
    W(KV_DOWN, "kv_down", NONE)                                                                              \
    W(V_UP, "v_up", HEADS)                                                                                   \
    W(Q_NORM, "q_norm", NONE)                                                                                \
    W(K_NORM, "k_norm", NONE)                                                                                \
    W(V_NORM, "v_norm", NONE)                                                                                \
    W(INDEX_Q, "index_q", NONE)                                                                              \
    W(INDEX_K, "index_k", NONE)                                                                              \
    W(INDEX_NORM, "index_norm", NONE)                                                                        \
    W(INDEX_W, "index_w", NONE)                                                                              \
    W(O, "o", COLUMNS)                                                                                       \
    W(SINKS, "sinks", HEADS)                                                                                 \
    W(ATTN_INNER_NORM, "attn_inner_norm", NONE)                                                              \
    W(ATTN_OUT_NORM, "attn_out_norm", NONE)                                                                  \
    W(MIX, "mix", HEADS)                                                                                     \
    W(MIX_CONV, "mix_conv", HEADS)                                                                           \
    W(PARAMS, "params", INNER)                                                                               \
    W(STEP_NORM, "step_norm", NONE)                                                                          \
    W(B_NORM, "b_norm", NONE)                                                                                \
    W(C_NORM, "c_norm", NONE)                                                                                \
    W(RATES, "rates", HEADS)                                                                                 \
    W(DECAY_DOWN, "decay_down", NONE)                                                                        \
    W(DECAY_UP, "decay_up", HEADS)                                                                           \
    W(GATE_DOWN, "gate_down", NONE)                                                                          \
    W(GATE_UP, "gate_up", HEADS)                                                                             \
    W(DECAY, "decay", HEADS)                                                                                 \
    W(SKIP, "skip", HEADS)                                                                                   \
    W(RECALL_NORM, "recall_norm", HEADS)                                                                     \
    W(MIX_OUT, "mix_out", COLUMNS)                                                                           \
    W(CROSS_NORM, "cross_norm", NONE)                                                                        \
    W(CROSS_Q, "cross_q", HEADS)                                                                             \
    W(CROSS_KV, "cross_kv", HEADS)                                                                           \
    W(CROSS_O, "cross_o", COLUMNS)                                                                           \
    W(CROSS_OUT_NORM, "cross_out_norm", NONE)                                                                \
    W(NARROW_IN, "narrow_in", NONE)                                                                          \
    W(NARROW_IN_NORM, "narrow_in_norm", NONE)                                                                \
    W(NARROW_QK, "narrow_qk", NONE)                                                                          \
    W(NARROW_QK_NORM, "narrow_qk_norm", NONE)                                                                \
    W(NARROW_OUT, "narrow_out", NONE)                                                                        \
    W(NARROW_OUT_NORM, "narrow_out_norm", NONE)                                                              \
    W(UP_1, "up_1", ROWS)                                                                                    \
    W(DOWN_1, "down_1", COLUMNS)                                                                             \
    W(FFN_NORM_1, "ffn_norm_1", NONE)                                                                        \
    W(UP_2, "up_2", ROWS)                                                                                    \
    W(DOWN_2, "down_2", COLUMNS)                                                                             \
    W(FFN_NORM_2, "ffn_norm_2", NONE)                                                                        \
    W(UP_3, "up_3", ROWS)                                                                                    \
    W(DOWN_3, "down_3", COLUMNS)                                                                             \
    W(FFN_NORM_3, "ffn_norm_3", NONE)                                                                        \
    W(FFN_NORM, "ffn_norm", NONE)                                                                            \
    W(UP, "up", ROWS)                                                                                        \
    W(FFN_INNER_NORM, "ffn_inner_norm", NONE)                                                                \
    W(DOWN, "down", COLUMNS)                                                                                 \
    W(ADAPTER_DOWN, "adapter_down", NONE)                                                                    \
    W(ADAPTER_UP, "adapter_up", NONE)                                                                        \
    W(ACT_PARAMS, "act_params", NONE)                                                                        \
    W(ROUTER, "router", NONE)                                                                                \
    W(CORRECTION, "correction", NONE)                                                                        \
    W(EXPERT_SCALES, "expert_scales", NONE)                                                                  \
    W(ROUTER_NORM, "router_norm", NONE)                                                                      \
    W(EXPERT_NORM, "expert_norm", NONE)                                                                      \
    W(EXPERT_OUT_NORM, "expert_out_norm", NONE)                                                              \
    W(DENSE_OUT_NORM, "dense_out_norm", NONE)                                                                \
    W(EXPERT_UP, "expert_up", ROWS)                                                                          \
    W(EXPERT_DOWN, "expert_down", COLUMNS)                                                                   \
    W(EXPERT_BIAS, "expert_bias", NONE)                                                                      \
    W(EXPERT_IN, "expert_in", NONE)                                                                          \
    W(EXPERT_OUT, "expert_out", NONE)                                                                        \
    W(SHARED_GATE, "shared_gate", NONE)                                                                      \
    W(SHARED_UP, "shared_up", ROWS)                                                                          \
    W(SHARED_DOWN, "shared_down", COLUMNS)                                                                   \
    W(FFN_OUT_NORM, "ffn_out_norm", NONE)                                                                    \
    W(LAYER_SCALE, "layer_scale", NONE)                                                                      \
    W(LAYER_GATE, "layer_gate", NONE)                                                                        \
    W(LAYER_UP, "layer_up", NONE)                                                                            \
    W(LAYER_INPUT_NORM, "layer_input_norm", NONE)                                                            \
    W(STREAMS_IN, "streams_in", NONE)                                                                        \
    W(STREAM_NORM, "stream_norm", NONE)                                                                      \
    W(STREAM_ROUTER, "stream_router", NONE)                                                                  \
    W(STREAM_PREDICT, "stream_predict", NONE)                                                                \
    W(STREAM_CORRECT, "stream_correct", NONE)                                                                \
    W(STREAM_SCALE, "stream_scale", NONE)                                                                    \
    W(STREAM_OUT_1, "stream_out_1", NONE)                                                                    \
    W(STREAM_OUT_2, "stream_out_2", NONE)                                                                    \
    W(STREAM_OUT_3, "stream_out_3", NONE)                                                                    \
    W(LAUREL_LEFT, "laurel_left", NONE)                                                                      \
    W(LAUREL_RIGHT, "laurel_right", NONE)                                                                    \
    W(LAUREL_NORM, "laurel_norm", NONE)                                                                      \
    W(FINAL_NORM, "final_norm", NONE)                                                                        \
    W(PROJECT_OUT, "project_out", NONE)                                                                      \
    W(HEAD, "head", ROWS)                                                                                    \
    W(HEAD_REST, "head_rest", ROWS)                                                                          \
    W(HEAD_DENSE, "head_dense", NONE)                                                                        \
    W(HEAD_NORM, "head_norm", NONE)                                                                          \
    W(POOL, "pooler", NONE)

typedef enum proa_weight_slot {
#define PROA_SLOT_ENUM(name, text, split) PROA_SLOT_##name, PROA_SLOT_##name##_B,
    PROA_SLOT_LIST(PROA_SLOT_ENUM)
#undef PROA_SLOT_ENUM
        PROA_SLOT_COUNT
} proa_weight_slot;

/* How several ranks share the weight of a slot (tensor parallelism; Megatron-LM, Shoeybi et al. 2019). A product by
 * rows or heads gives each rank a part of the outputs, which stays with it; one by columns takes such a part and gives
 * each rank a term of the whole sum. */
typedef enum proa_split {
    PROA_SPLIT_NONE,    /* each rank has all of it */
    PROA_SPLIT_ROWS,    /* a part of the rows; the same of gate and up and of experts */
    PROA_SPLIT_HEADS,   /* the rows, vectors or matrices of some heads: of q, of k, of v and of gates */
    PROA_SPLIT_COLUMNS, /* a part of the columns: those of its heads or FFN rows */
    /* the same, of a sum of few columns that is not added to the residual stream, and of which each rank makes all
     * where ranks make whole sums */
    PROA_SPLIT_INNER,
} proa_split;
/* A bias is split as the rows of its matrix. NONE if the matrix is split by columns: then one rank adds it. */
proa_split proa_slot_split(proa_weight_slot slot);
/* Whether the slot is of a product of a dense FFN, or its bias. */
bool proa_slot_ffn(proa_weight_slot slot);

/* The opcodes. enum, name, what it does */
#define PROA_STEP_LIST(S)                                                                                       \
    S(END, "end")                                                                                               \
    S(EMBED, "embed")               /* out (+)= table w [ids, positions or types] */                            \
    S(DROP_MASKED, "drop_masked")   /* rows of out of mask tokens = 0, the others scaled for it */              \
    S(ROPE_TABLE, "rope_table")     /* ROPE = cosines and sines of this step's positions */                     \
    S(NORM, "norm")                 /* out = norm(in) with w, of the row's kind */                              \
    S(HEADS_NORM, "heads_norm")     /* heads of q, k or v of QKV normed one by one, or all as one row */        \
    S(LINEAR, "linear")             /* out = act(in W^T + bias) (+ out, or X) */                                \
    S(LINEAR_GATED, "linear_gated") /* out = act(gate) * up of in W^T + bias; U is the workspace */             \
    S(QUERY_SCALE, "query_scale") /* q of QKV *= its factor by position (the configuration's query_scale) */    \
    S(CLIP, "clip")               /* in limited to +-qkv_clip in place */                                       \
    S(XIELU, "xielu")             /* out = xIELU(out) with the four numbers w */                                \
    S(ROUND_ROWS, "round_rows")   /* rows of out rounded to codes of input_bits, in place */                    \
    S(SCALE, "scale")             /* out = stream_scale * in */                                                 \
    S(SCALE_COLUMNS, "scale_columns") /* out = in, each column times its number of w, and the bias */           \
    S(ROPE, "rope")                   /* rotates q and k of QKV */                                              \
    S(KV_APPEND, "kv_append")         /* k and v of QKV into this layer's pages */                              \
    S(ROPE_APPEND, "rope_append")     /* both, fused by the plan */                                             \
    S(PICK_KEYS, "pick_keys")         /* INDEX_K normed, rotated and cached; PICKED = the keys for in */        \
    S(ATTEND, "attend")               /* A = attention of q of QKV over the sequence's pages */                 \
    S(GATE_HEADS, "gate_heads")       /* A *= sigmoid(the gates of QKV) */                                      \
    S(CONV_STATE, "conv_state")   /* out = act(causal convolution of in with w), over chunks of a prompt */     \
    S(SCALE_PARTS, "scale_parts") /* the parts of MIX times their factors, in place */                          \
    S(GATE_INPUTS, "gate_inputs") /* out = the gates in the first columns of in, times the columns behind */    \
    S(GATE_OUTPUTS, "gate_outputs") /* out *= the gates in the last columns of in */                            \
    S(GATED_DELTA, "gated_delta")   /* out = the gated delta rule of in by RATES; w is DECAY */                 \
    S(NORM_PARAMS, "norm_params") /* the parts of PARAMS normed with STEP_NORM, B_NORM, C_NORM, in place */     \
    S(SELECTIVE_SCAN, "selective_scan") /* out = Mamba's recurrence of in, by rates in MIX or RATES */          \
    S(NORM_GATED, "norm_gated")         /* groups of out normed with w, and times act(the gates of in) */       \
    S(GROUP_SQUARES, "group_squares")   /* out = what the groups of in give to their mean squares */            \
    S(GROUP_SCALE, "group_scale")       /* groups of out by these mean squares and w: the rest of a norm */     \
    S(GROUP_NORM, "group_norm")         /* groups of in normed with w, out = the columns of this rank */        \
    S(UNFOLD, "unfold")                 /* out = for each row the rows of in around it */                       \
    S(SPAN_MEAN, "span_mean")   /* the first row of each sequence of out = the mean of its rows of in */        \
    S(BLOCK_SUMS, "block_sums") /* out = the sums of the rows of each block of rows of a sequence of in */      \
    S(CROSS_APPEND, "cross_append") /* k and v of CKV into this layer's pages of encoder memory */              \
    S(CROSS_ATTEND, "cross_attend") /* A = attention of CQ over the encoder memory */                           \
    S(HEADS_LINEAR, "heads_linear") /* out = in W^T, a matrix for each head */                                  \
    S(ROUTE, "route")               /* EXPERT_W, EXPERT_IDS = the experts chosen by ROUTER (correction w) */    \
    S(EXPERTS, "experts")           /* out = the chosen experts of in (+ out, or X); w is EXPERT_UP */          \
    S(GATE_LAYER, "gate_layer")     /* out = act(out) * the columns of in that are this layer's */              \
    S(GATE_SPARSE, "gate_sparse")   /* out = act(gates of in above their threshold) * the columns behind */     \
    S(GATE_MOMENTS, "gate_moments") /* out = the moments of the gates of in, of which a rank has a part */      \
    S(ADD, "add")                   /* out += in */                                                             \
    S(FIRST_STREAM, "first_stream") /* the first stream of out = in */                                          \
    S(TAKE_STREAM, "take_stream")   /* out = the first stream of in */                                          \
    S(MATCH_STREAMS, "match_streams")     /* the other streams of out as large as the first one */              \
    S(MIX_STREAMS, "mix_streams")         /* the streams of out += what in says of each of them */              \
    S(CORRECT_STREAMS, "correct_streams") /* the streams of out += (1 + their STREAM_COEFS) (in - the first) */ \
    S(SPREAD_STREAM, "spread_stream")     /* the other streams of out += in */                                  \
    S(STREAM_LINEAR, "stream_linear")     /* a stream of out = the stream of in times its W */                  \
    S(JOIN_STREAMS, "join_streams")       /* out = the mean of the streams of in and HEAD_OTHERS */             \
    S(SIGMOID_MUL, "sigmoid_mul")         /* out *= sigmoid(in), in [T, 1] */                                   \
    S(GATHER, "gather")                   /* H = the rows of in that the head computes */                       \
    S(ALL_REDUCE, "all_reduce")           /* out = the sum of in over all ranks (+ out, or X) */                \
    S(GATHER_COLUMNS, "all_gather")       /* out = the columns in of all ranks */                               \
    S(GATHER_INPUTS, "all_inputs")        /* out = in of all ranks side by side, of the product with w */       \
    S(TAKE_COLUMNS, "columns")            /* out = the columns of in that this rank makes of a sum */           \
    S(SEND, "send")                       /* the rows of in go to the next stage */                             \
    S(RECV, "recv")                       /* out = rows of the stage before */                                  \
    S(BROADCAST, "broadcast")             /* out of all stages = in of the last one */

typedef enum proa_step_op {
#define PROA_STEP_ENUM(name, text) PROA_STEP_##name,
    PROA_STEP_LIST(PROA_STEP_ENUM)
#undef PROA_STEP_ENUM
        PROA_STEP_COUNT
} proa_step_op;

/* Conditions on the configuration: a tensor or a step may ask for some in its flags, by PROA_IF(NAME), and applies
 * only if all of them hold. So one row has all variants of its architecture. Those of PROA_CONDITIONS_BY_LAYER may hold
 * in some layers and not in others. enum, when it holds (c: the configuration; layer: -1 for "in some layer") */
#define PROA_CONDITION_LIST(C)                                                                               \
    C(PRESENT, true) /* of tensors: the checkpoint may lack it */                                            \
    C(TIED, c->tied) /* the head is the embedding */                                                         \
    C(UNTIED, !c->tied)                                                                                      \
    C(GATED, c->gated) /* the FFN */                                                                         \
    C(PLAIN, !c->gated)                                                                                      \
    C(ATTN_BIAS, c->attention_bias)                                                                          \
    C(MLP_BIAS, c->mlp_bias)                                                                                 \
    C(QK_NORM, c->qk_norm) /* the heads of q and k are normed */                                             \
    C(QK_PLAIN, !c->qk_norm)                                                                                 \
    C(PARALLEL, c->parallel) /* attention and FFN side by side, both of the layer's input */                 \
    C(SEQUENTIAL, !c->parallel)                                                                              \
    C(ONE_NORM, c->parallel && c->one_norm)   /* in parallel, both of one normed copy */                     \
    C(NORM_EACH, c->parallel && !c->one_norm) /* in parallel, each of its own norm */                        \
    C(CLIPPED, c->qkv_clip > 0)                                                                              \
    C(INPUTS_ROUNDED, c->input_bits > 0) /* what products of the layers read is rounded to codes */          \
    C(ROTARY, c->rotary_dim > 0)                                                                             \
    C(LOCAL_ROPE, c->local_rope.theta > 0) /* layers with a window have other rotary frequencies */          \
    C(ROPE_PAIRS, c->rope_pairs)           /* pairs are rotated, not halves */                               \
    C(ROPE_HALVES, !c->rope_pairs)                                                                           \
    C(QUERY_SCALE, c->query_scale.beta != 0)  /* queries are scaled by their positions */                    \
    C(ROTATED, proa_config_rotates(c, layer)) /* the layer has rotary positions */                           \
    C(NOT_ROTATED, proa_config_lacks_rope(c, layer))                                                         \
    C(RECURS_ALONE, proa_config_recurs_alone(c, layer))                                                      \
    C(FFN, proa_config_has_ffn(c, layer))          /* the layer has an FFN: */                               \
    C(EXPERTS, proa_config_has_experts(c, layer))  /* it is a mixture of experts */                          \
    C(DENSE, proa_config_has_dense(c, layer))      /* or it is dense */                                      \
    C(ATTENDS, proa_config_attends(c, layer))      /* the layer has attention */                             \
    C(OWN_KV, proa_config_owns_kv(c, layer))       /* of keys and values that it makes itself */             \
    C(BORROWED_KV, !proa_config_owns_kv(c, layer)) /* or of those of an earlier layer */                     \
    C(K_IS_V, proa_config_k_is_v(c, layer))        /* these are one product */                               \
    C(K_AND_V, !proa_config_k_is_v(c, layer))      /* or two */                                              \
    C(RECURS, proa_config_recurs(c, layer))        /* or a recurrent state */                                \
    C(MIX_BIAS, c->mix_bias)                       /* the products of a recurrent layer have biases */       \
    C(MIX_OUT_BIAS, c->mix_out_bias)                                                                         \
    C(RECALL_NORMED, !c->recall_plain)      /* the output of a recurrent state is normed, and gated */       \
    C(RECALL_PLAIN, c->recall_plain)        /* or only gated */                                              \
    C(MIX_SCALED, c->factors.parts[0] != 0) /* MIX has parts with factors of their own */                    \
    C(CONV_BIAS, c->conv_bias)              /* its convolution has */                                        \
    C(GATES_LOW, c->gate_rank > 0)          /* decays and gates are products of low rank */                  \
    C(EXPERTS_IN_ROWS, c->experts_in_rows)  /* how a checkpoint stores stacked experts */                    \
    C(EXPERTS_APART, c->experts_apart)      /* or one by one */                                              \
    C(EXPERTS_STACKED, !c->experts_apart)                                                                    \
    C(EXPERTS_TURNED, !c->experts_in_rows)                                                                   \
    C(EXPERTS_LATENT, c->expert_latent > 0) /* experts have a width of their own */                          \
    C(EXPERTS_WIDE, c->expert_latent == 0)  /* or that of the residual stream */                             \
    C(FIRST_LAYER, layer <= 0)                                                                               \
    C(LATER_LAYERS, layer != 0)                                                                              \
    C(SHARED, c->shared_ffn > 0) /* beside the experts there is a shared one */                              \
    C(Q_LORA, c->q_lora > 0)     /* latent attention: q is of low rank */                                    \
    C(Q_WHOLE, c->q_lora == 0)                                                                               \
    C(PICKS, proa_config_picks(c, layer)) /* the layer chooses the keys that its rows see */                 \
    C(SHARED_GATE, c->shared_gate)                                                                           \
    C(PRE_NORM, !c->post_norm) /* a sublayer reads a normed copy */                                          \
    C(POST_NORM, c->post_norm) /* the residual stream is normed after each sublayer */                       \
    C(OUT_NORMS, c->out_norms) /* what a sublayer gives is normed */                                         \
    C(PLAIN_OUT, !c->out_norms)                                                                              \
    C(NORMED_HEAD, c->normed_head) /* rows of the head have norm 1 */                                        \
    C(PLAIN_HEAD, !c->normed_head)                                                                           \
    C(BARE_NORMS, c->bare_norms) /* norms have no weights */                                                 \
    C(NORM_WEIGHTS, !c->bare_norms)                                                                          \
    C(FINAL_NORM, !c->no_final_norm)                                                                         \
    C(NO_FINAL_NORM, c->no_final_norm)                                                                       \
    C(PROJECTED, c->embed != c->hidden) /* a matrix between embedding and residual stream */                 \
    C(PLAIN_EMBED, c->embed == c->hidden)                                                                    \
    C(LEARNED_POSITIONS, c->learned_positions)                                                               \
    C(LAYER_INPUTS, c->layer_input > 0)               /* each layer has inputs of its own */                 \
    C(THRESHOLD, proa_config_has_threshold(c, layer)) /* gates of the FFN have a threshold */                \
    C(NO_THRESHOLD, layer < 0 || !proa_config_has_threshold(c, layer))                                       \
    C(TYPED, c->types > 0)             /* token types are embedded */                                        \
    C(GLOBALS, c->globals != 0)        /* some tokens see all others and are seen by all */                  \
    C(SIDE_BLOCKS, c->side_block > 0)  /* sums of blocks are side keys of attention */                       \
    C(TASKED, c->tasks > 0)            /* and a task, the first one of a table */                            \
    C(EMBED_NORMED, c->embed_normed)   /* embeddings are normed before the first layer */                    \
    C(MASKS_DROPPED, c->mask_keep > 0) /* embeddings of mask tokens are zeros, others scaled */              \
    C(CONVOLVED, c->conv_width > 0)    /* a convolution follows the first layer */                           \
    C(OF_MEAN, c->head_of_mean)        /* the head computes the mean of the rows of an input */              \
    C(LATE, c->head_late)              /* and that mean is of what its dense layer makes of them */          \
    C(EARLY, !c->head_late)                                                                                  \
    C(OF_ROW, !c->head_of_mean)                                                                              \
    C(REL_SHARED, !c->relative.own) /* relative positions are projected as the content is */                 \
    C(REL_NORMED, c->relative.normed)                                                                        \
    C(REL_OWN, c->relative.own)                                                                              \
    C(REL_QUERIES, c->relative.queries)  /* they meet keys */                                                \
    C(REL_KEYS, !c->relative.keys_alone) /* or queries */                                                    \
    C(FFNS_2, c->ffns >= 2)              /* a layer has so many dense FFNs or more, one after the other */   \
    C(FFNS_3, c->ffns >= 3)                                                                                  \
    C(FFNS_4, c->ffns >= 4)                                                                                  \
    C(POOLED, !c->bare_pooler)         /* the pooler is a product and tanh */                                \
    C(POOLED_BARE, c->bare_pooler)     /* or the first row itself */                                         \
    C(STATES_NORMED, c->states_normed) /* hidden states of another model are normed before they are used */

enum proa_condition {
#define PROA_CONDITION_ENUM(name, holds) PROA_CONDITION_##name,
    PROA_CONDITION_LIST(PROA_CONDITION_ENUM)
#undef PROA_CONDITION_ENUM
        PROA_CONDITION_COUNT
};
/* Flags of a tensor or a step: conditions are the upper bits, the lower ones are those of the two enumerations. */
typedef proa_uint128 proa_flags;
#define PROA_CONDITION_SHIFT 32
#define PROA_IF(NAME)        ((proa_flags)1 << (PROA_CONDITION_SHIFT + PROA_CONDITION_##NAME))
_Static_assert(PROA_CONDITION_SHIFT + PROA_CONDITION_COUNT <= 128, "more conditions than bits");
#define PROA_CONDITIONS_BY_LAYER                                                                             \
    (PROA_IF(EXPERTS) | PROA_IF(DENSE) | PROA_IF(FIRST_LAYER) | PROA_IF(LATER_LAYERS) | PROA_IF(ROTATED) |   \
     PROA_IF(NOT_ROTATED) | PROA_IF(ATTENDS) | PROA_IF(RECURS) | PROA_IF(OWN_KV) | PROA_IF(K_IS_V) |         \
     PROA_IF(K_AND_V) | PROA_IF(BORROWED_KV) | PROA_IF(THRESHOLD) | PROA_IF(NO_THRESHOLD) | PROA_IF(PICKS) | \
     PROA_IF(RECURS_ALONE))
#define PROA_SOME_LAYER (-1)

enum proa_step_flags {
    PROA_ADD = 1 << 0,    /* LINEAR, EMBED: add to out; NORM: in is normed in place, then added */
    PROA_ACT = 1 << 1,    /* LINEAR: the configuration's activation */
    PROA_SCALED = 1 << 3, /* LINEAR: times the configuration's logit_scale; EMBED: its embed_scale */
    PROA_INPUTS = 1 << 2, /* EMBED with SCALED: rows of a prompt table are scaled like those of the table; EXPERTS: the
                              weights multiply what the experts read */
    PROA_OF_POS = 1 << 4,   /* EMBED: by position */
    PROA_OF_TYPE = 1 << 5,  /* EMBED: by token type */
    PROA_OF_NONE = 1 << 25, /* EMBED: the first row of the table, for all */
    PROA_OF_K = 1 << 6,     /* HEADS_NORM: the keys; else the queries. LINEAR: out is the keys of QKV */
    PROA_OF_V = 1 << 25,    /* HEADS_NORM: the values */
    PROA_BEHIND = 1 << 26,  /* LINEAR: out is the last columns of a register whose first ones others make */
    PROA_INTERLEAVED = 1 << 7, /* ROPE: pairs (2i, 2i+1) */
    PROA_FORK = 1 << 10, /* may run in parallel with the steps up to the next JOIN: none of them reads its output, and
                            the plan keeps its registers apart from theirs */
    PROA_JOIN = 1 << 11,
    PROA_CAPPED = 1 << 12,   /* LINEAR: then capped by the configuration's logit_cap, if it has one */
    PROA_ADD_X = 1 << 13,    /* LINEAR: X is added */
    PROA_RESIDUAL = 1 << 14, /* LINEAR: times the configuration's residual_scale, before the bias */
    PROA_WHOLE = 1 << 15,    /* HEADS_NORM: all heads as one row. NORM: out is both halves of PAIR */
    PROA_EXACT = 1 << 21,    /* EMBED with SCALED: the scale is not rounded to the type of the table */
    PROA_BLOCK = 1 << 20, /* ROPE_TABLE: of the block positions; ROPE: of each head's second half, by these */
    PROA_KEEP = 1 << 8,   /* HEADS_LINEAR: qk_rope numbers of each head go by the product */
    PROA_HEAD_ACT = 1 << 9,    /* LINEAR: the configuration's head_act */
    PROA_CONV_ACT = 1 << 22,   /* its conv_act */
    PROA_BY_CHANNEL = 1 << 25, /* SELECTIVE_SCAN: Mamba-1's, B and C in PARAMS, rates in RATES */
    PROA_FACTOR = 1 << 24, /* LINEAR, LINEAR_GATED: times the configuration's factor of w, before the bias */
    PROA_OF_GLOBALS = 1 << 28, /* ATTEND: only the global rows of each sequence, over all keys of QKV */
    PROA_OF_PICKED = 1 << 29,  /* ATTEND: a row sees only the keys that PICKED names */
    PROA_OF_BLOCKS = 1 << 27, /* NORM, LINEAR: of the rows of blocks; ATTEND: the keys of BLOCK_QKV are side keys */
    PROA_OF_REST = 1 << 30, /* LINEAR: reads the last columns of in, of which another product reads the first ones */
    PROA_FEEDS_PRODUCT = 1 << 23, /* LINEAR: the next step is a product, and alone reads out (set by the plan) */
    PROA_SECOND = PROA_INTERLEAVED /* EMBED, NORM, SCALE: out is the second half of PAIR; else the first one */
};

/* LINEAR: then this activation, whatever the configuration says: PROA_ACT_IS(RELU). */
#define PROA_ACT_IS(ACT)     ((proa_flags)(PROA_ACT_##ACT) << PROA_ACT_IS_SHIFT)
#define PROA_ACT_OF_FLAGS(f) ((proa_act)((f) >> PROA_ACT_IS_SHIFT & 15))
enum { PROA_ACT_IS_SHIFT = 16 };

typedef struct proa_step {
    proa_step_op op;
    proa_reg in, out;
    proa_weight_slot w;
    proa_flags flags; /* proa_step_flags and conditions */
} proa_step;

/* The sizes in shapes of tensors. */
typedef enum proa_dim {
    PROA_DIM_NONE,
    PROA_DIM_VOCAB,
    PROA_DIM_INPUT_VOCAB, /* of an encoder before a decoder: input_vocab, or VOCAB */
    PROA_DIM_TOKENS,      /* VOCAB and extra_tokens */
    PROA_DIM_HIDDEN,
    PROA_DIM_Q,    /* heads * head_dim */
    PROA_DIM_KV,   /* kv_heads * head_dim */
    PROA_DIM_QKV,  /* Q + 2 KV: GPT-2's fused matrix */
    PROA_DIM_HEAD, /* head_dim */
    PROA_DIM_HEADS,
    PROA_DIM_FFN,
    PROA_DIM_ENCODER_FFN, /* encoder_ffn, or FFN */
    PROA_DIM_GATE_UP,     /* 2 FFN: gate and up as one stored matrix */
    PROA_DIM_EXPERTS,
    PROA_DIM_EXPERT_FFN,
    PROA_DIM_EXPERT_WIDTH, /* expert_latent, or hidden */
    PROA_DIM_EXPERT_GATED, /* 2 expert_ffn: gate and up in one tensor */
    PROA_DIM_SHARED_FFN,
    PROA_DIM_SHARED_GATED, /* 2 shared_ffn */
    PROA_DIM_ONE,
    PROA_DIM_Q_LORA,
    PROA_DIM_Q_HEADS, /* heads * (qk_nope + qk_rope) */
    PROA_DIM_LATENT,  /* kv_lora */
    PROA_DIM_NOPE,
    PROA_DIM_VALUE,   /* v_dim */
    PROA_DIM_INDEX_Q, /* index_heads * index_dim */
    PROA_DIM_INDEX,   /* index_dim */
    PROA_DIM_INDEX_HEADS,
    PROA_DIM_VALUES, /* heads * v_dim */
    PROA_DIM_CONTEXT,
    PROA_DIM_POSITIONS,       /* context + position_offset */
    PROA_DIM_INPUT_POSITIONS, /* the same of an encoder before a decoder */
    PROA_DIM_EMBED,           /* of the embedding table */
    PROA_DIM_TYPES,
    PROA_DIM_TASKS,
    PROA_DIM_BOXES,
    PROA_DIM_ADAPTER,
    PROA_DIM_HEAD_EMBED,  /* of the matrix of the head */
    PROA_DIM_HEAD_REST,   /* hidden - embed: what a matrix of its own reads beside it (HEAD_REST) */
    PROA_DIM_NARROW,      /* narrow, or hidden */
    PROA_DIM_ROTARY_HALF, /* rotary_dim / 2 */
    PROA_DIM_SEGMENTS,
    PROA_DIM_LABELS,
    PROA_DIM_BUCKETS,
    PROA_DIM_RELATIVE, /* 2 relative.span */
    PROA_DIM_Q_GATED,  /* 2 Q: queries and gates of attention */
    PROA_DIM_MIX, /* a recurrent layer's q, k, v and gates: 2 keys + 2 values, and mix_rates, mix_gated; with a
                     step_rank without keys */
    PROA_DIM_CONVOLVED,   /* q, k and v of these: 2 keys + values */
    PROA_DIM_RECALLED,    /* values: value_heads * value_dim */
    PROA_DIM_RECALL_HEAD, /* value_dim */
    PROA_DIM_RATES,       /* 2 value_heads; with a step_rank values; value_heads + decays */
    PROA_DIM_RECALL_KEYS, /* keys: key_heads * key_dim */
    PROA_DIM_DECAYS,      /* value_heads; by channel times key_dim */
    PROA_DIM_GATE_RANK,
    PROA_DIM_STEP_RANK,
    PROA_DIM_PARAMS,     /* step_rank + 2 keys */
    PROA_DIM_STATE,      /* key_dim */
    PROA_DIM_RATE_HEADS, /* value_heads */
    PROA_DIM_TAPS,       /* conv_taps */
    PROA_DIM_WINDOW,     /* conv_width * embed */
    PROA_DIM_PAIR,       /* 2 hidden */
    PROA_DIM_LAYER_INPUT,
    PROA_DIM_LAYER_INPUTS, /* of all layers */
    PROA_DIM_LAYER_VOCAB,
    PROA_DIM_STREAMS,
    PROA_DIM_STREAM_PAIRS, /* streams * streams */
    PROA_DIM_LAUREL,
    PROA_DIM_STATES,
    PROA_DIM_DRAFT_VOCAB
} proa_dim;

typedef enum proa_role {
    PROA_ROLE_MATRIX, /* [rows, cols] packed for linear; parts of one slot are stacked along rows in table order */
    PROA_ROLE_TRANSPOSED, /* stored [cols, rows] (Conv1D) */
    PROA_ROLE_VECTOR,     /* [rows] copied to f32; parts of one slot follow each other */
    PROA_ROLE_TABLE,      /* [rows, cols] read in place, row by row */
    PROA_ROLE_F32         /* [rows, cols] copied to f32 */
} proa_role;

enum proa_name_flags {
    PROA_SHARED = 1 << 0,   /* the tensor is used a second time: neither missing nor extra */
    PROA_PLUS_ONE = 1 << 1, /* VECTOR: the weight is 1 + the stored number (Gemma's norms) */
    PROA_PER_EXPERT = 1 << 2, /* one such tensor for each expert, by the second "%d" of the name; a name with one "%d"
                                 is a tensor [experts, rows, cols] */
    PROA_PER_HEAD = 1 << 3, /* one for each head of q, by the second "%d"; they follow each other (StableLM 2 12B) */
    PROA_PER_KV_HEAD = 1 << 4, /* the same of k */
    PROA_OF_HEADS = 1 << 5, /* a matrix for each head, by a load action that takes it from the rows of the head */
    PROA_LOAD_ONLY = 1 << 6, /* read while the model is loaded, not kept */
    PROA_UNUSED = 1 << 8,    /* a checkpoint may have it, and it is not read */
    PROA_OF_BLOCK = 1 << 9, /* "%d" is the first of the layers that share the block of weights (block_layers) */
    PROA_PROJECTED = 1 << 7 /* MATRIX, TRANSPOSED: not kept; the relative positions projected by it are, in f32 */
};

/* Load actions: which rows of a stored tensor go where. The role says the rest (transposed, a vector, ...). */
typedef enum proa_load {
    PROA_LOAD_ROWS, /* as they are stored */
    /* [kv_heads][heads / kv_heads heads of q, one of k, one of v] to all q, all k, all v: GPT-NeoX and BLOOM (one query
     * head for each key head), Falcon, StarCoder, InternLM2 */
    PROA_LOAD_QKV_GROUPS,
    PROA_LOAD_QVK_QUARTERS, /* four blocks, each of a quarter of q, of v, and of k, to all q, all k, all v: CodeGen */
    /* The rows of keys, or those of values, from [heads][qk_nope rows of keys, v_dim rows of values] (kv_b_proj). */
    PROA_LOAD_HEAD_KEYS,
    PROA_LOAD_HEAD_VALUES,
    PROA_LOAD_ROPE_FIRST,  /* the last qk_rope rows, then the others: DeepSeek's kv_a_proj_with_mqa */
    PROA_LOAD_GATES_FIRST, /* from [heads][rows of q, rows of its gate] all gates, then all q: Qwen3-Next */
    /* From [key heads][q, k, v of its value heads, their gates] all q, all k, all v, all gates; and of the two rates of
     * each value head, which are grouped likewise: Qwen3-Next's in_proj_qkvz and in_proj_ba. */
    PROA_LOAD_MIX_GROUPS,
    PROA_LOAD_RATE_GROUPS,
    PROA_LOAD_MIX_RATES, /* from [gates, convolved, rates] the second, the third, the first: Mamba-2's in_proj */
    PROA_LOAD_MIX_GATES, /* from [gates of inputs, gates of outputs, inputs] the first, the third, the second: LFM2 */
    PROA_LOAD_MIX_HEADS, /* from [heads][q, k, v] all k, all q, all v: the B, C and values of a scan (MiniMax) */
    PROA_LOAD_EVEN_ODD,      /* rows 0, 2, 4, ..., then 1, 3, 5, ...: the gate and the up rows of gpt-oss */
    PROA_LOAD_HALVES_TURNED, /* the second half of the rows, then the first: GTE's up and gate */
    PROA_LOAD_HEADS_TURNED,  /* the same of each head: a head that rotates the other way (nanochat) */
    PROA_LOAD_TAPS_TURNED, /* columns [taps][inputs], the last tap first, to [inputs][taps]: MobileBERT's trigrams */
    PROA_LOAD_GROUPED, /* [rows, cols / groups], outputs that read the inputs of their group: zeros elsewhere */
    PROA_LOAD_NORMALISED, /* each row divided by its Euclidean norm, at least 1e-12: Baichuan 2's head */
    /* A TABLE [POSITIONS, cols] of sinusoids, made by the formula if the checkpoint lacks it (tensor/source.h). */
    PROA_LOAD_SINUSOID_HALVES,
    PROA_LOAD_SINUSOID_PAIRS,
    PROA_LOAD_SINUSOID_ENDS,
    PROA_LOAD_SPREAD, /* a VECTOR [HIDDEN] of one stored number */
    PROA_LOAD_ONES,   /* a VECTOR of ones that no checkpoint has: norms without weights */
    PROA_LOAD_ZEROS,  /* or of zeros: the keys' part of a bias that only queries and values have */
    PROA_LOAD_SLOPES /* a VECTOR of logarithms of fixed decays, made by the formula for head and layer (MiniMax) */
} proa_load;

#define PROA_LANGUAGE "{language}"

typedef enum proa_stack_id { PROA_STACK_DECODER, PROA_STACK_ENCODER, PROA_STACK_COUNT } proa_stack_id;

/* One tensor of the checkpoint; "%d" in the name is the number of the layer, a second one that of the expert, and
 * PROA_LANGUAGE the language of the configuration; tensors of other languages are not used. The
 * layers of an encoder-only model are in the ENCODER stack. A stored tensor of more axes is taken if axes that follow
 * each other can be merged to the shape that is wanted (XLNet's [hidden, heads, head_dim]). */
typedef struct proa_name {
    const char *name; /* NULL ends the map */
    proa_stack_id stack;
    proa_weight_slot slot;
    proa_role role;
    proa_dim rows, cols;
    proa_flags flags; /* proa_name_flags and conditions */
    proa_load load;
} proa_name;

typedef enum proa_norm { PROA_NORM_RMS, PROA_NORM_LAYER } proa_norm;
typedef enum proa_head_rows {
    PROA_ROWS_LAST, /* generation: of the last row, or of all on request; an encoder: the last row of each input */
    PROA_ROWS_ALL,   /* every row of the input */
    PROA_ROWS_FIRST, /* the first row ([CLS]) of each input */
    PROA_ROWS_END    /* the row of the last end token of each input */
} proa_head_rows;

/* What a class has on the layers of another row, by the ending of its name. derive.h makes a row of each. */
typedef enum proa_head_form {
    PROA_FORM_OWN,    /* the row's own head */
    PROA_FORM_BARE,   /* ...Model: no head, hidden states (an embedder) */
    PROA_FORM_TEXTS,  /* ...ForSequenceClassification: labels of an input, from one of its rows */
    PROA_FORM_ENDS,   /* the same of an encoder-decoder, from the last row */
    PROA_FORM_TOKENS, /* ...ForTokenClassification: labels of each token */
    PROA_FORM_SPANS,  /* ...ForQuestionAnswering: scores of start and end of each token */
    PROA_FORM_CAUSAL, /* ...ForCausalLM: a decoder without its encoder, or an encoder's layers as a decoder */
    PROA_FORM_CHOICES, /* ...ForMultipleChoice: a number for an input, which is compared with those of other inputs */
    PROA_FORM_FOLLOWS /* ...ForNextSentencePrediction: whether the second text of an input follows the first one */
} proa_head_form;

/* Which vector of an input is its embedding, where neither its folder nor the request says it. */
typedef enum proa_embeds { PROA_EMBEDS_MEAN, PROA_EMBEDS_FIRST, PROA_EMBEDS_LAST } proa_embeds;

/* One stack of layers: the programs before, in and after them. Programs end with PROA_STEP_END. An encoder
 * (PROA_KIND_ENCODER) may have a second stack, of a decoder: its passes run both, the decoder over the same rows, each
 * of which embeds the token before it. */
typedef struct proa_stack {
    const proa_step *embed, *layer, *after; /* after: once after the last layer (encoder: final norm) */
    bool causal;
} proa_stack;

typedef struct proa_arch {
    const char *name;       /* "llama" */
    const char *const *hf;  /* architectures[0] of config.json; NULL-terminated */
    const char *model_type; /* when there are no architectures */
    const char *key; /* a key of config.json, or of its text_config, that tells this row from later ones of the same
                        class; NULL: none */
    proa_kind kind;
    proa_norm norm;
    const proa_key *keys;
    const proa_name *names;
    const char *const *prefixes;       /* prefixes that checkpoints may leave out; NULL: none */
    const char *const *prefix_aliases; /* pairs (our beginning, another beginning), NULL-terminated; NULL: none */
    const char *const *aliases;        /* pairs (our ending, older ending), NULL-terminated; NULL: none */
    const char *const *ignored;        /* endings of tensors that are not used; NULL-terminated */
    /* Of a checkpoint with the adapters of several tasks: the ending of the name of a matrix, and in its place those of
     * its adapters' first and second matrix [tasks, rank, cols], [tasks, rows, rank]; of a table these are
     * [tasks, rows, rank], [tasks, rank, cols]. NULL: none. */
    const char *const *merged;
    const char *const *unused_parts; /* beginnings of tensors of parts that are not used (a vision tower); NULL: none */
    const char *text_config; /* the key of config.json that may hold the keys of the text model; NULL: none */
    proa_stack stacks[PROA_STACK_COUNT];
    const proa_step *cross; /* for each decoder layer, over the encoder's output: its keys and values */
    const proa_step *head;
    const proa_step *pool; /* optional: of the first row */
    /* A draft head: the batch brings hidden states of its target, another model, to X; states of several layers to
     * STATES, of which `fuse` makes X. It runs before the embedding (heads/eagle.h). */
    const proa_step *fuse;
    bool of_target;
    /* Of a language model: the row of the same model without a head, for folders of sentence-transformers
     * (modules.json), whose class may be that of the language model all the same (Qwen3-Embedding, all-mpnet-base-v2);
     * NULL: none. */
    const struct proa_arch *embedder;
    /* What the names of the other classes begin with ("GPT2"), NULL-terminated; one that ends with "Model" is a whole
     * name. And the forms that there are of it, bits 1 << proa_head_form; NULL, 0: no other row is made of it. */
    const char *const *stems;
    uint32_t forms;
    /* Of a row that was made of another (derive.h): that, and its form. */
    const struct proa_arch *origin;
    proa_head_form form;
    /* Of a family of multimodal classes (multimodal.h): whose layers these are, and the family; NULL: it is none. */
    const struct proa_text_model *text;
    const struct proa_family *family;
    proa_head_rows head_rows;
    proa_embeds embeds; /* of an encoder */
    proa_dim outputs;   /* columns of OUT */
    /* Sets the fields that no key gives; the arena is the model's. */
    proa_status (*finish)(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err);
} proa_arch;

/* The architectures: one row each, proa_arch_NAME in an arch/arch_*.c. derive.h has the list of all rows. */
#define PROA_ARCH_LIST(A)                                                                                    \
    A(bart)                                                                                                  \
    A(mbart)                                                                                                 \
    A(marian)                                                                                                \
    A(fsmt)                                                                                                  \
    A(m2m100)                                                                                                \
    A(nllb_moe)                                                                                              \
    A(seamless_m4t)                                                                                          \
    A(pegasus)                                                                                               \
    A(bigbird_pegasus)                                                                                       \
    A(blenderbot)                                                                                            \
    A(blenderbot_small)                                                                                      \
    A(led)                                                                                                   \
    A(plbart)                                                                                                \
    A(mvp)                                                                                                   \
    A(opennmt)                                                                                               \
    A(encoder_decoder)                                                                                       \
    A(jina_embeddings_v3_tasks)                                                                              \
    A(roberta)                                                                                               \
    A(roberta_cls)                                                                                           \
    A(roberta_token)                                                                                         \
    A(roberta_qa)                                                                                            \
    A(roberta_mlm)                                                                                           \
    A(longformer)                                                                                            \
    A(longformer_cls)                                                                                        \
    A(longformer_qa)                                                                                         \
    A(longformer_token)                                                                                      \
    A(longformer_mlm)                                                                                        \
    A(distilbert)                                                                                            \
    A(distilbert_cls)                                                                                        \
    A(distilbert_token)                                                                                      \
    A(distilbert_qa)                                                                                         \
    A(distilbert_mlm)                                                                                        \
    A(llama)                                                                                                 \
    A(mistral)                                                                                               \
    A(qwen)                                                                                                  \
    A(qwen2)                                                                                                 \
    A(mimo)                                                                                                  \
    A(qwen3)                                                                                                 \
    A(mixtral)                                                                                               \
    A(minimax)                                                                                               \
    A(phimoe)                                                                                                \
    A(deepseek)                                                                                              \
    A(deepseek_v2)                                                                                           \
    A(deepseek_v3)                                                                                           \
    A(deepseek_v32)                                                                                          \
    A(glm_moe_dsa)                                                                                           \
    A(youtu)                                                                                                 \
    A(axk1)                                                                                                  \
    A(glm4_moe_lite)                                                                                         \
    A(sarvam_mla)                                                                                            \
    A(kimi_k25)                                                                                              \
    A(mistral4)                                                                                              \
    A(minicpm3)                                                                                              \
    A(kimi_linear)                                                                                           \
    A(gpt_oss)                                                                                               \
    A(privacy_filter)                                                                                        \
    A(privacy_filter_token)                                                                                  \
    A(qwen2_moe)                                                                                             \
    A(qwen3_moe)                                                                                             \
    A(qwen3_vl_moe)                                                                                          \
    A(mellum)                                                                                                \
    A(qwen3_next)                                                                                            \
    A(qwen3_5)                                                                                               \
    A(qwen3_5_moe)                                                                                           \
    A(olmo_hybrid)                                                                                           \
    A(olmoe)                                                                                                 \
    A(aria)                                                                                                  \
    A(granitemoe)                                                                                            \
    A(granitemoeshared)                                                                                      \
    A(granitemoe_swa)                                                                                        \
    A(granitemoehybrid)                                                                                      \
    A(bamba)                                                                                                 \
    A(zamba2)                                                                                                \
    A(falcon_h1)                                                                                             \
    A(nemotron_h)                                                                                            \
    A(mamba)                                                                                                 \
    A(falcon_mamba)                                                                                          \
    A(jamba)                                                                                                 \
    A(mamba2)                                                                                                \
    A(lfm2)                                                                                                  \
    A(lfm2_moe)                                                                                              \
    A(glm4_moe)                                                                                              \
    A(dots1)                                                                                                 \
    A(solar_open)                                                                                            \
    A(sarvam_moe)                                                                                            \
    A(exaone_moe)                                                                                            \
    A(hy_v3)                                                                                                 \
    A(minimax_m2)                                                                                            \
    A(llama4)                                                                                                \
    A(afmoe)                                                                                                 \
    A(flex_olmo)                                                                                             \
    A(cohere2_moe_rms)                                                                                       \
    A(cohere2_moe)                                                                                           \
    A(dbrx)                                                                                                  \
    A(ernie4_5_moe)                                                                                          \
    A(hunyuan_v1_moe)                                                                                        \
    A(gpt2)                                                                                                  \
    A(gpt_bigcode)                                                                                           \
    A(gpt_neo)                                                                                               \
    A(openai_gpt)                                                                                            \
    A(gpt_neox)                                                                                              \
    A(gpt_neox_japanese)                                                                                     \
    A(persimmon)                                                                                             \
    A(fuyu)                                                                                                  \
    A(falcon)                                                                                                \
    A(codegen)                                                                                               \
    A(gptj)                                                                                                  \
    A(bloom)                                                                                                 \
    A(mpt)                                                                                                   \
    A(granite)                                                                                               \
    A(granite_swa)                                                                                           \
    A(hyperclovax)                                                                                           \
    A(minicpm)                                                                                               \
    A(smollm3)                                                                                               \
    A(internlm)                                                                                              \
    A(internlm3)                                                                                             \
    A(seed_oss)                                                                                              \
    A(helium)                                                                                                \
    A(cwm)                                                                                                   \
    A(ernie4_5)                                                                                              \
    A(hunyuan_v1_dense)                                                                                      \
    A(nemotron)                                                                                              \
    A(arcee)                                                                                                 \
    A(apertus)                                                                                               \
    A(bitnet)                                                                                                \
    A(jais2)                                                                                                 \
    A(nanochat)                                                                                              \
    A(olmo)                                                                                                  \
    A(olmo2)                                                                                                 \
    A(olmo3)                                                                                                 \
    A(exaone4)                                                                                               \
    A(exaone4_5)                                                                                             \
    A(exaone)                                                                                                \
    A(cohere)                                                                                                \
    A(cohere2)                                                                                               \
    A(phi)                                                                                                   \
    A(phi4_multimodal)                                                                                       \
    A(phi3)                                                                                                  \
    A(gemma)                                                                                                 \
    A(orion)                                                                                                 \
    A(stablelm)                                                                                              \
    A(starcoder2)                                                                                            \
    A(opt)                                                                                                   \
    A(ctrl)                                                                                                  \
    A(xglm)                                                                                                  \
    A(biogpt)                                                                                                \
    A(internlm2)                                                                                             \
    A(baichuan)                                                                                              \
    A(glm)                                                                                                   \
    A(glm4)                                                                                                  \
    A(chatglm2)                                                                                              \
    A(chatglm)                                                                                               \
    A(gemma2)                                                                                                \
    A(t5gemma)                                                                                               \
    A(vaultgemma)                                                                                            \
    A(gemma3)                                                                                                \
    A(gemma3n)                                                                                               \
    A(gemma4_unified)                                                                                        \
    A(gemma4)                                                                                                \
    A(embedding_gemma2)                                                                                      \
    A(eurobert)                                                                                              \
    A(eurobert_mlm)                                                                                          \
    A(eurobert_cls)                                                                                          \
    A(eurobert_token)                                                                                        \
    A(mllama)                                                                                                \
    A(mistral3)                                                                                              \
    A(emu3)                                                                                                  \
    A(ministral3)                                                                                            \
    A(qwen2_vl)                                                                                              \
    A(qwen3_vl)                                                                                              \
    A(eagle)                                                                                                 \
    A(eagle3)                                                                                                \
    A(t5)                                                                                                    \
    A(t5_encoder)                                                                                            \
    A(t5_token)                                                                                              \
    A(umt5)                                                                                                  \
    A(switch_transformers)                                                                                   \
    A(umt5_encoder)                                                                                          \
    A(umt5_token)                                                                                            \
    A(longt5)                                                                                                \
    A(longt5_encoder)                                                                                        \
    A(bert)                                                                                                  \
    A(bert_cls)                                                                                              \
    A(bert_token)                                                                                            \
    A(bert_qa)                                                                                               \
    A(bert_mlm)                                                                                              \
    A(bigbird)                                                                                               \
    A(bigbird_cls)                                                                                           \
    A(bigbird_token)                                                                                         \
    A(bigbird_mlm)                                                                                           \
    A(dpr)                                                                                                   \
    A(electra)                                                                                               \
    A(electra_cls)                                                                                           \
    A(electra_token)                                                                                         \
    A(electra_qa)                                                                                            \
    A(electra_disc)                                                                                          \
    A(electra_choice)                                                                                        \
    A(electra_mlm)                                                                                           \
    A(mpnet)                                                                                                 \
    A(mpnet_cls)                                                                                             \
    A(mpnet_token)                                                                                           \
    A(mpnet_qa)                                                                                              \
    A(mpnet_mlm)                                                                                             \
    A(albert)                                                                                                \
    A(albert_cls)                                                                                            \
    A(albert_token)                                                                                          \
    A(albert_qa)                                                                                             \
    A(albert_mlm)                                                                                            \
    A(nomic_bert)                                                                                            \
    A(nomic_bert_cls)                                                                                        \
    A(nomic_bert_token)                                                                                      \
    A(nomic_bert_mlm)                                                                                        \
    A(gte)                                                                                                   \
    A(gte_cls)                                                                                               \
    A(gte_token)                                                                                             \
    A(gte_mlm)                                                                                               \
    A(deberta)                                                                                               \
    A(deberta_cls)                                                                                           \
    A(deberta_tok)                                                                                           \
    A(deberta_qa)                                                                                            \
    A(deberta_mlm)                                                                                           \
    A(deberta_v1)                                                                                            \
    A(deberta_v1_cls)                                                                                        \
    A(deberta_v1_tok)                                                                                        \
    A(deberta_v1_qa)                                                                                         \
    A(deberta_v1_mlm)                                                                                        \
    A(xlnet)                                                                                                 \
    A(xlnet_lm)                                                                                              \
    A(xlnet_cls)                                                                                             \
    A(xlnet_tok)                                                                                             \
    A(xlnet_qa)                                                                                              \
    A(megatron_bert)                                                                                         \
    A(megatron_bert_cls)                                                                                     \
    A(megatron_bert_token)                                                                                   \
    A(megatron_bert_qa)                                                                                      \
    A(megatron_bert_mlm)                                                                                     \
    A(roberta_prelayernorm)                                                                                  \
    A(roberta_prelayernorm_cls)                                                                              \
    A(roberta_prelayernorm_token)                                                                            \
    A(roberta_prelayernorm_qa)                                                                               \
    A(roberta_prelayernorm_mlm)                                                                              \
    A(xlm_roberta_xl)                                                                                        \
    A(xlm_roberta_xl_cls)                                                                                    \
    A(xlm_roberta_xl_token)                                                                                  \
    A(xlm_roberta_xl_qa)                                                                                     \
    A(xlm_roberta_xl_mlm)                                                                                    \
    A(esm)                                                                                                   \
    A(esm_cls)                                                                                               \
    A(esm_token)                                                                                             \
    A(esm_mlm)                                                                                               \
    A(ernie)                                                                                                 \
    A(ernie_cls)                                                                                             \
    A(ernie_token)                                                                                           \
    A(ernie_qa)                                                                                              \
    A(ernie_mlm)                                                                                             \
    A(rembert)                                                                                               \
    A(rembert_cls)                                                                                           \
    A(rembert_token)                                                                                         \
    A(rembert_qa)                                                                                            \
    A(rembert_mlm)                                                                                           \
    A(roformer)                                                                                              \
    A(roformer_cls)                                                                                          \
    A(roformer_choice)                                                                                       \
    A(roformer_token)                                                                                        \
    A(roformer_qa)                                                                                           \
    A(roformer_mlm)                                                                                          \
    A(jina_bert)                                                                                             \
    A(jina_bert_cls)                                                                                         \
    A(jina_bert_token)                                                                                       \
    A(jina_bert_qa)                                                                                          \
    A(jina_bert_mlm)                                                                                         \
    A(jina_embeddings_v3)                                                                                    \
    A(jina_embeddings_v3_cls)                                                                                \
    A(jina_embeddings_v3_token)                                                                              \
    A(jina_embeddings_v3_qa)                                                                                 \
    A(jina_embeddings_v3_mlm)                                                                                \
    A(mobilebert)                                                                                            \
    A(mobilebert_cls)                                                                                        \
    A(mobilebert_token)                                                                                      \
    A(mobilebert_qa)                                                                                         \
    A(mobilebert_mlm)                                                                                        \
    A(xlm)                                                                                                   \
    A(xlm_cls)                                                                                               \
    A(xlm_choice)                                                                                            \
    A(xlm_token)                                                                                             \
    A(xlm_qa)                                                                                                \
    A(xlm_mlm)                                                                                               \
    A(luke)                                                                                                  \
    A(luke_cls)                                                                                              \
    A(luke_token)                                                                                            \
    A(luke_qa)                                                                                               \
    A(luke_mlm)                                                                                              \
    A(ibert)                                                                                                 \
    A(ibert_cls)                                                                                             \
    A(ibert_token)                                                                                           \
    A(ibert_qa)                                                                                              \
    A(ibert_mlm)                                                                                             \
    A(layoutlm)                                                                                              \
    A(layoutlm_cls)                                                                                          \
    A(layoutlm_token)                                                                                        \
    A(layoutlm_qa)                                                                                           \
    A(layoutlm_mlm)                                                                                          \
    A(squeezebert)                                                                                           \
    A(squeezebert_cls)                                                                                       \
    A(squeezebert_token)                                                                                     \
    A(squeezebert_qa)                                                                                        \
    A(squeezebert_mlm)                                                                                       \
    A(xmod)                                                                                                  \
    A(xmod_cls)                                                                                              \
    A(xmod_token)                                                                                            \
    A(xmod_qa)                                                                                               \
    A(xmod_mlm)                                                                                              \
    A(clip_text)                                                                                             \
    A(modernbert)                                                                                            \
    A(modernbert_mlm)                                                                                        \
    A(modernbert_cls)                                                                                        \
    A(modernbert_tok)                                                                                        \
    A(modernbert_decoder)                                                                                    \
    A(modernbert_qa)

#define PROA_ARCH_EXTERN(name) extern const proa_arch proa_arch_##name;
PROA_ARCH_LIST(PROA_ARCH_EXTERN)
#undef PROA_ARCH_EXTERN

/* By architectures[0], or model_type; of several rows of one class by both. UNSUPPORTED names the closest known
 * ones. */
PROA_MUST_CHECK proa_status proa_arch_find(const proa_arch **out, const proa_json *config, proa_err *err);
/* The object of config.json that has the keys of a multimodal class' text model; NULL: config.json itself has them. */
const proa_json *proa_arch_text(const proa_arch *arch, const proa_json *config);
/* The row of a model whose folder is one of sentence-transformers or not. */
const proa_arch *proa_arch_in_folder(const proa_arch *arch, bool embeds);
/* Row, keys, rope, window, ids, derived sizes, all checked. generation may be NULL. */
PROA_MUST_CHECK proa_status proa_arch_configure(const proa_arch **out, proa_config *c, const proa_json *config,
                                                const proa_json *generation, proa_arena *arena, proa_err *err);
/* The same for a row that is known. */
PROA_MUST_CHECK proa_status proa_arch_configure_as(const proa_arch *arch, proa_config *c,
                                                   const proa_json *config, const proa_json *generation,
                                                   proa_arena *arena, proa_err *err);
int64_t proa_dim_size(const proa_config *c, proa_dim dim);
/* The same in a layer, which may have heads or an FFN of another size than others; layer < 0: outside of the layers. */
int64_t proa_dim_in_layer(const proa_config *c, proa_dim dim, int64_t layer);
/* The factor of products with the weight of a slot (muP); 0 stands for 1. */
double proa_slot_factor(const proa_config *c, proa_weight_slot slot);
/* The epsilon of a norm with the weights of that slot. */
double proa_norm_epsilon(const proa_config *c, proa_weight_slot slot);
/* Widths of the parts of MIX that factors.parts are of. */
void proa_mix_parts(int64_t widths[5], const proa_config *c);
/* Width of a register for a configuration: the columns of its buffer. */
int64_t proa_reg_width(const proa_arch *arch, const proa_config *c, proa_reg reg);
/* How many experts or heads have such a tensor, or a part of it, of their own; 1: it is not by experts or heads. */
int64_t proa_name_copies(const proa_name *name, const proa_config *c);
/* Whether a row of the name map, or a step, applies in that layer (its conditions; none in an empty one).
 * PROA_SOME_LAYER: in any; also for what is outside of the layers. */
bool proa_name_applies(const proa_name *name, const proa_config *c, int64_t layer);
bool proa_step_applies(const proa_step *step, const proa_config *c, int64_t layer);
/* Whether this is an encoder whose head computes one row of each input. */
bool proa_arch_has_one_row(const proa_arch *arch);
/* Whether this is an encoder whose hidden states are what its head makes of X (an embedder with a projection). */
bool proa_arch_projects(const proa_arch *arch);
/* Whether this is an encoder whose passes also run a decoder over the input. */
bool proa_arch_decodes_input(const proa_arch *arch);
const char *proa_reg_name(proa_reg reg);
const char *proa_slot_name(proa_weight_slot slot);
const char *proa_step_name(proa_step_op op);

#endif
