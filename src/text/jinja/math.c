/* SPDX-License-Identifier: Apache-2.0
 * math.c - arithmetic as Python has it, with integers of 64 bits: what needs more is refused. */
#include "text/jinja/run.h"

#include "base/limits.h"
#include <math.h>
#include <string.h>

static const char *op_text(int op)
{
    switch (op) {
    case PROA_T_ADD: return "+";
    case PROA_T_SUB: return "-";
    case PROA_T_MUL: return "*";
    case PROA_T_DIV: return "/";
    case PROA_T_FLOORDIV: return "//";
    case PROA_T_MOD: return "%";
    default: return "** or pow()";
    }
}

static proa_jval refuse_operands(proa_jrun *run, int op, proa_jval a, proa_jval b)
{
    if (proa_j_fail_undefined(run, a) || proa_j_fail_undefined(run, b)) return proa_j_none();
    if (op == PROA_T_ADD && a.kind == PROA_J_STRING)
        proa_j_fail(run, PROA_INVALID, "can only concatenate str (not \"%s\") to str", proa_j_type_name(b));
    else
        proa_j_fail(run, PROA_INVALID, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
                    proa_j_type_name(a), proa_j_type_name(b));
    return proa_j_none();
}

static proa_jval by_zero(proa_jrun *run)
{
    proa_j_fail(run, PROA_INVALID, "division by zero");
    return proa_j_none();
}

static proa_jval float_math(proa_jrun *run, int op, double a, double b)
{
    double rest;
    switch (op) {
    case PROA_T_ADD: return proa_j_float(a + b);
    case PROA_T_SUB: return proa_j_float(a - b);
    case PROA_T_MUL: return proa_j_float(a * b);
    case PROA_T_POW: return proa_j_float(pow(a, b));
    default: break;
    }
    if (b >= 0 && b <= 0) return by_zero(run);
    if (op == PROA_T_DIV) return proa_j_float(a / b);
    rest = fmod(a, b); /* Python's has the sign of the divisor */
    if ((rest < 0 && b > 0) || (rest > 0 && b < 0)) rest += b;
    return proa_j_float(op == PROA_T_MOD ? rest : floor((a - rest) / b + 0.5));
}

static proa_jval int_power(proa_jrun *run, int64_t a, int64_t b)
{
    int64_t result = 1;
    if (b < 0 && a == 0) return by_zero(run);
    if (b < 0) return proa_j_float(pow((double)a, (double)b));
    if (b > 64 && (a > 1 || a < -1)) b = 64; /* too much in any case */
    if (a >= -1 && a <= 1) b = b > 2 ? 2 + b % 2 : b;
    for (; b > 0; b--)
        if (__builtin_mul_overflow(result, a, &result)) {
            proa_j_fail(run, PROA_INVALID, "an integer beyond 64 bits");
            break;
        }
    return proa_j_int(result);
}

static proa_jval int_divide(proa_jrun *run, int op, int64_t a, int64_t b)
{
    if (b == 0) return by_zero(run);
    if (op == PROA_T_DIV) return proa_j_float((double)a / (double)b);
    if (b == -1) return op == PROA_T_MOD ? proa_j_int(0) : proa_j_negate(run, proa_j_int(a), true);
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) { /* Python rounds down */
        quotient--;
        rest += b;
    }
    return proa_j_int(op == PROA_T_MOD ? rest : quotient);
}

static proa_jval int_math(proa_jrun *run, int op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool over;
    switch (op) {
    case PROA_T_ADD: over = __builtin_add_overflow(a, b, &result); break;
    case PROA_T_SUB: over = __builtin_sub_overflow(a, b, &result); break;
    case PROA_T_MUL: over = __builtin_mul_overflow(a, b, &result); break;
    case PROA_T_POW: return int_power(run, a, b);
    default: return int_divide(run, op, a, b);
    }
    if (over) proa_j_fail(run, PROA_INVALID, "an integer beyond 64 bits");
    return proa_j_int(result);
}

static proa_jval join_text(proa_jrun *run, proa_jval a, proa_jval b)
{
    if (a.flag != b.flag) { /* HTML and plain text: the plain one is escaped */
        if (a.flag) b = proa_j_escape(run, b);
        else a = proa_j_escape(run, a);
    }
    char *text = proa_j_alloc(run, (size_t)a.len + b.len + 1);
    if (!text) return proa_j_none();
    memcpy(text, a.s, a.len);
    memcpy(text + a.len, b.s, b.len);
    proa_jval v = proa_j_view((proa_str){text, (size_t)a.len + b.len});
    v.flag = a.flag;
    return v;
}

