# SPDX-License-Identifier: Apache-2.0
"""The console at / in a headless Chromium (Debian: chromium): a chat, models, charts, requests; hostile texts; keyboard,
contrast and names by axe-core's rules, on a desktop and a phone, in light and dark.

No shipped model writes Markdown or calls tools, so texts are forced: allowed_words, given in the console's field for other
options, leaves the decoder one token for each step."""
import importlib.util
import json
import os
import pathlib
import time

import browser
import pytest
import requests
from tokenizers import Tokenizer
from wire import ROOT, Server

pytestmark = pytest.mark.skipif(not browser.PROGRAM, reason="no Chromium here (Debian: apt-get install chromium)")

DECODER = ROOT / "models/classics-10m"
TEMPLATE = ROOT / "tests/golden/templates/chats/qwen3.jinja"
LOADED = ("classics-10m", "m30k-t5", "polarity-bert", "chat")
PHONE = {"width": 390, "height": 844}
END_ID = 2


def axe_file():
    """axe-core, of a package of PyPI that has it; the package itself is not imported."""
    found = importlib.util.find_spec("axe_playwright_python")
    return found and pathlib.Path(found.origin).parent / "axe.min.js"


def add_model(folder, name, path, more=""):
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(
        f'backend: "engine"\nparameters {{ key: "model_path" value {{ string_value: "{path}" }} }}\n' + more)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    for name in ("classics-10m", "m30k-t5", "polarity-bert"):
        add_model(folder, name, ROOT / "models" / name)
    add_model(folder, "chat", DECODER, f'parameters {{ key: "chat_template" value {{ string_value: "{TEMPLATE}" }} }}\n')
    add_model(folder, "broken", "/nowhere")
    options = [word for name in LOADED for word in ("--load-model", name)]
    with Server("--allow-external-paths=true", "--model-control-mode=explicit", *options, repositories=[folder]) as running:
        yield running


@pytest.fixture(scope="module")
def chromium():
    one = browser.Browser()
    yield one
    one.close()


@pytest.fixture
def page(served, chromium):
    """The console, freshly opened; at the end nothing may have gone wrong that the test did not clear."""
    chromium.open(served.url("/"))
    ready(chromium)
    yield chromium
    assert chromium.errors == []


def ready(page):
    page.wait("document.getElementById('model').options.length === 3")


def view(page, name):
    page.ask(f"location.hash = '{name}'")
    page.wait(f"!document.getElementById('view-{name}').hidden")


def picture(page, name):
    """PROA_PICTURES names a folder for screenshots to look at."""
    if os.environ.get("PROA_PICTURES"):
        page.picture(os.path.join(os.environ["PROA_PICTURES"], name + ".png"))


def forced(text):
    ids = Tokenizer.from_file(str(DECODER / "tokenizer.json")).encode(text, add_special_tokens=False).ids + [END_ID]
    return {"temperature": 0, "max_tokens": len(ids), "allowed_words": [ids], "min_tokens": len(ids) - 1}


def send(page, text, model="classics-10m", more=None, wait=True):
    page.fill("model", model)
    page.fill("more", json.dumps(more) if more else "")
    page.fill("text", text)
    page.click("#send")
    if wait:
        page.wait("document.getElementById('stop').hidden")


# ---- chat


