// Files through Node's fs: node files-node.js TASKS FILES DIR
// Each task opens, writes, stats, reads and closes one file after the other. Prints requests a
// second.
'use strict';
const fs = require('node:fs/promises');
const path = require('node:path');

const [tasks, files] = process.argv.slice(2, 4).map(Number);
const content = Buffer.alloc(4096, 7);

async function task(dir, count) {
  await fs.mkdir(dir);
  for (let i = 0; i < count; i++) {
    const name = path.join(dir, String(i % 16));
    const to = await fs.open(name, 'w');
    await to.write(content, 0, content.length, 0);
    await to.close();
    const from = await fs.open(name, 'r');
    const { size } = await from.stat();
    const { bytesRead } = await from.read(Buffer.alloc(4096), 0, 4096, 0);
    await from.close();
    if (size !== 4096 || bytesRead !== 4096) throw new Error(`${name}: ${size}, ${bytesRead}`);
  }
}

(async () => {
  const begin = process.hrtime.bigint();
  const each = Math.floor(files / tasks);
  const dir = process.argv[4];
  await Promise.all(Array.from({ length: tasks }, (_, i) => task(path.join(dir, `task${i}`), each)));
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  console.log((each * tasks * 7) / seconds);
})();
