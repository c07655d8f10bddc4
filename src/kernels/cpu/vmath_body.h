/* SPDX-License-Identifier: Apache-2.0
 * vmath_body.h - exp, tanh, softplus, erf and the activations on a vector of f32; vmath_avx2.h and vmath_avx512.h
 * give it the width. Both widths give the same bits. Largest errors over the whole range: exp 1.02 ulp, tanh 2.47;
 * the activations 1.5e-7 * max(1, |x|). NaN gives NaN, infinities give limits, denormal results are kept.
 *
 * Needs:  V, VI (vector types), OP(name) (_mm512_##name), NAME(name), and LESS_ELSE(a, b, x, y): a < b ? x : y. */

#define SET(value) OP(set1_ps)(value)

/* p * 2^n for whole n in [-300, 300], in two steps so that overflow and denormals come out right. */
static inline V NAME(proa_scale_)(V p, V n)
{
    VI whole = OP(cvtps_epi32)(n);
    VI half = OP(srai_epi32)(whole, 1), rest = OP(sub_epi32)(whole, half);
    VI bias = OP(set1_epi32)(127);
    p = OP(mul_ps)(p, TO_V(OP(slli_epi32)(OP(add_epi32)(half, bias), 23)));
    return OP(mul_ps)(p, TO_V(OP(slli_epi32)(OP(add_epi32)(rest, bias), 23)));
}

/* x = n ln 2 + r with |r| <= ln 2 / 2 (Cody, Waite 1980: ln 2 in two parts). Returns n. */
static inline V NAME(proa_reduce_)(V x, V *r)
{
    V n = ROUND(OP(mul_ps)(x, SET(0x1.715476p+0f)));
    *r = OP(fnmadd_ps)(n, SET(0x1.62e400p-1f), x);
    *r = OP(fnmadd_ps)(n, SET(0x1.7f7d1cp-20f), *r);
    return n;
}

/* exp(r) - 1 for |r| <= ln 2 / 2: Taylor up to r^7, the rest is below 6e-9. */
static inline V NAME(proa_expm1_small_)(V r)
{
    V p = SET(1.0f / 5040);
    p = OP(fmadd_ps)(p, r, SET(1.0f / 720));
    p = OP(fmadd_ps)(p, r, SET(1.0f / 120));
    p = OP(fmadd_ps)(p, r, SET(1.0f / 24));
    p = OP(fmadd_ps)(p, r, SET(1.0f / 6));
    p = OP(fmadd_ps)(p, r, SET(0.5f));
    return OP(fmadd_ps)(OP(mul_ps)(p, r), r, r);
}

static inline V NAME(proa_exp_ps)(V x)
{
    /* min and max return their second operand when one is NaN: so NaN passes. */
    V r, n = NAME(proa_reduce_)(OP(max_ps)(SET(-104.0f), OP(min_ps)(SET(89.0f), x)), &r);
    return NAME(proa_scale_)(OP(add_ps)(NAME(proa_expm1_small_)(r), SET(1.0f)), n);
}

static inline V NAME(proa_abs_)(V x)
{
    return OP(andnot_ps)(SET(-0.0f), x);
}

/* magnitude (not negative) with the sign of x. */
static inline V NAME(proa_signed_)(V magnitude, V x)
{
    return OP(or_ps)(magnitude, OP(and_ps)(SET(-0.0f), x));
}

/* tanh |x| = -e / (e + 2) with e = expm1(-2 |x|), which keeps its relative accuracy near 0. */
static inline V NAME(proa_tanh_ps)(V x)
{
    V a = OP(min_ps)(SET(10.0f), NAME(proa_abs_)(x)); /* tanh(10) rounds to 1 */
    V r, n = NAME(proa_reduce_)(OP(mul_ps)(a, SET(-2.0f)), &r);
    V two_n = NAME(proa_scale_)(SET(1.0f), n);
    V e = OP(fmadd_ps)(two_n, NAME(proa_expm1_small_)(r), OP(sub_ps)(two_n, SET(1.0f)));
    V t = OP(div_ps)(OP(sub_ps)(SET(0.0f), e), OP(add_ps)(e, SET(2.0f)));
    return NAME(proa_signed_)(t, x);
}

/* log(1 + exp x) = max(x, 0) + log1p(e), e = exp -|x|; log1p(e) = 2 artanh(z), z = e / (2 + e) in [0, 1/3]: its series
 * up to z^13, the rest is below 2e-8 of it. */
