// Works in sandboxes that sleep in between, as E2B's documentation has it, and says line by line what came of it.
//
// The argument is the work. Every SDK of every generation is to say the same.

import { randomBytes } from 'node:crypto'
import http from 'node:http'

import { CommandExitError, asleepAndBack, attempt, create, load, say, state, until } from './shared.mjs'

const { env } = process

// What `fetch` cannot: a Host that is not where it goes.
const get = (url, host) =>
  new Promise((resolve, reject) => {
    const request = http.get(url, { headers: { Host: host } }, async (answer) => {
      resolve([answer.statusCode, (await answer.toArray()).join('')])
    })
    request.on('error', reject)
  })

const wakes = async (sandbox) => {
  const api = env.E2B_API_URL ?? `https://api.${env.E2B_DOMAIN}`
  const url = `${api}/playground/sandboxes/${sandbox.sandboxId}`
  return (await (await fetch(url, { headers: { 'X-API-KEY': env.E2B_API_KEY } })).json()).wakes
}

const ended = async (call) => {
  let result
  try {
    result = await call()
  } catch (error) {
    if (!(error instanceof CommandExitError)) throw error
    result = error
  }
  return [result.exitCode, result.stdout.trim(), result.stderr.trim()]
}

// What has come, and a wait for more of it.
const collector = () => {
  const decoder = new TextDecoder()
  const this_ = {
    text: '',
    take: (data) => void (this_.text += typeof data === 'string' ? data : decoder.decode(data, { stream: true })),
    async line() {
      await until(() => this_.text.includes('\n'))
      return this_.text.split('\n')[0].trim()
    },
    async has(text) {
      await until(() => this_.text.includes(text))
      return true
    },
  }
  return this_
}

const background = async (sandbox, script, options) => {
  const output = collector()
  const run = { background: true, timeoutMs: 0, onStdout: output.take, ...options }
  return [await sandbox.commands.run(script, run), output]
}
const again = async (sandbox, pid) => {
  const output = collector()
  return [await sandbox.commands.connect(pid, { onStdout: output.take }), output]
}

const commands = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  const run = (script, options) => ended(() => sandbox.commands.run(script, options))
  say('run', ...(await run('echo $A; pwd >&2', { envs: { A: 'out' }, cwd: '/tmp' })))
  say('failed', ...(await run('echo out; echo err >&2; exit 3')))
  const [sleeper] = await background(sandbox, 'sleep 600')
  const dead = [await sleeper.kill(), (await ended(() => sleeper.wait()))[0]]
  say('kill', ...dead, await sandbox.commands.kill(sleeper.pid))

  const script = 'n=0; while read line; do n=$((n + 1)); echo $n $line; done'
  let [counter, output] = await background(sandbox, script, { stdin: true })
  await sandbox.commands.sendStdin(counter.pid, 'one\n')
  say('counter', await output.line())
  await counter.disconnect()
  await sandbox.pause()
  say('woken', ...(await run('echo hello')), await wakes(sandbox))
  await sandbox.pause()
  const pids = (await sandbox.commands.list()).map((one) => one.pid)
  say('listed', pids.length === 1 && pids[0] === counter.pid, await wakes(sandbox))
  ;[counter, output] = await again(sandbox, counter.pid)
  await sandbox.commands.sendStdin(counter.pid, 'two\n')
  say('counter', await output.line())
  say('kill', await counter.kill())
  await until(async () => (await sandbox.commands.list()).length === 0)
  await sandbox.kill()
  // Not running to some, not found to others.
  say('gone', String(await attempt(() => run('true'))).startsWith('error: not '))
}

const cut = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  let [handle, output] = await background(sandbox, 'while sleep 0.1; do echo tick; done')
  await output.line()
  const waits = attempt(() => handle.wait())
  await sandbox.pause()
  say('cut', await waits, await state(sandbox), await wakes(sandbox))
  ;[handle, output] = await again(sandbox, handle.pid)
  say('again', await output.line(), await handle.kill(), await wakes(sandbox))
  await sandbox.kill()
}

const crowd = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  await sandbox.pause()
  const all = Array.from({ length: 20 }, (_, number) => sandbox.commands.run(`echo ${number}`))
  say('crowd', ...(await Promise.all(all)).map((result) => result.stdout.trim()))
  say('wakes', await wakes(sandbox))
  await sandbox.kill()
}

