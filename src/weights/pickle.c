/* SPDX-License-Identifier: Apache-2.0
 * pickle.c - the stack machine of Python pickles, protocols 2 to 5. The instructions are described in CPython's
 * Lib/pickletools.py; those of protocols 0 and 1 that Python 3 and torch never write are refused.
 * Each instruction takes at least one byte and makes at most one value or one reference, so memory and time are linear
 * in the input. */
#include "weights/pickle.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <string.h>

typedef struct machine {
    proa_pickle *p;
    const unsigned char *bytes;
    int64_t len, at;
    proa_pickle_value *stack; /* [depth] of cap */
    int32_t depth, stack_cap;
    int32_t pushed; /* so far, in all: bounds items, and time */
    int32_t *mark;  /* [marks]: the depth of the stack at each open MARK */
    int32_t marks, mark_cap;
    proa_pickle_value *memo; /* [memo_count]; 0: not set */
    int32_t memo_count, memo_cap, memo_next;
    const char *what;
    proa_err *err;
} machine;

#define FAIL(m, status, fmt, ...) PROA_FAIL((m)->err, status, "%.120s: " fmt, (m)->what, __VA_ARGS__)

/* ---- input ---- */

static proa_status take_bytes(machine *m, int64_t n, const unsigned char **out)
{
    if (n < 0 || n > m->len - m->at)
        return FAIL(m, CORRUPT, "the pickle ends within an instruction at byte %lld", (long long)m->at);
    *out = m->bytes + m->at;
    m->at += n;
    return PROA_OK;
}

/* A little-endian number of `bytes` bytes, at most 8. */
static proa_status take_number(machine *m, int bytes, uint64_t *out)
{
    const unsigned char *b = NULL;
    PROA_TRY(take_bytes(m, bytes, &b));
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)b[i] << (8 * i);
    return PROA_OK;
}

/* The bytes after a length of `width` bytes. */
static proa_status take_text(machine *m, int width, proa_str *out)
{
    uint64_t n = 0;
    const unsigned char *b = NULL;
    PROA_TRY(take_number(m, width, &n));
    PROA_TRY(take_bytes(m, n > (uint64_t)INT64_MAX ? -1 : (int64_t)n, &b));
    *out = (proa_str){(const char *)b, (size_t)n};
    return PROA_OK;
}

static proa_status take_line(machine *m, proa_str *out)
{
    const unsigned char *begin = m->bytes + m->at, *end = memchr(begin, '\n', (size_t)(m->len - m->at));
    if (!end) return FAIL(m, CORRUPT, "a name without an end at byte %lld", (long long)m->at);
    *out = (proa_str){(const char *)begin, (size_t)(end - begin)};
    m->at += end - begin + 1;
    return PROA_OK;
}

/* ---- stack ---- */

static proa_status push_value(machine *m, proa_pickle_value v)
{
    if (m->depth == m->stack_cap) {
        m->stack_cap = m->stack_cap ? 2 * m->stack_cap : 64;
        m->stack = proa_realloc(m->stack, (size_t)m->stack_cap * sizeof *m->stack);
    }
    if (m->pushed++ >= 4 * PROA_PICKLE_NODES_MAX)
        return FAIL(m, LIMIT, "more than %d uses of values", 4 * PROA_PICKLE_NODES_MAX);
    m->stack[m->depth++] = v;
    return PROA_OK;
}

static proa_status push_new(machine *m, proa_pickle_node node)
{
    proa_pickle *p = m->p;
    if (p->count >= PROA_PICKLE_NODES_MAX)
        return FAIL(m, LIMIT, "more than %d values", PROA_PICKLE_NODES_MAX);
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 256;
        p->node = proa_realloc(p->node, (size_t)p->cap * sizeof *p->node);
    }
    p->node[p->count++] = node;
    return push_value(m, p->count);
}

/* Values below the last MARK belong to an enclosing value. */
static proa_status pop_value(machine *m, proa_pickle_value *v)
{
    if (m->depth <= (m->marks ? m->mark[m->marks - 1] : 0))
        return FAIL(m, CORRUPT, "an instruction before byte %lld takes from an empty stack", (long long)m->at);
    *v = m->stack[--m->depth];
    return PROA_OK;
}

