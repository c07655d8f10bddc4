# SPDX-License-Identifier: Apache-2.0
"""The page at / in a headless Chromium (Debian: chromium): figures, a conversation by keyboard, a phone, an API key."""
import os

import browser
import pytest
from wire import ROOT, Server

pytestmark = pytest.mark.skipif(not browser.PROGRAM, reason="no Chromium here (Debian: apt-get install chromium)")

MODEL = "classics-10m"


@pytest.fixture(scope="module")
def served():
    with Server(repositories=[ROOT / "models" / MODEL, ROOT / "models" / "polarity-bert"]) as running:
        yield running


@pytest.fixture
def page():
    one = browser.Browser()
    yield one
    one.close()


def picture(page, name):
    """PROA_PICTURES names a folder for screenshots to look at."""
    if os.environ.get("PROA_PICTURES"):
        page.picture(os.path.join(os.environ["PROA_PICTURES"], name + ".png"))


def ready(page):
    page.wait("document.querySelectorAll('#models tr').length === 2 && document.getElementById('model').options.length > 0")


def text_of(page, element):
    return page.ask(f"document.getElementById('{element}').innerText")


def test_figures_and_talk(served, page):
    page.open(served.url("/"))
    ready(page)
    assert "2 of 2 models ready" in text_of(page, "state")
    assert MODEL in text_of(page, "models") and "polarity-bert" in text_of(page, "models")
    assert page.ask("[...document.getElementById('model').options].map(o => o.value)") == [MODEL]  # an encoder does not talk
    page.ask("document.getElementById('max').value = 40")
    page.ask("document.getElementById('text').focus()")
    page.type("It was the")
    page.press("Enter")
    page.wait("document.getElementById('spent').textContent.includes('40 tokens')")
    said = page.ask("[...document.querySelectorAll('#log p')].map(p => p.textContent)")
    assert said[0] == "It was the" and len(said) == 2 and len(said[1]) > 40
    page.wait("Number(document.querySelector('#models tr td:nth-child(4)').textContent) > 0")
    picture(page, "page")
    assert page.errors == []


def test_stop_by_key(served, page):
    page.open(served.url("/"))
    ready(page)
    page.ask("document.getElementById('max').value = 900")
    page.ask("document.getElementById('text').focus()")
    page.type("Once")
    page.press("Enter", shift=True)
    page.type("upon a time")
    page.press("Enter")
    page.wait("document.querySelector('#log p.going') && document.querySelector('#log p.going').textContent.length > 20")
    page.press("Escape")
    page.wait("document.getElementById('stop').disabled && !document.querySelector('#log p.going')")
    assert page.ask("document.querySelector('#log p.mine').textContent") == "Once\nupon a time"
    page.wait("document.getElementById('flight').textContent === '0'")
    assert page.errors == []


def test_keyboard_reaches_everything(served, page):
    page.open(served.url("/"))
    ready(page)
    seen = []
    for _ in range(14):
        page.press("Tab")
        seen.append(page.ask("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
    for wanted in ("skip", "theme", "model", "mode", "max", "temperature", "log", "text", "send", "clear"):
        assert wanted in seen, (wanted, seen)
    missing = page.ask("[...document.querySelectorAll('input,select,textarea')].filter(e => !e.labels.length).length")
    assert missing == 0


@pytest.mark.parametrize("dark", [False, True])
def test_phone(served, page, dark):
    page.open(served.url("/"), width=360, height=740, dark=dark)
    ready(page)
    assert page.ask("document.documentElement.scrollWidth") <= 360
    assert page.ask("[...document.querySelectorAll('button,select,input,textarea')].filter(e => e.offsetParent && e.offsetHeight < 40).length") == 0
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark
    picture(page, "phone-dark" if dark else "phone")
    assert page.errors == []


def test_theme_button(served, page):
    page.open(served.url("/"))
    ready(page)
    for wanted in ("light", "dark", None):
        page.ask("document.getElementById('theme').click()")
        assert page.ask("document.documentElement.dataset.theme || null") == wanted


def test_chat_error_is_shown(served, page):
    page.open(served.url("/"))
    ready(page)
    assert page.ask("document.getElementById('mode').value") == "completion"  # the model has no chat template
    page.ask("document.getElementById('mode').value = 'chat'")
    page.ask("document.getElementById('text').focus()")
    page.type("Hello")
    page.press("Enter")
    page.wait("document.querySelector('#log p.error')")
    assert "chat template" in page.ask("document.querySelector('#log p.error').textContent")


def test_api_key(page):
    with Server("--api-key", "secret", repositories=[ROOT / "models" / MODEL]) as locked:
        page.open(locked.url("/"))
        page.wait("!document.getElementById('key-row').hidden")
        assert text_of(page, "state") == "an API key is needed"
        page.ask("(k => { k.value = 'secret'; k.dispatchEvent(new Event('change')); })(document.getElementById('key'))")
        page.wait("document.getElementById('state').innerText.includes('1 of 1 models ready')")


def test_server_gone(page):
    with Server(repositories=[ROOT / "models" / MODEL]) as short:
        page.open(short.url("/"))
        page.wait("document.getElementById('state').innerText.includes('models ready')")
        short.stop()
        page.wait("document.getElementById('state').innerText === 'the server does not answer'")


def test_nothing_from_elsewhere(served):
    """Headers and texts of the three files: a strict policy, no address of another place."""
    import requests
    for path in ("/", "/console/console.css", "/console/main.js"):
        answer = requests.get(served.url(path), timeout=10)
        assert answer.status_code == 200
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "http://" not in answer.text and "https://" not in answer.text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
