/* SPDX-License-Identifier: Apache-2.0
 * value.c - values of a rendering: creation, comparison, containers, limits. */
#include "text/jinja/value.h"

#include "base/clock.h"
#include "base/limits.h"
#include "text/unicode.h"
#include <stdarg.h>
#include <string.h>

#define CLOCK_STEPS 16384 /* steps between two readings of the clock: a millisecond */
#define NESTING_MAX 200   /* nesting of compared values */

void proa_j_fail(proa_jrun *run, proa_status status, const char *fmt, ...)
{
    char text[sizeof run->err.text - 24];
    va_list args;
    if (run->failed) return;
    run->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    proa_err_set(&run->err, status, __FILE__, __LINE__, "line %d: %s", (int)run->line, text);
}

/* The name of an object in Jinja's messages. */
static const char *object_name(char out[48], uint8_t kind)
{
    proa_jval v = {.kind = kind};
    if (kind == PROA_J_NONE) snprintf(out, 48, "None");
    else snprintf(out, 48, "%s object", proa_j_type_name(v));
    return out;
}

bool proa_j_fail_undefined(proa_jrun *run, proa_jval v)
{
    char name[48];
    int n = (int)(v.len < 400 ? v.len : 400);
    if (v.kind != PROA_J_UNDEFINED) return false;
    object_name(name, v.of);
    switch (v.flag) {
    case PROA_J_UNDEF_NAME: proa_j_fail(run, PROA_INVALID, "'%.*s' is undefined", n, v.s); break;
    case PROA_J_UNDEF_ATTR:
        proa_j_fail(run, PROA_INVALID, "'%s' has no attribute '%.*s'", name, n, v.s);
        break;
    case PROA_J_UNDEF_ITEM: proa_j_fail(run, PROA_INVALID, "%s has no element %.*s", name, n, v.s); break;
    case PROA_J_UNDEF_UNSAFE:
        proa_j_fail(run, PROA_INVALID, "access to attribute '%.*s' of '%s' object is unsafe.", n, v.s,
                    proa_j_type_name((proa_jval){.kind = v.of}));
        break;
    default: proa_j_fail(run, PROA_INVALID, "%.*s", n, v.s);
    }
    return true;
}

/* Steps limit a rendering in the same way on every machine; the clock covers work that they count badly. */
static PROA_COLD void check_clock(proa_jrun *run)
{
    int64_t ms = PROA_TEMPLATE_CPU_MS * (PROA_SANITIZED ? 20 : 1), now = proa_clock_thread_ns();
    if (run->deadline_ns == 0) run->deadline_ns = now + ms * 1000000;
    run->clock_check_at = run->steps + CLOCK_STEPS;
    if (run->steps > PROA_TEMPLATE_STEPS_MAX)
        proa_j_fail(run, PROA_LIMIT, "the template takes more than %d steps", PROA_TEMPLATE_STEPS_MAX);
    else if (now > run->deadline_ns)
        proa_j_fail(run, PROA_LIMIT, "the template takes more than %lld ms", (long long)ms);
}

bool proa_j_charge(proa_jrun *run, int64_t n)
{
    run->steps += n;
    if (PROA_UNLIKELY(run->steps >= run->clock_check_at)) check_clock(run);
    return !run->failed;
}

/* A step takes about 50 ns: in the worst case the time to search or copy 16 bytes, or to convert the case
 * of four characters. */
bool proa_j_charge_text(proa_jrun *run, size_t bytes)
{
    return proa_j_charge(run, (int64_t)(bytes / 16));
}

bool proa_j_charge_chars(proa_jrun *run, size_t bytes)
{
    return proa_j_charge(run, (int64_t)(bytes / 4));
}

