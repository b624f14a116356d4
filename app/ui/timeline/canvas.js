// Lanes of spans under rows of ranges. Times are ns from the run's first event.
// State lives in STATES by host element: Streamlit calls the default export again on new data.
const STATES = new WeakMap()
const AXIS = 22, ROW = 17, LANE = 30, GAP = 6, LABEL = 14, MIN_WINDOW = 50
const HOST_LANE = 16, MEMORY = 44

const text = (ns) => {
  const a = Math.abs(ns)
  const [v, u] = a >= 1e9 ? [ns / 1e9, "s"] : a >= 1e6 ? [ns / 1e6, "ms"]
    : a >= 1e3 ? [ns / 1e3, "\u00b5s"] : [ns, "ns"]
  return `${Number(v.toPrecision(3))} ${u}`
}

// A point in time, with as many decimals as tell it from another one `step` away.
const moment = (ns, step) => {
  if (ns === 0) return "0"
  const [unit, u] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "\u00b5s"] : [1, "ns"]
  const decimals = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9)))
  return `${(ns / unit).toFixed(decimals)} ${u}`
}

const columns = (table, names) =>
  Object.fromEntries(names.map((n) => [n, table.getChild(n).toArray()]))

const isLight = (colour) => {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
  return 0.299 * r + 0.587 * g + 0.114 * b > 140
}

function bounds(s) {
  const m = s.meta
  const rows = m.rows.length
  const top = AXIS + rows * ROW + (rows ? GAP : 0)
  // Host rows are lower than streams: there are many, and they are read for their names.
  const y = [], heights = []
  let at = top
  m.lanes.forEach((_, i) => {
    const h = i < m.numStreams ? LANE : HOST_LANE
    y.push(at + LABEL)
    heights.push(h)
    at += LABEL + h + GAP
  })
  const memory = m.memory ? at + LABEL : null
  return { top, y, heights, memory, height: at + (m.memory ? LABEL + MEMORY + GAP : 0) + 4 }
}

const laneAt = (b, py) => {
  for (let i = b.y.length - 1; i >= 0; i--) if (py >= b.y[i] - LABEL) return i
  return -1
}

function draw(s) {
  const { canvas, meta, spans, ranges } = s
  const style = getComputedStyle(s.wrap)
  const ink = style.color
  const box = bounds(s)
  const { height } = box
  const width = canvas.clientWidth || 800
  const ratio = window.devicePixelRatio || 1
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
    canvas.style.height = `${height}px`
  }
  const g = canvas.getContext("2d")
  g.setTransform(ratio, 0, 0, ratio, 0, 0)
  g.clearRect(0, 0, width, height)
  g.font = `12px ${style.fontFamily}`
  g.textBaseline = "middle"
  const [t0, t1] = s.window
  const scale = width / (t1 - t0)
  const x = (t) => (t - t0) * scale
  axis(g, ink, width, height, t0, t1, x)
  for (let i = 0; i < ranges.start.length; i++) {
    const a = Math.max(0, x(ranges.start[i]))
    const b = Math.min(width, x(ranges.start[i] + ranges.dur[i]))
    if (b < 0 || a > width || b - a < 0.4) continue
    const y = AXIS + ranges.row[i] * ROW
    g.globalAlpha = 0.12
    g.fillStyle = ink
    g.fillRect(a, y, b - a, ROW - 2)
    g.globalAlpha = 0.4
    g.fillRect(a, y, 1, ROW - 2)
    g.globalAlpha = 1
    if (b - a > 26) clipped(g, meta.rangeNames[i], a + 5, y + ROW / 2 - 1, b - a - 8)
  }
  meta.lanes.forEach((label, i) => {
    const y = box.y[i]
    g.fillStyle = ink
    g.globalAlpha = 0.7
    g.fillText(label, 2, y - LABEL / 2)
    g.globalAlpha = 0.06
    g.fillRect(0, y, width, box.heights[i])
    g.globalAlpha = 1
  })
  const covered = new Float64Array(meta.lanes.length).fill(-1)
  for (let i = 0; i < spans.start.length; i++) {
    const a = x(spans.start[i])
    if (a > width) continue
    let b = x(spans.start[i] + spans.dur[i])
    if (b < 0) continue
    const lane = spans.lane[i]
    if (b - a < 1) {
      b = a + 1
      if (b <= covered[lane] + 0.5) continue
    }
    covered[lane] = b
    const { colour } = meta.palette[meta.classes[spans.name[i]]]
    g.fillStyle = colour
    const y = box.y[lane], high = box.heights[lane]
    const isPale = meta.marked && lane < meta.numStreams && !meta.marked[spans.name[i]]
    g.globalAlpha = Math.min(1, 0.25 + 0.75 * spans.fill[i]) * (isPale ? 0.12 : 1)
    g.fillRect(Math.max(a, -1), y, Math.min(b, width + 1) - Math.max(a, -1), high)
    g.globalAlpha = 1
    if (spans.name[i] === s.selected) {
      g.fillStyle = ink
      g.fillRect(Math.max(a, -1), y + high - 4, Math.max(2, b - a), 4)
    }
    if (b - a > 70) {
      g.fillStyle = isLight(colour) ? "#000" : "#fff"
      clipped(g, meta.names[spans.name[i]], Math.max(a, 0) + 5, y + high / 2, b - Math.max(a, 0) - 9)
    }
  }
  if (box.memory !== null) memory(g, s, ink, width, box.memory, x)
  if (s.arrow) arrow(g, s, ink, box, x)
  if (s.drag) {
    g.fillStyle = ink
    g.globalAlpha = 0.15
    g.fillRect(Math.min(s.drag[0], s.drag[1]), 0, Math.abs(s.drag[1] - s.drag[0]), height)
    g.globalAlpha = 1
  }
}