static inline V NAME(proa_soft_plus_ps)(V x)
{
    V e = NAME(proa_exp_ps)(OP(sub_ps)(SET(0.0f), NAME(proa_abs_)(x)));
    V z = OP(div_ps)(e, OP(add_ps)(e, SET(2.0f))), zz = OP(mul_ps)(z, z);
    V p = SET(2.0f / 13);
    p = OP(fmadd_ps)(p, zz, SET(2.0f / 11));
    p = OP(fmadd_ps)(p, zz, SET(2.0f / 9));
    p = OP(fmadd_ps)(p, zz, SET(2.0f / 7));
    p = OP(fmadd_ps)(p, zz, SET(2.0f / 5));
    p = OP(fmadd_ps)(p, zz, SET(2.0f / 3));
    p = OP(fmadd_ps)(OP(mul_ps)(p, zz), z, OP(add_ps)(z, z));
    return OP(add_ps)(OP(max_ps)(SET(0.0f), x), p); /* NaN passes */
}

/* x / (1 + exp(-s x)) = x sigmoid(s x) */
static inline V NAME(proa_swish_)(V x, float s)
{
    V e = NAME(proa_exp_ps)(OP(mul_ps)(x, SET(-s)));
    return OP(div_ps)(x, OP(add_ps)(SET(1.0f), e));
}

/* 0.5 x (1 + erf(x / sqrt 2)) = x N(x), with the normal distribution's tail 2 N(-|x|) = 2^-T(|x|): no branch at 1 as
 * erf needs, since only the sum's error counts. T on [0, 4 sqrt 2] and 2^r on [-1/2, 1/2] are minimax fits by
 * reweighted least squares; together they are off by 1.5e-8, the tail beyond by 3e-8 |x|. */
static inline V NAME(proa_gelu_ps)(V x)
{
    V a = NAME(proa_abs_)(x);
    V t = SET(2.05025663e-06f);
    t = OP(fmadd_ps)(t, a, SET(-3.00662832e-05f));
    t = OP(fmadd_ps)(t, a, SET(0.000142456629f));
    t = OP(fmadd_ps)(t, a, SET(0.000240915688f));
    t = OP(fmadd_ps)(t, a, SET(-0.00719628762f));
    t = OP(fmadd_ps)(t, a, SET(0.0525850095f));
    t = OP(fmadd_ps)(t, a, SET(0.459180683f));
    t = OP(fmadd_ps)(t, a, SET(1.15110803f));
    V n = ROUND(OP(mul_ps)(t, a)), r = OP(fnmadd_ps)(t, a, n);
    V p = SET(0.00015353362f);
    p = OP(fmadd_ps)(p, r, SET(0.0013398875f));
    p = OP(fmadd_ps)(p, r, SET(0.00961843692f));
    p = OP(fmadd_ps)(p, r, SET(0.0555033237f));
    p = OP(fmadd_ps)(p, r, SET(0.240226477f));
    p = OP(fmadd_ps)(p, r, SET(0.693147182f));
    p = OP(fmadd_ps)(p, r, SET(1.0f));
    VI power = OP(sub_epi32)(OP(set1_epi32)(127), OP(cvtps_epi32)(n));
    V tail = OP(mul_ps)(p, TO_V(OP(slli_epi32)(power, 23)));
    tail = LESS_ELSE(a, SET(5.65685425f), tail, SET(0.0f)); /* beyond, and where x is no number, it is not one either */
    return OP(mul_ps)(OP(mul_ps)(SET(0.5f), x), LESS_ELSE(x, SET(0.0f), tail, OP(sub_ps)(SET(2.0f), tail)));
}

/* 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)): no cancellation for negative x. */
static inline V NAME(proa_gelu_tanh_ps)(V x)
{
    V cubic = OP(mul_ps)(OP(mul_ps)(x, x), SET(0.044715f));
    V u = OP(mul_ps)(OP(fmadd_ps)(cubic, x, x), SET(-2.0f * 0.7978845608f));
    return OP(div_ps)(x, OP(add_ps)(SET(1.0f), NAME(proa_exp_ps)(u)));
}

/* act(x), formulas in PROA_ACT_LIST. */
static inline V NAME(proa_act_ps)(proa_act act, V x)
{
    switch (act) {
    case PROA_ACT_RELU: return LESS_ELSE(x, SET(0.0f), SET(0.0f), x);
    case PROA_ACT_GELU: return NAME(proa_gelu_ps)(x);
    case PROA_ACT_GELU_TANH: return NAME(proa_gelu_tanh_ps)(x);
    case PROA_ACT_QUICK_GELU: return NAME(proa_swish_)(x, 1.702f);
    case PROA_ACT_SILU: return NAME(proa_swish_)(x, 1.0f);
    case PROA_ACT_TANH: return NAME(proa_tanh_ps)(x);
    case PROA_ACT_RELU2: x = LESS_ELSE(x, SET(0.0f), SET(0.0f), x); return OP(mul_ps)(x, x);
    case PROA_ACT_NONE:
    case PROA_ACT_COUNT: break;
    }
    return x;
}

#undef SET
#undef V
#undef VI
#undef OP
#undef NAME
#undef TO_V
#undef ROUND
#undef LESS_ELSE