static bool memory_fits(proa_jrun *run, size_t bytes)
{
    size_t most = (size_t)PROA_TEMPLATE_MEMORY_MAX, used = run->arena.bytes + run->external_bytes;
    if (bytes <= most && used <= most - bytes) return true;
    proa_j_fail(run, PROA_LIMIT, "the template takes more than %lld MiB of memory",
                (long long)(PROA_TEMPLATE_MEMORY_MAX / PROA_MIB));
    return false;
}

bool proa_j_count_memory(proa_jrun *run, size_t bytes)
{
    if (!memory_fits(run, bytes)) return false;
    run->external_bytes += bytes;
    return true;
}

void *proa_j_alloc(proa_jrun *run, size_t bytes)
{
    return memory_fits(run, bytes) ? proa_arena_alloc(&run->arena, bytes) : NULL;
}

/* ---- making values ---- */

proa_jval proa_j_none(void)
{
    return (proa_jval){.kind = PROA_J_NONE};
}

proa_jval proa_j_bool(bool b)
{
    return (proa_jval){.kind = PROA_J_BOOL, .b = b};
}

proa_jval proa_j_int(int64_t i)
{
    return (proa_jval){.kind = PROA_J_INT, .i = i};
}

proa_jval proa_j_float(double f)
{
    return (proa_jval){.kind = PROA_J_FLOAT, .f = f};
}

proa_jval proa_j_view(proa_str s)
{
    return (proa_jval){.kind = PROA_J_STRING, .len = (uint32_t)s.len, .s = s.len ? s.ptr : ""};
}

proa_jval proa_j_string(proa_jrun *run, proa_str s)
{
    if (s.len == 0) return proa_j_view(s);
    char *copy = proa_j_alloc(run, s.len + 1);
    if (!copy) return proa_j_view((proa_str){"", 0});
    memcpy(copy, s.ptr, s.len);
    return proa_j_view((proa_str){copy, s.len});
}

proa_jval proa_j_take(proa_jrun *run, proa_buf *buf, size_t from)
{
    if (buf->full) proa_j_fail(run, PROA_LIMIT, "a text of more than %zu bytes", buf->bytes_max);
    if (buf->len <= from) return proa_j_view((proa_str){"", 0});
    proa_jval v = proa_j_string(run, (proa_str){buf->ptr + from, buf->len - from});
    buf->len = from;
    return v;
}

proa_jval proa_j_undefined(int flag, proa_str text)
{
    return (proa_jval){
        .kind = PROA_J_UNDEFINED, .flag = (uint8_t)flag, .len = (uint32_t)text.len, .s = text.len ? text.ptr : ""};
}

proa_jval proa_j_undefined_in(int flag, proa_jval object, proa_str name)
{
    proa_jval v = proa_j_undefined(flag, name);
    v.of = object.kind;
    return v;
}

static bool grow_items(proa_jrun *run, void **items, int64_t len, int64_t *cap, size_t bytes)
{
    if (len < *cap) return true;
    int64_t more = *cap ? *cap * 2 : 4;
    void *bigger = proa_j_alloc(run, (size_t)more * bytes);
    if (!bigger) return false;
    if (len) memcpy(bigger, *items, (size_t)len * bytes);
    *items = bigger;
    *cap = more;
    return true;
}

proa_jval proa_j_list(proa_jrun *run, proa_jval_kind kind, int64_t cap)
{
    static proa_jseq none; /* when memory has run out: never written to */
    proa_jseq *seq = proa_j_alloc(run, sizeof *seq);
    proa_jval v = {.kind = (uint8_t)kind, .seq = seq ? seq : &none};
    if (seq && cap > 0) {
        seq->items = proa_j_alloc(run, (size_t)cap * sizeof(proa_jval));
        if (seq->items) seq->cap = cap;
    }
    return v;
}

void proa_j_push(proa_jrun *run, proa_jval list, proa_jval item)
{
    proa_jseq *seq = list.seq;
    if (run->failed || !grow_items(run, (void **)&seq->items, seq->len, &seq->cap, sizeof item)) return;
    seq->items[seq->len++] = item;
}

