/* SPDX-License-Identifier: Apache-2.0
 * tests.c - what may stand after "is". */
#include "text/jinja/run.h"

#define TEST(name)                                                                                           \
    static proa_jval name(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call)
#define TEST_IS(name, condition)                                                                             \
    TEST(name)                                                                                               \
    {                                                                                                        \
        (void)run, (void)self, (void)args, (void)call;                                                       \
        return proa_j_bool(condition);                                                                       \
    }

/* Is value % by this? */
static bool has_rest(proa_jrun *run, proa_jval value, int64_t by, int64_t rest)
{
    return proa_j_equal(run, proa_j_math(run, PROA_T_MOD, value, proa_j_int(by)), proa_j_int(rest));
}

static bool has_case(proa_jrun *run, proa_jval v, const char *method)
{
    const proa_jcall none = {.count = 0};
    proa_jval text = proa_j_str(run, v);
    const proa_jfunction *row = proa_j_function_find(proa_j_str_methods, proa_str_c(method));
    return proa_j_truth(proa_j_apply(run, row, text, &none));
}

/* A comparison with the argument; NaN (2) is never in order. */
static bool is_ordered(proa_jrun *run, proa_jval a, proa_jval b, const char *op)
{
    int order = proa_j_compare(run, a, b, op);
    if (order == 2) return false;
    if (op[0] == '<') return order < 0 || (op[1] && order == 0);
    return order > 0 || (op[1] && order == 0);
}

static bool is_same(proa_jval a, proa_jval b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case PROA_J_NONE:
    case PROA_J_UNDEFINED: return true;
    case PROA_J_BOOL: return a.b == b.b;
    case PROA_J_INT: return a.i == b.i;
    case PROA_J_STRING: return a.s == b.s && a.len == b.len;
    case PROA_J_FLOAT: return a.f >= b.f && a.f <= b.f;
    default: return a.seq == b.seq;
    }
}

TEST_IS(t_defined, self.kind != PROA_J_UNDEFINED)
TEST_IS(t_undefined, self.kind == PROA_J_UNDEFINED)
TEST_IS(t_none, self.kind == PROA_J_NONE)
TEST_IS(t_boolean, self.kind == PROA_J_BOOL)
TEST_IS(t_true, self.kind == PROA_J_BOOL && self.b)
TEST_IS(t_false, self.kind == PROA_J_BOOL && !self.b)
TEST_IS(t_integer, self.kind == PROA_J_INT)
TEST_IS(t_float, self.kind == PROA_J_FLOAT)
TEST_IS(t_number, proa_j_is_number(self))
TEST_IS(t_string, self.kind == PROA_J_STRING)
TEST_IS(t_mapping, self.kind == PROA_J_DICT)
TEST_IS(t_iterable, proa_j_can_iter(self) || self.kind == PROA_J_LOOP)
TEST_IS(t_sequence, self.kind == PROA_J_UNDEFINED || self.kind == PROA_J_STRING || self.kind == PROA_J_DICT ||
                        proa_j_is_seq(self))
TEST_IS(t_callable, proa_j_is_callable(self) || self.kind == PROA_J_UNDEFINED)
TEST_IS(t_escaped, self.kind == PROA_J_STRING && self.flag)
TEST_IS(t_sameas, is_same(self, args[0]))
TEST_IS(t_in, proa_j_contains(run, args[0], self))
TEST_IS(t_eq, proa_j_equal(run, self, args[0]))
TEST_IS(t_ne, !proa_j_equal(run, self, args[0]))
TEST_IS(t_lt, is_ordered(run, self, args[0], "<"))
TEST_IS(t_le, is_ordered(run, self, args[0], "<="))
TEST_IS(t_gt, is_ordered(run, self, args[0], ">"))
TEST_IS(t_ge, is_ordered(run, self, args[0], ">="))
TEST_IS(t_odd, has_rest(run, self, 2, 1))
TEST_IS(t_even, has_rest(run, self, 2, 0))
TEST_IS(t_divisibleby, !proa_j_truth(proa_j_math(run, PROA_T_MOD, self, args[0])))
TEST_IS(t_lower, has_case(run, self, "islower"))
TEST_IS(t_upper, has_case(run, self, "isupper"))
TEST_IS(t_filter, proa_j_function_find(proa_j_filters, proa_j_text(self)) != NULL)
TEST_IS(t_test, proa_j_function_find(proa_j_tests, proa_j_text(self)) != NULL)

const proa_jfunction proa_j_tests[] = {
    {"defined", t_defined, "", 0},
    {"undefined", t_undefined, "", 0},
    {"none", t_none, "", 0},
    {"string", t_string, "", 0},
    {"mapping", t_mapping, "", 0},
    {"iterable", t_iterable, "", 0},
    {"sequence", t_sequence, "", 0},
    {"number", t_number, "", 0},
    {"integer", t_integer, "", 0},
    {"float", t_float, "", 0},
    {"boolean", t_boolean, "", 0},
    {"true", t_true, "", 0},
    {"false", t_false, "", 0},
    {"callable", t_callable, "", 0},
    {"escaped", t_escaped, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"in", t_in, "seq", 1},
    {"eq", t_eq, "other", 1},
    {"equalto", t_eq, "other", 1},
    {"==", t_eq, "other", 1},
    {"ne", t_ne, "other", 1},
    {"!=", t_ne, "other", 1},
    {"lt", t_lt, "other", 1},
    {"lessthan", t_lt, "other", 1},
    {"<", t_lt, "other", 1},
    {"le", t_le, "other", 1},
    {"<=", t_le, "other", 1},
    {"gt", t_gt, "other", 1},
    {"greaterthan", t_gt, "other", 1},
    {">", t_gt, "other", 1},
    {"ge", t_ge, "other", 1},
    {">=", t_ge, "other", 1},
    {"odd", t_odd, "", 0},
    {"even", t_even, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"lower", t_lower, "", 0},
    {"upper", t_upper, "", 0},
    {"filter", t_filter, "", 0},
    {"test", t_test, "", 0},
    {.name = NULL},
};