def test_answer_streams_and_is_kept(served, page):
    assert page.ask("[...document.getElementById('model').options].map(o => o.value).sort()") == ["chat", "classics-10m", "m30k-t5"]
    page.ask("window.seen = new Set(); new MutationObserver(() => { const a = document.querySelector('.assistant.going .markdown');"
             " if (a) seen.add(a.textContent.length); }).observe(document.getElementById('log'), {childList: true, subtree: true})")
    page.fill("model", "classics-10m")
    page.ask("document.querySelector('[name=max_tokens]').value = 400")
    page.ask("document.getElementById('option-form').dispatchEvent(new Event('input'))")
    page.ask("document.getElementById('text').focus()")
    page.type("It was the")
    page.press("Enter", shift=True)
    page.type("best")
    page.press("Enter")
    page.wait("document.querySelector('.stats')?.textContent.includes('400 tokens')")
    assert page.ask("seen.size") >= 2  # it grew before its end
    assert page.ask("document.querySelector('.user .plain-text').textContent") == "It was the\nbest"
    answer = page.text(".assistant .markdown").split()
    assert len(answer) > 20
    assert "tokens/s" in page.text(".stats")
    assert page.ask("document.getElementById('announce').textContent.length") > 50  # for screen readers, once it is whole
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && document.querySelector('.assistant')")
    assert page.text(".assistant .markdown").split() == answer
    assert page.ask("document.querySelector('[name=max_tokens]').value") == "400"
    page.click("#new")
    assert page.ask("document.querySelector('.turn')") is None
    page.click("#conversation-list .name")
    assert page.text(".assistant .markdown").split() == answer
    page.click("[aria-label='Delete It was the']")
    page.wait("document.getElementById('confirm').open")
    page.click("#confirm-yes")
    page.wait("!document.querySelector('#conversation-list .name') && !document.querySelector('.turn')")
    assert page.ask("Object.keys(localStorage).filter(k => k.startsWith('proa.conversation.')).length") == 0


def test_full_storage_is_told(served, page):
    page.ask("for (let n = 1 << 22; n >= 1; n >>= 1) try { for (let i = 0; i < 9; i++) localStorage.setItem(`full${n}.${i}`, 'x'.repeat(n)); } catch {}")
    send(page, "The sea", more={"max_tokens": 4})
    page.wait("document.querySelector('#log > .error')")
    assert "no room" in page.text("#log > .error") and page.ask("document.querySelectorAll('.assistant').length") == 1


def test_stop(served, page):
    send(page, "Once upon a time", more={"max_tokens": 900, "ignore_eos": True}, wait=False)
    page.wait("document.querySelector('.assistant.going .markdown')?.textContent.length > 20")
    page.press("Escape")
    page.wait("document.getElementById('stop').hidden && !document.querySelector('.going')")
    assert "stopped" in page.text(".stats") and len(page.text(".assistant .markdown")) > 20
    end = time.monotonic() + 10
    while requests.get(served.url("/figures"), timeout=10).json()["in_flight"]:
        assert time.monotonic() < end, "the server goes on"
    last = requests.get(served.url("/figures/requests"), timeout=10).json()["requests"][-1]
    assert last["result"] == "cancelled" and last["new_tokens"] < 900


def test_edit_and_again(served, page):
    send(page, "The sea", more={"max_tokens": 8, "seed": 1})
    first = page.text(".assistant .markdown")
    page.click("[aria-label='Edit the message']")
    page.ask("document.querySelector('.edit textarea').value = 'A dog'")
    page.click(".edit .primary")
    page.wait("document.getElementById('stop').hidden && document.querySelector('.user .plain-text')?.textContent === 'A dog'")
    page.wait("document.querySelector('.stats')?.textContent.includes('8 tokens')")
    assert page.ask("document.querySelectorAll('.turn').length") == 2
    second = page.text(".assistant .markdown")
    page.click("[aria-label='Generate again']")
    page.wait("document.getElementById('stop').hidden && document.querySelector('.stats')?.textContent.includes('8 tokens')")
    assert page.ask("document.querySelectorAll('.turn').length") == 2
    assert page.text(".assistant .markdown") == second != first  # the seed is the same


HOSTILE = """<script>window.broken=1</script> <img src=x onerror="window.broken=1">

[click](javascript:window.broken=1) <b>bold</b>

```html
</code></pre><svg onload="window.broken=1">
```"""