proa_jval proa_j_pair(proa_jrun *run, proa_jval a, proa_jval b)
{
    proa_jval pair = proa_j_list(run, PROA_J_TUPLE, 2);
    proa_j_push(run, pair, a);
    proa_j_push(run, pair, b);
    return pair;
}

proa_jval proa_j_dict(proa_jrun *run, proa_jval_kind kind, int64_t cap)
{
    static proa_jdict none;
    proa_jdict *dict = proa_j_alloc(run, sizeof *dict);
    if (dict && cap > 0) {
        dict->entries = proa_j_alloc(run, (size_t)cap * sizeof(proa_jentry));
        if (dict->entries) dict->cap = cap;
    }
    return (proa_jval){.kind = (uint8_t)kind, .dict = dict ? dict : &none};
}

static void add_entry(proa_jrun *run, proa_jdict *dict, proa_jval key, proa_jval value)
{
    if (run->failed || !grow_items(run, (void **)&dict->entries, dict->len, &dict->cap, sizeof(proa_jentry)))
        return;
    dict->entries[dict->len++] = (proa_jentry){key, value};
}

void proa_j_put(proa_jrun *run, proa_jval dict, proa_jval key, proa_jval value)
{
    proa_jval *place = proa_j_find(run, dict, key);
    if (place) *place = value;
    else add_entry(run, dict.dict, key, value);
}

proa_jval *proa_j_find_str(proa_jrun *run, proa_jval dict, proa_str key)
{
    proa_jdict *d = dict.dict;
    if (!proa_j_charge(run, d->len / 16)) return NULL;
    for (int64_t i = 0; i < d->len; i++) {
        const proa_jval *k = &d->entries[i].key;
        if (k->kind == PROA_J_STRING && k->len == key.len && proa_j_charge_text(run, key.len) &&
            memcmp(k->s, key.ptr, key.len) == 0)
            return &d->entries[i].value;
    }
    return NULL;
}

static bool is_hashable(proa_jrun *run, proa_jval key)
{
    if (key.kind != PROA_J_LIST && key.kind != PROA_J_DICT) return true;
    proa_j_fail(run, PROA_INVALID, "unhashable type: '%s'", proa_j_type_name(key));
    return false;
}

proa_jval *proa_j_find(proa_jrun *run, proa_jval dict, proa_jval key)
{
    proa_jdict *d = dict.dict;
    if (key.kind == PROA_J_STRING) return proa_j_find_str(run, dict, proa_j_text(key));
    if (!is_hashable(run, key)) return NULL;
    for (int64_t i = 0; i < d->len && proa_j_charge(run, 1); i++)
        if (proa_j_equal(run, d->entries[i].key, key)) return &d->entries[i].value;
    return NULL;
}

proa_jval proa_j_from_json(proa_jrun *run, const proa_json *j)
{
    proa_jval v = proa_j_none();
    if (!proa_j_charge(run, 1)) return v;
    switch (proa_json_kind(j)) {
    case PROA_JSON_NULL: break;
    case PROA_JSON_BOOL: return proa_j_bool(proa_json_bool(j));
    case PROA_JSON_INT: return proa_j_int(proa_json_int(j));
    case PROA_JSON_DOUBLE: return proa_j_float(proa_json_double(j));
    case PROA_JSON_STRING: return proa_j_view(proa_json_str(j));
    case PROA_JSON_ARRAY:
        v = proa_j_list(run, PROA_J_LIST, proa_json_len(j));
        for (int64_t i = 0; i < proa_json_len(j) && !run->failed; i++)
            proa_j_push(run, v, proa_j_from_json(run, proa_json_at(j, i)));
        break;
    case PROA_JSON_OBJECT:
        v = proa_j_dict(run, PROA_J_DICT, proa_json_len(j));
        for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it) && !run->failed;)
            add_entry(run, v.dict, proa_j_view(it.key), proa_j_from_json(run, it.value));
        break;
    }
    return v;
}