function memory(g, s, ink, width, y, x) {
  const { time, bytes } = s.meta.memory
  const most = Math.max(...bytes)
  g.fillStyle = ink
  g.globalAlpha = 0.7
  g.fillText(`memory allocated, most ${(most / 2 ** 30).toPrecision(3)} GiB`, 2, y - LABEL / 2)
  g.globalAlpha = 0.06
  g.fillRect(0, y, width, MEMORY)
  g.globalAlpha = 0.5
  for (let i = 0; i < time.length; i++) {
    const a = Math.max(0, x(time[i]))
    const b = i + 1 < time.length ? Math.min(width, x(time[i + 1])) : width
    const high = MEMORY * bytes[i] / (most || 1)
    if (b > a) g.fillRect(a, y + MEMORY - high, b - a, high)
  }
  g.globalAlpha = 1
}

// From where the launch call stands in its thread's row (else from the top) to the kernel.
function arrow(g, s, ink, box, x) {
  const { launch, start, lane } = s.arrow
  const { spans, meta } = s
  let from = AXIS
  for (let i = 0; i < spans.start.length; i++)
    if (meta.apiLanes.includes(spans.lane[i]) && spans.start[i] <= launch
        && launch <= spans.start[i] + spans.dur[i]) from = box.y[spans.lane[i]] + HOST_LANE / 2
  const to = box.y[lane] + (from > box.y[lane] ? box.heights[lane] : 0)
  const a = x(launch), b = x(start), side = from > to ? 1 : -1
  g.strokeStyle = g.fillStyle = ink
  g.lineWidth = 1.5
  g.beginPath()
  g.moveTo(a, from)
  g.lineTo(b, to + 5 * side)
  g.stroke()
  g.beginPath()
  g.moveTo(b, to)
  g.lineTo(b - 4, to + 7 * side)
  g.lineTo(b + 4, to + 7 * side)
  g.fill()
}

function clipped(g, label, px, py, room) {
  if (room < 14) return
  const fits = Math.floor(room / 6.2)
  const shown = label.length > fits ? label.slice(0, Math.max(1, fits - 1)) + "\u2026" : label
  g.fillText(shown, px, py)
}

