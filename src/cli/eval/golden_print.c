/* SPDX-License-Identifier: Apache-2.0
 * golden_print.c - judges and prints a comparison with reference outputs. */
#include "cli/eval/golden.h"

#include <math.h>

static double relative_error(const proa_golden_case *c)
{
    if (c->diff == 0) return 0;
    return c->largest > 0 ? c->diff / c->largest : (double)INFINITY;
}

static bool case_passes(const proa_golden_case *c, double tolerance)
{
    return !c->prompt_differs && !c->text_differs && (!c->has_rows || relative_error(c) <= tolerance) &&
           c->greedy_same == c->greedy_count && c->beams_same == c->beams && c->score_diff <= tolerance &&
           c->logprob_diff <= tolerance * fmax(c->largest, 1);
}

static bool nll_passes(const proa_golden_nll_item *n, double tolerance)
{
    return !n->tokens_differ && fabs(n->want - n->got) <= tolerance;
}

static void text_of(char text[16], bool has, double value)
{
    if (has) snprintf(text, 16, "%.1e", value);
    else snprintf(text, 16, "-");
}

static void counts_of(char text[24], int64_t same, int64_t count)
{
    if (count) snprintf(text, 24, "%lld/%lld", (long long)same, (long long)count);
    else snprintf(text, 24, "-");
}

static void print_case(const proa_golden_case *c, int64_t i, double tolerance, proa_output *out)
{
    char diff[16], logprob[16], score[16], greedy[24], beams[24];
    text_of(diff, c->has_rows, relative_error(c));
    text_of(logprob, c->has_logprobs, c->logprob_diff);
    text_of(score, c->has_scores, c->score_diff);
    counts_of(greedy, c->greedy_same, c->greedy_count);
    counts_of(beams, c->beams_same, c->beams);
    proa_output_printf(out, "%4lld  %6lld  %9s  %8s  %9s  %7s  %9s  %s\n", (long long)i, (long long)c->ids_count,
                       diff, greedy, logprob, beams, score, case_passes(c, tolerance) ? "pass" : "FAIL");
}

static void print_notes(const proa_golden_case *c, int64_t i, proa_output *out)
{
    if (c->prompt_differs)
        proa_output_printf(out, "case %lld: the tokenizer gives other ids for the prompt\n", (long long)i);
    if (c->text_differs)
        proa_output_printf(out, "case %lld: the same tokens give another text\n", (long long)i);
    if (c->greedy_same < c->greedy_count)
        proa_output_printf(
            out, "case %lld: greedy token %lld is %d, expected %d; the two best logits there are %.2g apart\n",
            (long long)i, (long long)c->greedy_same, c->greedy_got, c->greedy_want, c->gap);
}

static void print_nll(const proa_golden *g, double tolerance, proa_output *out)
{
    if (g->nll_skipped)
        proa_output_printf(out, "\n%lld likelihoods were not compared: give their text with --data FILE\n",
                           (long long)g->nll_skipped);
    if (g->nll_count)
        proa_output_str(out, "\n doc  tokens  mean NLL  expected  difference  largest single\n");
    for (int64_t i = 0; i < g->nll_count; i++) {
        const proa_golden_nll_item *n = &g->nll[i];
        proa_output_printf(out, "%4lld  %6lld  %8.5f  %8.5f  %10.1e  %14.1e  %s\n", (long long)n->doc,
                           (long long)n->tokens, n->got, n->want, fabs(n->got - n->want), n->first_diff,
                           n->tokens_differ           ? "FAIL (other tokens)"
                           : nll_passes(n, tolerance) ? "pass"
                                                      : "FAIL");
    }
}

/* The largest difference of each kind over all cases; below 0: none of that kind was compared. */
typedef struct worst {
    double rows, logprobs, scores, nll;
} worst;

static void raise_maximum(double *most, bool has, double value)
{
    if (has && value > *most) *most = value;
}

static worst find_worst(const proa_golden *g)
{
    worst w = {-1, -1, -1, -1};
    for (int64_t i = 0; i < g->count; i++) {
        const proa_golden_case *c = &g->cases[i];
        raise_maximum(&w.rows, c->has_rows, relative_error(c));
        raise_maximum(&w.logprobs, c->has_logprobs, c->logprob_diff);
        raise_maximum(&w.scores, c->has_scores, c->score_diff);
    }
    for (int64_t i = 0; i < g->nll_count; i++)
        raise_maximum(&w.nll, true, fabs(g->nll[i].want - g->nll[i].got));
    return w;
}

