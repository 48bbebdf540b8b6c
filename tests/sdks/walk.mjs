// Walks through what E2B's documentation says of pause and resume, and says line by line what came of it.
//
// The argument is the walk. Every SDK of every generation is to say the same.

import { randomUUID } from 'node:crypto'

import { Sandbox, asleepAndBack, attempt, create, lifetime, say, state, tells, until } from './shared.mjs'

const read = (sandbox) => attempt(() => sandbox.files.read('a.txt'))

const life = async () => {
  const mark = randomUUID()
  const sandbox = await create({ timeoutMs: 60_000, lifecycle: asleepAndBack, metadata: { mark: `${mark} & more` } })
  await sandbox.files.write('a.txt', 'kept')
  const info = await sandbox.getInfo()
  say('created', info.state, info.lifecycle.onTimeout, info.lifecycle.autoResume, await lifetime(sandbox))
  for (const cycle of [1, 2, 3]) {
    say('cycle', cycle, 'pause', await sandbox.pause(), await sandbox.pause(), await state(sandbox))
    say('cycle', cycle, 'read', await read(sandbox), await state(sandbox), await lifetime(sandbox))
    await sandbox.setTimeout(20_000)
  }
  const { lifecycle } = await sandbox.getInfo()
  say('policy', lifecycle.onTimeout, lifecycle.autoResume)
  await sandbox.pause()
  say('is_running', await sandbox.isRunning(), await state(sandbox))
  await sandbox.pause()
  const connected = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 77_000 })
  say('connect', await read(connected), await lifetime(sandbox))
  const page = Sandbox.list({ query: { metadata: { mark: `${mark} & more` }, state: ['running'] } })
  const listed = (await page.nextItems()).map((one) => one.sandboxId)
  say('listed', listed.length === 1 && listed[0] === sandbox.sandboxId)
  say('metrics', (await sandbox.getMetrics()).length)
  await sandbox.pause({ keepMemory: false })
  say('files only', await sandbox.isRunning(), await read(sandbox), await state(sandbox))
  say('connect', await read(await Sandbox.connect(sandbox.sandboxId)), await lifetime(sandbox))
  say('kill', await sandbox.kill(), await Sandbox.kill(sandbox.sandboxId), await sandbox.isRunning())
  say('gone', await read(sandbox), await attempt(() => sandbox.getInfo()), await attempt(() => sandbox.connect()))

  const slept = await create({ timeoutMs: 2_000, lifecycle: asleepAndBack })
  await slept.files.write('a.txt', 'kept')
  await until(async () => (await state(slept)) === 'paused')
  say('by timeout', await state(slept), await read(slept), await state(slept), await lifetime(slept))
  await slept.kill()

  const longer = await create({ timeoutMs: 600_000, lifecycle: asleepAndBack })
  await longer.pause()
  say('longer', await longer.files.exists('a.txt'), await lifetime(longer))
  await longer.kill()

  const still = await create({ lifecycle: { onTimeout: 'pause', autoResume: false } })
  await still.files.write('a.txt', 'kept')
  await still.pause()
  say('auto_resume off', await still.isRunning(), await read(still), await state(still))
  say('connect', await read(await still.connect()), await state(still))
  await still.kill()

  const killed = await create({ timeoutMs: 1_000 })
  await until(async () => (await attempt(() => state(killed))) === 'error: not found')
  say('by default', 'killed')
}

const deny = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  await sandbox.files.write('a.txt', 'kept')
  await sandbox.pause()
  say('denied', await read(sandbox), await state(sandbox))
  const words = 'account is not allow-listed'
  say('why', await tells(() => sandbox.files.read('a.txt'), words))
  say('connect', await read(await sandbox.connect()))
}

const limit = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  say('create', await attempt(() => create()))
  await sandbox.pause()
  const other = await create()
  say('wake', await read(sandbox), await attempt(() => sandbox.connect()))
  await other.kill()
  say('connect', await state(await sandbox.connect()))
  await sandbox.kill()
}

const retention = async () => {
  const sandbox = await create({ lifecycle: asleepAndBack })
  await sandbox.pause()
  await until(async () => (await attempt(() => state(sandbox))) === 'error: not found')
  say('expired', await read(sandbox), await attempt(() => sandbox.connect()))
  say('why', await tells(() => sandbox.files.read('a.txt'), 'its snapshot has expired'))
  // Whatever the API says, these are the SDK's words.
  say('connect', await tells(() => sandbox.connect(), 'not found'))
}

await { life, deny, limit, retention }[process.argv[2]]()
process.exit(0)