function axis(g, ink, width, height, t0, t1, x) {
  const rough = (t1 - t0) / Math.max(2, Math.floor(width / 130))
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((m) => m * power).find((v) => v >= rough)
  g.fillStyle = ink
  for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
    g.globalAlpha = 0.12
    g.fillRect(x(t), 0, 1, height)
    g.globalAlpha = 0.75
    if (x(t) < width - 55) g.fillText(moment(t, step), x(t) + 4, AXIS / 2 - 2)
  }
  g.globalAlpha = 1
}

function hit(s, px, py) {
  const box = bounds(s)
  const { top } = box
  const width = s.canvas.clientWidth
  const [t0, t1] = s.window
  const slack = ((t1 - t0) / width) * 1.5
  const t = t0 + (px / width) * (t1 - t0)
  if (py < top) {
    const row = Math.floor((py - AXIS) / ROW)
    for (let i = s.ranges.start.length - 1; i >= 0; i--) {
      const a = s.ranges.start[i]
      if (s.ranges.row[i] === row && t >= a && t <= a + s.ranges.dur[i]) return { range: i }
    }
    return null
  }
  const lane = laneAt(box, py)
  let best = null, distance = Infinity
  for (let i = 0; i < s.spans.start.length; i++) {
    if (s.spans.lane[i] !== lane) continue
    const a = s.spans.start[i], b = a + s.spans.dur[i]
    const d = t < a ? a - t : t > b ? t - b : 0
    if (d <= slack && d < distance) { best = i; distance = d }
  }
  return best === null ? null : { span: best }
}

function describe(s, found) {
  const { meta, spans, ranges } = s
  const from = (ns) => moment(ns, (s.window[1] - s.window[0]) / 2000)
  if ("range" in found) {
    const i = found.range
    return `${meta.rangeNames[i]}\nrange, ${text(ranges.dur[i])}, from ${from(ranges.start[i])}`
  }
  const i = found.span
  const kind = meta.palette[meta.classes[spans.name[i]]].name
  const many = spans.count[i] > 1
  const lines = [meta.names[spans.name[i]]]
  if (many) lines.push(`and ${spans.count[i] - 1} more within ${text(spans.dur[i])}: zoom in`)
  else lines.push(`${kind}, ${text(spans.dur[i])}, from ${from(spans.start[i])}`)
  if (spans.path[i] >= 0 && meta.paths[spans.path[i]]) lines.push(meta.paths[spans.path[i]])
  if (!many && spans.launch[i] === spans.launch[i])
    lines.push(`launched ${text(spans.launch[i])} before it started`)
  return lines.join("\n")
}

function setWindow(s, a, b) {
  const span = Math.min(Math.max(b - a, MIN_WINDOW), s.meta.extent)
  const low = Math.min(Math.max(0, a), s.meta.extent - span)
  s.window = [low, low + span]
  s.tip.style.display = "none"
  requestAnimationFrame(() => draw(s))
  clearTimeout(s.timer)
  // A window that was sent whole needs no server: only merged ones are asked for again.
  if (s.meta.merged || s.meta.asked)
    s.timer = setTimeout(() => s.send("window", [low, low + span]), 180)
  note(s)
}

function note(s) {
  const [a, b] = s.window
  const whole = b - a >= s.meta.extent * 0.999
  const merged = s.meta.merged ? ", close ones drawn together" : ""
  s.note.textContent =
    `${text(b - a)}${whole ? "" : ` of ${text(s.meta.extent)}`} \u00b7 ` +
    `${s.meta.total.toLocaleString("en").replaceAll(",", "\u202f")} operations${merged} \u00b7 drag to zoom, click to select`
}

function act(s, name) {
  const [a, b] = s.window
  const w = b - a, m = (a + b) / 2
  if (name === "reset") setWindow(s, 0, s.meta.extent)
  if (name === "in") setWindow(s, m - w / 4, m + w / 4)
  if (name === "out") setWindow(s, m - w, m + w)
  if (name === "left") setWindow(s, a - w / 4, b - w / 4)
  if (name === "right") setWindow(s, a + w / 4, b + w / 4)
}

