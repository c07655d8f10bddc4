/* SPDX-License-Identifier: Apache-2.0
 * forms.c - the forms by name, by the source of a chat template, and by the end of a prompt; the text that begins a
 * call. */
#include "text/message/parser.h"

#include <string.h>

/* ---- names ---- */

typedef struct named_form {
    const char *name;
    int form;
} named_form;

static const named_form tool_forms[] = {{"none", PROA_TOOL_FORM_NONE},
                                        {"hermes", PROA_TOOL_FORM_HERMES},
                                        {"llama3_json", PROA_TOOL_FORM_LLAMA3},
                                        {"llama3", PROA_TOOL_FORM_LLAMA3},
                                        {"mistral", PROA_TOOL_FORM_MISTRAL},
                                        {"qwen3_coder", PROA_TOOL_FORM_QWEN3_CODER},
                                        {"qwen3_xml", PROA_TOOL_FORM_QWEN3_CODER},
                                        {"openai", PROA_TOOL_FORM_HARMONY},
                                        {"harmony", PROA_TOOL_FORM_HARMONY}};
static const named_form reasoning_forms[] = {
    {"none", PROA_REASONING_NONE},       {"deepseek_r1", PROA_REASONING_THINK_FIRST},
    {"qwen3", PROA_REASONING_THINK},     {"think", PROA_REASONING_THINK},
    {"mistral", PROA_REASONING_MISTRAL}, {"openai_gptoss", PROA_REASONING_HARMONY},
    {"harmony", PROA_REASONING_HARMONY}};

const char proa_tool_form_names[] = "hermes, llama3_json, mistral, qwen3_coder, openai or none",
           proa_reasoning_form_names[] = "deepseek_r1, qwen3, mistral, openai_gptoss or none";

static const named_form *find_form(const named_form *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

bool proa_tool_form_find(proa_tool_form *out, const char *name)
{
    const named_form *form = find_form(tool_forms, PROA_COUNT(tool_forms), name);
    if (form) *out = (proa_tool_form)form->form;
    return form != NULL;
}

bool proa_reasoning_form_find(proa_reasoning_form *out, const char *name)
{
    const named_form *form = find_form(reasoning_forms, PROA_COUNT(reasoning_forms), name);
    if (form) *out = (proa_reasoning_form)form->form;
    return form != NULL;
}

/* ---- chat templates ---- */

static bool has_text(proa_str source, const char *text)
{
    return source.len > 0 && memmem(source.ptr, source.len, text, strlen(text)) != NULL;
}

static proa_tool_form tools_of(proa_str source)
{
    if (has_text(source, "<|channel|>") && has_text(source, "<|message|>")) return PROA_TOOL_FORM_HARMONY;
    if (has_text(source, "[TOOL_CALLS]")) return PROA_TOOL_FORM_MISTRAL;
    if (has_text(source, "<function=") && has_text(source, "<parameter=")) return PROA_TOOL_FORM_QWEN3_CODER;
    if (has_text(source, "<tool_call>") && !has_text(source, "<arg_key>"))
        return PROA_TOOL_FORM_HERMES; /* GLM has the tags too */
    bool llama = has_text(source, "<|start_header_id|>") && has_text(source, "tools");
    return llama || has_text(source, "<|python_tag|>") ? PROA_TOOL_FORM_LLAMA3 : PROA_TOOL_FORM_NONE;
}

static proa_reasoning_form reasoning_of(proa_str source)
{
    if (has_text(source, "<|channel|>") && has_text(source, "<|message|>")) return PROA_REASONING_HARMONY;
    if (has_text(source, "[THINK]")) return PROA_REASONING_MISTRAL;
    return has_text(source, "</think>") ? PROA_REASONING_THINK : PROA_REASONING_NONE;
}

void proa_message_form_detect(proa_message_form *form, proa_str template_source)
{
    if (form->tools == PROA_TOOL_FORM_NONE) form->tools = tools_of(template_source);
    if (form->reasoning == PROA_REASONING_NONE) form->reasoning = reasoning_of(template_source);
    if (has_text(template_source, "[ARGS]")) form->named_arguments = true;
}

/* ---- markers ---- */

static int add_markers(const char *const *from, const char **out, int count, int cap)
{
    for (; *from; from++, count++)
        if (count < cap) out[count] = *from;
    return count;
}

int proa_message_markers(const proa_message_form *form, const char **out, int cap)
{
    static const char *const of_tools[][4] = {[PROA_TOOL_FORM_HERMES] = {"<tool_call>", "</tool_call>"},
                                              [PROA_TOOL_FORM_LLAMA3] = {"<|python_tag|>"},
                                              [PROA_TOOL_FORM_MISTRAL] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
                                              [PROA_TOOL_FORM_QWEN3_CODER] = {"<tool_call>", "</tool_call>"},
                                              [PROA_TOOL_FORM_HARMONY] = {NULL}};
    static const char *const of_reasoning[][4] = {[PROA_REASONING_THINK] = {"<think>", "</think>"},
                                                  [PROA_REASONING_THINK_FIRST] = {"<think>", "</think>"},
                                                  [PROA_REASONING_MISTRAL] = {"[THINK]", "[/THINK]"},
                                                  [PROA_REASONING_HARMONY] = {NULL}};
    static const char *const harmony[] = {"<|start|>", "<|channel|>", "<|message|>",   "<|end|>",
                                          "<|call|>",  "<|return|>",  "<|constrain|>", NULL};
    bool channels = form->tools == PROA_TOOL_FORM_HARMONY || form->reasoning == PROA_REASONING_HARMONY;
    int count = channels ? add_markers(harmony, out, 0, cap) : 0;
    count = add_markers(of_tools[form->tools], out, count, cap);
    return add_markers(of_reasoning[form->reasoning], out, count, cap);
}

/* ---- prompts ---- */

/* Where the last `text` ends in the prompt; 0: it is not there. */
static size_t end_of_last(proa_str prompt, const char *text)
{
    size_t len = strlen(text);
    for (size_t at = prompt.len; at >= len; at--)
        if (memcmp(prompt.ptr + at - len, text, len) == 0) return at;
    return 0;
}

static bool is_blank(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr(" \t\r\n", s.ptr[i])) return false;
    return true;
}