def test_hostile_answer_stays_text(served, page):
    scripts = page.ask("document.scripts.length")
    send(page, "<img src=x onerror=window.broken=1>", "chat", forced(HOSTILE))
    said = page.ask("document.querySelector('.assistant .markdown').textContent")
    assert '<script>window.broken=1</script> <img src=x onerror="window.broken=1">' in said
    assert "click (javascript:window.broken=1) <b>bold</b>" in said and '</code></pre><svg onload="window.broken=1">' in said
    assert page.ask("document.querySelectorAll('.markdown :is(img, script, b, svg:not(.icon), a)').length") == 0
    assert page.ask("document.scripts.length") == scripts and page.ask("window.broken") is None
    assert page.text("#conversation-list .name") == "<img src=x onerror=window.broken=1>"
    page.call("Page.reload")
    page.wait("document.querySelector('.assistant .markdown')?.textContent.length > 50")
    assert page.ask("window.broken") is None


def test_reasoning_and_tools(served, page):
    text = ("<think>\nhm, a city\n</think>\n\nI look.\n<tool_call>\n"
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>")
    page.fill("tools", json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]))
    page.ask("document.querySelector('[name=system]').value = 'Be brief.'")
    send(page, "Weather?", "chat", forced(text))
    assert page.ask("document.querySelector('.reasoning .markdown').textContent") == "hm, a city"
    assert page.ask("document.querySelector('.assistant > .body > .markdown').textContent") == "I look."
    assert json.loads(page.ask("document.querySelector('.call pre').textContent")) == {"city": "Oslo"}
    page.fill("more", json.dumps(forced("It rains in **Oslo**.")))
    page.ask("document.querySelector('.results textarea').value = '{\"rain\": true}'")
    page.click(".results button")
    page.wait("document.querySelectorAll('.assistant').length === 2 && document.getElementById('stop').hidden")
    assert page.ask("[...document.querySelectorAll('.turn')].map(t => t.className.split(' ')[1])") == ["user", "assistant", "tool", "assistant"]
    assert page.ask("document.querySelectorAll('.assistant')[1].querySelector('strong').textContent") == "Oslo"
    prompt = page.ask("document.querySelectorAll('.stats')[1].textContent")
    assert "prompt" in prompt


def test_errors_in_plain_words(served, page):
    page.ask("(m => { m.value = 'chat'; m.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('[name=mode]'))")
    send(page, "Hello")  # the model has no chat template
    assert page.text(".turn .error").startswith("The server cannot accept this request.") and "chat template" in page.text(".turn .error .detail")
    page.click("[aria-label='Try again']")
    page.wait("document.getElementById('stop').hidden && document.querySelector('.turn .error')")
    page.fill("more", "{no")
    page.fill("text", "Hello")
    page.click("#send")
    page.wait("document.getElementById('more-error').textContent.includes('not JSON')")
    assert page.ask("document.getElementById('more').hasAttribute('aria-invalid')")
    page.errors.clear()  # Chromium notes the answers 400


MARKDOWN = [
    ("a *b* **c** `d` ~~e~~", "<p>a <em>b</em> <strong>c</strong> <code>d</code> <del>e</del></p>"),
    ("snake_case_name 2*3*4", "<p>snake_case_name 2<em>3</em>4</p>"),
    ("- a\n- b\n  - c\n\n1. x", "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li></ul><ol><li><span>x</span></li></ol>"),
    ("> q\n> r\n\ntext", "<blockquote><p>q<br>r</p></blockquote><p>text</p>"),
    ("### h\n---", "<p>h</p><hr>"),
    ("|a|b|\n|-|-|\n|1|2|", "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>"),
    ("```c\nx < y\n", "<div><div><span>c</span><button></button></div><pre><code>x &lt; y\n</code></pre></div>"),
    ("![p](http://a/b.png) [m](//x) <i>", "<p><a>p</a><span>m (//x)</span> &lt;i&gt;</p>"),
]


