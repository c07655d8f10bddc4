/* SPDX-License-Identifier: Apache-2.0
 * attend_relative.h - the terms of relative positions (proa_relative) in a page's scores; the body of attend_page.h
 *                     includes it. Needs: what attend_page.h has defined before.
 *
 * A block's queries are up to PROA_ATTEND_QUERIES neighbouring rows of one span and head, so a page meets at most
 * PAGE + PROA_ATTEND_QUERIES distances, and fewer rows of the tables where these have buckets. Each product of a row
 * with a query or a key is made once for four of these: the row that a (query, key) needs is then looked up. The
 * products are dots as those of the scores, so they do not depend on the tile. */
#ifndef PROA_KERNELS_CPU_ATTEND_RELATIVE_H
#define PROA_KERNELS_CPU_ATTEND_RELATIVE_H

#define TERMS (PAGE + 2 * QUERIES) /* rows that four queries, or four keys, can need, and a tile more */

/* The rows of the tables that a page needs. */
typedef struct relative_rows {
    const proa_relative *r;
    int64_t lowest; /* distance of the first entry: of query `from` to the page's last key */
    int32_t of[PAGE + QUERIES];
} relative_rows;

static void relative_find(relative_rows *rows, const attend_page *p)
{
    const proa_attend_block *b = p->b;
    int64_t highest = b->at[p->to - 1] - p->key;
    rows->r = b->a->relative;
    rows->lowest = b->at[p->from] - p->key - (PAGE - 1);
    for (int64_t d = rows->lowest; d <= highest; d++)
        rows->of[d - rows->lowest] = proa_relative_row(rows->r, d);
}

/* The index of the relative position of query i and key j of the page. */
static inline int32_t relative_at(const relative_rows *rows, const attend_page *p, int i, int j)
{
    return rows->of[p->b->at[i] - p->key - j - rows->lowest];
}

/* terms[g][n] = q_g . row first + n of a table, up to row `last`. */
V_INLINE void relative_dots(int nq, const relative_rows *rows, const attend_page *p, const float *table,
                            const float *q, int32_t first, int32_t last, float terms[][TERMS])
{
    const proa_attend_block *b = p->b;
    int64_t dh = b->kv->head_dim;
    attend_mat m = {table + first * rows->r->stride + b->head * dh, rows->r->stride};
    dot_rows(nq, q, b->pitch, m, PROA_DTYPE_F32, 0, 0, last - first + 1, rows->r->rows - first, dh, terms[0],
             TERMS);
}

/* s[i][j] += (q_i + v) . keys[row of i and j] for nq queries from i on. */
V_INLINE void relative_keys(attend_page *p, int nq, int i, const relative_rows *rows)
{
    float terms[4][TERMS];
    int32_t first = relative_at(rows, p, i, p->last - 1), last = relative_at(rows, p, i + nq - 1, p->first);
    relative_dots(nq, rows, p, rows->r->keys, p->b->placed + i * p->b->pitch, first, last, terms);
    for (int g = 0; g < nq; g++)
        for (int j = p->first; j < p->last; j++)
            p->s[i + g][j] += terms[g][relative_at(rows, p, i + g, j) - first];
}

/* s[i][j] += k_j . queries[row of i and j] for nk keys from j on. */
V_INLINE void relative_queries(attend_page *p, int nk, int j, const relative_rows *rows)
{
    PROA_ALIGNED(64) float keys[4 * PROA_HEAD_DIM_MAX]; /* padded with zeros, as dots want their queries */
    float terms[4][TERMS];
    const proa_attend_block *b = p->b;
    const int64_t dh = b->kv->head_dim;
    for (int g = 0; g < nk; g++) {
        memcpy(keys + g * b->pitch, (const float *)p->k + (j + g) * p->pitch, (size_t)dh * sizeof(float));
        memset(keys + g * b->pitch + dh, 0, (size_t)(b->pitch - dh) * sizeof(float));
    }
    int32_t first = relative_at(rows, p, p->from, j + nk - 1), last = relative_at(rows, p, p->to - 1, j);
    relative_dots(nk, rows, p, rows->r->queries, keys, first, last, terms);
    for (int g = 0; g < nk; g++)
        for (int i = p->from; i < p->to; i++)
            p->s[i][j + g] += terms[g][relative_at(rows, p, i, j + g) - first];
}

/* s[i][j] += the term of segments, where the token type of key j is not that of query i. */
static void page_segments(attend_page *p)
{
    const proa_attend_block *b = p->b;
    const int32_t *types = b->a->relative->types;
    for (int i = p->from; i < p->to; i++) {
        const int32_t *of_key = types + b->row[i] + p->key;
        int32_t own = types[b->row[i] + b->at[i]];
        for (int j = p->first; j < p->last; j++)
            if (of_key[j] != own) p->s[i][j] += b->segment[i];
    }
}

V_INLINE void page_relative(attend_page *p)
{
    relative_rows rows;
    int i = p->from, j = p->first;
    relative_find(&rows, p);
    if (rows.r->types) page_segments(p);
    if (rows.r->keys) {
        for (; i + 4 <= p->to; i += 4) relative_keys(p, 4, i, &rows);
        for (; i < p->to; i++) relative_keys(p, 1, i, &rows);
    }
    if (!rows.r->queries) return;
    for (; j + 4 <= p->last; j += 4) relative_queries(p, 4, j, &rows);
    for (; j < p->last; j++) relative_queries(p, 1, j, &rows);
}

#endif
