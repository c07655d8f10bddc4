# SPDX-License-Identifier: Apache-2.0
"""schemas.py - JSON schemas for tests of constrained output: a set written by hand, and random ones of a fixed seed."""
import json
import random

BY_HAND = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1}},
     "required": ["items"], "$defs": {"item": {"type": "object", "properties": {
         "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "price": {"type": "number", "exclusiveMinimum": 0}},
         "required": ["sku", "price"]}}},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "required": ["value"]}}},
    {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "tags": {"type": "array", "items": {
        "type": "string", "maxLength": 8}, "maxItems": 3}}, "required": ["kind"]},
    {"oneOf": [{"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "number"}}, "required": ["t"]},
               {"type": "object", "properties": {"t": {"const": "b"}, "y": {"type": "boolean"}}, "required": ["t"]}]},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}, {"type": "array", "prefixItems": [
        {"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
               {"properties": {"a": {"maximum": 40}}, "required": ["a"]}]},
    {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "number"}}, "additionalProperties": False},
    {"type": ["string", "null"], "minLength": 2, "maxLength": 40},
    {"type": "number", "minimum": -2.5, "exclusiveMaximum": 1.25},
    {"const": {"a": [1, "x", None, True]}},
    {"type": "object"},
    True,
]

WORDS = ["id", "name", "title", "price", "count", "address", "city", "tags", "a\"b", "käse", "x y", "active", "score", "path"]
PATTERNS = ["^[a-z]{2,5}$", "^[A-Z][a-z]*(-[0-9]+)?$", "^(foo|bar)+$", "^\\d{3}-\\d{4}$", "abc", "^\\w+\\s\\w+$", "^[^\"]{0,9}$"]
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]


def random_string(r):
    kind = r.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": r.choice(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": r.choice(FORMATS)}
    if kind == 2:
        low = r.randrange(6)
        return {"type": "string", "minLength": low, "maxLength": low + r.randrange(60)}
    return {"type": "string"}


def random_number(r):
    schema = {"type": r.choice(["integer", "number"])}
    low = r.choice([None, r.randrange(-500, 500), round(r.uniform(-9, 9), r.randrange(4))])
    span = r.choice([None, r.randrange(1, 2000), round(r.uniform(1, 30), 2)])
    if low is not None:
        schema[r.choice(["minimum", "exclusiveMinimum"])] = low
    if span is not None:
        schema[r.choice(["maximum", "exclusiveMaximum"])] = round((low or 0) + span, 4)
    return schema


def random_object(r, depth, defs):
    names = r.sample(WORDS, r.randrange(1, 6))
    schema = {"type": "object", "properties": {n: random_schema(r, depth - 1, defs) for n in names}}
    if r.random() < 0.8:
        schema["required"] = r.sample(names, r.randrange(len(names) + 1))
    if r.random() < 0.3:
        schema["additionalProperties"] = r.choice([False, True, {"type": "integer"}])
    return schema


def random_array(r, depth, defs):
    schema = {"type": "array", "items": random_schema(r, depth - 1, defs)}
    if r.random() < 0.6:
        schema["minItems"] = r.randrange(3)
        schema["maxItems"] = schema["minItems"] + r.randrange(1, 20)
    if r.random() < 0.2:
        schema["prefixItems"] = [random_schema(r, 0, defs) for _ in range(r.randrange(1, 3))]
    return schema


def random_schema(r, depth, defs):
    kind = r.randrange(4 if depth <= 0 else 9)
    if kind == 0:
        return {"enum": r.sample(["red", "green", 1, 2.5, None, True, "a\"b", "\u00e9", "tab\t"], r.randrange(1, 5))}
    if kind == 1:
        return random_number(r)
    if kind == 2:
        return random_string(r)
    if kind == 3:
        return r.choice([{"type": "boolean"}, {"type": "null"}, {"const": "fixed"}, {"type": ["integer", "null"]}])
    if kind == 4:
        return random_array(r, depth, defs)
    if kind == 5:
        return {"anyOf": [random_schema(r, depth - 1, defs) for _ in range(r.randrange(1, 4))]}
    if kind == 6 and defs:
        return {"$ref": "#/$defs/" + r.choice(sorted(defs))}
    return random_object(r, depth, defs)


def all_schemas(count=500, seed=20261125):
    schemas = list(BY_HAND)
    r = random.Random(seed)
    while len(schemas) < count:
        names = r.sample(["one", "two", "three"], r.randrange(3))
        schema = random_object(r, 3, names)
        if names:
            schema["$defs"] = {n: random_schema(r, 1, []) for n in names}
        schemas.append(schema)
    return schemas


def document_of(r, schema, root):
    """A document that the schema accepts, with properties in its order; None: this maker cannot."""
    if schema is True or schema == {"type": "object"}:
        return {"any": [1, "x", None]}
    if "$ref" in schema:
        return document_of(r, root["$defs"][schema["$ref"].split("/")[-1]], root)
    for key in ("enum", "anyOf", "oneOf"):
        if key in schema:
            chosen = r.choice(schema[key])
            return chosen if key == "enum" else document_of(r, chosen, root)
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        needed = schema.get("required", [])
        return {n: document_of(r, s, root) for n, s in schema.get("properties", {}).items()
                if n in needed or r.random() < 0.5}
    if kind == "array":
        n = schema.get("minItems", 0)
        return [document_of(r, (schema.get("prefixItems", []) + [schema["items"]] * n)[i], root) for i in range(n)]
    if kind == "string":
        if "pattern" in schema or "format" in schema:
            return {"date": "2024-02-28", "uuid": "123e4567-e89b-12d3-a456-426614174000", "ipv4": "10.0.0.255"}.get(
                schema.get("format"), "\0")
        return "xé"[:1] * max(schema.get("minLength", 3), 1) if schema.get("maxLength", 9) else ""
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum"))
        value = (low if low is not None else (high if high is not None else 7) - 1) + 0.5 * ((high - low) if None not in (low, high) else 1)
        return int(value) + 1 if kind == "integer" else round(value, 4)
    return {"boolean": True}.get(kind)


def to_line(schema, accept=()):
    return json.dumps({"kind": "json_schema", "text": json.dumps(schema), "accept": list(accept)})
