// What the walks have in common: E2B's SDK, and one word for what it raises, in whichever generation.

import { appendFileSync } from 'node:fs'
import { createRequire } from 'node:module'

// Modules are looked for where it is started, not beside this file.
export const load = createRequire(`${process.cwd()}/`)
const { NotFoundError, RateLimitError, SandboxError, TimeoutError } = load('e2b')
export const { CommandExitError, Sandbox } = load('e2b')

export const asleepAndBack = { onTimeout: 'pause', autoResume: true }

export const create = async (options, kind = Sandbox) => {
  const sandbox = await kind.create(options)
  if (process.env.HOSTS) {
    // Where no resolver knows the domain.
    const domain = process.env.E2B_DOMAIN.split(':')[0]
    const names = [49983, 49999, 8000].map((port) => `${port}-${sandbox.sandboxId}.${domain}`)
    appendFileSync(process.env.HOSTS, `127.0.0.1 ${names.join(' ')}\n`)
  }
  return sandbox
}

export const kind = (error) => {
  const kinds = [
    [RateLimitError, 'rate limit'],
    [TimeoutError, 'not running'],
    [NotFoundError, 'not found'],
    [SandboxError, 'sandbox'],
  ]
  return kinds.find(([base]) => error instanceof base)?.[1] ?? error?.constructor?.name
}

export const attempt = async (call) => {
  try {
    return await call()
  } catch (error) {
    return `error: ${kind(error)}`
  }
}

// Whether what it raises says so.
export const tells = async (call, words) => {
  try {
    await call()
  } catch (error) {
    return error.message.includes(words)
  }
  return 'nothing raised'
}

export const state = async (sandbox) => (await sandbox.getInfo()).state
export const lifetime = async (sandbox) => {
  const info = await sandbox.getInfo()
  return Math.round((info.endAt - info.startedAt) / 1000)
}
export const until = async (holds) => {
  const deadline = Date.now() + 20_000
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error('not in time')
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
export const say = (...words) => process.stdout.write(`${words.join(' ')}\n`)