/* ---- what values are ---- */

bool proa_j_is_number(proa_jval v)
{
    return v.kind == PROA_J_BOOL || v.kind == PROA_J_INT || v.kind == PROA_J_FLOAT;
}

bool proa_j_is_whole(proa_jval v)
{
    return v.kind == PROA_J_BOOL || v.kind == PROA_J_INT;
}

bool proa_j_is_seq(proa_jval v)
{
    return v.kind == PROA_J_LIST || v.kind == PROA_J_TUPLE || v.kind == PROA_J_RANGE;
}

bool proa_j_is_callable(proa_jval v)
{
    return v.kind >= PROA_J_MACRO;
}

proa_str proa_j_text(proa_jval v)
{
    return v.kind == PROA_J_STRING ? (proa_str){v.s, v.len} : (proa_str){"", 0};
}

int64_t proa_j_whole(proa_jval v)
{
    return v.kind == PROA_J_INT ? v.i : v.kind == PROA_J_BOOL && v.b;
}

double proa_j_number(proa_jval v)
{
    return v.kind == PROA_J_FLOAT ? v.f : (double)proa_j_whole(v);
}

bool proa_j_truth(proa_jval v)
{
    switch (v.kind) {
    case PROA_J_ABSENT:
    case PROA_J_UNDEFINED:
    case PROA_J_NONE: return false;
    case PROA_J_BOOL: return v.b;
    case PROA_J_INT: return v.i != 0;
    case PROA_J_FLOAT: return v.f < 0 || v.f > 0 || v.f != v.f;
    case PROA_J_STRING: return v.len > 0;
    case PROA_J_LIST:
    case PROA_J_TUPLE:
    case PROA_J_RANGE:
    case PROA_J_VIEW: return v.seq->len > 0;
    case PROA_J_DICT: return v.dict->len > 0;
    default: return true;
    }
}

int64_t proa_j_len(proa_jrun *run, proa_jval v)
{
    switch (v.kind) {
    case PROA_J_UNDEFINED: return 0;
    case PROA_J_STRING: return proa_j_charge_text(run, v.len) ? proa_utf8_count(proa_j_text(v)) : 0;
    case PROA_J_LIST:
    case PROA_J_TUPLE:
    case PROA_J_RANGE:
    case PROA_J_VIEW: return v.seq->len;
    case PROA_J_DICT: return v.dict->len;
    default: proa_j_fail(run, PROA_INVALID, "object of type '%s' has no len()", proa_j_type_name(v));
    }
    return 0;
}

const char *proa_j_type_name(proa_jval v)
{
    static const char *const names[] = {
        [PROA_J_ABSENT] = "Undefined",
        [PROA_J_UNDEFINED] = "Undefined",
        [PROA_J_NONE] = "NoneType",
        [PROA_J_BOOL] = "bool",
        [PROA_J_INT] = "int",
        [PROA_J_FLOAT] = "float",
        [PROA_J_STRING] = "str",
        [PROA_J_LIST] = "list",
        [PROA_J_TUPLE] = "tuple",
        [PROA_J_RANGE] = "range",
        [PROA_J_VIEW] = "dict_items",
        [PROA_J_ITERATOR] = "generator",
        [PROA_J_DICT] = "dict",
        [PROA_J_NAMESPACE] = "Namespace",
        [PROA_J_MACRO] = "Macro",
        [PROA_J_FUNCTION] = "function",
        [PROA_J_METHOD] = "builtin_function_or_method",
        [PROA_J_LOOP] = "LoopContext",
        [PROA_J_CYCLER] = "Cycler",
        [PROA_J_JOINER] = "Joiner",
    };
    return v.kind < PROA_COUNT(names) ? names[v.kind] : "object";
}

/* ---- comparing ---- */

