// Hands a trace to the Perfetto UI of this server, as its documents say: open its window, send
// PING until it answers PONG, then the bytes. The window opens at the press, or it would be blocked.
// https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
const OPENED = new WeakMap()
const PING_MS = 100

function hand(target, message, say) {
  const stop = () => {
    clearInterval(timer)
    window.removeEventListener("message", hear)
  }
  const hear = (event) => {
    if (event.source !== target || event.data !== "PONG") return
    stop()
    target.postMessage({ perfetto: message }, window.location.origin, [message.buffer])
    say("")
  }
  window.addEventListener("message", hear)
  const timer = setInterval(() => {
    if (target.closed) stop()
    else target.postMessage("PING", window.location.origin)
  }, PING_MS)
}

export default function (component) {
  const { parentElement, data, setTriggerValue } = component
  const button = parentElement.querySelector("button")
  const note = parentElement.querySelector("span")
  const say = (text) => { note.textContent = text }
  button.onclick = () => {
    const target = window.open(new URL(data.address, window.location.origin), "_blank")
    if (!target) return say("The browser blocked the new window.")
    OPENED.set(button, target)
    say("Making the trace")
    setTriggerValue("open", true)
  }
  const target = OPENED.get(button)
  if (!data.trace || !target) return
  OPENED.delete(button)
  const bytes = data.trace.getChild("bytes").get(0)
  const message = { buffer: bytes.slice().buffer, title: data.title, fileName: data.fileName, localOnly: true }
  hand(target, message, say)
}