static proa_status push_mark(machine *m)
{
    if (m->marks == m->mark_cap) {
        m->mark_cap = m->mark_cap ? 2 * m->mark_cap : 16;
        m->mark = proa_realloc(m->mark, (size_t)m->mark_cap * sizeof *m->mark);
    }
    if (m->marks >= 4 * PROA_PICKLE_NODES_MAX)
        return FAIL(m, LIMIT, "more than %d open marks", 4 * PROA_PICKLE_NODES_MAX);
    m->mark[m->marks++] = m->depth;
    return PROA_OK;
}

/* The values above the last MARK, still in m->stack until the next push. */
static proa_status pop_mark(machine *m, const proa_pickle_value **values, int32_t *n)
{
    if (m->marks == 0)
        return FAIL(m, CORRUPT, "no mark for the instruction before byte %lld", (long long)m->at);
    int32_t begin = m->mark[--m->marks];
    *values = m->stack ? m->stack + begin : NULL; /* before the first push there is no stack */
    *n = m->depth - begin;
    m->depth = begin;
    return PROA_OK;
}

/* ---- containers ---- */

/* Doubling in the arena leaves old copies behind: less than twice the items in all. */
static void add_items(proa_pickle *p, proa_pickle_node *node, const proa_pickle_value *values, int32_t n)
{
    if (n > node->cap - node->count) {
        int64_t cap = proa_max64(2 * (int64_t)node->cap, (int64_t)node->count + n);
        proa_pickle_value *items = PROA_ARENA_NEW(&p->arena, proa_pickle_value, cap);
        if (node->count) memcpy(items, node->items, (size_t)node->count * sizeof *items);
        node->items = items, node->cap = (int32_t)cap;
    }
    if (n) memcpy(node->items + node->count, values, (size_t)n * sizeof *values);
    node->count += n;
}

/* A fresh container with those values. */
static proa_status push_items(machine *m, proa_pickle_kind kind, const proa_pickle_value *values, int32_t n)
{
    proa_pickle_node node = {.kind = (uint8_t)kind, .paired = kind == PROA_PICKLE_DICT};
    if (node.paired && n % 2)
        return FAIL(m, CORRUPT, "a key without a value before byte %lld", (long long)m->at);
    add_items(m->p, &node, values, n);
    return push_new(m, node);
}

static proa_status push_marked(machine *m, proa_pickle_kind kind)
{
    const proa_pickle_value *values = NULL;
    int32_t n = 0;
    PROA_TRY(pop_mark(m, &values, &n));
    return push_items(m, kind, values, n);
}

static proa_status push_tuple(machine *m, int32_t n)
{
    proa_pickle_value values[3] = {0};
    for (int32_t i = n; i-- > 0;) PROA_TRY(pop_value(m, &values[i]));
    return push_items(m, PROA_PICKLE_TUPLE, values, n);
}

/* Adds to the list, dictionary or object on top of the stack, which stays there. */
static proa_status extend_node(machine *m, const proa_pickle_value *values, int32_t n, bool pairs)
{
    if (m->depth <= (m->marks ? m->mark[m->marks - 1] : 0))
        return FAIL(m, CORRUPT, "items for nothing before byte %lld", (long long)m->at);
    proa_pickle_node *node = &m->p->node[m->stack[m->depth - 1] - 1];
    bool fresh_call = node->kind == PROA_PICKLE_CALL && node->count == 0;
    bool fits = node->kind == PROA_PICKLE_CALL ? fresh_call || node->paired == pairs
                                               : node->kind == (pairs ? PROA_PICKLE_DICT : PROA_PICKLE_LIST);
    if (!fits || (pairs && n % 2))
        return FAIL(m, CORRUPT, "items of the wrong kind before byte %lld", (long long)m->at);
    if (fresh_call) node->paired = pairs;
    add_items(m->p, node, values, n);
    return PROA_OK;
}

static proa_status extend_marked(machine *m, bool pairs)
{
    const proa_pickle_value *values = NULL;
    int32_t n = 0;
    PROA_TRY(pop_mark(m, &values, &n));
    return extend_node(m, values, n, pairs);
}

