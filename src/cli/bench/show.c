/* SPDX-License-Identifier: Apache-2.0
 * show.c - prints the results of `proa bench` as a table, JSON, CSV or a plot. */
#include "cli/bench/bench.h"
#include "cli/bench/plot.h"
#include <string.h>

static const char *model_name(const proa_bench *b)
{
    const char *name = b->common.model;
    for (const char *c = name; *c; c++)
        if (*c == '/' && c[1]) name = c + 1;
    return name;
}

static void describe_setup(const proa_bench *b, proa_output *out)
{
    const proa_info *i = &b->session->info;
    char weights[16], read[16], kv[16];
    proa_output_printf(out, "%.200s: %s, %.1f M parameters, %s, quant %s, %s, %d thread%s\n", model_name(b),
                       i->arch, (double)i->parameters * 1e-6, i->dtype, i->quant, i->isa, i->threads,
                       i->threads == 1 ? "" : "s");
    proa_output_printf(out, "weights %s", proa_output_bytes_text(weights, (double)i->weight_bytes));
    if (!proa_bench_is_encoder(b))
        proa_output_printf(out, ", of which a decoding step reads %s; keys and values %s a token",
                           proa_output_bytes_text(read, (double)b->cost.step_bytes),
                           proa_output_bytes_text(kv, b->token_bytes));
    proa_output_printf(out, "\nplanned: %s", i->plan);
    const char *where = strcmp(b->common.device, "cpu") == 0 ? "this machine" : "the device";
    proa_output_printf(out, "\nread bandwidth of %s, measured: %.1f GB/s", where, b->bandwidth * 1e-9);
    if (b->matrix_rate > 0)
        proa_output_printf(out, "; matrix products: %.1f TFLOP/s", b->matrix_rate * 1e-12);
    proa_output_str(out, "\n");
    if (proa_bench_in_cache(b))
        proa_output_printf(
            out,
            "note: the weights fit in the last-level cache (%s), so memory is not the limit here and\n"
            "      a share says little; it may pass 100 %%\n",
            proa_output_bytes_text(weights, (double)b->cache_bytes));
    if (proa_bench_is_encoder(b)) proa_output_printf(out, "inputs of %lld tokens\n\n", (long long)b->prompt);
    else
        proa_output_printf(out, "prompts of %lld tokens, %lld decoding steps; median of %lld run%s\n\n",
                           (long long)b->prompt, (long long)b->tokens, (long long)b->repeats,
                           b->repeats == 1 ? "" : "s");
}

/* The share of the least time; empty if only reading was measured. */
static const char *share_text(char out[8], const proa_bench *b, double share)
{
    if (b->matrix_rate > 0) snprintf(out, 8, "%4.0f %%", share * 100 < 9999 ? share * 100 : 9999);
    else snprintf(out, 8, "     -");
    return out;
}

void proa_bench_show_table(const proa_bench *b, proa_output *out)
{
    describe_setup(b, out);
    if (proa_bench_is_encoder(b)) {
        proa_output_str(out, "batch  sequences/s   tokens/s   ms a batch   of peak\n");
        for (int64_t i = 0; i < b->count; i++) {
            char peak[8];
            proa_output_printf(out, "%5lld  %11.1f  %9.0f  %11.2f   %s\n", (long long)b->row[i].batch,
                               b->row[i].sequence_rate, b->row[i].prompt_rate, b->row[i].step_s * 1e3,
                               share_text(peak, b, b->row[i].ready_share));
        }
        return;
    }
    proa_output_str(out,
                    "       ------------------ decode ------------------   ---- prompt -----  first token  "
                    "all in all   between tokens, ms\n"
                    "batch  tokens/s  step ms    GB/s    share  of peak    tokens/s  of peak           ms  "
                    "  tokens/s   median      p99\n");
    for (int64_t i = 0; i < b->count; i++) {
        const proa_bench_row *r = &b->row[i];
        char peak[8], prompt[8];
        proa_output_printf(
            out, "%5lld  %8.0f  %7.2f  %6.1f  %5.0f %%   %s  %10.0f   %s  %11.1f  %10.0f  %7.2f  %7.2f\n",
            (long long)r->batch, r->decode_rate, r->step_s * 1e3, r->bytes_rate * 1e-9, r->share * 100,
            share_text(peak, b, r->step_share), r->prompt_rate, share_text(prompt, b, r->ready_share),
            r->first_s * 1e3, r->total_rate, r->between_s * 1e3, r->between_p99_s * 1e3);
    }
    if (b->knee >= 0)
        proa_output_printf(
            out, "\nadded batch stops paying at %lld: from there twice the sequences give less than 20 %% more\n",
            (long long)b->row[b->knee].batch);
    else proa_output_str(out, "\nadded batch pays up to the largest one measured\n");
}