static bool ends_with(proa_str prompt, const char *text)
{
    size_t end = end_of_last(prompt, text);
    return end > 0 && is_blank((proa_str){prompt.ptr + end, prompt.len - end});
}

int proa_message_prompt_reasons(const proa_message_form *form, proa_str prompt)
{
    bool mistral = form->reasoning == PROA_REASONING_MISTRAL;
    if (form->reasoning == PROA_REASONING_NONE || form->reasoning == PROA_REASONING_HARMONY) return -1;
    if (ends_with(prompt, mistral ? "[/THINK]" : "</think>")) return 0;
    if (ends_with(prompt, mistral ? "[THINK]" : "<think>")) return 1;
    return -1;
}

/* ---- calls ---- */

static void begin_object(proa_buf *out, const char *before, proa_str function, const char *key)
{
    proa_buf_str(out, proa_str_c(before));
    proa_buf_str(out, proa_str_c("{\"name\": "));
    if (function.len == 0) {
        proa_buf_char(out, '"');
        return;
    }
    proa_buf_json_str(out, function);
    proa_buf_printf(out, ", \"%s\": ", key);
}

static void begin_named(proa_buf *out, const char *before, proa_str function, const char *behind)
{
    proa_buf_str(out, proa_str_c(before));
    proa_buf_str(out, function);
    if (function.len > 0) proa_buf_str(out, proa_str_c(behind));
}

void proa_message_begin_call(const proa_message_form *form, proa_str function, bool open, proa_buf *out)
{
    bool mistral = form->reasoning == PROA_REASONING_MISTRAL;
    if (open) proa_buf_str(out, proa_str_c(mistral ? "[/THINK]" : "\n</think>\n\n"));
    switch (form->tools) {
    case PROA_TOOL_FORM_HERMES: begin_object(out, "<tool_call>\n", function, "arguments"); break;
    case PROA_TOOL_FORM_LLAMA3: begin_object(out, "", function, "parameters"); break;
    case PROA_TOOL_FORM_MISTRAL:
        if (form->named_arguments) begin_named(out, "[TOOL_CALLS]", function, "[ARGS]");
        else begin_object(out, "[TOOL_CALLS] [", function, "arguments");
        break;
    case PROA_TOOL_FORM_QWEN3_CODER: begin_named(out, "<tool_call>\n<function=", function, ">\n"); break;
    case PROA_TOOL_FORM_HARMONY:
        begin_named(out, "<|channel|>commentary to=functions.", function, " <|constrain|>json<|message|>");
        break;
    case PROA_TOOL_FORM_NONE: break;
    }
}