def test_markdown(served, page):
    bare = ("(text => { const box = document.createElement('div'); box.append(...m.markdown(text)); for (const e of box.querySelectorAll('*')) "
            "for (const a of [...e.attributes]) e.removeAttribute(a.name); for (const s of box.querySelectorAll('svg')) s.remove(); return box.innerHTML; })")
    for text, expected in MARKDOWN:
        got = page.ask(f"import('/console/markdown.js').then(m => {bare}({json.dumps(text)}))")
        assert got.replace("</a> <span>", "</a><span>") == expected
    for piece in ("*", "`", "[", "[a](", "**a", "_a ", "<http://", "> ", "- ", "|", "\\", "#", "```\n", "1. a\n", "|a|\n|-|\n", "https://"):
        ms = page.ask(f"import('/console/markdown.js').then(m => {{ const t = performance.now(); m.markdown({json.dumps(piece)}.repeat(5000)); "
                      "return performance.now() - t; })")
        assert ms < 2000, (piece, ms)


# ---- models


def badge(page, name):
    return page.ask(f"document.querySelector('[data-name={name}] .badge')?.textContent")


def test_load_and_unload(served, page):
    view(page, "models")
    page.wait("document.querySelector('[data-name=broken]')")  # of the repository's index: it was never loaded
    assert badge(page, "polarity-bert") == "ready" and badge(page, "broken") == "not loaded"
    page.click("[aria-label='Unload polarity-bert']")
    page.wait("document.getElementById('confirm').open")
    page.click("#confirm-yes")
    page.wait("document.querySelector('[data-name=polarity-bert] .badge').textContent === 'not loaded'")
    assert "3 of" in page.text("#state")
    page.click("[aria-label='Load polarity-bert']")
    page.wait("document.querySelector('[data-name=polarity-bert] .badge').textContent === 'ready'")
    page.click("[aria-label='Load broken']")
    page.wait("document.querySelector('[data-name=broken] .error')")
    assert "/nowhere" in page.text("[data-name=broken] .error") and "/nowhere" in page.text("#models-message")
    page.errors.clear()  # Chromium notes the answer 400


# ---- live, requests


def traffic(served, count=6):
    for i in range(count):
        requests.post(served.url("/v1/completions"), timeout=20, json={"model": "classics-10m", "prompt": "The sea " * (i + 1), "max_tokens": 24})
    requests.post(served.url("/v1/chat/completions"), timeout=20, json={"model": "classics-10m", "messages": [{"role": "user", "content": "x"}]})


def test_charts_move(served, page):
    view(page, "live")
    page.wait("document.querySelectorAll('.chart path').length === 11")
    before = page.ask("document.querySelector('.chart path').getAttribute('d').length")
    traffic(served)
    page.wait("[...document.querySelectorAll('#tiles dd')].every(d => d.textContent !== '–')")
    page.wait(f"document.querySelector('.chart path').getAttribute('d').length > {before}")
    tiles = dict(zip(page.ask("[...document.querySelectorAll('#tiles dt')].map(d => d.textContent)"),
                     page.ask("[...document.querySelectorAll('#tiles dd')].map(d => d.textContent)")))
    assert float(tiles["Tokens/s"]) > 0 and tiles["First token"].endswith("s") and tiles["KV pages"].endswith("%")
    page.click("#live-table summary")
    page.wait("document.querySelectorAll('#live-table tbody tr').length === 11")
    assert "Time to first token: median" in page.text("#live-table tbody")
    assert "median" in page.ask("document.querySelectorAll('.chart svg')[1].getAttribute('aria-label')")
    page.click("#live-pause")
    held = page.ask("document.getElementById('charts').innerHTML")
    time.sleep(1.3)
    assert page.ask("document.getElementById('charts').innerHTML") == held


