// The page's data. It stands in the page compressed, and texts are unpacked one by one when somebody looks at them.

const LIVE = document.documentElement.dataset.live === "live"
const texts = new Map()
let packedTexts = null

async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))
    return new Response(stream).text()
}

function fromBase64(text) {
    const letters = atob(text)
    const bytes = new Uint8Array(letters.length)
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i)
    return bytes
}

async function readRuns() {
    const packed = document.getElementById("data").textContent
    return JSON.parse(await inflate(fromBase64(packed))).runs
}

/** Keys (`0/chunk-3`) of the texts that the page holds. */
function heldTexts() {
    packedTexts ??= JSON.parse(document.getElementById("texts").textContent)
    return packedTexts
}

/** A chunk's text, or a tool's output, by `run/key`; null if the page doesn't hold it. */
async function readText(key) {
    if (texts.has(key)) return texts.get(key)
    let text = null
    if (LIVE) {
        const reply = await fetch("text?key=" + encodeURIComponent(key)).catch(() => null) // the server is gone
        if (reply?.ok) text = await inflate(await reply.arrayBuffer())
    } else if (Object.hasOwn(heldTexts(), key)) {
        text = await inflate(fromBase64(heldTexts()[key]))
    }
    if (text !== null) texts.set(key, text)
    return text
}

/** Asks the server for news every second; calls `show(runs)` with them, and `end()` when the server is gone. */
async function follow(show, end) {
    let version = ""
    for (;;) {
        await new Promise((resolve) => setTimeout(resolve, 1000))
        if (document.hidden) continue
        try {
            const reply = await fetch("news?version=" + version)
            if (reply.status === 204) continue
            if (!reply.ok) throw new Error("the run is gone")
            const bytes = new Uint8Array(await reply.arrayBuffer())
            const line = bytes.indexOf(10)
            version = new TextDecoder().decode(bytes.subarray(0, line))
            show(JSON.parse(await inflate(bytes.subarray(line + 1))).runs)
        } catch {
            return end()
        }
    }
}
