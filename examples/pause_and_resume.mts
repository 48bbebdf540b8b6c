// A sandbox that sleeps when its time is up, and goes on when somebody asks it something.
//
//   npm install e2b tsx
//   npx tsx examples/pause_and_resume.mts    # with the environment that `client-proxy dev` says is to be exported
//
// From Node 22.18 on `node examples/pause_and_resume.mts` does as well.

import { Sandbox } from 'e2b'

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds))

// After two seconds it is paused instead of killed, and from then on whatever is asked of it wakes it.
const sandbox: Sandbox = await Sandbox.create({
  timeoutMs: 2_000,
  lifecycle: { onTimeout: 'pause', autoResume: true },
})
await sandbox.files.write('notes.txt', 'remember me')
console.log(`${sandbox.sandboxId} works`)

// The control API tells of it without waking it.
while ((await sandbox.getInfo()).state !== 'paused') await sleep(100)
console.log('it sleeps')

// This is held until the sandbox runs again.
console.log('it says:', await sandbox.files.read('notes.txt'))
if ((await sandbox.getInfo()).state !== 'running') throw new Error('it should run')

// Its owner can have it sleep at once, and wake it with a time of its own.
await sandbox.pause()
const same: Sandbox = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
console.log('it still says:', await same.files.read('notes.txt'))

// A command wakes it as well, and what it was running goes on where it was.
const script = 'until [ -e go.txt ]; do sleep 0.1; done; echo went on'
let waiting = await same.commands.run(script, { background: true })
await waiting.disconnect()
await same.pause()
console.log('it runs:', (await same.commands.run('cat notes.txt')).stdout)
waiting = await same.commands.connect(waiting.pid)
await same.files.write('go.txt', '')
if ((await waiting.wait()).stdout !== 'went on\n') throw new Error('it should have gone on')

await same.kill()
if (await same.isRunning()) throw new Error('it should be gone')
console.log('and is gone')