static proa_jval join_seq(proa_jrun *run, proa_jval a, proa_jval b)
{
    proa_jval v = proa_j_list(run, a.kind, a.seq->len + b.seq->len);
    if (!proa_j_charge(run, (a.seq->len + b.seq->len) / 16)) return v;
    for (int64_t i = 0; i < a.seq->len; i++) proa_j_push(run, v, a.seq->items[i]);
    for (int64_t i = 0; i < b.seq->len; i++) proa_j_push(run, v, b.seq->items[i]);
    return v;
}

static proa_jval repeat_text(proa_jrun *run, proa_jval text, int64_t times)
{
    if (times <= 0 || text.len == 0) return proa_j_view((proa_str){"", 0});
    if (times > PROA_TEMPLATE_MEMORY_MAX / (int64_t)text.len)
        times = PROA_TEMPLATE_MEMORY_MAX / (int64_t)text.len + 1;
    char *bytes = proa_j_alloc(run, (size_t)times * text.len + 1);
    if (!bytes) return proa_j_none();
    for (int64_t i = 0; i < times; i++) memcpy(bytes + i * (int64_t)text.len, text.s, text.len);
    proa_jval v = proa_j_view((proa_str){bytes, (size_t)times * text.len});
    v.flag = text.flag;
    return v;
}

static proa_jval repeat_seq(proa_jrun *run, proa_jval seq, int64_t times)
{
    proa_jval v = proa_j_list(run, seq.kind, 0);
    if (seq.seq->len == 0) return v;
    for (int64_t i = 0; i < times && !run->failed; i++)
        for (int64_t k = 0; k < seq.seq->len && proa_j_charge(run, 1); k++)
            proa_j_push(run, v, seq.seq->items[k]);
    return v;
}

static proa_jval repeat_value(proa_jrun *run, proa_jval v, proa_jval times)
{
    if (v.kind == PROA_J_STRING) return repeat_text(run, v, proa_j_whole(times));
    return repeat_seq(run, v, proa_j_whole(times));
}

static bool is_repeatable(proa_jval v)
{
    return v.kind == PROA_J_STRING || v.kind == PROA_J_LIST || v.kind == PROA_J_TUPLE;
}

/* What + and * do with texts and lists; false if that is not it. */
static bool seq_math(proa_jrun *run, int op, proa_jval a, proa_jval b, proa_jval *result)
{
    bool text = a.kind == PROA_J_STRING;
    if (op == PROA_T_ADD && a.kind == b.kind && is_repeatable(a))
        *result = text ? join_text(run, a, b) : join_seq(run, a, b);
    else if (op == PROA_T_MUL && is_repeatable(a) && proa_j_is_whole(b)) *result = repeat_value(run, a, b);
    else if (op == PROA_T_MUL && is_repeatable(b) && proa_j_is_whole(a)) *result = repeat_value(run, b, a);
    else if (op == PROA_T_MOD && text) *result = proa_j_percent(run, proa_j_text(a), b);
    else return false;
    return true;
}

proa_jval proa_j_math(proa_jrun *run, int op, proa_jval a, proa_jval b)
{
    proa_jval result;
    if (proa_j_is_whole(a) && proa_j_is_whole(b)) return int_math(run, op, proa_j_whole(a), proa_j_whole(b));
    if (proa_j_is_number(a) && proa_j_is_number(b))
        return float_math(run, op, proa_j_number(a), proa_j_number(b));
    return seq_math(run, op, a, b, &result) ? result : refuse_operands(run, op, a, b);
}

proa_jval proa_j_negate(proa_jrun *run, proa_jval v, bool minus)
{
    if (v.kind == PROA_J_FLOAT) return proa_j_float(minus ? -v.f : v.f);
    if (proa_j_is_whole(v) && proa_j_whole(v) > INT64_MIN)
        return proa_j_int(minus ? -proa_j_whole(v) : proa_j_whole(v));
    if (!proa_j_fail_undefined(run, v))
        proa_j_fail(run, PROA_INVALID, "bad operand type for unary %s: '%s'", minus ? "-" : "+",
                    proa_j_type_name(v));
    return proa_j_none();
}