function listen(s) {
  const { canvas, tip } = s
  const at = (e) => {
    const box = canvas.getBoundingClientRect()
    return [e.clientX - box.left, e.clientY - box.top]
  }
  s.wrap.querySelectorAll("button").forEach((b) => (b.onclick = () => act(s, b.dataset.do)))
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "reset" }
  canvas.onkeydown = (e) => {
    if (!keys[e.key]) return
    e.preventDefault()
    act(s, keys[e.key])
  }
  canvas.ondblclick = () => act(s, "reset")
  canvas.onwheel = (e) => {
    if (!e.ctrlKey && !e.shiftKey) return
    e.preventDefault()
    const [px] = at(e)
    const [a, b] = s.window
    const t = a + (px / canvas.clientWidth) * (b - a)
    const f = (e.deltaY || e.deltaX) > 0 ? 1.25 : 0.8
    setWindow(s, t - (t - a) * f, t + (b - t) * f)
  }
  canvas.onpointerdown = (e) => {
    if (e.pointerType === "touch" && !e.isPrimary) return
    s.drag = [at(e)[0], at(e)[0]]
    canvas.setPointerCapture(e.pointerId)
  }
  canvas.onpointermove = (e) => {
    const [px, py] = at(e)
    if (s.drag) {
      s.drag[1] = px
      requestAnimationFrame(() => draw(s))
      return
    }
    const found = hit(s, px, py)
    tip.style.display = found ? "block" : "none"
    if (!found) return
    tip.textContent = describe(s, found)
    const left = Math.min(px + 14, canvas.clientWidth - tip.offsetWidth - 4)
    tip.style.left = `${Math.max(0, left)}px`
    tip.style.top = `${canvas.offsetTop + py + 16}px`
  }
  canvas.onpointerleave = () => { tip.style.display = "none" }
  canvas.onpointercancel = () => { s.drag = null }
  canvas.onpointerup = (e) => {
    if (!s.drag) return
    const [p, q] = [Math.min(...s.drag), Math.max(...s.drag)]
    s.drag = null
    const [a, b] = s.window
    const at_ = (v) => a + (v / canvas.clientWidth) * (b - a)
    if (q - p > 4) return setWindow(s, at_(p), at_(q))
    const found = hit(s, ...at(e))
    s.selected = found && "span" in found ? s.spans.name[found.span] : null
    const i = found && "span" in found ? found.span : -1
    const { start, launch, lane, count } = s.spans
    s.arrow = i >= 0 && count[i] === 1 && launch[i] === launch[i]
      ? { launch: start[i] - launch[i], start: start[i], lane: lane[i] } : null
    s.send("selected", s.selected)
    draw(s)
  }
}

export default function (component) {
  const { parentElement, data, setStateValue } = component
  const wrap = parentElement.querySelector(".wrap")
  let s = STATES.get(wrap)
  const fresh = !s
  if (fresh) {
    s = { wrap, canvas: wrap.querySelector("canvas"), tip: wrap.querySelector(".tip"),
          note: wrap.querySelector(".note"), drag: null, selected: null, arrow: null }
    STATES.set(wrap, s)
    s.observer = new ResizeObserver(() => draw(s))
  }
  s.send = setStateValue
  s.meta = data.meta
  s.spans = columns(data.spans, ["start", "dur", "lane", "name", "count", "path", "launch", "fill"])
  s.ranges = columns(data.ranges, ["start", "dur", "row"])
  if (fresh) {
    s.window = data.meta.asked ?? [0, data.meta.extent]
    listen(s)
    s.observer.observe(s.canvas)
  }
  s.canvas.setAttribute("aria-label",
    `Timeline of ${s.meta.total} GPU operations in ${s.meta.lanes.length} lanes over ${text(s.meta.extent)}`)
  note(s)
  draw(s)
  return () => { s.observer.disconnect(); STATES.delete(wrap) }
}
