/* SPDX-License-Identifier: Apache-2.0
 * code.h - a template as tokens and as a tree.
 * Owner:   everything is in the arena of the proa_jcode, which never changes after proa_j_parse.
 * Threads: many may run the same code at once.
 * Way in:  proa_j_parse (parse.c: statements; parse_expr.c: expressions; parse_tree.c: below both), which calls
 *          proa_j_lex (lex.c). */
#ifndef PROA_TEXT_JINJA_CODE_H
#define PROA_TEXT_JINJA_CODE_H

#include "base/map.h"
#include "text/jinja/value.h"

/* Longer tokens come before their prefixes. */
/* clang-format off: a table */
#define PROA_J_OPERATORS(X)                                                                                  \
    X(POW, "**")                                                                                             \
    X(FLOORDIV, "//")                                                                                        \
    X(EQ, "==")                                                                                              \
    X(NE, "!=")                                                                                              \
    X(GE, ">=")                                                                                              \
    X(LE, "<=")                                                                                              \
    X(ADD, "+")                                                                                              \
    X(SUB, "-")                                                                                              \
    X(DIV, "/")                                                                                              \
    X(MUL, "*")                                                                                              \
    X(MOD, "%")                                                                                              \
    X(TILDE, "~")                                                                                            \
    X(LBRACKET, "[")                                                                                         \
    X(RBRACKET, "]")                                                                                         \
    X(LPAREN, "(")                                                                                           \
    X(RPAREN, ")")                                                                                           \
    X(LBRACE, "{")                                                                                           \
    X(RBRACE, "}")                                                                                           \
    X(GT, ">")                                                                                               \
    X(LT, "<")                                                                                               \
    X(ASSIGN, "=")                                                                                           \
    X(DOT, ".")                                                                                              \
    X(COLON, ":")                                                                                            \
    X(PIPE, "|")                                                                                             \
    X(COMMA, ",")                                                                                            \
    X(SEMICOLON, ";")
/* clang-format on */

typedef enum proa_jtype {
    PROA_T_EOF,
    PROA_T_DATA,
    PROA_T_VAR_BEGIN,
    PROA_T_VAR_END,
    PROA_T_BLOCK_BEGIN,
    PROA_T_BLOCK_END,
    PROA_T_NAME,
    PROA_T_STRING,
    PROA_T_INT,
    PROA_T_FLOAT,
#define PROA_J_TOKEN(name, text) PROA_T_##name,
    PROA_J_OPERATORS(PROA_J_TOKEN)
#undef PROA_J_TOKEN
} proa_jtype;

typedef struct proa_jtoken {
    proa_jtype type;
    int32_t line;
    proa_jval value; /* of data, names, strings: the text; of numbers: the number */
} proa_jtoken;

typedef enum proa_jnode_type {
    /* expressions: eval.c */
    PROA_N_CONST,
    PROA_N_NAME,    /* symbol */
    PROA_N_ATTR,    /* a.value */
    PROA_N_ITEM,    /* a[b] */
    PROA_N_SLICE,   /* a[list[0]:list[1]:list[2]], each may be NULL */
    PROA_N_CALL,    /* a(args) */
    PROA_N_FILTER,  /* a|function(args); a NULL: the text of a block */
    PROA_N_TEST,    /* a is function(args) */
    PROA_N_NOT,     /* a */
    PROA_N_NEG,     /* a */
    PROA_N_POS,     /* a */
    PROA_N_AND,     /* list */
    PROA_N_OR,      /* list */
    PROA_N_MATH,    /* list[0] ops[1] list[1] ops[2] list[2] ..., from the left */
    PROA_N_CONCAT,  /* list */
    PROA_N_COMPARE, /* as MATH, chained as in Python */
    PROA_N_COND,    /* a if b else c; c may be NULL */
    PROA_N_LIST,    /* list */
    PROA_N_TUPLE,   /* list */
    PROA_N_DICT,    /* list: key, value, key, ... */
    PROA_N_NSREF,   /* symbol.value: only as a target */
    /* statements: exec.c */
    PROA_N_TEXT,        /* value */
    PROA_N_PRINT,       /* a */
    PROA_N_FOR,         /* a: target, b: over, c: filter or NULL, body, other; flag: recursive */
    PROA_N_IF,          /* list: condition, ...; bodies: one each, other */
    PROA_N_SET,         /* a: target, b: value */
    PROA_N_SETBLOCK,    /* a: target, b: filter or NULL, body */
    PROA_N_MACRO,       /* macro, symbol */
    PROA_N_CALLBLOCK,   /* a: the call, macro: the caller */
    PROA_N_FILTERBLOCK, /* a: filter, body */
    PROA_N_WITH,        /* list: target, value, target, ...; body */
    PROA_N_SCOPE,       /* body, in a scope of its own: {% generation %} */
    PROA_N_BREAK,
    PROA_N_CONTINUE,
    PROA_N_COUNT
} proa_jnode_type;

