// SPDX-License-Identifier: Apache-2.0
// The search of the site runs in a Worker. Pages that were opened as files (file://) may start none, so there the
// worker's script runs in a hidden frame behind the same interface.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.waiting = [];
      const inner = frame.contentWindow;
      inner.postMessageToPage = data => this.deliver(new MessageEvent("message", { data }));
      inner.document.open();
      inner.document.write(
        "<script>" +
          "function postMessage(data) { postMessageToPage(data); }" +
          "function importScripts(...urls) {" +
          "  return urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "    const script = document.createElement('script');" +
          "    script.src = url; script.onload = done; script.onerror = failed;" +
          "    document.body.appendChild(script); })), Promise.resolve()); }" +
          "<\/script><body><script src=\"" + url + "\"><\/script></body>");
      inner.document.close();
      inner.addEventListener("load", () => {
        for (const data of this.waiting.splice(0)) this.pass(inner, data);
        this.inner = inner;
      });
    }
    pass(inner, data) { inner.dispatchEvent(new MessageEvent("message", { data })); }
    postMessage(data) { if (this.inner) this.pass(this.inner, data); else this.waiting.push(data); }
    deliver(event) { this.dispatchEvent(event); if (this.onmessage) this.onmessage(event); }
    terminate() {}
  };
