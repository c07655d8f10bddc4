/* SPDX-License-Identifier: Apache-2.0
 * spec.cpp - reads a call specification. It comes from the file of a model: all of it is checked. */
#include "spec.h"
#include "common.h"

#include <map>

namespace proa_torch
{

/* ---- JSON ---- */

/* A bound for recursion; more levels than arguments are nested in. */
static const int depth_max = 64;

struct Json {
    enum Kind { OTHER, TEXT, ARRAY, OBJECT } kind = OTHER; /* OTHER: null, numbers, true and false */
    std::string text;                                      /* of TEXT, and of OTHER as it is written */
    std::vector<Json> items;
    std::map<std::string, Json> members;
};

class JsonReader
{
  public:
    explicit JsonReader(const std::string &text) : text(text)
    {
    }

    Json read()
    {
        Json value = read_value(0);
        skip_space();
        if (at != text.size()) refuse();
        return value;
    }

  private:
    [[noreturn]] void refuse() const
    {
        fail(PROA_INVALID, "the call specification of the package is no JSON at byte %zu", at);
    }

    void skip_space()
    {
        at = text.find_first_not_of(" \t\r\n", at);
        if (at == std::string::npos) at = text.size();
    }

    char peek()
    {
        skip_space();
        return at < text.size() ? text[at] : '\0';
    }

    bool take(char c)
    {
        bool same = peek() == c && at < text.size();
        at += same;
        return same;
    }

    void expect(char c)
    {
        if (!take(c)) refuse();
    }

    Json read_value(int depth)
    {
        Json v;
        if (depth > depth_max) refuse();
        char c = peek();
        if (c == '"') v.kind = Json::TEXT, v.text = read_text();
        else if (c == '[') read_array(&v, depth);
        else if (c == '{') read_object(&v, depth);
        else v.text = read_word();
        return v;
    }

    void read_array(Json *v, int depth)
    {
        v->kind = Json::ARRAY;
        expect('[');
        if (take(']')) return;
        do v->items.push_back(read_value(depth + 1));
        while (take(','));
        expect(']');
    }

    void read_object(Json *v, int depth)
    {
        v->kind = Json::OBJECT;
        expect('{');
        if (take('}')) return;
        do {
            if (peek() != '"') refuse();
            std::string key = read_text();
            expect(':');
            v->members[key] = read_value(depth + 1);
        } while (take(','));
        expect('}');
    }

    std::string read_word()
    {
        size_t end = text.find_first_of(",]} \t\r\n", at);
        if (end == std::string::npos) end = text.size();
        std::string word = text.substr(at, end - at);
        if (word.empty()) refuse();
        at = end;
        return word;
    }

    /* Keys are names of arguments: other escapes than these are not in them. */
    std::string read_text()
    {
        std::string out;
        for (expect('"'); at < text.size() && text[at] != '"'; at++) {
            if (text[at] == '\\' && ++at < text.size() && text[at] != '"' && text[at] != '\\' && text[at] != '/')
                refuse();
            if (at < text.size()) out += text[at];
        }
        expect('"');
        return out;
    }

    const std::string &text;
    size_t at = 0;
};

/* ---- the tree ---- */

[[noreturn]] static void refuse_tree(const char *what)
{
    fail(PROA_INVALID, "the call specification of the package has %s", what);
}

static const Json &member(const Json &node, const char *name)
{
    auto found = node.members.find(name);
    if (found == node.members.end()) refuse_tree("a node without type, context or children");
    return found->second;
}

static std::vector<std::string> keys_of(const Json &node, size_t count)
{
    std::vector<std::string> keys;
    const std::string &type = member(node, "type").text;
    if (type == "builtins.tuple" || type == "builtins.list") {
        for (size_t i = 0; i < count; i++) keys.push_back(std::to_string(i));
    } else if (type == "builtins.dict" || type == "collections.OrderedDict") {
        Json context = JsonReader(member(node, "context").text).read();
        for (const Json &key : context.items) keys.push_back(key.text);
    } else {
        fail(PROA_INVALID,
             "an argument or result of the package is '%s'; possible are Tensor, tuple, list and dict",
             type.c_str());
    }
    if (keys.size() != count) refuse_tree("a dictionary whose keys and values differ in number");
    return keys;
}

static void add_leaves(std::vector<std::string> *out, const Json &node, const std::string &path)
{
    const Json &type = member(node, "type"), &children = member(node, "children_spec");
    if (type.kind == Json::OTHER) {
        out->push_back(path);
        return;
    }
    std::vector<std::string> keys = keys_of(node, children.items.size());
    for (size_t i = 0; i < keys.size(); i++) add_leaves(out, children.items[i], path + "[" + keys[i] + "]");
}

std::vector<std::string> read_spec(const std::string &text)
{
    std::vector<std::string> leaves;
    Json all = JsonReader(text).read();
    if (all.items.size() != 2) refuse_tree("no tree");
    add_leaves(&leaves, all.items[1], "");
    return leaves;
}

} // namespace proa_torch