def test_requests(served, page):
    traffic(served, 2)
    view(page, "requests")
    page.wait("[...document.querySelectorAll('#request-table tbody tr')].slice(0, 3).map(r => r.cells[2].textContent).join() === '501 not supported,ok,ok'")
    assert page.ask("[...document.querySelectorAll('#request-table tbody tr')][1].cells[4].textContent") == "24"
    assert page.ask("[...document.querySelectorAll('#request-table tbody tr')][1].querySelectorAll('.part.prefill, .part.decode').length") == 2
    label = page.ask("document.querySelectorAll('.timeline')[1].getAttribute('aria-label')")
    assert "waiting" in label and "prefill" in label and "decode" in label
    page.ask("document.querySelectorAll('.expand')[1].click()")
    assert page.ask("document.activeElement.getAttribute('aria-expanded')") == "true"
    details = page.text("#request-table .more")
    assert "First token at" in details and "cmpl-" in details and "Tokens/s" in details
    page.fill("requests-kind", "bad")
    assert page.ask("[...document.querySelectorAll('#request-table tbody tr:not(.more)')].every(r => r.querySelector('.bad'))")


# ---- for everybody

VIEWS = ("chat", "models", "live", "requests")


def violations(page, rules="['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"):
    return page.ask(f"axe.run({{preload: false, resultTypes: ['violations'], runOnly: {rules}}}).then(r => r.violations.map(v => "
                    "[v.id, v.nodes.slice(0, 3).map(n => n.target.join(' ') + ': ' + n.failureSummary)]))")


def fill_views(served, page):
    """Something of each kind in each view."""
    page.ask(axe_file().read_text(encoding="utf-8") + "; 0")
    traffic(served, 1)
    send(page, "Weather?", "chat", forced("# A\n\nb `c` [d](https://e.example)\n\n|f|g|\n|-|-|\n|1|2|\n\n```py\nx\n```\n\n- y\n\n> z"))
    page.click("#option-form summary")
    page.click("#live-table summary")
    page.fill("requests-kind", "bad")  # few rows: the rules take their time


def show_filled(page, name):
    view(page, name)
    if name == "requests":
        page.wait("document.querySelector('.expand')")
        page.ask("document.querySelector('.expand[aria-expanded=true]') || document.querySelector('.expand').click()")
    if name == "live":
        page.wait("document.querySelectorAll('.chart path').length === 11")
    assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name


needs_axe = pytest.mark.skipif(not axe_file(), reason="no axe-core in .venv (pip install --no-deps axe-playwright-python)")


@needs_axe
def test_axe_on_a_desktop(served, page):
    found = {}
    fill_views(served, page)
    for name in VIEWS:
        page.look(calm=True)
        show_filled(page, name)
        picture(page, name)
        found[name] = violations(page)
        page.look(dark=True, calm=True)  # no colour is on its way
        picture(page, name + "-dark")
        found[name, "dark"] = violations(page, "['color-contrast']")
    assert found == {name: [] for name in found}


@needs_axe
def test_axe_on_a_phone(served, page):
    found = {}
    page.look(**PHONE, dark=True, calm=True)
    fill_views(served, page)
    for name in VIEWS:
        show_filled(page, name)
        picture(page, name + "-phone")
        found[name] = violations(page)
    view(page, "chat")
    for panel in ("options", "conversations"):
        page.ask(f"document.getElementById('{panel}').showPopover()")
        picture(page, panel + "-phone")
        found[panel] = violations(page)
        page.ask(f"document.getElementById('{panel}').hidePopover()")
    page.click("#open-settings")
    picture(page, "settings-phone")
    found["settings"] = violations(page)
    assert found == {name: [] for name in found}