static proa_status extend_by(machine *m, int32_t n)
{
    proa_pickle_value values[2] = {0};
    for (int32_t i = n; i-- > 0;) PROA_TRY(pop_value(m, &values[i]));
    return extend_node(m, values, n, n == 2);
}

/* ---- memo ---- */

static proa_status put_memo(machine *m, uint64_t at)
{
    if (m->depth == 0) return FAIL(m, CORRUPT, "nothing to remember before byte %lld", (long long)m->at);
    if (at >= PROA_PICKLE_NODES_MAX)
        return FAIL(m, LIMIT, "memo entry %llu, at most %d are kept", (unsigned long long)at,
                    PROA_PICKLE_NODES_MAX);
    if (at >= (uint64_t)m->memo_cap) {
        int32_t cap = (int32_t)proa_max64(2 * (int64_t)m->memo_cap, (int64_t)at + 64);
        m->memo = proa_realloc(m->memo, (size_t)cap * sizeof *m->memo);
        m->memo_cap = cap;
    }
    while ((uint64_t)m->memo_count <= at) m->memo[m->memo_count++] = 0;
    m->memo[at] = m->stack[m->depth - 1];
    m->memo_next++;
    return PROA_OK;
}

static proa_status get_memo(machine *m, uint64_t at)
{
    if (at >= (uint64_t)m->memo_count || m->memo[at] == 0)
        return FAIL(m, CORRUPT, "memo entry %llu is not set", (unsigned long long)at);
    return push_value(m, m->memo[at]);
}

/* ---- names and calls ---- */

static proa_status push_line(machine *m)
{
    proa_str text = {NULL, 0};
    PROA_TRY(take_line(m, &text));
    return push_new(m, (proa_pickle_node){.kind = PROA_PICKLE_STRING, .text = text});
}

static proa_status push_global(machine *m)
{
    proa_pickle_value module = 0, name = 0;
    PROA_TRY(pop_value(m, &name));
    PROA_TRY(pop_value(m, &module));
    if (m->p->node[module - 1].kind != PROA_PICKLE_STRING || m->p->node[name - 1].kind != PROA_PICKLE_STRING)
        return FAIL(m, CORRUPT, "a global whose name is no string before byte %lld", (long long)m->at);
    return push_new(m, (proa_pickle_node){.kind = PROA_PICKLE_GLOBAL, .head = module, .args = name});
}

/* Python 2's way: two lines. */
static proa_status push_named_global(machine *m)
{
    PROA_TRY(push_line(m));
    PROA_TRY(push_line(m));
    return push_global(m);
}

static proa_status push_call(machine *m, bool keywords)
{
    proa_pickle_node node = {.kind = PROA_PICKLE_CALL};
    if (keywords) PROA_TRY(pop_value(m, &node.state));
    PROA_TRY(pop_value(m, &node.args));
    PROA_TRY(pop_value(m, &node.head));
    if (m->p->node[node.args - 1].kind != PROA_PICKLE_TUPLE)
        return FAIL(m, CORRUPT, "a call without a tuple of arguments before byte %lld", (long long)m->at);
    return push_new(m, node);
}

/* The state of an object; that of anything else says nothing that is read. */
static proa_status set_state(machine *m)
{
    proa_pickle_value state = 0, object = 0;
    PROA_TRY(pop_value(m, &state));
    PROA_TRY(pop_value(m, &object));
    if (m->p->node[object - 1].kind == PROA_PICKLE_CALL) m->p->node[object - 1].state = state;
    return push_value(m, object);
}

static proa_status push_outside(machine *m)
{
    proa_pickle_node node = {.kind = PROA_PICKLE_OUTSIDE};
    PROA_TRY(pop_value(m, &node.head));
    return push_new(m, node);
}

/* ---- numbers and texts ---- */

static proa_status push_integer(machine *m, proa_pickle_kind kind, int64_t value)
{
    return push_new(m, (proa_pickle_node){.kind = (uint8_t)kind, .integer = value});
}

