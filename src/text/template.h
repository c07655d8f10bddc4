/* SPDX-License-Identifier: Apache-2.0
 * template.h - the part of Jinja that chat templates use, as transformers runs it: jinja2's
 * ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, {% generation %},
 * raise_exception, strftime_now and its own tojson.
 *
 *     proa_template_new(&t, source, &err);           // once
 *     proa_template_render(t, variables, &out, &err); // by any number of threads
 *
 * Owner:   proa_template_new gives a template that proa_template_free releases.
 * Threads: a template never changes; many may render it at once.
 * Limits:  PROA_TEMPLATE_* of base/limits.h: bytes, depth, steps and memory of one rendering.
 * Errors:  INVALID "line 3: ..." with Jinja's or Python's words; raise_exception's message as it is. LIMIT. */
#ifndef PROA_TEXT_TEMPLATE_H
#define PROA_TEXT_TEMPLATE_H

#include "base/files.h"
#include "base/status.h"
#include "base/str.h"
#include "text/message.h"

typedef struct proa_template proa_template;

/* The source is not needed after the call. */
PROA_MUST_CHECK proa_status proa_template_new(proa_template **out, proa_str source, proa_err *err);
void proa_template_free(proa_template *t); /* NULL is fine */
/* Appends the text to out; on failure out is as before. variables: an object, its members are the variables. */
PROA_MUST_CHECK proa_status proa_template_render(const proa_template *t, const proa_json *variables,
                                                 proa_buf *out, proa_err *err);

/* ---- chats: the templates of a model ---- */

typedef struct proa_chat proa_chat;

/* files: those of a model, some of which may be texts that its checkpoint gives (proa_files_of for a folder).
 * choice NULL: what the folder of the model brings: chat_template.jinja (with additional_chat_templates/NAME.jinja),
 * or chat_template of tokenizer_config.json (a text, or a list of named ones), or chat_template.json; NOT_FOUND if it
 * has none. Else "chatml" or "plain" (built in: proa_chat_is_built_in), or a file. Special tokens come from the folder
 * in any case: tokenizer_config.json and special_tokens_map.json. */
PROA_MUST_CHECK proa_status proa_chat_open_files(proa_chat **out, const proa_files *files, const char *choice,
                                                 proa_err *err);
bool proa_chat_is_built_in(const char *choice); /* else it is a file */
/* The forms of tool calls and reasoning that the templates show. */
proa_message_form proa_chat_form(const proa_chat *chat);
void proa_chat_free(proa_chat *chat); /* NULL is fine */

/* Appends the prompt for a request: an object with messages and, if wanted, tools, documents, add_generation_prompt
 * (true), continue_final_message, chat_template (the name of one of the model's templates) and chat_template_kwargs
 * (more variables; its other members are variables too). These are OpenAI's messages: a content of text parts is joined
 * by line feeds, or a text becomes the one part of a list if the template reads nothing else (LLaVA); the arguments of
 * tool calls, JSON in a text, become objects. Without chat_template the template is "tool_use" if there are tools and
 * such a template, else "default". It contains the special tokens: encode it with add_special false. With
 * continue_final_message the prompt ends with the last message's text. */
PROA_MUST_CHECK proa_status proa_chat_render(const proa_chat *chat, const proa_json *request, proa_buf *out,
                                             proa_err *err);

#endif
