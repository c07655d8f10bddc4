/* SPDX-License-Identifier: Apache-2.0
 * run.h - the interpreter of templates: scopes, expressions, statements, and the tables of filters, tests and
 *         functions.
 * Threads: one rendering, one thread; tables and code are shared.
 * Way in:  proa_j_run (exec.c); then eval.c, access.c, math.c; filters*.c, tests.c, methods*.c and functions.c
 *          have the tables of names that templates use. */
#ifndef PROA_TEXT_JINJA_RUN_H
#define PROA_TEXT_JINJA_RUN_H

#include "text/jinja/code.h"

/* ---- calls ---- */

#define PROA_J_ARGS_MAX 8 /* parameters that one row of a table may have */

typedef struct proa_jnamed {
    proa_str name;
    proa_jval value;
} proa_jnamed;
typedef struct proa_jcall { /* evaluated arguments */
    const proa_jval *pos;
    int32_t count;
    const proa_jnamed *named;
    int32_t named_count;
} proa_jcall;

/* A filter, test, method or function. `self` is the value before the bar, or the object of the method. args holds one
 * value for each parameter, ABSENT where none was given; a row without `params` takes any arguments, from `call`. */
typedef proa_jval proa_jfn(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call);
typedef struct proa_jfunction {
    const char *name;
    proa_jfn *fn;
    const char *params; /* "width first blank"; NULL: any */
    int needed;         /* how many of them must be given */
} proa_jfunction;

/* Tables end with a row without a name. */
extern const proa_jfunction proa_j_filters[], proa_j_tests[], proa_j_globals[];
extern const proa_jfunction proa_j_str_methods[], proa_j_list_methods[], proa_j_dict_methods[],
    proa_j_loop_methods[], proa_j_cycler_methods[];
const proa_jfunction *proa_j_function_find(const proa_jfunction *table, proa_str name); /* or NULL */
/* Binds the arguments to the row's parameters and calls it. */
proa_jval proa_j_apply(proa_jrun *run, const proa_jfunction *row, proa_jval self, const proa_jcall *call);
/* Calls a value: a macro, a function, a method, a loop. */
proa_jval proa_j_call(proa_jrun *run, proa_jval callee, const proa_jcall *call);

typedef struct proa_jbound {
    const proa_jfunction *row;
    proa_jval self;
    proa_jval items; /* of a cycler: its list; of a joiner: its separator */
    int64_t at;
} proa_jbound;

/* ---- scopes ---- */

typedef struct proa_jslot {
    int32_t symbol;
    proa_jval value;
} proa_jslot;
typedef struct proa_jframe {
    struct proa_jframe *outer;
    proa_jslot *slots;
    int32_t count, cap;
    bool kept; /* a macro refers to it: it must not be reused */
} proa_jframe;

proa_jframe *proa_j_frame(proa_jrun *run, proa_jframe *outer);
void proa_j_assign(proa_jrun *run, proa_jframe *frame, int32_t symbol, proa_jval value);
proa_jval proa_j_lookup(proa_jrun *run, int32_t symbol);

typedef struct proa_jmacro {
    const proa_jmacro_code *code;
    proa_jframe *frame; /* in which it was defined */
} proa_jmacro;

typedef struct proa_jloop {
    const proa_jnode *node;
    proa_jframe *frame; /* around the loop */
    proa_jseq *items;
    int64_t at, depth;
    proa_jval changed; /* the last argument of loop.changed(); ABSENT: not called yet */
} proa_jloop;

/* ---- running ---- */

/* Renders into out, whose length is as before on failure. Variables are looked up in the inputs, in their order. */
proa_status proa_j_run(const proa_jcode *code, const proa_jinput *inputs, int count, proa_buf *out,
                       proa_err *err);
struct proa_template;
const proa_jcode *proa_template_code(const struct proa_template *t); /* template.c */
void proa_j_exec(proa_jrun *run, const proa_jbody *body);            /* in the current frame */
proa_jval proa_j_call_macro(proa_jrun *run, const proa_jmacro *macro, const proa_jcall *call, proa_jval caller);
proa_jval proa_j_call_loop(proa_jrun *run, const proa_jloop *loop, proa_jval over);
/* Evaluates a call's arguments into memory of the rendering. */
void proa_j_eval_args(proa_jrun *run, const proa_jnode *node, proa_jcall *call);
proa_jval proa_j_eval(proa_jrun *run, const proa_jnode *node);
/* Counts a level of recursion; false if it is too deep. Pair with run->depth--. */
bool proa_j_nest(proa_jrun *run);

/* ---- access.c ---- */
proa_jval proa_j_attr(proa_jrun *run, proa_jval object, proa_str name);  /* object.name */
proa_jval proa_j_item(proa_jrun *run, proa_jval object, proa_jval key);  /* object[key] */
proa_jval proa_j_path(proa_jrun *run, proa_jval object, proa_jval path); /* "a.b.0", 0, or ABSENT */
proa_jval proa_j_slice(proa_jrun *run, proa_jval object, const proa_jval bounds[3]);
proa_jval proa_j_attr_only(proa_jrun *run, proa_jval object, proa_str name); /* never an item: |attr("x") */

/* ---- math.c ---- */
proa_jval proa_j_math(proa_jrun *run, int op, proa_jval a, proa_jval b); /* PROA_T_ADD, ... */
proa_jval proa_j_negate(proa_jrun *run, proa_jval v, bool minus);

/* ---- strings: text.c ---- */
bool proa_j_is_space(int32_t c); /* str.isspace */
proa_jval proa_j_lower(proa_jrun *run, proa_str s);
proa_jval proa_j_upper(proa_jrun *run, proa_str s);
proa_jval proa_j_capital(proa_jrun *run, proa_str s); /* str.capitalize */
proa_jval proa_j_folded(proa_jrun *run, proa_str s);  /* str.casefold */
proa_jval proa_j_swap(proa_jrun *run, proa_str s);
proa_jval proa_j_titled(proa_jrun *run, proa_str s); /* str.title */
enum { PROA_J_LEFT = 1, PROA_J_RIGHT = 2 };
proa_str proa_j_strip(proa_jrun *run, proa_str s, int sides,
                      const proa_str *chars); /* chars NULL: white space, and run may be NULL */
proa_jval proa_j_replace(proa_jrun *run, proa_str s, proa_str old, proa_str replacement, int64_t count); /* < 0: all */
size_t proa_j_offset(proa_str s, int64_t chars); /* the byte of a character, s.len if there are fewer */
proa_jval proa_j_escape(proa_jrun *run, proa_jval v);
proa_jval proa_j_lines(proa_jrun *run, proa_str s, bool keep);               /* str.splitlines */
proa_jval proa_j_percent(proa_jrun *run, proa_str format, proa_jval values); /* "%s" % values: format.c */
proa_jval proa_j_format(proa_jrun *run, proa_str format, const proa_jcall *call); /* "{}".format() */

/* ---- arguments of rows ---- */
bool proa_j_given(proa_jval v);                                         /* not ABSENT */
int64_t proa_j_int_arg(proa_jrun *run, proa_jval v, int64_t otherwise); /* fails for other values than integers */
proa_str proa_j_str_arg(proa_jrun *run, proa_jval v, const char *what); /* fails for other values than strings */

#endif