static proa_status push_number(machine *m, int bytes, bool is_signed)
{
    uint64_t value = 0;
    PROA_TRY(take_number(m, bytes, &value));
    return push_integer(m, PROA_PICKLE_INT, is_signed ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

/* A two's complement number of any length; beyond 64 bits it becomes the nearest one. */
static proa_status push_long(machine *m, int width)
{
    proa_str text = {NULL, 0};
    PROA_TRY(take_text(m, width, &text));
    const unsigned char *b = (const unsigned char *)text.ptr;
    bool negative = text.len && b[text.len - 1] & 0x80;
    uint64_t value = negative ? UINT64_MAX : 0;
    for (size_t i = text.len; i-- > 0;) {
        bool lost = i >= 8 ? b[i] != (negative ? 0xff : 0) : false;
        if (lost) return push_integer(m, PROA_PICKLE_INT, negative ? INT64_MIN : INT64_MAX);
        value = value << 8 | b[i];
    }
    if (text.len >= 8 && (value >> 63 != 0) != negative) value = negative ? (uint64_t)INT64_MIN : INT64_MAX;
    return push_integer(m, PROA_PICKLE_INT, (int64_t)value);
}

/* Big-endian, unlike everything else. */
static proa_status push_float(machine *m)
{
    const unsigned char *b = NULL;
    uint64_t bits = 0;
    proa_pickle_node node = {.kind = PROA_PICKLE_FLOAT};
    PROA_TRY(take_bytes(m, 8, &b));
    for (int i = 0; i < 8; i++) bits = bits << 8 | b[i];
    memcpy(&node.number, &bits, sizeof bits);
    return push_new(m, node);
}

static proa_status push_text(machine *m, proa_pickle_kind kind, int width)
{
    proa_pickle_node node = {.kind = (uint8_t)kind};
    PROA_TRY(take_text(m, width, &node.text));
    return push_new(m, node);
}

/* ---- instructions ---- */

static proa_status run_literal(machine *m, int op, bool *known)
{
    switch (op) {
    case 'N': return push_integer(m, PROA_PICKLE_NONE, 0);
    case 0x88: return push_integer(m, PROA_PICKLE_BOOL, 1);
    case 0x89: return push_integer(m, PROA_PICKLE_BOOL, 0);
    case 'J': return push_number(m, 4, true);
    case 'K': return push_number(m, 1, false);
    case 'M': return push_number(m, 2, false);
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    case 'G': return push_float(m);
    case 'U': return push_text(m, PROA_PICKLE_STRING, 1); /* a str of Python 2 */
    case 'T': return push_text(m, PROA_PICKLE_STRING, 4);
    case 0x8c: return push_text(m, PROA_PICKLE_STRING, 1);
    case 'X': return push_text(m, PROA_PICKLE_STRING, 4);
    case 0x8d: return push_text(m, PROA_PICKLE_STRING, 8);
    case 'C': return push_text(m, PROA_PICKLE_BYTES, 1);
    case 'B': return push_text(m, PROA_PICKLE_BYTES, 4);
    case 0x8e: return push_text(m, PROA_PICKLE_BYTES, 8);
    case 0x96: return push_text(m, PROA_PICKLE_BYTES, 8);
    }
    *known = false;
    return PROA_OK;
}

static proa_status run_container(machine *m, int op, bool *known)
{
    switch (op) {
    case ']': return push_items(m, PROA_PICKLE_LIST, NULL, 0);
    case 'l': return push_marked(m, PROA_PICKLE_LIST);
    case 'a': return extend_by(m, 1);
    case 'e': return extend_marked(m, false);
    case ')': return push_items(m, PROA_PICKLE_TUPLE, NULL, 0);
    case 't': return push_marked(m, PROA_PICKLE_TUPLE);
    case 0x85: return push_tuple(m, 1);
    case 0x86: return push_tuple(m, 2);
    case 0x87: return push_tuple(m, 3);
    case '}': return push_items(m, PROA_PICKLE_DICT, NULL, 0);
    case 'd': return push_marked(m, PROA_PICKLE_DICT);
    case 's': return extend_by(m, 2);
    case 'u': return extend_marked(m, true);
    case 0x8f: return push_items(m, PROA_PICKLE_LIST, NULL, 0); /* sets */
    case 0x90: return extend_marked(m, false);
    case 0x91: return push_marked(m, PROA_PICKLE_LIST);
    }
    *known = false;
    return PROA_OK;
}

static proa_status run_memo(machine *m, int op, bool *known)
{
    uint64_t at = 0;
    switch (op) {
    case 'q': PROA_TRY(take_number(m, 1, &at)); return put_memo(m, at);
    case 'r': PROA_TRY(take_number(m, 4, &at)); return put_memo(m, at);
    case 0x94: return put_memo(m, (uint64_t)m->memo_next);
    case 'h': PROA_TRY(take_number(m, 1, &at)); return get_memo(m, at);
    case 'j': PROA_TRY(take_number(m, 4, &at)); return get_memo(m, at);
    }
    *known = false;
    return PROA_OK;
}

static proa_status drop_value(machine *m)
{
    proa_pickle_value v = 0;
    return pop_value(m, &v);
}

static proa_status drop_marked(machine *m)
{
    const proa_pickle_value *values = NULL;
    int32_t n = 0;
    return pop_mark(m, &values, &n);
}

static proa_status run_object(machine *m, int op)
{
    switch (op) {
    case 'c': return push_named_global(m);
    case 0x93: return push_global(m);
    case 'R': return push_call(m, false);
    case 0x81: return push_call(m, false);
    case 0x92: return push_call(m, true);
    case 'b': return set_state(m);
    case 'Q': return push_outside(m);
    case '(': return push_mark(m);
    case '0': return drop_value(m);
    case '1': return drop_marked(m);
    }
    return FAIL(m, UNSUPPORTED, "instruction 0x%02x at byte %lld is not one of protocols 2 to 5", op,
                (long long)m->at - 1);
}

static proa_status run_instruction(machine *m, int op)
{
    bool known = true;
    PROA_TRY(run_literal(m, op, &known));
    if (known) return PROA_OK;
    known = true;
    PROA_TRY(run_container(m, op, &known));
    if (known) return PROA_OK;
    known = true;
    PROA_TRY(run_memo(m, op, &known));
    return known ? PROA_OK : run_object(m, op);
}

static proa_status run_header(machine *m)
{
    const unsigned char *b = NULL;
    PROA_TRY(take_bytes(m, 2, &b));
    if (b[0] != 0x80) return FAIL(m, CORRUPT, "does not begin as a %s", "pickle");
    if (b[1] < 2 || b[1] > 5) return FAIL(m, UNSUPPORTED, "pickle protocol %d, 2 to 5 are read", b[1]);
    return PROA_OK;
}

static proa_status run_all(machine *m)
{
    const unsigned char *b = NULL;
    uint64_t frame = 0;
    PROA_TRY(run_header(m));
    for (;;) {
        PROA_TRY(take_bytes(m, 1, &b));
        if (*b == '.') break;
        if (*b == 0x95) PROA_TRY(take_number(m, 8, &frame)); /* frames only help a reader of streams */
        else PROA_TRY(run_instruction(m, *b));
    }
    if (m->depth != 1 || m->marks) return FAIL(m, CORRUPT, "%d values at the end, must be one", m->depth);
    m->p->root = m->stack[0];
    m->p->used = m->at;
    return PROA_OK;
}

/* ---- the finished graph ---- */

/* Child i of a node: its items, then head, args and state. */
static bool child_at(const proa_pickle_node *n, int32_t i, proa_pickle_value *v)
{
    const proa_pickle_value more[] = {n->head, n->args, n->state};
    if (i < n->count) return *v = n->items[i], true;
    if (i - n->count >= 3) return false;
    return *v = more[i - n->count], true;
}

typedef struct walk_frame {
    proa_pickle_value v;
    int32_t next;
} walk_frame;

/* A walk that enters each node once. height: 0 unseen, 255 being walked through, else 1 + that of its highest child. */
static proa_status check_heights(machine *m, uint8_t *height)
{
    walk_frame stack[PROA_PICKLE_DEPTH_MAX];
    int depth = 0;
    stack[depth++] = (walk_frame){m->p->root, 0};
    height[m->p->root] = 255;
    uint8_t highest[PROA_PICKLE_DEPTH_MAX] = {0};
    while (depth) {
        walk_frame *f = &stack[depth - 1];
        proa_pickle_value v = 0;
        if (!child_at(&m->p->node[f->v - 1], f->next++, &v)) {
            height[f->v] = (uint8_t)(highest[--depth] + 1);
            if (height[f->v] + depth > PROA_PICKLE_DEPTH_MAX)
                return FAIL(m, CORRUPT, "nested deeper than %d", PROA_PICKLE_DEPTH_MAX);
            if (depth && height[f->v] > highest[depth - 1]) highest[depth - 1] = height[f->v];
        } else if (v && height[v] == 255) return FAIL(m, CORRUPT, "value %d contains itself", v);
        else if (v && height[v] == 0) {
            if (depth == PROA_PICKLE_DEPTH_MAX)
                return FAIL(m, CORRUPT, "nested deeper than %d", PROA_PICKLE_DEPTH_MAX);
            highest[depth] = 0;
            stack[depth++] = (walk_frame){v, 0};
            height[v] = 255;
        } else if (v && height[v] > highest[depth - 1]) highest[depth - 1] = height[v];
    }
    return PROA_OK;
}

static proa_status check_graph(machine *m)
{
    uint8_t *height = proa_calloc((size_t)m->p->count + 1, 1);
    proa_status status = check_heights(m, height);
    free(height);
    return status;
}

proa_status proa_pickle_read(proa_pickle *p, const unsigned char *bytes, int64_t len, const char *what,
                             proa_err *err)
{
    machine m = {.p = p, .bytes = bytes, .len = len, .what = what, .err = err};
    *p = (proa_pickle){.root = 0};
    proa_arena_init(&p->arena);
    proa_status status = len > PROA_PICKLE_BYTES_MAX
                             ? FAIL(&m, LIMIT, "a pickle of %lld bytes, at most %lld are read",
                                    (long long)len, (long long)PROA_PICKLE_BYTES_MAX)
                             : run_all(&m);
    if (status == PROA_OK) status = check_graph(&m);
    free(m.stack);
    free(m.mark);
    free(m.memo);
    return status;
}

void proa_pickle_release(proa_pickle *p)
{
    free(p->node);
    proa_arena_release(&p->arena);
    *p = (proa_pickle){.root = 0};
}

/* ---- access ---- */

const proa_pickle_node *proa_pickle_at(const proa_pickle *p, proa_pickle_value v)
{
    static const proa_pickle_node none = {.kind = PROA_PICKLE_NONE};
    return v ? &p->node[v - 1] : &none;
}

proa_pickle_kind proa_pickle_kind_of(const proa_pickle *p, proa_pickle_value v)
{
    return (proa_pickle_kind)proa_pickle_at(p, v)->kind;
}

proa_str proa_pickle_text(const proa_pickle *p, proa_pickle_value v)
{
    const proa_pickle_node *n = proa_pickle_at(p, v);
    return n->kind == PROA_PICKLE_STRING ? n->text : (proa_str){"", 0};
}

proa_pickle_value proa_pickle_item(const proa_pickle *p, proa_pickle_value v, int32_t i)
{
    const proa_pickle_node *n = proa_pickle_at(p, v);
    bool list = n->kind == PROA_PICKLE_TUPLE || n->kind == PROA_PICKLE_LIST;
    return list && i >= 0 && i < n->count ? n->items[i] : 0;
}

proa_pickle_value proa_pickle_get(const proa_pickle *p, proa_pickle_value v, const char *key)
{
    const proa_pickle_node *n = proa_pickle_at(p, v);
    for (int32_t i = n->count - 2; n->paired && i >= 0; i -= 2)
        if (proa_str_is(proa_pickle_text(p, n->items[i]), key)) return n->items[i + 1];
    n = n->kind == PROA_PICKLE_CALL ? proa_pickle_at(p, n->state) : NULL;
    for (int32_t i = n ? n->count - 2 : -1; n && n->kind == PROA_PICKLE_DICT && i >= 0; i -= 2)
        if (proa_str_is(proa_pickle_text(p, n->items[i]), key)) return n->items[i + 1];
    return 0;
}