def test_keyboard_reaches_everything(served, page):
    send(page, "The sea", more={"max_tokens": 4})
    page.ask("document.activeElement.blur()")
    seen = []
    for _ in range(45):
        page.press("Tab")
        seen.append(page.ask("(e => e.id || e.name || e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)"))
    for wanted in ("Skip to the content", "Chat", "Requests", "open-settings", "new", "Delete The sea", "title", "model", "log", "Copy the message",
                   "Edit the message", "Generate again", "text", "mode", "system", "temperature", "stop", "reset-options"):
        assert wanted in seen, (wanted, seen)
    missing = page.ask("[...document.querySelectorAll('input,select,textarea')].filter(e => !e.labels?.length && !e.getAttribute('aria-label')).map(e => e.id)")
    assert missing == []


def test_narrow_windows(served, page):
    """Nothing is wider than the window, down to the 320 pixels that WCAG names."""
    traffic(served, 1)
    for width in (320, 768, 1100):
        page.look(width=width)
        for name in VIEWS:
            view(page, name)
            if name == "requests":
                page.wait("document.querySelector('.expand')")
            assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (name, width)
            assert page.ask("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"), (name, width)


def test_phone_panels(served, page):
    page.look(**PHONE)
    assert page.ask("getComputedStyle(document.getElementById('options')).display") == "none"
    page.click("[popovertarget=options]")
    page.wait("document.getElementById('options').matches(':popover-open')")
    page.press("Escape")
    page.wait("!document.getElementById('options').matches(':popover-open')")
    small = page.ask("[...document.querySelectorAll('button,select,input,textarea,#views a')].filter(e => e.checkVisibility() && e.offsetHeight < 40).map(e => e.outerHTML)")
    assert small == []


def test_colours_and_motion(served, page):
    def ground():
        return sum(map(int, page.ask("getComputedStyle(document.body).backgroundColor")[4:-1].split(",")))
    page.look(dark=True)
    assert ground() < 200
    page.fill("theme", "light")
    assert ground() > 600
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && document.documentElement.dataset.theme === 'light'")
    moves = "(e => { e.className = 'running'; document.body.append(e); return getComputedStyle(e).animationName; })(document.createElement('p'))"
    assert page.ask(moves) == "blink"
    page.look(calm=True)
    assert page.ask(moves) == "none"


# ---- other servers


def test_key_and_server_gone(chromium):
    with Server("--api-key", "secret", "--http-restricted-api", "statistics:admin=open", repositories=[DECODER]) as locked:
        chromium.open(locked.url("/"))
        chromium.wait("document.getElementById('state').innerText === 'The server does not allow this from here.'")
        chromium.click("#open-settings")
        chromium.fill("settings-header", "admin: open")
        chromium.click("#settings [value=done]")
        chromium.wait("!document.getElementById('key-banner').hidden")
        assert "API key" in chromium.text("#state")
        chromium.fill("key", "secret")
        chromium.click("#key-banner button")
        chromium.wait("document.getElementById('state').innerText === '1 of 1 models ready'")
        assert chromium.ask("document.getElementById('key-banner').hidden")
        chromium.wait("document.getElementById('model').value === 'classics-10m'")
        send(chromium, "The sea", more={"max_tokens": 4})
        assert "4 tokens" in chromium.text(".stats")
        view(chromium, "models")
        assert "--model-control-mode explicit" in chromium.text("#control-note")
        locked.stop()
        chromium.wait("document.getElementById('state').innerText === 'the server does not answer'")


def test_nothing_from_elsewhere(served):
    """Headers and texts of all files: a strict policy, no address of another place but in examples and name spaces."""
    names = [p.name for p in (ROOT / "src/api/console/web").iterdir()]
    for path in ["/", *(f"/console/{name}" for name in names)]:
        answer = requests.get(served.url(path), timeout=10)
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status_code == 200 and "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "//" not in "".join(part.split('"')[0] for part in text.split('src="')[1:])
        assert "http://" not in text.replace("https?://", "") and "https://" not in text.replace("https?://", ""), path
    for path in ("/console/", "/console/../index.html", "/console/nothing.js", "/console/README.md"):
        assert requests.get(served.url(path), timeout=10).status_code == 404