static void put_number(proa_output *out, const char *key, double value)
{
    proa_output_printf(out, ",\"%s\":", key);
    proa_output_json_num(out, value);
}

/* Only if the rate of matrix products was measured: otherwise the shares mean nothing. */
static void json_shares(const proa_bench *b, const proa_bench_row *r, proa_output *out)
{
    if (b->matrix_rate <= 0) return;
    if (!proa_bench_is_encoder(b)) put_number(out, "step_share", r->step_share);
    put_number(out, "ready_share", r->ready_share);
}

static void json_row(const proa_bench *b, const proa_bench_row *r, proa_output *out)
{
    proa_output_printf(out, "{\"batch\":%lld", (long long)r->batch);
    if (proa_bench_is_encoder(b)) {
        put_number(out, "sequences_per_s", r->sequence_rate);
        put_number(out, "tokens_per_s", r->prompt_rate);
        put_number(out, "batch_s", r->step_s);
    } else {
        put_number(out, "decode_tokens_per_s", r->decode_rate);
        put_number(out, "step_s", r->step_s);
        put_number(out, "step_bytes", proa_bench_step_bytes(b, r->batch));
        put_number(out, "bytes_per_s", r->bytes_rate);
        put_number(out, "bandwidth_share", r->share);
        put_number(out, "prompt_tokens_per_s", r->prompt_rate);
        put_number(out, "first_token_s", r->first_s);
        put_number(out, "between_tokens_s", r->between_s);
        put_number(out, "between_tokens_p99_s", r->between_p99_s);
        put_number(out, "ready_s", r->ready_s);
        put_number(out, "all_tokens_per_s", r->total_rate);
    }
    json_shares(b, r, out);
    proa_output_str(out, "}");
}

void proa_bench_show_json(const proa_bench *b, proa_output *out)
{
    const proa_info *i = &b->session->info;
    proa_output_str(out, "{\"model\":");
    proa_output_json_str(out, proa_str_c(model_name(b)));
    proa_output_printf(out, ",\"arch\":\"%s\",\"isa\":\"%s\",\"dtype\":\"%s\",\"quant\":\"%s\",\"threads\":%d",
                       i->arch, i->isa, i->dtype, i->quant, i->threads);
    proa_output_printf(
        out, ",\"parameters\":%lld,\"weight_bytes\":%lld,\"step_weight_bytes\":%lld,\"cache_bytes\":%lld",
        (long long)i->parameters, (long long)i->weight_bytes, (long long)b->cost.step_bytes,
        (long long)b->cache_bytes);
    proa_output_printf(out, ",\"weights_in_cache\":%s", proa_bench_in_cache(b) ? "true" : "false");
    put_number(out, "kv_token_bytes", b->token_bytes);
    put_number(out, "bandwidth", b->bandwidth);
    if (b->matrix_rate > 0) put_number(out, "matrix_rate", b->matrix_rate);
    proa_output_printf(out, ",\"prompt\":%lld,\"tokens\":%lld,\"repeats\":%lld,\"batches\":[",
                       (long long)b->prompt, (long long)b->tokens, (long long)b->repeats);
    for (int64_t k = 0; k < b->count; k++) {
        if (k) proa_output_str(out, ",");
        json_row(b, &b->row[k], out);
    }
    if (b->knee >= 0)
        proa_output_printf(out, "],\"stops_paying_at\":%lld}\n", (long long)b->row[b->knee].batch);
    else proa_output_str(out, "],\"stops_paying_at\":null}\n");
}