const port = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  await sandbox.files.write('site/index.html', 'served')
  const [server] = await background(sandbox, 'python3 -m http.server 8000 --directory site --bind $SANDBOX_IP')
  await server.disconnect()
  const host = sandbox.getHost(8000)
  const page = async () => {
    if (env.E2B_SANDBOX_URL) return await get(env.E2B_SANDBOX_URL, host)
    const answer = await fetch(`https://${host}`)
    return [answer.status, await answer.text()]
  }
  await until(async () => (await page())[0] === 200)
  await sandbox.pause()
  say('port', ...(await page()), await state(sandbox), await wakes(sandbox))
  await sandbox.kill()
}

const large = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  const data = Buffer.concat(Array(100).fill(randomBytes(1 << 20)))
  await sandbox.pause()
  await sandbox.files.write('large', new Blob([data]))
  say('up', (await sandbox.files.getInfo('large')).size, await wakes(sandbox))
  await sandbox.pause()
  say('down', data.equals(await sandbox.files.read('large', { format: 'bytes' })), await wakes(sandbox))
  await sandbox.kill()
}

const terminal = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  let output = collector()
  const size = { rows: 24, cols: 80 }
  let session = await sandbox.pty.create({ ...size, envs: { PS1: '' }, timeoutMs: 0, onData: output.take })
  const type = (text) => sandbox.pty.sendInput(session.pid, new TextEncoder().encode(text))
  await type('x=40; stty size\n')
  say('terminal', await output.has('24 80'))
  await sandbox.pty.resize(session.pid, { rows: 30, cols: 100 })
  await type('stty size\n')
  say('resized', await output.has('30 100'))
  await session.disconnect()
  await sandbox.pause()
  output = collector()
  session = await sandbox.pty.connect(session.pid, { onData: output.take })
  await type('echo $((x + 2)) is it\n')
  say('woken', await output.has('42 is it'), await wakes(sandbox))
  await type('exit 5\n')
  say('exit', (await ended(() => session.wait()))[0])
  await sandbox.kill()
}

const watch = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  await sandbox.files.makeDir('watched')
  const events = []
  let watcher, gone
  const start = async () => {
    const options = { timeoutMs: 0, onExit: () => void (gone = true) }
    watcher = await sandbox.files.watchDir('watched', (event) => void events.push(event), options)
  }
  const seen = (name) => events.some((event) => event.name === name && event.type === 'create')
  await start()
  await sandbox.files.write('watched/a.txt', 'a')
  await until(() => seen('a.txt'))
  say('watched', 'a.txt')
  await sandbox.pause()
  await until(() => gone)
  say('asleep', await state(sandbox), await wakes(sandbox))
  // The pause was the end of it; it wakes to be watched again.
  await start()
  await sandbox.files.write('watched/b.txt', 'b')
  await until(() => seen('b.txt'))
  await watcher.stop()
  await sandbox.kill()
}

const signed = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  const headers = { 'Content-Type': 'application/octet-stream' }
  const status = async (url, body) => (await fetch(url, body && { method: 'POST', headers, body })).status
  const up = await sandbox.uploadUrl('a.txt', { useSignatureExpiration: 60 })
  say('up', await status(up, 'signed'), await sandbox.files.read('a.txt'))
  const down = await sandbox.downloadUrl('a.txt')
  const answer = await fetch(down)
  say('down', answer.status, await answer.text())
  say('forged', await status(down.replace('a.txt', 'b.txt')))
  await sandbox.pause()
  say('asleep', await status(down), await status(up, 'other'), await state(sandbox), await wakes(sandbox))
  say('kept', await sandbox.files.read('a.txt'), await status(down))
  await sandbox.kill()
}

const code = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack }, load('@e2b/code-interpreter').Sandbox)
  await sandbox.runCode('x = 1')
  await sandbox.pause()
  say('x', (await sandbox.runCode('x += 1; x')).text, await wakes(sandbox))
  const waits = "print('begun')\nwhile not os.path.exists('go'): time.sleep(0.01)\nx += 1"
  let runs
  const begun = new Promise((begun) => {
    runs = attempt(() => sandbox.runCode(`import os, time; ${waits}`, { onStdout: begun }))
  })
  await Promise.race([begun, runs])
  await sandbox.pause()
  say('cut', await runs, await state(sandbox), await wakes(sandbox))
  await sandbox.files.write('go', '')
  say('on', (await sandbox.runCode('x')).text, await wakes(sandbox))
  const execution = await sandbox.runCode("print('out'); 1 / 0")
  say('error', execution.error.name, execution.logs.stdout[0].trim())
  await sandbox.kill()
}

// In JavaScript every watch is a stream.
const all = { commands, cut, crowd, port, large, terminal, watch, stream: watch, signed, code }
for (const name of process.argv.slice(2)) await all[name]()
process.exit(0)