/* Both are numbers; a long double holds every 64-bit integer. NaN is unordered: 2. */
static int compare_numbers(proa_jval a, proa_jval b)
{
    long double x = a.kind == PROA_J_FLOAT ? (long double)a.f : (long double)proa_j_whole(a);
    long double y = b.kind == PROA_J_FLOAT ? (long double)b.f : (long double)proa_j_whole(b);
    if (x != x || y != y) return 2;
    return x < y ? -1 : x > y;
}

static int compare_strings(proa_jrun *run, proa_jval a, proa_jval b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n && proa_j_charge_text(run, n) ? memcmp(a.s, b.s, n) : 0;
    if (order) return order < 0 ? -1 : 1;
    return a.len < b.len ? -1 : a.len > b.len;
}

static bool too_deep(proa_jrun *run, int depth)
{
    if (depth > NESTING_MAX) proa_j_fail(run, PROA_LIMIT, "values nested deeper than %d", NESTING_MAX);
    return !proa_j_charge(run, 1);
}

static bool equal_at(proa_jrun *run, proa_jval a, proa_jval b, int depth);

static bool equal_items(proa_jrun *run, const proa_jseq *a, const proa_jseq *b, int depth)
{
    if (a->len != b->len) return false;
    for (int64_t i = 0; i < a->len; i++)
        if (!equal_at(run, a->items[i], b->items[i], depth + 1)) return false;
    return true;
}

static bool equal_dicts(proa_jrun *run, proa_jval a, proa_jval b, int depth)
{
    if (a.dict->len != b.dict->len) return false;
    for (int64_t i = 0; i < a.dict->len; i++) {
        const proa_jval *other = proa_j_find(run, b, a.dict->entries[i].key);
        if (!other || !equal_at(run, a.dict->entries[i].value, *other, depth + 1)) return false;
    }
    return true;
}

static bool equal_at(proa_jrun *run, proa_jval a, proa_jval b, int depth)
{
    if (too_deep(run, depth)) return false;
    if (proa_j_is_number(a) && proa_j_is_number(b)) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case PROA_J_UNDEFINED:
    case PROA_J_NONE: return true;
    case PROA_J_STRING: return a.len == b.len && compare_strings(run, a, b) == 0;
    case PROA_J_LIST:
    case PROA_J_TUPLE:
    case PROA_J_RANGE:
    case PROA_J_VIEW: return equal_items(run, a.seq, b.seq, depth);
    case PROA_J_DICT: return equal_dicts(run, a, b, depth);
    default: return a.seq == b.seq; /* the same object */
    }
}

bool proa_j_equal(proa_jrun *run, proa_jval a, proa_jval b)
{
    return equal_at(run, a, b, 0);
}

static int compare_at(proa_jrun *run, proa_jval a, proa_jval b, const char *op, int depth)
{
    if (too_deep(run, depth)) return 0;
    if (proa_j_is_number(a) && proa_j_is_number(b)) return compare_numbers(a, b);
    if (a.kind == PROA_J_STRING && b.kind == PROA_J_STRING) return compare_strings(run, a, b);
    if (a.kind == b.kind && (a.kind == PROA_J_LIST || a.kind == PROA_J_TUPLE)) {
        for (int64_t i = 0; i < a.seq->len && i < b.seq->len; i++)
            if (!equal_at(run, a.seq->items[i], b.seq->items[i], depth + 1))
                return compare_at(run, a.seq->items[i], b.seq->items[i], op, depth + 1);
        return a.seq->len < b.seq->len ? -1 : a.seq->len > b.seq->len;
    }
    if (!proa_j_fail_undefined(run, a) && !proa_j_fail_undefined(run, b))
        proa_j_fail(run, PROA_INVALID, "'%s' not supported between instances of '%s' and '%s'", op,
                    proa_j_type_name(a), proa_j_type_name(b));
    return 0;
}

int proa_j_compare(proa_jrun *run, proa_jval a, proa_jval b, const char *op)
{
    return compare_at(run, a, b, op, 0);
}

