# SPDX-License-Identifier: Apache-2.0
"""The openai package against Proa, streamed: a completion, or with --chat a message to a model with a chat template.

    proa serve models/classics-10m
    python examples/clients/openai_chat.py --model classics-10m "It was a dark and stormy night" --stop .
"""
import argparse
import sys

import openai


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="It was a dark and stormy night")
    parser.add_argument("--url", default="http://localhost:8000/v1")
    parser.add_argument("--api-key", default="none", help="if the server has --api-key")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--system", help="with --chat: the system's message")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the most likely token")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stop", nargs="+")
    parser.add_argument("--usage", action="store_true", help="print the counts of tokens at the end")
    args = parser.parse_args()

    client = openai.OpenAI(base_url=args.url, api_key=args.api_key)
    options = {
        "model": args.model or client.models.list().data[0].id,
        "max_tokens": args.tokens,
        "temperature": args.temperature,
        "seed": args.seed,
        "stop": args.stop,
        "stream": True,
        "stream_options": {"include_usage": args.usage},
    }
    if args.chat:
        messages = [{"role": "system", "content": args.system}] if args.system else []
        messages.append({"role": "user", "content": args.prompt})
        events = client.chat.completions.create(messages=messages, **options)
    else:
        events = client.completions.create(prompt=args.prompt, **options)
    usage = None
    for event in events:
        usage = event.usage or usage
        for choice in event.choices:
            print((choice.delta.content if args.chat else choice.text) or "", end="", flush=True)
    print()
    if args.usage:
        print(f"{usage.prompt_tokens} tokens in, {usage.completion_tokens} out")


if __name__ == "__main__":
    try:
        main()
    except openai.OpenAIError as error:  # nobody serves there, or it refuses
        sys.exit(f"openai_chat.py: {error}")
