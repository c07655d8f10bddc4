/* SPDX-License-Identifier: Apache-2.0
 * value.h - the values of a template while it is rendered: Python's, as far as chat templates see them.
 * Owner:   all memory is in the arena of the rendering; a value is 16 bytes and is passed by copy.
 * Threads: one rendering, one thread.
 * Errors:  proa_j_fail sets the rendering's error (the first one stays) and `failed`; functions then return harmless
 *          values, and loops test `failed`. So an expression needs no check after each of its parts.
 * Way in:  proa_jval, proa_j_string and kin; proa_j_iter to walk; print.c writes values as text. */
#ifndef PROA_TEXT_JINJA_VALUE_H
#define PROA_TEXT_JINJA_VALUE_H

#include "base/arena.h"
#include "base/json.h"

typedef enum proa_jval_kind {
    PROA_J_ABSENT, /* an argument that was not given; never a value of a variable */
    PROA_J_UNDEFINED,
    PROA_J_NONE,
    PROA_J_BOOL,
    PROA_J_INT,
    PROA_J_FLOAT,
    PROA_J_STRING,
    PROA_J_LIST,
    PROA_J_TUPLE,
    PROA_J_RANGE,
    PROA_J_VIEW,     /* keys(), values(), items() of a dict */
    PROA_J_ITERATOR, /* the result of map, select, ...: can be iterated once, has no length, is always true */
    PROA_J_DICT,
    PROA_J_NAMESPACE, /* a dict that may be written to */
    PROA_J_MACRO,
    PROA_J_FUNCTION, /* range, namespace, raise_exception, ... */
    PROA_J_METHOD,   /* a function with the value that it belongs to */
    PROA_J_LOOP,
    PROA_J_CYCLER,
    PROA_J_JOINER
} proa_jval_kind;

/* Why a value is undefined, for the error message when it is used. */
enum { PROA_J_UNDEF_NAME, PROA_J_UNDEF_ATTR, PROA_J_UNDEF_ITEM, PROA_J_UNDEF_UNSAFE, PROA_J_UNDEF_TEXT };

typedef struct proa_jval {
    uint8_t kind;
    uint8_t flag; /* of a string: it is HTML already (safe, escape); of an undefined one: PROA_J_UNDEF_* */
    uint8_t of;   /* of an undefined one: the kind of the object that it was looked up in */
    uint32_t len; /* bytes of s */
    union {
        const char *s; /* of a string: UTF-8; of an undefined value: its name or the text of its error */
        bool b;
        int64_t i;
        double f;
        struct proa_jseq *seq;   /* list, tuple, range, view, iterator */
        struct proa_jdict *dict; /* dict, namespace */
        struct proa_jmacro *macro;
        struct proa_jloop *loop;
        struct proa_jbound *bound; /* function, method, cycler, joiner */
    };
} proa_jval;

typedef struct proa_jseq {
    proa_jval *items;
    int64_t len, cap, at; /* at: next item of an iterator */
    const char *view;     /* of a view: "dict_keys", ... */
    const char *fails;    /* of an iterator: the error after its last item, or NULL */
} proa_jseq;

typedef struct proa_jentry {
    proa_jval key, value;
} proa_jentry;
typedef struct proa_jdict { /* in order of insertion */
    proa_jentry *entries;
    int64_t len, cap;
} proa_jdict;

struct proa_jrun;
/* Variables that the caller gives: one of this name, or, if name is NULL, all members of an object. */
typedef struct proa_jinput {
    const char *name;
    const proa_json *json;
    proa_jval (*make)(struct proa_jrun *run, const proa_json *json); /* NULL: proa_j_from_json */
} proa_jinput;

/* A rendering. Frames and output belong to exec.c. */
typedef struct proa_jrun {
    proa_arena arena;
    size_t external_bytes; /* bytes outside the arena that count as memory of the rendering */
    proa_err err;
    bool failed, raised; /* raised: by raise_exception */
    int32_t line;        /* of the current statement or expression */
    int64_t steps, depth, macros;
    int64_t clock_check_at,
        deadline_ns; /* the step at which the clock is read next; CPU time of the thread at which the rendering fails */
    proa_buf *out;
    proa_buf scratch; /* for print.c: text of a value before it becomes a string */
    struct proa_jframe *frame;
    const struct proa_jcode *code;
    const proa_jinput *inputs;
    int inputs_count;
    proa_jval *globals; /* one for each symbol of the code; ABSENT: not looked up yet */
} proa_jrun;