static void print_worst(const char *what, double value, proa_output *out)
{
    if (value >= 0) proa_output_printf(out, " %s %.1e", what, value);
}

static void print_table(const proa_golden *g, int64_t failed, const worst *w, proa_output *out)
{
    double tolerance = g->eval->tolerance;
    proa_output_str(out, "case  prompt   outputs*    greedy  logprobs    beams     scores\n");
    for (int64_t i = 0; i < g->count; i++) print_case(&g->cases[i], i, tolerance, out);
    for (int64_t i = 0; i < g->count; i++) print_notes(&g->cases[i], i, out);
    print_nll(g, tolerance, out);
    proa_output_printf(out, "\n%s  %lld of %lld cases within %g; largest differences:", failed ? "FAIL" : "PASS",
                       (long long)(g->count + g->nll_count - failed), (long long)(g->count + g->nll_count),
                       tolerance);
    print_worst("outputs*", w->rows, out);
    print_worst("log-probabilities", w->logprobs, out);
    print_worst("scores", w->scores, out);
    print_worst("mean NLL", w->nll, out);
    proa_output_str(out, "\n");
    if (w->rows >= 0) proa_output_str(out, "* over the reference's largest absolute value\n");
}

static void json_num(proa_output *out, const char *key, bool has, double value)
{
    proa_output_printf(out, ",\"%s\":", key);
    if (has) proa_output_json_num(out, value);
    else proa_output_str(out, "null");
}

static void json_case(const proa_golden_case *c, double tolerance, proa_output *out)
{
    bool parted = c->greedy_same < c->greedy_count;
    proa_output_printf(out, "{\"passed\":%s,\"prompt_tokens\":%lld",
                       case_passes(c, tolerance) ? "true" : "false", (long long)c->ids_count);
    json_num(out, "difference", c->has_rows, relative_error(c));
    json_num(out, "largest", c->has_rows, c->largest);
    proa_output_printf(out, ",\"greedy\":%lld,\"greedy_same\":%lld", (long long)c->greedy_count,
                       (long long)c->greedy_same);
    json_num(out, "gap", parted, c->gap);
    json_num(out, "logprob_difference", c->has_logprobs, c->logprob_diff);
    proa_output_printf(out, ",\"beams\":%lld,\"beams_same\":%lld", (long long)c->beams, (long long)c->beams_same);
    json_num(out, "score_difference", c->has_scores, c->score_diff);
    proa_output_printf(out, ",\"prompt_same\":%s,\"text_same\":%s}", c->prompt_differs ? "false" : "true",
                       c->text_differs ? "false" : "true");
}

static void print_json(const proa_golden *g, int64_t failed, const worst *w, proa_output *out)
{
    double tolerance = g->eval->tolerance;
    proa_output_printf(out, "{\"passed\":%s,\"tolerance\":%g", failed ? "false" : "true", tolerance);
    json_num(out, "difference", w->rows >= 0, w->rows);
    json_num(out, "score_difference", w->scores >= 0, w->scores);
    json_num(out, "nll_difference", w->nll >= 0, w->nll);
    proa_output_str(out, ",\"cases\":[");
    for (int64_t i = 0; i < g->count; i++) {
        if (i) proa_output_str(out, ",");
        json_case(&g->cases[i], tolerance, out);
    }
    proa_output_printf(out, "],\"nll_skipped\":%lld,\"nll\":[", (long long)g->nll_skipped);
    for (int64_t i = 0; i < g->nll_count; i++) {
        const proa_golden_nll_item *n = &g->nll[i];
        proa_output_printf(out, "%s{\"doc\":%lld,\"tokens\":%lld,\"mean\":", i ? "," : "", (long long)n->doc,
                           (long long)n->tokens);
        proa_output_json_num(out, n->got);
        json_num(out, "expected", true, n->want);
        json_num(out, "largest_single_difference", true, n->first_diff);
        proa_output_printf(out, ",\"passed\":%s}", nll_passes(n, tolerance) ? "true" : "false");
    }
    proa_output_str(out, "]}\n");
}

bool proa_golden_print(const proa_golden *g, proa_output *out)
{
    int64_t failed = 0;
    worst w = find_worst(g);
    for (int64_t i = 0; i < g->count; i++) failed += !case_passes(&g->cases[i], g->eval->tolerance);
    for (int64_t i = 0; i < g->nll_count; i++) failed += !nll_passes(&g->nll[i], g->eval->tolerance);
    if (g->eval->common.json) print_json(g, failed, &w, out);
    else print_table(g, failed, &w, out);
    return failed == 0;
}