void proa_bench_show_csv(const proa_bench *b, proa_output *out)
{
    const proa_info *i = &b->session->info;
    proa_output_str(
        out,
        "model,dtype,quant,isa,threads,bandwidth_gb_s,prompt,tokens,batch,decode_tokens_s,step_ms,gb_s,share,"
        "prompt_tokens_s,first_token_ms,between_ms,between_p99_ms,sequences_s\n");
    for (int64_t k = 0; k < b->count; k++) {
        const proa_bench_row *r = &b->row[k];
        proa_output_printf(out, "%.200s,%s,%s,%s,%d,%.2f,%lld,%lld,%lld,", model_name(b), i->dtype, i->quant,
                           i->isa, i->threads, b->bandwidth * 1e-9, (long long)b->prompt,
                           (long long)b->tokens, (long long)r->batch);
        proa_output_printf(out, "%.1f,%.3f,%.2f,%.3f,%.1f,%.2f,%.3f,%.3f,%.2f\n", r->decode_rate,
                           r->step_s * 1e3, r->bytes_rate * 1e-9, r->share, r->prompt_rate, r->first_s * 1e3,
                           r->between_s * 1e3, r->between_p99_s * 1e3, r->sequence_rate);
    }
}

/* From the first to the last batch in small steps, so that the limit is drawn as a curve. */
static void ceiling_line(const proa_bench *b, proa_plot_line *line)
{
    double batch = (double)b->row[0].batch, last = (double)b->row[b->count - 1].batch;
    for (int i = 0; i < PROA_PLOT_POINTS_MAX && batch <= last; i++) {
        double bytes = (double)b->cost.step_bytes +
                       batch * ((double)b->prompt + (double)b->tokens / 2) * b->token_bytes;
        line->x[i] = batch;
        line->y[i] = batch * b->bandwidth / bytes;
        line->count = i + 1;
        if (batch >= last) break;
        batch = batch * 1.25 < last ? batch * 1.25 : last;
    }
}

void proa_bench_show_plot(const proa_bench *b, proa_output *out)
{
    const proa_info *i = &b->session->info;
    bool encoder = proa_bench_is_encoder(b);
    char title[160], subtitle[200], mark[64];
    proa_plot p = {.title = title,
                   .subtitle = subtitle,
                   .x_label = encoder ? "sequences in the batch" : "sequences decoding together",
                   .y_label = encoder ? "sequences a second" : "tokens a second",
                   .log_x = true,
                   .log_y = true,
                   .ticks_at_points = true,
                   .lines = encoder ? 1 : 2};
    snprintf(title, sizeof title, "%.60s: %s by batch", model_name(b), encoder ? "encoding" : "decoding");
    snprintf(subtitle, sizeof subtitle, "%.1f M parameters, %s, quant %s; %d threads, %s; memory reads %.1f GB/s",
             (double)i->parameters * 1e-6, i->dtype, i->quant, i->threads, i->isa, b->bandwidth * 1e-9);
    p.line[0].name = "measured";
    for (int64_t k = 0; k < b->count; k++) {
        p.line[0].x[k] = (double)b->row[k].batch;
        p.line[0].y[k] = encoder ? b->row[k].sequence_rate : b->row[k].decode_rate;
        p.line[0].count++;
    }
    p.line[1] = (proa_plot_line){.name = proa_bench_in_cache(b)
                                             ? "what the read bandwidth allows (but the weights fit in cache)"
                                             : "what the read bandwidth allows",
                                 .ceiling = true};
    if (!encoder) ceiling_line(b, &p.line[1]);
    if (b->knee >= 0) {
        snprintf(mark, sizeof mark, "added batch stops paying at %lld", (long long)b->row[b->knee].batch);
        p.mark = mark;
        p.mark_x = p.line[0].x[b->knee];
        p.mark_y = p.line[0].y[b->knee];
    }
    proa_plot_write(&p, out);
}
