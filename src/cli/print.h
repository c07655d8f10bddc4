/* SPDX-License-Identifier: Apache-2.0
 * print.h - a result as JSON, as a table, as one line.
 * The JSON keys are a contract (DESIGN: "The command line"); keys may be added, none may change.
 * Way in:  proa_print_generated_json for tokens, proa_print_rows_json for logits, scores and hidden states. */
#ifndef PROA_CLI_PRINT_H
#define PROA_CLI_PRINT_H

#include "cli/output.h"
#include "cli/result.h"

/* Which members of a result to print. */
typedef struct proa_show {
    bool logprobs, prompt_logprobs, logits, hidden;
    int32_t top;      /* most likely tokens beside each */
    bool sequences;   /* n or best_of */
    int32_t first_id; /* first token of a scored text, which has no log-probability */
} proa_show;

/* The members of {"ids":[...],...} without the braces, so that a caller can put its own before them. */
void proa_print_generated_json(proa_output *out, const proa_result *r, const proa_show *show);
/* A scored text: {"ids":[...],"logprobs":[null,...],"sum","mean","perplexity","tokens"} without braces; as a table; as
 * "sum mean perplexity tokens" with tabs between. Its first token has no log-probability and does not count. */
void proa_print_score_json(proa_output *out, const proa_result *r, const proa_show *show);
void proa_print_score(proa_output *out, const proa_result *r);
void proa_print_score_line(proa_output *out, const proa_result *r);
/* {"logits":[[...]]}, or {"hidden":[[...]],"pooled":[...]|null} for an encoder without a head: members
 * without braces. */
void proa_print_rows_json(proa_output *out, const proa_result *r, const proa_info *info);
/* Whether the rows of this model are hidden states: it is an encoder without a head. */
bool proa_print_is_hidden(const proa_info *info);

/* Readable form: the five largest values of each row with their tokens; input: the ids of the rows, or
 * NULL. */
void proa_print_top(proa_output *out, const proa_engine *engine, const proa_result *r, const int32_t *input,
                    int64_t input_count);
/* Scores of a classification or regression head: "label  score" lines with the folder's label names; hidden states:
 * a line each with its length and first values. */
void proa_print_scores(proa_output *out, const proa_result *r, const char *model);
void proa_print_hidden(proa_output *out, const proa_result *r);
/* "24 tokens, 812 tokens/s (first after 38 ms) · prompt 9 tokens" on standard error. */
void proa_print_summary(const proa_result *r);

/* The text of one id, or "" if there is no tokenizer; text[64], cut to fit. */
void proa_print_piece(char text[64], const proa_engine *engine, int32_t id);

#endif