/* Sets the error "line N: ..." unless there is one. */
void proa_j_fail(proa_jrun *run, proa_status status, const char *fmt, ...) PROA_PRINTF(3, 4) PROA_COLD;
/* The same for the use of an undefined value. False, without an error, for any other value. */
bool proa_j_fail_undefined(proa_jrun *run, proa_jval v);
/* Counts n steps of work; false if the limit is reached or the rendering has failed. */
bool proa_j_charge(proa_jrun *run, int64_t n);
/* The same for work that reads `bytes` of a text once, and for work that takes its characters one by one. */
bool proa_j_charge_text(proa_jrun *run, size_t bytes);
bool proa_j_charge_chars(proa_jrun *run, size_t bytes);
/* Counts memory of the rendering outside its arena; false when PROA_TEMPLATE_MEMORY_MAX is reached. */
bool proa_j_count_memory(proa_jrun *run, size_t bytes);
/* Zeroed memory of the rendering; NULL, with the error set, if PROA_TEMPLATE_MEMORY_MAX is reached. */
void *proa_j_alloc(proa_jrun *run, size_t bytes);

proa_jval proa_j_none(void);
proa_jval proa_j_bool(bool b);
proa_jval proa_j_int(int64_t i);
proa_jval proa_j_float(double f);
proa_jval proa_j_view(proa_str s);                   /* a string of bytes that outlive the rendering */
proa_jval proa_j_string(proa_jrun *run, proa_str s); /* a string of copied bytes */
proa_jval proa_j_take(proa_jrun *run, proa_buf *buf,
                      size_t from); /* moves the text of buf from `from` on into a string */
proa_jval proa_j_undefined(int flag, proa_str text);
proa_jval proa_j_undefined_in(int flag, proa_jval object, proa_str name);
proa_jval proa_j_list(proa_jrun *run, proa_jval_kind kind, int64_t cap);
void proa_j_push(proa_jrun *run, proa_jval list, proa_jval item);
proa_jval proa_j_pair(proa_jrun *run, proa_jval a, proa_jval b); /* a tuple */
proa_jval proa_j_dict(proa_jrun *run, proa_jval_kind kind, int64_t cap);
void proa_j_put(proa_jrun *run, proa_jval dict, proa_jval key, proa_jval value);
/* The address of a key's value, or NULL. */
proa_jval *proa_j_find(proa_jrun *run, proa_jval dict, proa_jval key);
proa_jval *proa_j_find_str(proa_jrun *run, proa_jval dict, proa_str key);
/* Strings are not copied: the document must outlive the rendering. */
proa_jval proa_j_from_json(proa_jrun *run, const proa_json *j);

bool proa_j_is_number(proa_jval v); /* bool, int, float */
bool proa_j_is_whole(proa_jval v);  /* bool, int */
bool proa_j_is_seq(proa_jval v);    /* list, tuple, range: what can be indexed */
bool proa_j_is_callable(proa_jval v);
proa_str proa_j_text(proa_jval v); /* of a string; else the empty slice */
int64_t proa_j_whole(proa_jval v); /* of a bool or int; else 0 */
double proa_j_number(proa_jval v);
bool proa_j_truth(proa_jval v);
/* Number of characters or items; fails if the value has no length. */
int64_t proa_j_len(proa_jrun *run, proa_jval v);
bool proa_j_equal(proa_jrun *run, proa_jval a, proa_jval b);
/* -1, 0 or 1; 2 if one is NaN. Fails if the two have no order; `op` is for the message. */
int proa_j_compare(proa_jrun *run, proa_jval a, proa_jval b, const char *op);
bool proa_j_contains(proa_jrun *run, proa_jval container, proa_jval item);
const char *proa_j_type_name(proa_jval v); /* "str" */

typedef struct proa_jiter {
    proa_jval over;
    int64_t at; /* item, entry or byte */
} proa_jiter;
/* False, and failed, if v cannot be iterated. */
bool proa_j_iter(proa_jrun *run, proa_jiter *it, proa_jval v);
bool proa_j_can_iter(proa_jval v);
bool proa_j_next(proa_jrun *run, proa_jiter *it, proa_jval *item);
proa_jval proa_j_to_list(proa_jrun *run, proa_jval v); /* a new list of the items */

/* An error that occurred while an iterator was filled is raised only when it is iterated, as if it were lazy. Limits
 * fail at once. */
proa_jval proa_j_lazily(proa_jrun *run, proa_jval iterator);

/* ---- print.c ---- */
void proa_j_print(proa_jrun *run, proa_buf *out, proa_jval v); /* str(v) */
void proa_j_repr(proa_jrun *run, proa_buf *out, proa_jval v);  /* repr(v) */
proa_jval proa_j_str(proa_jrun *run, proa_jval v);             /* str(v) as a string; a string stays itself */
proa_jval proa_j_repr_of(proa_jrun *run, proa_jval v);
void proa_j_print_float(proa_buf *out, double f); /* repr(f) */
typedef struct proa_jjson {                       /* json.dumps' */
    bool ascii, sort;
    bool pretty; /* indent was given: the text of one level */
    proa_str indent, item, key;
} proa_jjson;
void proa_j_json(proa_jrun *run, proa_buf *out, proa_jval v, const proa_jjson *form);

#endif
