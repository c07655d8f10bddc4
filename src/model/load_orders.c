/* SPDX-License-Identifier: Apache-2.0
 * load_orders.c - in which order a load action takes the rows of a stored tensor. */
#include "model/bind.h"

/* One of the parts q, k, v of a tensor whose rows have these sizes in each of `groups` groups. */
static proa_row_order piece_of(int64_t groups, int64_t first, int64_t size, int64_t step)
{
    return (proa_row_order){first, {1, groups, size}, {0, step, 1}};
}

static int qkv_groups(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t q = c->heads / c->kv_heads * c->head_dim, d = c->head_dim, step = q + 2 * d;
    order[0] = piece_of(c->kv_heads, 0, q, step);
    order[1] = piece_of(c->kv_heads, q, d, step);
    order[2] = piece_of(c->kv_heads, q + d, d, step);
    return 3;
}

static int qvk_quarters(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t d = c->heads * c->head_dim / 4;
    order[0] = piece_of(4, 0, d, 3 * d);
    order[1] = piece_of(4, 2 * d, d, 3 * d);
    order[2] = piece_of(4, d, d, 3 * d);
    return 3;
}

/* What each key head has: q, k, and v and gates of its value heads. */
static int mix_groups(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t k = c->key_dim, v = c->value_heads / c->key_heads * c->value_dim, step = 2 * k + 2 * v;
    order[0] = piece_of(c->key_heads, 0, k, step);
    order[1] = piece_of(c->key_heads, k, k, step);
    order[2] = piece_of(c->key_heads, 2 * k, v, step);
    order[3] = piece_of(c->key_heads, 2 * k + v, v, step);
    return 4;
}

/* What is convolved, rates, gates; the gates are stored first. */
static int mix_rates(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t gates = c->value_heads * c->value_dim, convolved = gates + 2 * c->key_heads * c->key_dim;
    order[0] = piece_of(1, gates, convolved + c->value_heads, 0);
    order[1] = piece_of(1, 0, gates, 0);
    return 2;
}

/* Gates of what is convolved, that, gates of what comes of it; the last of these are stored second. */
static int mix_gates(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t values = c->value_heads * c->value_dim;
    order[0] = piece_of(1, 0, values, 0);
    order[1] = piece_of(1, 2 * values, values, 0);
    order[2] = piece_of(1, values, values, 0);
    return 3;
}

/* Keys, queries and values of the heads of linear attention, which are stored as q, k and v of each head. */
static int mix_heads(proa_row_order order[PROA_LOAD_ORDERS_MAX], const proa_config *c)
{
    int64_t d = c->key_dim;
    order[0] = piece_of(c->key_heads, d, d, 3 * d);
    order[1] = piece_of(c->key_heads, 0, d, 3 * d);
    order[2] = piece_of(c->key_heads, 2 * d, d, 3 * d);
    return 3;
}

/* Two pieces of `size` rows of each of `groups` groups. */
static int two_pieces(proa_row_order order[PROA_LOAD_ORDERS_MAX], int64_t groups, int64_t size, bool second_first)
{
    order[0] = piece_of(groups, second_first ? size : 0, size, 2 * size);
    order[1] = piece_of(groups, second_first ? 0 : size, size, 2 * size);
    return 2;
}

int proa_load_orders(proa_row_order order[PROA_LOAD_ORDERS_MAX], proa_load load, const proa_config *c, int64_t rows)
{
    switch (load) {
    case PROA_LOAD_QKV_GROUPS: return qkv_groups(order, c);
    case PROA_LOAD_QVK_QUARTERS: return qvk_quarters(order, c);
    case PROA_LOAD_EVEN_ODD: order[0] = (proa_row_order){0, {1, 2, rows / 2}, {0, 1, 2}}; return 1;
    case PROA_LOAD_ROPE_FIRST:
        order[0] = piece_of(1, rows - c->qk_rope, c->qk_rope, 0);
        order[1] = piece_of(1, 0, rows - c->qk_rope, 0);
        return 2;
    case PROA_LOAD_HALVES_TURNED: return two_pieces(order, 1, rows / 2, true);
    case PROA_LOAD_HEADS_TURNED:
        order[0] = (proa_row_order){
            c->head_dim / 2, {rows / c->head_dim, 2, c->head_dim / 2}, {c->head_dim, -c->head_dim / 2, 1}};
        return 1;
    case PROA_LOAD_GATES_FIRST: return two_pieces(order, c->heads, c->head_dim, true);
    case PROA_LOAD_MIX_GROUPS: return mix_groups(order, c);
    case PROA_LOAD_MIX_RATES: return mix_rates(order, c);
    case PROA_LOAD_MIX_GATES: return mix_gates(order, c);
    case PROA_LOAD_MIX_HEADS: return mix_heads(order, c);
    case PROA_LOAD_SPREAD: order[0] = (proa_row_order){0, {1, 1, c->hidden}, {0, 0, 0}}; return 1;
    case PROA_LOAD_RATE_GROUPS: return two_pieces(order, c->key_heads, c->value_heads / c->key_heads, false);
    case PROA_LOAD_ROWS:
    case PROA_LOAD_TAPS_TURNED: /* set by turn_taps */
    case PROA_LOAD_GROUPED:     /* and by spread_groups */
    case PROA_LOAD_SINUSOID_HALVES:
    case PROA_LOAD_SINUSOID_PAIRS:
    case PROA_LOAD_SINUSOID_ENDS:
    case PROA_LOAD_ONES:
    case PROA_LOAD_ZEROS:
    case PROA_LOAD_SLOPES:
    case PROA_LOAD_NORMALISED:
    case PROA_LOAD_HEAD_KEYS: /* add_heads has taken the head's rows */
    case PROA_LOAD_HEAD_VALUES: break;
    }
    return 0;
}