static bool has_text(proa_jrun *run, proa_jval container, proa_jval item)
{
    if (item.kind != PROA_J_STRING) {
        proa_j_fail(run, PROA_INVALID, "'in <string>' requires string as left operand, not %s",
                    proa_j_type_name(item));
        return false;
    }
    proa_j_charge_text(run, container.len);
    return item.len == 0 || memmem(container.s, container.len, item.s, item.len) != NULL;
}

bool proa_j_contains(proa_jrun *run, proa_jval container, proa_jval item)
{
    proa_jiter it;
    proa_jval each;
    if (container.kind == PROA_J_STRING) return has_text(run, container, item);
    if (container.kind == PROA_J_DICT) return proa_j_find(run, container, item) != NULL;
    if (!proa_j_can_iter(container)) {
        proa_j_fail(run, PROA_INVALID, "argument of type '%s' is not iterable", proa_j_type_name(container));
        return false;
    }
    if (!proa_j_iter(run, &it, container)) return false;
    while (proa_j_next(run, &it, &each))
        if (proa_j_equal(run, each, item)) return true;
    return false;
}

/* ---- walking ---- */

bool proa_j_can_iter(proa_jval v)
{
    return v.kind == PROA_J_UNDEFINED || (v.kind >= PROA_J_STRING && v.kind <= PROA_J_DICT);
}

bool proa_j_iter(proa_jrun *run, proa_jiter *it, proa_jval v)
{
    *it = (proa_jiter){.over = v};
    if (proa_j_can_iter(v)) return true;
    proa_j_fail(run, PROA_INVALID, "'%s' object is not iterable", proa_j_type_name(v));
    return false;
}

static bool next_char(proa_jiter *it, proa_jval *item)
{
    proa_str rest = {it->over.s + it->at, it->over.len - (size_t)it->at};
    int32_t c;
    if (rest.len == 0) return false;
    int n = proa_char_next(rest, &c);
    *item = proa_j_view((proa_str){rest.ptr, (size_t)n});
    it->at += n;
    return true;
}

bool proa_j_next(proa_jrun *run, proa_jiter *it, proa_jval *item)
{
    if (!proa_j_charge(run, 1)) return false;
    if (it->over.kind == PROA_J_UNDEFINED) return false;
    if (it->over.kind == PROA_J_STRING) return next_char(it, item);
    if (it->over.kind == PROA_J_DICT) {
        if (it->at >= it->over.dict->len) return false;
        *item = it->over.dict->entries[it->at++].key;
        return true;
    }
    proa_jseq *seq = it->over.seq;
    int64_t *at = it->over.kind == PROA_J_ITERATOR ? &seq->at : &it->at;
    if (*at >= seq->len) {
        if (it->over.kind == PROA_J_ITERATOR && seq->fails) proa_j_fail(run, PROA_INVALID, "%s", seq->fails);
        return false;
    }
    *item = seq->items[(*at)++];
    return true;
}

proa_jval proa_j_lazily(proa_jrun *run, proa_jval iterator)
{
    const char *text = run->err.text;
    int n = 0;
    if (!run->failed || run->err.status != PROA_INVALID || run->raised) return iterator;
    if (sscanf(text, "line %*d: %n", &n) == 0 && n > 0) text += n; /* the message will name the outer line */
    iterator.seq->fails = proa_arena_strdup(&run->arena, proa_str_c(text));
    run->failed = false;
    proa_err_clear(&run->err);
    return iterator;
}

proa_jval proa_j_to_list(proa_jrun *run, proa_jval v)
{
    proa_jval list = proa_j_list(run, PROA_J_LIST, proa_j_is_seq(v) ? v.seq->len : 4), item;
    proa_jiter it;
    if (!proa_j_iter(run, &it, v)) return list;
    while (proa_j_next(run, &it, &item)) proa_j_push(run, list, item);
    return list;
}