enum { PROA_J_IN = 200, PROA_J_NOT_IN }; /* further ops of COMPARE, in addition to token types */

typedef struct proa_jnode proa_jnode;
typedef struct proa_jbody {
    proa_jnode **list;
    int32_t count;
} proa_jbody;

typedef struct proa_jargument { /* of a call */
    proa_str name;              /* of name=value; empty: by position */
    int stars;                  /* *value, **value */
    proa_jnode *value;
} proa_jargument;

typedef struct proa_jmacro_code {
    proa_str name;
    int32_t *params;       /* symbols */
    proa_jnode **defaults; /* one for each of params; NULL: none */
    int32_t count;
    int32_t varargs, kwargs, caller; /* symbols, if the body uses them; else -1 */
    proa_jbody body;
} proa_jmacro_code;

struct proa_jnode {
    uint8_t type; /* proa_jnode_type */
    bool flag;
    int32_t line, symbol;
    proa_jval value;
    proa_jnode *a, *b, *c;
    proa_jbody list, body, other, *bodies;
    uint8_t *ops;
    proa_jargument *args;
    int32_t args_count;
    const struct proa_jfunction *function; /* of FILTER and TEST; NULL: there is none of this name (value) */
    proa_jmacro_code *macro;
};

typedef struct proa_jcode {
    proa_arena arena;
    proa_jbody body;
    proa_map symbols; /* name to number */
    proa_str *names;
    int32_t count, cap;
    int32_t loop; /* the symbol of "loop" */
} proa_jcode;

/* Symbols: one number for each name in the template. */
int32_t proa_j_symbol(proa_jcode *code, proa_str name);

/* The tokens of a source that is UTF-8, EOF last; memory from the arena. */
PROA_MUST_CHECK proa_status proa_j_lex(proa_jtoken **out, proa_arena *arena, proa_str source, proa_err *err);
/* Fills a zeroed code; release it also on failure. */
PROA_MUST_CHECK proa_status proa_j_parse(proa_jcode *code, proa_str source, proa_err *err);
void proa_j_code_release(proa_jcode *code);

/* ---- the parser: parse_tree.c ---- */

typedef struct proa_jparser {
    proa_jcode *code;
    const proa_jtoken *at; /* the next token */
    proa_err *err;
    bool failed;
    int32_t depth; /* nesting of blocks and expressions */
    int32_t ifs; /* conditions around the current node: unknown filters and tests in them fail only when they are used
                    */
    int32_t loops;
    proa_jmacro_code *macro; /* the innermost, or NULL */
} proa_jparser;

void proa_j_parse_fail(proa_jparser *p, int32_t line, const char *fmt, ...) PROA_PRINTF(3, 4) PROA_COLD;
bool proa_j_enter(proa_jparser *p); /* one level deeper; pair with p->depth-- also on failure */
bool proa_j_at(const proa_jparser *p, proa_jtype type);
bool proa_j_at_name(const proa_jparser *p, const char *name);
bool proa_j_skip(proa_jparser *p, proa_jtype type); /* takes the token if it is of this type */
bool proa_j_skip_name(proa_jparser *p, const char *name);
void proa_j_expect(proa_jparser *p, proa_jtype type);
proa_str proa_j_expect_name(proa_jparser *p);
proa_jnode *proa_j_node(proa_jparser *p, proa_jnode_type type);
void proa_j_add(proa_jparser *p, proa_jbody *body, proa_jnode *node);
const char *proa_j_token_text(const proa_jtoken *token, char out[64]); /* for messages */

/* ---- parse_expr.c ---- */

/* Never NULL. After a failure their contents are arbitrary, but all pointers are valid. */
proa_jnode *proa_j_parse_expression(proa_jparser *p, bool with_condition);
/* An expression or, with commas, a tuple. `end` (may be NULL) is a name that ends it. */
proa_jnode *proa_j_parse_tuple(proa_jparser *p, bool with_condition, const char *end);
/* Names, tuples of them and, with_ns, ns.name. */
proa_jnode *proa_j_parse_target(proa_jparser *p, const char *end, bool with_ns);
proa_jnode *proa_j_parse_filters(proa_jparser *p, proa_jnode *node, bool inline_start);

#endif
